//! The operating system of the simulated machine: which thread runs where, and what threads wait for.

mod devices;
mod interrupts;
mod requests;
mod scheduler;
mod sync;

pub use devices::DeviceStats;
pub(crate) use devices::Devices;
pub(crate) use interrupts::Interrupts;
pub(crate) use requests::{Queue, Taken};
pub use requests::{RequestStats, Served};
pub use scheduler::{Scheduler, SchedulerModel};
pub(crate) use sync::Sync;
