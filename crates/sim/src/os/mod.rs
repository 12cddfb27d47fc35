//! The operating system of the simulated machine: who runs where, and who waits for whom.

mod scheduler;
mod sync;

pub use scheduler::{Scheduler, SchedulerModel};
pub(crate) use sync::Sync;
