//! What a machine saw in one interval.

use crate::{
    Count, IrqSample, Metrics, NiceSample, ProcessId, PuSet, Reading, Remark, SettingSample,
    ThreadId, ThreadInfo, Topology,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One thread over its own interval. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadSample {
    /// Its id, its name and its process.
    pub info: ThreadInfo,
    /// How long this sample's interval was: less than the period for a thread that came or went in it.
    pub interval: u64,
    /// Time on a PU in the interval.
    pub cpu_time: u64,
    /// Time runnable but waiting for a PU in the interval (schedstat's second field).
    pub wait_time: u64,
    /// Context switches in the interval, voluntary and not; `None` where not read.
    pub switches: Option<u64>,
    /// Moves from one PU to another in the interval; `None` where not read.
    pub migrations: Option<u64>,
    /// The PU on which it was last seen.
    pub last_pu: Option<u32>,
    /// Its affinity mask as the kernel reports it, offline PUs included; `None` where it was not read again.
    pub mask: Option<PuSet>,
    /// Event counts of the interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<Count>,
    /// The event set that was counted; `None` if none was, or several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_set: Option<CountedSet>,
    /// Metrics that modules added (sampled mix, predictions).
    #[serde(default, skip_serializing_if = "Metrics::is_empty")]
    pub metrics: Metrics,
}

/// An event set that was counted, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedSet {
    /// Its place in the plan.
    pub number: u32,
    /// For how many nanoseconds it was switched on: of a thread's CPU time, its context switches included, so less than
    /// all of it for a thread that ran before it was found; of a PU's time, idle or not.
    pub enabled: u64,
}

/// One PU over its own interval, whatever ran on it: threads that were given to perch, others, the kernel, interrupts.
/// Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PuSample {
    /// The operating system's number.
    pub pu: u32,
    /// Length of this sample's interval.
    pub interval: u64,
    /// Time in which it was not idle, interrupts included.
    pub busy: u64,
    /// Time spent on interrupts, soft ones included.
    pub interrupts: u64,
    /// Event counts of everything that ran there in the interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<Count>,
    /// The event set that was counted; `None` if none was, or several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_set: Option<CountedSet>,
}

/// The counts of a whole target over an interval: of every thread that descends from it, however short it lived.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetSample {
    /// The target's number.
    pub target: u32,
    /// Nanoseconds for which its threads were on PUs while the event set was counted.
    pub cpu_time: u64,
    /// Event counts of the interval.
    pub counts: Vec<Count>,
}

/// What a thread did from one record of its event set to the next ([`crate::EventSet::every`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The thread.
    pub thread: ThreadId,
    /// When the record was made, in nanoseconds since the machine was opened.
    pub at: u64,
    /// Nanoseconds since the thread's last record, or since its counters were opened.
    pub interval: u64,
    /// Nanoseconds of that for which the thread was on a PU.
    pub cpu_time: u64,
    /// The PU on which it ran.
    pub pu: u32,
    /// Event counts of the window.
    pub counts: Vec<Count>,
}

/// Two threads that were seen to touch the same memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sharing {
    /// The two threads, the lower id first.
    pub threads: (ThreadId, ThreadId),
    /// Lines a second that one of them needs after the other wrote them.
    pub transfers: f64,
    /// Confidence that they share memory at all, 0 to 1.
    pub confidence: f64,
}

/// Which PUs a process may use when it is not placed, and to which target it belongs. A target is a program that perch
/// launched or a process that it was attached to, with all that descends from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessState {
    /// The process, by PID and start time.
    pub process: ProcessId,
    /// Its target's number, in the order in which they were given to perch.
    pub target: u32,
    /// The mask of its threads that have not been placed. Offline PUs are in where the kernel would keep them in.
    pub default: PuSet,
    /// Whether `default` is all that its CPU set allows: then it grows with the CPU set.
    pub whole: bool,
    /// The PUs that are online and in its CPU set.
    pub allowed: PuSet,
}

/// The source from which a thread inherited its mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// From this thread.
    Thread(ThreadId),
    /// From one of this process's threads; it is not known from which.
    Process(i32),
}

/// Where a thread got its mask from, as far as that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The thread, by TID and start time.
    pub thread: ThreadId,
    /// The thread or process whose mask it got.
    pub from: Source,
    /// It did not inherit the mask but was that thread: execve(2) by another thread than the first gives the caller the
    /// first one's number, and the caller keeps its mask.
    pub exec: bool,
    /// When the kernel said so, in nanoseconds since the machine was opened; `None` if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

/// One interval on one machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// When the interval ended, in nanoseconds since the machine was opened.
    pub at: u64,
    /// Measured length of the interval, in nanoseconds.
    pub interval: u64,
    /// Every live thread that was given to perch, and those that ended in the interval; of one that also began in it, if
    /// it was measured, no mask was read.
    pub threads: Vec<ThreadSample>,
    /// Targets that are counted as a whole, by rising number; empty where none is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetSample>,
    /// Windows that ended since the last observation, in the order in which they were made for each thread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// The PUs, by rising number; empty if they were not observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pus: Vec<PuSample>,
    /// What modules know about processes, PUs, packages and the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Reading>,
    /// Interrupts, of devices and of PUs; empty if they were not observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irqs: Vec<IrqSample>,
    /// The nice values of threads; empty if they were not observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nices: Vec<NiceSample>,
    /// Settings of the machine; empty if they were not observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingSample>,
    /// Threads that share memory; empty if that was not observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sharing: Vec<Sharing>,
    /// Threads that ended in the interval.
    pub ended: Vec<ThreadId>,
    /// Processes that are new, or whose state has changed since they were last reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessState>,
    /// Threads that were created or that took over another's number, in that order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<Origin>,
    /// Threads that came and went within the interval and of which nothing but that is known.
    pub unseen: u64,
    /// CPU time, in nanoseconds, that became known in the interval and that no thread sample covers: that of the
    /// unseen, and of threads' last moments.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unmeasured: u64,
    /// What the machine noticed and the user should know (lost samples, CPUs that went away, …).
    pub remarks: Vec<Remark>,
    /// Time that perch itself spent on a PU in the interval, in nanoseconds.
    pub own_cpu_time: u64,
    /// The machine from now on, if it has changed since the last observation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Arc<Topology>>,
    /// The mask of threads that have not been placed, for processes of which `processes` says nothing; if it has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<PuSet>,
    /// Masks that were read on demand after `at`: of threads whose mask perch could not change last time, or whose mask
    /// was never read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_late: Vec<(ThreadId, PuSet)>,
    /// The PUs that are online and in a thread's own CPU set, where those of its process do not explain its mask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<(ThreadId, PuSet)>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
