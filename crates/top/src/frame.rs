//! One look at a machine, as it is shown.

use perch_core::{MetricName, Outcome, PuSet, ThreadId, Topology, metric::names};
use std::sync::Arc;

/// From this share of a PU on, 0 to 1, a thread counts as one that runs.
pub const RUNS: f32 = 0.005;

/// A machine over one interval. All names and texts are printable.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// When the interval ended, in nanoseconds since the source began.
    pub at: u64,
    /// Its length in nanoseconds.
    pub interval: u64,
    /// PUs, cores, caches, nodes and packages.
    pub topology: Arc<Topology>,
    /// The load of PUs, by rising number. Empty if the source does not observe PUs.
    pub pus: Vec<PuLoad>,
    /// The threads, by rising id.
    pub threads: Vec<Thread>,
    /// Metrics of the threads.
    pub metrics: Vec<Column>,
    /// What the policy changed in the interval.
    pub moves: Vec<Moved>,
    /// What perch has to say about the interval.
    pub remarks: Vec<String>,
    /// Threads that came and went within the interval and that were not seen.
    pub unseen: u64,
    /// Time that the perch that observes spent on a PU, as a share of one PU.
    pub own: f32,
}

/// One PU over the interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PuLoad {
    /// The operating system's number.
    pub pu: u32,
    /// Share of the time in which it was not idle, 0 to 1, interrupts included.
    pub busy: f32,
    /// Share of the time spent on interrupts, 0 to 1.
    pub interrupts: f32,
}

/// One thread over the interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Thread {
    /// The thread, by TID and start time.
    pub id: ThreadId,
    /// Its process.
    pub pid: i32,
    /// Its name.
    pub name: Arc<str>,
    /// Its process's name.
    pub process: Arc<str>,
    /// Share of the interval on a PU, 0 to 1.
    pub cpu: f32,
    /// Share of the interval runnable but without a PU, 0 to 1.
    pub waiting: f32,
    /// The PU on which it was last seen.
    pub pu: Option<u32>,
    /// Context switches a second.
    pub switches: Option<f32>,
    /// Moves from one PU to another a second.
    pub migrations: Option<f32>,
    /// The PUs to which perch has bound it.
    pub bound: Option<Arc<PuSet>>,
}

/// One metric of all threads.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The metric's name, such as `ipc`.
    pub name: MetricName,
    /// Its value for each of [`Frame::threads`]; NaN where it is not known.
    pub values: Vec<f32>,
}

/// A change of a thread's placement by the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    /// The thread.
    pub id: ThreadId,
    /// Its name.
    pub name: Arc<str>,
    /// The PUs to which it was bound before, if it was.
    pub from: Option<PuSet>,
    /// The PUs to which it is bound now; `None` if it was released.
    pub to: Option<PuSet>,
    /// The policy's reason.
    pub reason: String,
    /// The numbers behind the reason.
    pub numbers: Vec<(String, f64)>,
    /// What became of the change.
    pub outcome: Outcome,
}

/// How the value of a metric is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A share, 0 to 1, written in percent.
    Share,
    /// Bytes.
    Bytes,
    /// A plain number.
    Number,
}

/// The unit of a metric of this name.
pub fn unit(metric: &str) -> Unit {
    match metric {
        names::FOOTPRINT | "llc_occupancy" => Unit::Bytes,
        names::MEMORY_INTENSITY | names::SMT_CONTENTION => Unit::Share,
        name if name.ends_with("_share") => Unit::Share,
        _ => Unit::Number,
    }
}

impl Frame {
    /// A frame without threads.
    pub fn empty(topology: Arc<Topology>) -> Self {
        Self {
            at: 0,
            interval: 0,
            topology,
            pus: Vec::new(),
            threads: Vec::new(),
            metrics: Vec::new(),
            moves: Vec::new(),
            remarks: Vec::new(),
            unseen: 0,
            own: 0.0,
        }
    }

    /// The place of a thread in [`Frame::threads`].
    pub fn find(&self, id: ThreadId) -> Option<usize> {
        self.threads
            .binary_search_by_key(&id, |thread| thread.id)
            .ok()
    }

    /// A metric of a thread, if it is known.
    pub fn metric(&self, name: &str, thread: usize) -> Option<f32> {
        let column = self.metrics.iter().find(|column| *column.name == *name)?;
        let value = column.values.get(thread).copied();
        value.filter(|value| !value.is_nan())
    }

    /// How many threads run, at least for [`RUNS`] of the time.
    pub fn running(&self) -> usize {
        self.threads.iter().filter(|of| of.cpu >= RUNS).count()
    }

    /// Share of all online PUs' time in which they were not idle, 0 to 1. Where PUs are not observed, the share that the
    /// shown threads used.
    pub fn busy(&self) -> f32 {
        let pus = match self.pus.len() {
            0 => self.topology.online().len(),
            pus => pus,
        };
        let busy: f32 = match self.pus.is_empty() {
            true => self.threads.iter().map(|thread| thread.cpu).sum(),
            false => self.pus.iter().map(|pu| pu.busy).sum(),
        };
        (busy / pus.max(1) as f32).clamp(0.0, 1.0)
    }

    /// Sums over the threads of a process: (threads, CPU as a share of one PU, waiting).
    pub fn process(&self, pid: i32) -> (usize, f32, f32) {
        let of = self.threads.iter().filter(|thread| thread.pid == pid);
        of.fold((0, 0.0, 0.0), |(count, cpu, waiting), thread| {
            (count + 1, cpu + thread.cpu, waiting + thread.waiting)
        })
    }
}
