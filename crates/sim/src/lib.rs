//! The simulated machine: cores with hardware contexts, units, caches, memory, threads and the operating system's
//! scheduler, behind the same trait as the live machine.
//!
//! [`model::MachineModel`] and [`workload::WorkloadModel`] are plain data, read from files by [`config`]. A
//! [`system::System`] plays them cycle by cycle; [`machine::SimMachine`] is that behind [`perch_core::Machine`].

pub mod config;
pub mod core;
pub mod counters;
mod cycle;
pub mod derived;
pub mod detail;
pub mod energy;
pub mod events;
pub mod interval;
pub mod machine;
pub mod memory;
pub mod model;
pub mod os;
mod processor;
mod reuse_times;
mod sharing;
pub mod stream;
pub mod system;
pub mod thread;
pub mod timeline;
pub mod topology;
pub mod units;
pub mod ways;
pub mod workload;

pub use sharing::Shared;
