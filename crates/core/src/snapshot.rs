//! All that a policy may know.

use crate::{
    IrqLoad, Metrics, Outcome, PuSet, SettingState, Sharing, ThreadId, ThreadInfo, Thresholds,
    Topology, UnitDomains,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Why perch will not place a thread, whatever a plan says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unmanaged {
    /// It was placed before perch first saw it: its mask is not the default.
    PlacedBefore,
    /// Another process changed its mask after perch had set one.
    ChangedByOthers,
    /// Its mask is one that perch has set on other threads of its process. It may have inherited the mask or may have
    /// been placed, and perch has no record of which.
    Unknown,
    /// The kernel refuses (another user's thread, a kernel thread, SCHED_DEADLINE).
    NotPermitted,
}

/// One live thread in one period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadState {
    /// Its id, its name and its process.
    pub info: ThreadInfo,
    /// Number of the target to which it belongs; it distinguishes programs.
    #[serde(default, skip_serializing_if = "is_first")]
    pub target: u32,
    /// PUs on which it may be put: usable, and in the mask that it had before perch touched it.
    pub allowed: PuSet,
    /// The PUs to which perch has bound it; `None` if it has not.
    pub bound: Option<PuSet>,
    /// The reason why it is unmanaged; `None` if it may be bound.
    #[serde(rename = "hands_off")]
    pub unmanaged: Option<Unmanaged>,
    /// The PU on which it was last seen.
    pub last_pu: Option<u32>,
    /// Share of the period on a PU (utilization), 0 to 1.
    pub activity: f64,
    /// Share of the period runnable but without a PU (run delay), 0 to 1.
    pub waiting: f64,
    /// What it did. A metric that is older than this period (kept because the thread had no time for a new one)
    /// has a lower confidence.
    pub metrics: Metrics,
}

impl ThreadState {
    /// Share of the period in which the thread wanted a PU: it ran or waited for one.
    pub fn wanted(&self) -> f64 {
        self.activity + self.waiting
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_first(target: &u32) -> bool {
    *target == 0
}

/// What a PU did in one period, for all threads that ran on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PuLoad {
    /// The operating system's number.
    pub pu: u32,
    /// Share of the period in which it was not idle, 0 to 1, interrupts included.
    pub busy: f64,
    /// Share of the period spent on interrupts, 0 to 1.
    pub interrupts: f64,
    /// What it did while it was busy, in the units of threads' metrics; empty where PUs are not counted.
    pub metrics: Metrics,
}

/// One period as a policy sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The period's number, from 0.
    pub period: u64,
    /// Its end, in nanoseconds since the run began.
    pub at: u64,
    /// Its length in nanoseconds.
    pub interval: u64,
    /// The topology in force, with the state of each PU.
    pub topology: Arc<Topology>,
    /// PUs that share execution units, by class, as the profile says.
    pub units: Arc<UnitDomains>,
    /// From which values of metrics on a thread counts as a heavy user on this processor, as the profile says.
    pub thresholds: Thresholds,
    /// Live threads, by rising id.
    pub threads: Vec<ThreadState>,
    /// The PUs, by rising number; empty if they were not observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pus: Vec<PuLoad>,
    /// Interrupts of devices, by rising number; empty if they were not observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irqs: Vec<IrqLoad>,
    /// Settings of the machine, in order; empty if they were not observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingState>,
    /// Threads that share memory; empty if that was not observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sharing: Vec<Sharing>,
    /// Energy that all processor packages used in the period, whatever ran on them, in joules; `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<f64>,
    /// Outcomes of the changes that the last plan led to, by thread.
    pub last_outcomes: Vec<(ThreadId, Outcome)>,
}

impl Snapshot {
    /// The state of a thread.
    pub fn thread(&self, id: ThreadId) -> Option<&ThreadState> {
        self.threads
            .binary_search_by_key(&id, |thread| thread.info.id)
            .ok()
            .map(|at| &self.threads[at])
    }
}
