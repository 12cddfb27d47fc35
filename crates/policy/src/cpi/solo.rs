//! What a thread would ask of the pipeline in isolation, inferred from what it got when co-running (the paper's open
//! question, section 6).
//!
//! The model is of a core whose contexts time-share issue slots (section 3). Thread `x` got `X` of the slots. Let `p`
//! be the share of slots in which it was *ready*: it used `X` of them and lost `p - X` to others. A ready thread gets
//! the slot with the chance `1 / (1 + N)`, where `N` others are ready too. With threads that are ready independently of
//! each other,
//!
//! ```text
//! X = p · E[1 / (1 + N)] = p · ∫₀¹ Π_y (1 - p_y + p_y s) ds        over the other threads y
//! ```
//!
//! Alone it would have lost nothing, so in the same time without those slots it issues as much:
//! `demand = X / (1 - (p - X))`, or in the paper's terms `CPI alone = CPI measured - slots lost an instruction`.
//! The `p` of all threads follow from the measured `X` by a fixed point. The map is monotone, and starting from `p = X`
//! it can only rise and is bounded by 1: it converges for any input. The model keeps to the core's capacity by itself:
//! `Σ X = 1 - Π (1 - p) ≤ 1`.
//!
//! A core of width `W` is taken as `W` times as many slots. If it is saturated, measured numbers do not show the demand
//! any more: four threads that get a quarter each may ask for a little more than that or for everything. Then `p` is
//! near 1, and the confidence `1 - (p - X)` (the inverse of how much an error of measurement is magnified) is low. The
//! demand is an upper bound, `X` a lower one, and only the thread's history tells more.

/// A thread on the core, as measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Running {
    /// Instructions a cycle while it ran.
    pub ipc: f64,
    /// Share of the period in which it ran, 0 to 1.
    pub presence: f64,
}

/// What a thread would do alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Solo {
    /// Instructions a cycle, at least as many as measured and at most the core's width.
    pub demand: f64,
    /// 1 where no other thread disturbed it, towards 0 where the core was saturated and the demand is hardly known.
    pub confidence: f64,
}

/// The estimator for one core.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoloCpi {
    /// Instructions that the core can issue in a cycle, above 0.
    pub width: f64,
    /// How many threads run on it at a time.
    pub contexts: usize,
}

/// Gauss and Legendre's points and weights on 0 to 1: exact for up to 10 threads, near enough for more.
const QUADRATURE: [(f64, f64); 5] = [
    (0.046_910_077_030_668, 0.118_463_442_528_094_5),
    (0.230_765_344_947_158_4, 0.239_314_335_249_683_2),
    (0.5, 0.284_444_444_444_444_4),
    (0.769_234_655_052_841_6, 0.239_314_335_249_683_2),
    (0.953_089_922_969_332, 0.118_463_442_528_094_5),
];

/// Changes below this end the search for the fixed point.
const TOLERANCE: f64 = 1e-6;

/// Steps after which it ends anyway; near saturation the last ones change less than any measurement's error.
const STEPS: usize = 200;

impl SoloCpi {
    /// Each thread's demand alone. Values that are no numbers, infinite or below 0 count as 0.
    pub fn infer(&self, threads: &[Running]) -> Vec<Solo> {
        let sane = |value: f64| {
            if value.is_finite() {
                value.max(0.0)
            } else {
                0.0
            }
        };
        let width = if self.width.is_finite() && self.width > 0.0 {
            self.width
        } else {
            1.0
        };
        let got: Vec<f64> = (threads.iter())
            .map(|thread| (sane(thread.ipc) / width).min(1.0))
            .collect();
        let beside = self.beside(threads.iter().map(|thread| sane(thread.presence).min(1.0)));
        let ready = fixed_point(&got, &beside);
        let solo = got.iter().zip(&ready).map(|(got, ready)| {
            let confidence = 1.0 - (ready - got);
            Solo {
                demand: (got / confidence).min(1.0) * width,
                confidence,
            }
        });
        solo.collect()
    }

    /// With which chance each thread runs while another one does.
    fn beside(&self, presence: impl Iterator<Item = f64>) -> Vec<f64> {
        let presence: Vec<f64> = presence.collect();
        let all: f64 = presence.iter().sum();
        let others = all - all / presence.len().max(1) as f64;
        let room = self.contexts.saturating_sub(1) as f64;
        let fit = if others > room { room / others } else { 1.0 };
        presence.iter().map(|share| share * fit).collect()
    }
}

/// The share of slots in which each thread is ready.
///
/// Near saturation plain steps get ever smaller. So longer ones are tried: where the map still leads upwards from, the
/// fixed point is further up.
fn fixed_point(got: &[f64], beside: &[f64]) -> Vec<f64> {
    let mut ready = got.to_vec();
    let mut next = step(got, beside, &ready);
    let mut stride = 2.0;
    for _ in 0..STEPS {
        let changes = ready.iter().zip(&next).map(|(old, new)| new - old);
        if changes.fold(0.0, f64::max) < TOLERANCE {
            break;
        }
        let long = |(old, new): (&f64, &f64)| (old + stride * (new - old)).min(1.0);
        let further: Vec<f64> = ready.iter().zip(&next).map(long).collect();
        let from_there = step(got, beside, &further);
        if from_there.iter().zip(&further).all(|(to, from)| to >= from) {
            (ready, next) = (further, from_there);
            stride *= 2.0;
        } else {
            let after = step(got, beside, &next);
            (ready, next) = (next, after);
            stride = 2.0;
        }
    }
    next
}

fn step(got: &[f64], beside: &[f64], ready: &[f64]) -> Vec<f64> {
    let factor = |at: usize, s: f64| 1.0 - beside[at] * ready[at] * (1.0 - s);
    let mut chance = vec![0.0; got.len()];
    for (s, weight) in QUADRATURE {
        let all: f64 = (0..got.len()).map(|at| factor(at, s)).product();
        for (at, chance) in chance.iter_mut().enumerate() {
            // No factor is below s.
            *chance += weight * all / factor(at, s);
        }
    }
    let steps = got.iter().zip(&chance);
    steps
        .map(|(got, chance)| (got / chance.max(f64::MIN_POSITIVE)).min(1.0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn odd() -> impl Strategy<Value = f64> {
        prop_oneof![
            6 => 0.0..2.0f64,
            1 => Just(f64::NAN),
            1 => Just(f64::INFINITY),
            1 => Just(-1.0),
            1 => Just(0.0),
            1 => Just(f64::MAX),
        ]
    }

    proptest! {
        #[test]
        fn any_input_converges_to_a_demand_in_its_bounds(
            threads in proptest::collection::vec((odd(), odd()), 0..40),
            width in odd(),
            contexts in 0..10usize,
        ) {
            let threads: Vec<_> = threads.iter().map(|(ipc, presence)| Running { ipc: *ipc, presence: *presence }).collect();
            let solo = SoloCpi { width, contexts }.infer(&threads);
            let width = if width.is_finite() && width > 0.0 { width } else { 1.0 };
            for (thread, solo) in threads.iter().zip(&solo) {
                prop_assert!(solo.demand.is_finite() && (0.0..=1.0).contains(&solo.confidence), "{solo:?}");
                prop_assert!(solo.demand <= width * (1.0 + 1e-9));
                if thread.ipc.is_finite() {
                    prop_assert!(solo.demand >= thread.ipc.clamp(0.0, width) * (1.0 - 1e-9));
                }
            }
        }

        #[test]
        fn the_fixed_point_is_one(got in proptest::collection::vec(0.0..0.3f64, 1..9)) {
            let beside = vec![1.0; got.len()];
            let ready = fixed_point(&got, &beside);
            let again = step(&got, &beside, &ready);
            for (a, b) in ready.iter().zip(&again) {
                prop_assert!((a - b).abs() < 1e-3, "{ready:?} {again:?}");
            }
            // If no thread is always ready, the core is busy whenever at least one is ready.
            if ready.iter().all(|p| *p < 0.99) {
                let idle: f64 = ready.iter().map(|p| 1.0 - p).product();
                prop_assert!((got.iter().sum::<f64>() - (1.0 - idle)).abs() < 1e-3);
            }
        }
    }

    #[test]
    fn a_thread_alone_is_what_it_measures() {
        let core = SoloCpi {
            width: 2.0,
            contexts: 4,
        };
        let alone = Running {
            ipc: 1.3,
            presence: 1.0,
        };
        let solo = core.infer(&[alone])[0];
        assert!((solo.demand - 1.3).abs() < 1e-9 && solo.confidence > 1.0 - 1e-9);
    }
}
