//! Who is busy, who is known, and who uses the floating-point units most.

use perch_core::{MetricSource, PuSet, Snapshot, ThreadState, metric::names};
use std::cmp::Ordering;

/// Standard deviation of the FP share from sample to sample in the most mixed programs.
const SPREAD: f64 = 0.2;

/// This many standard errors are taken for chance. Two periods in a row beyond 1.5 occur randomly in 0.4 % of cases.
const NOISE: f64 = 1.5;

/// A busy thread whose FP share is known and that may be placed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    /// Its place in the snapshot's threads.
    pub at: usize,
    /// Its FP share, in the profile's scale.
    pub share: f64,
    /// Confidence in the share, above 0 and up to 1.
    pub confidence: f64,
    /// How far a sampled share may be off randomly, else 0.
    pub noise: f64,
    /// Share of the period on a PU.
    pub activity: f64,
    last_pu: Option<u32>,
}

/// A snapshot's threads, sorted out.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// Candidates by falling FP share.
    pub ranked: Vec<Candidate>,
    /// Busy threads about whose FP share nothing (or too little) is known.
    pub unknown: Vec<usize>,
    /// Busy threads that must be left alone.
    pub hands_off: Vec<usize>,
    /// All PUs on which any ranked thread may run.
    pub reachable: PuSet,
}

impl Census {
    /// Sorts the threads out; `busy` says for each one whether it is busy.
    pub fn new(
        snapshot: &Snapshot,
        min_confidence: f64,
        busy: impl Fn(usize, &ThreadState) -> bool,
    ) -> Self {
        let mut census = Self::default();
        for (at, thread) in snapshot.threads.iter().enumerate() {
            if !busy(at, thread) {
                continue;
            }
            if thread.hands_off.is_some() {
                census.hands_off.push(at);
                continue;
            }
            match candidate(at, thread, min_confidence) {
                Some(candidate) if !thread.allowed.is_empty() => {
                    census.ranked.push(candidate);
                    if !thread.allowed.is_subset(&census.reachable) {
                        census.reachable = census.reachable.or(&thread.allowed);
                    }
                }
                _ => census.unknown.push(at),
            }
        }
        census.ranked.sort_unstable_by(by_rank);
        census
    }

    /// All busy threads.
    pub fn busy(&self) -> usize {
        self.ranked.len() + self.unknown.len() + self.hands_off.len()
    }
}

/// By falling FP share; equals by falling activity, then by where they ran, and only then by number: what tells two
/// threads apart is what they do, not what they are called.
fn by_rank(a: &Candidate, b: &Candidate) -> Ordering {
    (b.share.total_cmp(&a.share))
        .then(b.activity.total_cmp(&a.activity))
        .then(a.last_pu.cmp(&b.last_pu))
        .then(a.at.cmp(&b.at))
}

fn candidate(at: usize, thread: &ThreadState, min_confidence: f64) -> Option<Candidate> {
    let metric = thread.metrics.get(names::FP_SHARE)?;
    let sound = metric.value.is_finite() && metric.confidence > 0.0;
    if !sound || metric.confidence < min_confidence {
        return None;
    }
    let samples = thread.metrics.value(names::SAMPLES);
    let samples = samples.filter(|n| *n >= 1.0 && metric.source == MetricSource::Sampling);
    let noise = samples.map_or(0.0, |samples| NOISE * SPREAD / samples.sqrt());
    Some(Candidate {
        at,
        share: metric.value,
        confidence: metric.confidence.min(1.0),
        noise,
        activity: thread.activity,
        last_pu: thread.last_pu,
    })
}
