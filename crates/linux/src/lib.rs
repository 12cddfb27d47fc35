//! The live Linux machine: topology through hwloc, threads through `/proc` and task records, counters and sampled
//! instructions through perf events, placement through affinity masks.
//!
//! [`LinuxMachine`] ties it together behind [`perch_core::Machine`].
#![warn(clippy::undocumented_unsafe_blocks)]

pub mod affinity;
mod capability;
pub mod irq;
pub mod launch;
pub mod limits;
pub mod load;
pub mod lock;
pub mod machine;
pub mod perf;
pub mod plausibility;
pub mod proc;
pub mod sampling;
pub mod signals;
pub mod threads;
pub mod topology;

pub use affinity::LinuxAffinity;
pub use machine::LinuxMachine;
