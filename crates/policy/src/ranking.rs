//! Who uses the floating-point units most.

use crate::busy::Census;
use perch_core::{MetricSource, Snapshot, ThreadState, metric::names};
use std::cmp::Ordering;

/// Standard deviation of the FP share from sample to sample in the most mixed programs.
const SPREAD: f64 = 0.2;

/// This many standard errors are taken for chance. Two periods in a row beyond 1.5 occur randomly in 0.4 % of cases.
const NOISE: f64 = 1.5;

/// What is known of a thread's floating-point work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FpShare {
    /// Its FP share, in the profile's scale.
    pub share: f64,
    /// Confidence in the share, above 0 and up to 1.
    pub confidence: f64,
    /// How far a sampled share may be off randomly, else 0.
    pub noise: f64,
}

/// A thread that WorkOver can place.
pub(crate) type Candidate = crate::busy::Candidate<FpShare>;

/// From which FP share on a thread counts as floating-point heavy. Without a threshold no thread does.
pub(crate) fn fp_threshold(snapshot: &Snapshot) -> f64 {
    let known = snapshot.thresholds.of(names::FP_SHARE);
    known.unwrap_or(f64::INFINITY)
}

/// The busy threads by falling FP share; `busy` says for each one whether it is busy.
pub(crate) fn by_fp_share(
    snapshot: &Snapshot,
    min_confidence: f64,
    busy: impl Fn(usize, &ThreadState) -> bool,
) -> Census<FpShare> {
    let known = |_, thread: &ThreadState| known(thread, min_confidence);
    let mut census = Census::new(snapshot, busy, known);
    census.ranked.sort_unstable_by(by_rank);
    census
}

/// By falling FP share; equals by falling activity, then by where they ran, and only then by number: what tells two
/// threads apart is what they do, not what they are called.
fn by_rank(a: &Candidate, b: &Candidate) -> Ordering {
    (b.known.share.total_cmp(&a.known.share))
        .then(b.activity.total_cmp(&a.activity))
        .then(a.last_pu.cmp(&b.last_pu))
        .then(a.at.cmp(&b.at))
}

fn known(thread: &ThreadState, min_confidence: f64) -> Option<FpShare> {
    let metric = thread.metrics.get(names::FP_SHARE)?;
    let sound = metric.value.is_finite() && metric.confidence > 0.0;
    if !sound || metric.confidence < min_confidence {
        return None;
    }
    let samples = thread.metrics.value(names::SAMPLES);
    let samples = samples.filter(|n| *n >= 1.0 && metric.source == MetricSource::Sampling);
    Some(FpShare {
        share: metric.value,
        confidence: metric.confidence.min(1.0),
        noise: samples.map_or(0.0, |samples| NOISE * SPREAD / samples.sqrt()),
    })
}
