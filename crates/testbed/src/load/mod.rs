//! A workload of known truth: threads that only compute in floating point or only in integers, change
//! role at known times, and start others in every way there is. Each says on standard output what it
//! is and does, one JSON line ([`Line`]) at its start and at each change of role.

mod options;
mod spawn;
mod threads;
mod work;

use serde::{Deserialize, Serialize};

pub use options::{Mix, Options, Order, Rates, Role, Spawn, SpawnKind};
pub use threads::{run, start_time};

/// What a thread of the workload says of itself.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Line {
    /// Its identity in the kernel.
    pub tid: i32,
    /// Its process.
    pub pid: i32,
    /// When it started, in clock ticks since boot (field 22 of its `stat`).
    pub start_time: u64,
    /// Its name, which tells nothing about the role.
    pub name: String,
    /// What it does from now on.
    pub role: Role,
    /// Now, in seconds since boot.
    pub at: f64,
    /// How it came to be; a change of role repeats it.
    pub how: SpawnKind,
    /// The thread that started it; 0 for the workload's first threads.
    pub parent: i32,
}
