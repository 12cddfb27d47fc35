//! When a thread's behaviour changes for good: phases of programs.
//!
//! Counts that were taken one after the other describe one phase only if none ended in between. Saez et al., "PMCTrack"
//! (section 4.1.2, figure 7) drop a round of event sets in which the instructions per cycle leave their running average.
//! [`RunningAverage`] is that; [`OnlineBayes`] is the online change-point detection of Adams and MacKay (2007,
//! arXiv:0710.3742) for comparison. Both take one number an interval and say when a new phase has begun.

use statrs::function::gamma::ln_gamma;
use std::collections::VecDeque;

/// How changes of phase are detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// Not at all.
    Off,
    /// By the running average (the paper's).
    Average,
    /// By Bayesian online change-point detection.
    #[default]
    Bayes,
}

impl Method {
    /// All of them, with the names that the command line has.
    pub const ALL: [(&'static str, Self); 3] = [
        ("off", Self::Off),
        ("average", Self::Average),
        ("bayes", Self::Bayes),
    ];

    /// A detector of that kind; `None` for [`Method::Off`].
    pub fn detector(self) -> Option<Detector> {
        match self {
            Self::Off => None,
            Self::Average => Some(Detector::Average(RunningAverage::default())),
            Self::Bayes => Some(Detector::Bayes(Box::default())),
        }
    }
}

/// A detector of one of the kinds.
#[derive(Debug, Clone)]
pub enum Detector {
    /// The paper's.
    Average(RunningAverage),
    /// Bayesian.
    Bayes(Box<OnlineBayes>),
}

impl Detector {
    /// Takes the next value. If a new phase was noticed: with which value it began, counted back from this one (0: with
    /// this one). A value that is no number is passed over.
    pub fn next(&mut self, value: f64) -> Option<usize> {
        if !value.is_finite() {
            return None;
        }
        match self {
            Self::Average(detector) => detector.next(value).then_some(0),
            Self::Bayes(detector) => detector.next(value),
        }
    }
}

/// How far a value may lie from the running average, as a share of it, before it belongs to a new phase. The paper says
/// "sudden variation" and no number: an own choice, the spread that interrupts and caches cause in a steady program.
const SUDDEN: f64 = 0.1;

/// The running average and what departs from it.
#[derive(Debug, Clone, Default)]
pub struct RunningAverage {
    mean: f64,
    seen: u32,
}

impl RunningAverage {
    fn next(&mut self, value: f64) -> bool {
        let departs = self.seen > 0 && (value - self.mean).abs() > SUDDEN * self.mean.abs();
        if departs {
            *self = Self::default();
        }
        self.seen += 1;
        self.mean += (value - self.mean) / f64::from(self.seen);
        departs
    }
}

/// A phase is expected to last this many values: at an interval of 100 ms, ten seconds. An own choice; the method
/// depends on it by its logarithm only.
const EXPECTED: f64 = 100.0;

/// Hypotheses that are kept: phases that began longer ago than this are all alike.
const MOST: usize = 200;

/// A new phase is announced when this much of the probability says that the old one has ended.
const BELIEVED: f64 = 0.5;

/// What is believed of a phase's values before the first: a normal distribution whose mean and variance are unknown
/// (normal-inverse-gamma). `beta` is set from the first value.
const KAPPA: f64 = 0.05;
const ALPHA: f64 = 1.0;

/// The relative deviation of a steady thread's values that is expected before any were seen.
const STEADY: f64 = 0.02;

/// What is known of a phase that began at some value.
#[derive(Debug, Clone, Copy)]
struct Run {
    probability: f64,
    mean: f64,
    kappa: f64,
    alpha: f64,
    beta: f64,
}

impl Run {
    fn new(prior_mean: f64, probability: f64) -> Self {
        let deviation = (STEADY * prior_mean.abs()).max(1e-9);
        Self {
            probability,
            mean: prior_mean,
            kappa: KAPPA,
            alpha: ALPHA,
            beta: deviation * deviation,
        }
    }

    /// The logarithm of the density of the next value: Student's t.
    fn log_density(&self, value: f64) -> f64 {
        let freedom = 2.0 * self.alpha;
        let scale = self.beta * (self.kappa + 1.0) / (self.alpha * self.kappa);
        let distance = (value - self.mean) * (value - self.mean) / scale;
        ln_gamma((freedom + 1.0) / 2.0)
            - ln_gamma(freedom / 2.0)
            - 0.5 * (freedom * std::f64::consts::PI * scale).ln()
            - (freedom + 1.0) / 2.0 * (1.0 + distance / freedom).ln()
    }

    fn update(&mut self, value: f64) {
        let away = value - self.mean;
        self.beta += self.kappa * away * away / (2.0 * (self.kappa + 1.0));
        self.mean += away / (self.kappa + 1.0);
        self.kappa += 1.0;
        self.alpha += 0.5;
    }
}

/// The run-length posterior of Adams and MacKay, algorithm 1, with a constant hazard.
#[derive(Debug, Clone, Default)]
pub struct OnlineBayes {
    /// The youngest hypothesis first; the last is that the phase goes on.
    runs: VecDeque<Run>,
}

impl OnlineBayes {
    fn next(&mut self, value: f64) -> Option<usize> {
        let Some(oldest) = self.runs.back() else {
            self.begin(value, 1.0);
            return None;
        };
        let fresh = density_of_first(oldest.mean, value);
        let logs: Vec<f64> = self.runs.iter().map(|run| run.log_density(value)).collect();
        let greatest = logs.iter().copied().fold(fresh, f64::max);
        let hazard = 1.0 / EXPECTED;
        for (run, log) in self.runs.iter_mut().zip(&logs) {
            run.probability *= (log - greatest).exp() * (1.0 - hazard);
            run.update(value);
        }
        // Before this value the probabilities added up to 1.
        self.begin(value, hazard * (fresh - greatest).exp());
        self.forget();
        let sum: f64 = self.runs.iter().map(|run| run.probability).sum();
        if !(sum.is_finite() && sum > 0.0) {
            self.runs.clear();
            self.begin(value, 1.0);
            return Some(0);
        }
        self.runs.iter_mut().for_each(|run| run.probability /= sum);
        let goes_on = self.runs.back().map_or(1.0, |run| run.probability);
        if goes_on >= 1.0 - BELIEVED {
            return None;
        }
        let younger = self.runs.iter().take(self.runs.len() - 1).enumerate();
        let (began, _) = younger.max_by(|a, b| a.1.probability.total_cmp(&b.1.probability))?;
        // What came before says nothing of the new phase.
        self.runs.truncate(began + 1);
        let left: f64 = self.runs.iter().map(|run| run.probability).sum();
        self.runs
            .iter_mut()
            .for_each(|run| run.probability /= left.max(f64::MIN_POSITIVE));
        Some(began)
    }

    /// A phase may begin with this value.
    fn begin(&mut self, value: f64, probability: f64) {
        let mut run = Run::new(value, probability);
        run.update(value);
        self.runs.push_front(run);
    }

    /// Keeps few hypotheses: of the oldest, that the phase goes on remains.
    fn forget(&mut self) {
        if self.runs.len() > MOST
            && let Some(second) = self.runs.remove(self.runs.len() - 2)
            && let Some(oldest) = self.runs.back_mut()
        {
            oldest.probability += second.probability;
        }
    }
}

/// The logarithm of the density of a phase's first value: anything from nothing to a few times what was seen before
/// (Cauchy's distribution, whose tails are heavy).
fn density_of_first(before: f64, value: f64) -> f64 {
    let width = before.abs().max(1e-9);
    let distance = (value - before) / width;
    -(std::f64::consts::PI * width * (1.0 + distance * distance)).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn changes(method: Method, values: &[f64]) -> Vec<usize> {
        let mut detector = method.detector().unwrap();
        let noticed = values
            .iter()
            .enumerate()
            .filter_map(|(at, value)| Some(at - detector.next(*value)?));
        noticed.collect()
    }

    /// Values around a mean, with a relative deviation that a period of seven values has.
    fn steady(mean: f64, deviation: f64, length: usize) -> Vec<f64> {
        const WAVE: [f64; 7] = [0.3, -1.2, 0.9, 0.1, -0.6, 1.4, -0.9];
        (0..length)
            .map(|at| mean * (1.0 + deviation * WAVE[at % 7]))
            .collect()
    }

    #[test]
    fn a_steady_thread_has_one_phase_and_a_step_begins_another() {
        let mut values = steady(1.2, 0.02, 60);
        values.extend(steady(0.6, 0.02, 60));
        for method in [Method::Average, Method::Bayes] {
            assert_eq!(changes(method, &values), [60], "{method:?}");
            assert_eq!(changes(method, &values[..60]), [], "{method:?}");
        }
    }

    #[test]
    fn a_small_step_in_quiet_values_is_noticed_by_the_bayesian_one_only() {
        let mut values = steady(1.0, 0.005, 40);
        values.extend(steady(1.06, 0.005, 40));
        assert_eq!(changes(Method::Average, &values), []);
        assert_eq!(changes(Method::Bayes, &values), [40]);
    }

    proptest! {
        #[test]
        fn any_values_are_survived(values in proptest::collection::vec(any::<f64>(), 0..300)) {
            for method in [Method::Average, Method::Bayes] {
                for at in changes(method, &values) {
                    prop_assert!(at < values.len());
                }
            }
        }

        #[test]
        fn scale_does_not_matter(scale in 1e-6f64..1e9) {
            let mut values = steady(1.0, 0.02, 30);
            values.extend(steady(2.0, 0.02, 30));
            let scaled: Vec<f64> = values.iter().map(|value| value * scale).collect();
            for method in [Method::Average, Method::Bayes] {
                prop_assert_eq!(changes(method, &values), changes(method, &scaled));
            }
        }
    }
}
