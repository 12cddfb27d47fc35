//! What was sampled of one thread, and what of the past still counts.
//!
//! A busy thread has enough samples in every period and no past. A thread that runs little has a few: they are joined
//! with those of the periods before, which weigh half as much each second, never more than the new ones, and not at
//! all once the new ones contradict them. So a change of phase shows in the first period that holds enough samples, or
//! few that clearly differ, and at the latest has half the weight after one period and three quarters after two. Samples that
//! were gathered in less than a second are joined with those of the second before in the same way, however many they are.

use crate::span::counted;
use perch_core::{Metric, MetricKind, MetricName, MetricSource, Metrics, metric::names};
use perch_sampling::{MixSum, SampledMetrics, Spread, TOLERANCE, within};
use std::{sync::Arc, time::Duration};

/// A period with this many samples speaks for itself: the verdict on floating point needs ten to twenty.
const ENOUGH: f64 = 20.0;

/// What a period's weight becomes in a second, or in a longer period.
const DECAY: f64 = 0.5;

/// Accesses with which a footprint is as good as it gets: 200 to 500.
const FOOTPRINT_ENOUGH: f64 = 500.0;

/// Below this share of instructions that read memory a thread without any known access waits for none.
const HARDLY_READS: f64 = 0.05;

/// Share of samples in the kernel, of all samples of a thread.
pub(super) const KERNEL_SHARE: &str = "kernel_share";

/// The metrics that sampling gives: names, units, how they are combined, and what they are.
pub(super) const PROVIDED: &[(&str, &str, MetricKind, &str)] = &[
    (
        names::FP_SHARE,
        "",
        MetricKind::Ratio,
        "floating-point instructions / instructions",
    ),
    (
        names::FP_SHARE_ERROR,
        "",
        MetricKind::Ratio,
        "standard error of fp_share",
    ),
    (
        names::VECTOR_SHARE,
        "",
        MetricKind::Ratio,
        "packed / floating-point instructions",
    ),
    (
        names::LOAD_SHARE,
        "",
        MetricKind::Ratio,
        "instructions that read memory / instructions",
    ),
    (
        names::STORE_SHARE,
        "",
        MetricKind::Ratio,
        "instructions that write memory / instructions",
    ),
    (
        names::BRANCH_SHARE,
        "",
        MetricKind::Ratio,
        "branches / instructions",
    ),
    (
        names::DIVIDE_SHARE,
        "",
        MetricKind::Ratio,
        "divisions and square roots / instructions",
    ),
    (
        names::MEMORY_INTENSITY,
        "",
        MetricKind::Ratio,
        "share of the time spent waiting for memory",
    ),
    (
        names::FOOTPRINT,
        "B",
        MetricKind::Ratio,
        "distinct memory touched",
    ),
    (
        names::SAMPLES,
        "",
        MetricKind::Amount,
        "samples behind these numbers",
    ),
    (
        KERNEL_SHARE,
        "",
        MetricKind::Ratio,
        "samples in the kernel / samples",
    ),
];

/// Their names, made once: names are shared, not copied.
pub(super) struct Names(Vec<MetricName>);

impl Names {
    pub(super) fn new() -> Self {
        Self(PROVIDED.iter().map(|(name, ..)| Arc::from(*name)).collect())
    }

    fn get(&self, name: &str) -> MetricName {
        let known = self.0.iter().find(|known| ***known == *name);
        known.map_or_else(|| Arc::from(name), Arc::clone)
    }
}

/// One period's samples, boiled down.
#[derive(Debug, Clone, Copy)]
struct Period {
    metrics: SampledMetrics,
    /// How many samples this still counts for.
    weight: f64,
    error: Error,
}

/// What a standard error of the floating-point share is made of.
#[derive(Debug, Clone, Copy)]
struct Error {
    /// Of sampling: less with more samples.
    noise: f64,
    /// Of the model: the same in every period of a phase.
    model: f64,
}

impl Error {
    /// That of the mean of two independent estimates with these weights.
    fn join(self, weight: f64, other: Error, other_weight: f64) -> Self {
        let all = weight + other_weight;
        Self {
            noise: (weight * self.noise).hypot(other_weight * other.noise) / all,
            model: (weight * self.model + other_weight * other.model) / all,
        }
    }
}

/// The past of one thread.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    mix: MixSum,
    last: Option<Period>,
}

impl History {
    /// Joins a period's samples, gathered for this long, with the past and says what the thread does.
    ///
    /// `kernel` of the period's samples were in the kernel; `l2_bytes` is a core's private cache.
    pub(super) fn join(
        &mut self,
        new: &SampledMetrics,
        kernel: u64,
        gathered: Duration,
        l2_bytes: u64,
        names: &Names,
    ) -> Metrics {
        let count = new.samples as f64;
        let mut sum = MixSum::default();
        sum.add(&new.mix, count);
        let mut error = Error {
            noise: new.fp.standard_error(),
            model: new.fp_model_error,
        };
        let mut total = count;
        let seconds = counted(gathered).as_secs_f64().max(1e-3);
        let alone = count >= ENOUGH && seconds >= 1.0;
        // What there would be in a second: a longer past never counts for more.
        let most = count / seconds;
        if let Some(last) = self.last.filter(|last| !alone && agree(&last.metrics, new)) {
            let weight = (last.weight * DECAY.powf(seconds)).min(most);
            if let Some(past) = self.mix.mix() {
                sum.add(&past, weight);
                error = error.join(count, last.error, weight);
                total += weight;
            }
        }
        let mix = sum.mix().unwrap_or(new.mix);
        self.mix = sum;
        self.last = Some(Period {
            metrics: *new,
            weight: total.min(if seconds < 1.0 {
                most.max(ENOUGH)
            } else {
                ENOUGH
            }),
            error,
        });
        let standard_error = error.noise.hypot(error.model);
        let confidence = within(TOLERANCE, standard_error);
        let mut metrics = Metrics::default();
        for (name, value) in [
            (names::FP_SHARE, mix.fp_share()),
            (names::FP_SHARE_ERROR, standard_error.min(1.0)),
            (names::VECTOR_SHARE, mix.vector_share()),
            (names::LOAD_SHARE, mix.load_share()),
            (names::STORE_SHARE, mix.store_share()),
            (names::BRANCH_SHARE, mix.branch_share()),
            (names::DIVIDE_SHARE, mix.divide_share()),
        ] {
            metrics.set(names.get(name), metric(value, confidence));
        }
        let accesses = new.footprint_samples as f64 / FOOTPRINT_ENOUGH;
        let intensity = match new.memory_intensity(l2_bytes) {
            Some(intensity) => Some((intensity, accesses.min(confidence))),
            // Code that hardly reads memory does not wait for it.
            None => (mix.load_share() < HARDLY_READS).then_some((0.0, confidence)),
        };
        if let Some((intensity, confidence)) = intensity {
            let name = names.get(names::MEMORY_INTENSITY);
            metrics.set(name, metric(intensity, confidence));
        }
        if let Some(bytes) = new.footprint_bytes {
            metrics.set(names.get(names::FOOTPRINT), metric(bytes, accesses));
        }
        let all = new.samples + new.undecoded + kernel;
        metrics.set(names.get(names::SAMPLES), metric(all as f64, 1.0));
        let share = kernel as f64 / all.max(1) as f64;
        metrics.set(names.get(KERNEL_SHARE), metric(share, confidence));
        metrics
    }
}

/// The metrics of a thread that was seen in the kernel only, where nothing is floating point; none without samples.
pub(super) fn in_kernel(samples: u64, names: &Names) -> Option<Metrics> {
    if samples == 0 {
        return None;
    }
    let mut spread = Spread::default();
    (0..samples).for_each(|_| spread.add(0.0));
    let error = spread.standard_error();
    let confidence = within(TOLERANCE, error);
    let metrics = [
        (names::FP_SHARE, 0.0, confidence),
        (names::FP_SHARE_ERROR, error.min(1.0), confidence),
        (names::SAMPLES, samples as f64, 1.0),
        (KERNEL_SHARE, 1.0, confidence),
    ];
    let metrics =
        metrics.map(|(name, value, confidence)| (names.get(name), metric(value, confidence)));
    Some(metrics.into_iter().collect())
}

fn metric(value: f64, confidence: f64) -> Metric {
    Metric {
        value,
        confidence: confidence.clamp(0.0, 1.0),
        source: MetricSource::Sampling,
    }
}

/// Whether two periods may be the same phase: their floating-point shares differ by no more than their 99 % intervals
/// together, of sampling alone: the model errs the same way in every period of a phase.
fn agree(past: &SampledMetrics, new: &SampledMetrics) -> bool {
    let apart = (past.fp_share() - new.fp_share()).abs();
    apart <= past.fp.half_width() + new.fp.half_width()
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_sampling::{Arch, CodeImage, Estimator, ThreadMix};
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What a number of samples in a loop of one floating-point and one integer instruction and a branch, or in one
    /// without floating point, says.
    fn sampled(float: bool, samples: usize) -> SampledMetrics {
        let mut code = CodeImage::new(Arch::X86_64);
        let body: [u8; 9] = match float {
            // addsd %xmm1,%xmm0; dec %ecx; jne; ret
            true => [0xf2, 0x0f, 0x58, 0xc1, 0xff, 0xc9, 0x75, 0xf8, 0xc3],
            // add %rax,%rcx; nop; dec %ecx; jne; ret
            false => [0x48, 0x01, 0xc1, 0x90, 0xff, 0xc9, 0x75, 0xf8, 0xc3],
        };
        code.add(0x1000, body);
        let mut estimator = Estimator::new(Arch::X86_64);
        let mut thread = ThreadMix::default();
        for _ in 0..samples {
            thread.add(&estimator.sample(&code, 0x1004, None));
        }
        estimator
            .take(&code, &mut thread, std::time::Duration::from_secs(1))
            .expect("valid code")
    }

    fn fp_share(history: &mut History, float: bool, samples: usize) -> f64 {
        let metrics = history.join(&sampled(float, samples), 0, SECOND, 1 << 20, &Names::new());
        metrics.value(names::FP_SHARE).expect("always there")
    }

    proptest! {
        #[test]
        fn a_change_shows_within_two_periods(before in 1usize..40, after in 3usize..40, float: bool) {
            let mut history = History::default();
            for _ in 0..5 {
                fp_share(&mut history, float, before);
            }
            let truth = |float: bool| if float { 1.0 / 3.0 } else { 0.0 };
            fp_share(&mut history, !float, after);
            let second = fp_share(&mut history, !float, after);
            let way = (second - truth(!float)).abs() / (1.0 / 3.0);
            prop_assert!(way <= 0.25 + 1e-6, "{way} of the way is left");
        }

        #[test]
        fn few_samples_are_surer_with_a_past(samples in 1usize..15) {
            let confidence = |history: &mut History| {
                let metrics = history.join(&sampled(true, samples), 0, SECOND, 1 << 20, &Names::new());
                metrics.get(names::FP_SHARE).expect("always there").confidence
            };
            let mut history = History::default();
            let alone = confidence(&mut history);
            let joined = confidence(&mut history);
            prop_assert!(joined >= alone - 1e-9, "{alone} then {joined}");
        }
    }

    #[test]
    fn as_much_is_known_after_a_second_of_short_intervals() {
        let noise = |intervals: u32| {
            let mut history = History::default();
            for _ in 0..intervals {
                history.join(&sampled(true, 25), 0, SECOND / 10, 1 << 20, &Names::new());
            }
            history.last.expect("joined").error.noise
        };
        let ratio = noise(1) / noise(10);
        assert!((3.0..3.5).contains(&ratio), "{ratio} for the root of ten");
        // A past that is contradicted counts no more than elsewhere.
        let mut history = History::default();
        for _ in 0..10 {
            history.join(&sampled(true, 25), 0, SECOND / 10, 1 << 20, &Names::new());
        }
        let new = sampled(false, 25);
        let metrics = history.join(&new, 0, SECOND / 10, 1 << 20, &Names::new());
        assert_eq!(metrics.value(names::FP_SHARE), Some(0.0));
        assert_eq!(history.last.expect("joined").weight, 25.0);
    }

    #[test]
    fn the_past_loses_as_much_weight_a_second_at_every_interval() {
        // Of four samples, when four more were gathered for so long.
        let left = |milliseconds| {
            let mut history = History::default();
            let gathered = Duration::from_millis(milliseconds);
            for _ in 0..2 {
                history.join(&sampled(true, 4), 0, gathered, 1 << 20, &Names::new());
            }
            (history.last.expect("joined").weight - 4.0) / 4.0
        };
        assert_eq!((left(1_000), left(5_000)), (DECAY, DECAY));
        for parts in [2, 5, 10, 100] {
            let a_second = left(1_000 / parts).powi(parts as i32);
            assert!((a_second - DECAY).abs() < 1e-9, "{parts}: {a_second}");
        }
    }

    #[test]
    fn the_kernel_s_share_is_told() {
        let mut history = History::default();
        let metrics = history.join(&sampled(true, 30), 10, SECOND, 1 << 20, &Names::new());
        assert_eq!(metrics.value(KERNEL_SHARE), Some(0.25));
        assert_eq!(metrics.value(names::SAMPLES), Some(40.0));
        let metrics = in_kernel(12, &Names::new()).expect("twelve samples");
        assert_eq!(metrics.value(names::FP_SHARE), Some(0.0));
        assert_eq!(metrics.value(KERNEL_SHARE), Some(1.0));
        assert!(in_kernel(0, &Names::new()).is_none());
    }

    #[test]
    fn every_metric_is_declared() {
        let metrics =
            History::default().join(&sampled(true, 30), 1, SECOND, 1 << 20, &Names::new());
        let declared = |name: &str| PROVIDED.iter().any(|(known, ..)| *known == name);
        assert!(metrics.iter().all(|(name, _)| declared(name)));
    }
}
