//! The live Linux machine: topology through hwloc, threads through `/proc` and task records, counters and sampled
//! instructions through perf events, placement through affinity masks.
//!
//! [`LiveMachine`] ties it together behind [`perch_core::Machine`]; [`LinuxMachine`] adds what a command needs: signals, a
//! launched program, the end.
#![warn(clippy::undocumented_unsafe_blocks)]

pub mod affinity;
mod capability;
pub mod cgroup;
pub mod energy;
mod helpers;
pub mod irq;
pub mod launch;
pub mod limits;
pub mod load;
pub mod lock;
pub mod machine;
pub mod modules;
pub mod noise;
pub mod perf;
pub mod plausibility;
pub mod proc;
pub mod resctrl;
pub mod sampling;
pub mod signals;
mod span;
pub mod stdout;
mod supervise;
pub mod tasks;
pub mod taskstats;
pub mod threads;
pub mod topology;
mod visible;

pub use affinity::LinuxAffinity;
pub use machine::LiveMachine;
pub use supervise::LinuxMachine;
