//! What a machine saw in one interval.

use crate::{Count, Metrics, PuSet, ThreadId, ThreadInfo};
use serde::{Deserialize, Serialize};

/// One thread over its own interval. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadSample {
    /// Who.
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
    /// Its affinity mask as the kernel tells it, offline PUs included; `None` where it was not read again.
    pub mask: Option<PuSet>,
    /// Event counts of the interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<Count>,
    /// What modules know of it (sampled mix, predictions).
    #[serde(default, skip_serializing_if = "Metrics::is_empty")]
    pub metrics: Metrics,
}

/// One PU over its own interval, whatever ran on it: threads that were given to perch, others, the kernel, interrupts.
/// Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PuSample {
    /// The operating system's number.
    pub pu: u32,
    /// How long this sample's interval was.
    pub interval: u64,
    /// Time in which it was not idle, interrupts included.
    pub busy: u64,
    /// Time spent on interrupts, soft ones included.
    pub interrupts: u64,
    /// Event counts of everything that ran there in the interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<Count>,
}

/// Two threads that touch the same memory, as far as somebody saw it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sharing {
    /// Who, the lower id first.
    pub threads: (ThreadId, ThreadId),
    /// Lines a second that one of them needs after the other wrote them.
    pub transfers: f64,
    /// How far that can be trusted, 0 to 1.
    pub confidence: f64,
}

/// One interval on one machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// When the interval ended, in nanoseconds since the machine was opened.
    pub at: u64,
    /// How long it really was, in nanoseconds.
    pub interval: u64,
    /// Every live thread that was given to perch, and those that ended in the interval.
    pub threads: Vec<ThreadSample>,
    /// The PUs, by rising number; empty where nobody looked at them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pus: Vec<PuSample>,
    /// Threads that share memory; empty where nobody looked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sharing: Vec<Sharing>,
    /// Threads that ended in the interval.
    pub ended: Vec<ThreadId>,
    /// Threads that came and went unseen within the interval.
    pub unseen: u64,
    /// What the machine noticed and the user should know, once each (lost samples, CPUs that went away, …).
    pub remarks: Vec<String>,
    /// Time that perch itself spent on a PU in the interval, in nanoseconds.
    pub own_cpu_time: u64,
    /// Whether the topology changed since the last observation.
    pub topology_changed: bool,
}
