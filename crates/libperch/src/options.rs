//! What a program asks for, and the values that it gets.

use perch_stat::Space;
use std::{collections::BTreeMap, time::Duration};

/// What is counted, and what becomes of it. What the environment says goes before this.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Event sets, as for `perch stat -e`: counted one after the other. None: the profile's, or software events where there
    /// are no hardware counters.
    pub events: Vec<String>,
    /// Metrics, as for `perch stat -m`: `ipc=instructions/cycles`, or a name of the profile's.
    pub metrics: Vec<String>,
    /// Virtual counters, as for `perch stat -V`: `run_delay`, `context_switches`, `cpu_migrations`.
    pub virtuals: Vec<String>,
    /// Where events are counted.
    pub space: Space,
    /// Where the report goes when the program exits: `stderr`, or a file, JSON if it ends in `.json`; `%p` in its name is the
    /// PID. None: nowhere.
    pub report: Option<String>,
    /// Regions are sampled at this interval.
    pub interval: Option<Duration>,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing is counted.
    #[error("nothing is counted: init was not called, or finish was")]
    Off,
    /// Counting has begun already.
    #[error("counting has begun already; its events can be changed after finish")]
    On,
    /// The thread is not in this region.
    #[error("region `{0}` was not started by this thread")]
    NotStarted(String),
    /// No thread was in this region.
    #[error("no region `{0}` was started")]
    NoSuchRegion(String),
    /// Nothing of this name is counted.
    #[error("no event or metric `{0}` is counted in regions")]
    NoSuchCount(String),
    /// More regions, or deeper ones, than are kept.
    #[error("{0}")]
    TooMany(String),
    /// Called by a signal handler, or while the thread exits.
    #[error("regions cannot be used in signal handlers, or while a thread exits")]
    Busy,
    /// A setting that means nothing here.
    #[error("{0}")]
    Setting(String),
    /// A report that could not be written.
    #[error("{0}")]
    Report(String),
}

/// Whose values are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The calling thread's.
    Thread,
    /// The sum over all threads of the process.
    Process,
}

/// What was counted in a region, what it has done since it was last started included.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Values {
    /// How often it was stopped.
    pub calls: u64,
    /// Threads that were in it.
    pub threads: u32,
    /// Threads that are in it now.
    pub open: u32,
    /// Seconds from starts to stops, of the thread that was in it longest.
    pub wall_seconds: f64,
    /// Seconds on a PU.
    pub cpu_seconds: f64,
    /// Those of them in which events were counted.
    pub counted_seconds: f64,
    /// Counts by the event's name.
    pub counts: BTreeMap<String, CountValue>,
    /// Metrics by name.
    pub metrics: BTreeMap<String, f64>,
}

/// An event's count.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CountValue {
    /// Occurrences, scaled up to all of `counted_seconds`; `None` if it was not counted, or cannot be true.
    pub value: Option<f64>,
    /// Occurrences while it was counted.
    pub counted: f64,
    /// The share of `counted_seconds` in which it was counted, 0 to 1.
    pub share: f64,
    /// Why the count cannot be true.
    pub doubt: Option<String>,
}
