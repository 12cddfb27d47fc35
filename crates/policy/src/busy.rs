//! Which threads are busy and which of these a policy may place: the same for all policies.

use perch_core::{PuSet, Snapshot, ThreadState};

/// A bound thread stays busy down to this part of the least activity. A choice of our own: without it a thread at the
/// limit would be bound and released alternately.
const STAYS: f64 = 0.5;

/// What policies say while there is none.
pub(crate) const NOTHING_BUSY: &str = "no thread is busy, so nothing is bound";

/// A busy thread that may be placed and of which the policy knows what it needs: `K`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate<K> {
    /// Its place in the snapshot's threads.
    pub at: usize,
    /// Share of the period on a PU.
    pub activity: f64,
    /// Where it was seen last.
    pub last_pu: Option<u32>,
    /// What the policy ranks it by.
    pub known: K,
}

/// A snapshot's busy threads, sorted out.
#[derive(Debug)]
pub(crate) struct Census<K> {
    /// Those that can be ranked, in the snapshot's order until the policy sorts them.
    pub ranked: Vec<Candidate<K>>,
    /// Those of which too little is known, or that may run nowhere.
    pub unknown: Vec<usize>,
    /// Those that must be left alone.
    pub unmanaged: Vec<usize>,
    /// All PUs on which any ranked thread may run.
    pub reachable: PuSet,
}

impl<K> Census<K> {
    /// Sorts the threads out: `busy` says whether a thread is busy, `known` what the policy ranks it by.
    pub fn new(
        snapshot: &Snapshot,
        busy: impl Fn(usize, &ThreadState) -> bool,
        known: impl Fn(usize, &ThreadState) -> Option<K>,
    ) -> Self {
        let mut census = Self {
            ranked: Vec::new(),
            unknown: Vec::new(),
            unmanaged: Vec::new(),
            reachable: PuSet::new(),
        };
        for (at, thread) in snapshot.threads.iter().enumerate() {
            if !busy(at, thread) {
                continue;
            }
            if thread.unmanaged.is_some() {
                census.unmanaged.push(at);
                continue;
            }
            match known(at, thread) {
                Some(known) if !thread.allowed.is_empty() => {
                    add(&mut census.reachable, &thread.allowed);
                    census.ranked.push(Candidate {
                        at,
                        activity: thread.activity,
                        last_pu: thread.last_pu,
                        known,
                    });
                }
                _ => census.unknown.push(at),
            }
        }
        census
    }

    /// How many threads are busy.
    pub fn busy(&self) -> usize {
        self.ranked.len() + self.unknown.len() + self.unmanaged.len()
    }
}

/// Whether a thread is busy: whether it wanted a PU for this share of the period. A bound one stays so for longer.
pub(crate) fn is_busy(thread: &ThreadState, min_activity: f64) -> bool {
    stays_busy(thread.wanted(), min_activity, thread.bound.is_some())
}

/// The same of a share by which a policy goes instead.
pub(crate) fn stays_busy(wanted: f64, min_activity: f64, bound: bool) -> bool {
    wanted >= min_activity * if bound { STAYS } else { 1.0 }
}

/// All PUs on which any busy thread that may be placed can run.
pub(crate) fn reachable(snapshot: &Snapshot, min_activity: f64) -> PuSet {
    let mut all = PuSet::new();
    for thread in &snapshot.threads {
        if thread.unmanaged.is_none() && is_busy(thread, min_activity) {
            add(&mut all, &thread.allowed);
        }
    }
    all
}

/// Most threads may run where others may: then nothing is copied.
fn add(all: &mut PuSet, allowed: &PuSet) {
    if !allowed.is_subset(all) {
        *all = all.or(allowed);
    }
}

/// Why a thread that is no longer busy is released.
pub(crate) fn idle(thread: &ThreadState) -> String {
    let percent = 100.0 * thread.wanted();
    format!("idle: runnable for {percent:.0} % of the period")
}
