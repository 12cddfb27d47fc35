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
    /// Sampling noise of the share, in its unit; 0 if it was counted.
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
    let noise = match metric.source {
        MetricSource::Sampling => NOISE * standard_error(thread),
        _ => 0.0,
    };
    Some(FpShare {
        share: metric.value,
        confidence: metric.confidence.min(1.0),
        noise,
    })
}

/// Of a sampled share: by the samples of this period, or, where the share is of an earlier one, as it was stated then.
fn standard_error(thread: &ThreadState) -> f64 {
    let samples = thread.metrics.value(names::SAMPLES);
    match samples.filter(|samples| *samples >= 1.0) {
        Some(samples) => SPREAD / samples.sqrt(),
        None => {
            let stated = thread.metrics.value(names::FP_SHARE_ERROR);
            stated.filter(|error| error.is_finite()).unwrap_or(0.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::{Metric, MetricName, Metrics, PuSet, ThreadId, ThreadInfo};

    fn noise(source: MetricSource, others: &[(&'static str, f64)]) -> f64 {
        let metric = |value| Metric {
            value,
            confidence: 0.9,
            source,
        };
        let metrics = [(names::FP_SHARE, 0.2)].iter().chain(others);
        let thread = ThreadState {
            info: ThreadInfo {
                id: ThreadId { tid: 1, start: 1 },
                pid: 1,
                name: "worker".into(),
                process: "app".into(),
                work: perch_core::Work::default(),
            },
            target: 0,
            allowed: PuSet::single(0),
            bound: None,
            unmanaged: None,
            last_pu: None,
            activity: 1.0,
            waiting: 0.0,
            metrics: Metrics::from_iter(
                metrics.map(|(name, value)| (MetricName::from(*name), metric(*value))),
            ),
        };
        known(&thread, 0.1).expect("a share").noise
    }

    #[test]
    fn a_sampled_share_is_noisy_also_in_periods_without_a_sample() {
        let new = noise(
            MetricSource::Sampling,
            &[(names::SAMPLES, 100.0), (names::FP_SHARE_ERROR, 0.08)],
        );
        let kept = noise(MetricSource::Sampling, &[(names::FP_SHARE_ERROR, 0.08)]);
        let counted = noise(MetricSource::Counters, &[]);
        assert!((new - 0.03).abs() < 1e-9 && (kept - 0.12).abs() < 1e-9);
        assert_eq!(counted, 0.0);
    }
}
