//! What a thread will ask of the pipeline in the next period, from the periods behind it.
//!
//! An exponential average of the demand's logarithm. Each period is weighted by how certain its demand was: what was
//! seen with little contention outweighs guesses from a saturated core, and fades as periods pass. A change of phase
//! starts it anew.

/// Two demands that differ by more than this factor may be of two phases.
const PHASE: f64 = 1.25;

/// Two that differ by more than this are.
const OTHER: f64 = 2.0;

/// Below this confidence an observation is a bound more than a value.
const VAGUE: f64 = 0.5;

/// One period's demand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Observed {
    /// Instructions a cycle alone, above 0: as inferred, and an upper bound where the confidence is low.
    pub demand: f64,
    /// Instructions a cycle as measured: it cannot be less.
    pub at_least: f64,
    /// Above 0 and up to 1.
    pub confidence: f64,
}

/// A thread's demand over time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Predictor {
    /// The logarithm of the demand.
    mean: f64,
    /// The weight behind it; 0: nothing known.
    weight: f64,
    /// Periods in a row that looked like another phase; the sign says on which side.
    off: i32,
}

impl Predictor {
    /// The predicted demand, if any period gave one.
    pub fn demand(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.mean.exp())
    }

    /// Takes a period in. `smoothing` is the last period's weight among equally clear ones; `patience` is after how many
    /// periods a small change of phase is accepted.
    pub fn follow(&mut self, seen: Observed, smoothing: f64, patience: u32) -> f64 {
        let value = seen.demand.ln();
        let weight = seen.confidence * seen.confidence;
        if self.weight == 0.0 {
            *self = Self {
                mean: value,
                weight,
                off: 0,
            };
            return seen.demand;
        }
        // What is known lies between the bounds: a vague observation does not contradict it.
        let between = seen.at_least.ln() <= self.mean && self.mean <= value;
        let vague = seen.confidence < VAGUE && between;
        let distance = value - self.mean;
        let side = match distance {
            _ if vague || distance.abs() <= PHASE.ln() => 0,
            _ if distance > 0.0 => 1,
            _ => -1,
        };
        self.off = match side {
            0 => 0,
            side if side == self.off.signum() => self.off.saturating_add(side),
            side => side,
        };
        let jumps = distance.abs() > OTHER.ln() || self.off.unsigned_abs() >= patience;
        if side != 0 && jumps {
            *self = Self {
                mean: value,
                weight,
                off: 0,
            };
        } else {
            let kept = self.weight * (1.0 - smoothing);
            let new = weight * smoothing;
            self.weight = kept + new;
            if self.weight > 0.0 {
                self.mean = (kept * self.mean + new * value) / self.weight;
            }
        }
        let floor = if vague { seen.at_least.ln() } else { self.mean };
        self.mean = self.mean.max(floor);
        self.mean.exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn clear(demand: f64) -> Observed {
        Observed {
            demand,
            at_least: demand,
            confidence: 1.0,
        }
    }

    proptest! {
        #[test]
        fn noise_is_averaged_away(demand in 0.05..1.0f64, noise in proptest::collection::vec(-0.08..0.08f64, 30)) {
            let mut predictor = Predictor::default();
            let (mut naive, mut ours) = (0.0, 0.0);
            let mut last = demand;
            for noise in noise {
                let seen = demand * (1.0 + noise);
                naive += (last / demand - 1.0).powi(2);
                last = seen;
                ours += (predictor.demand().unwrap_or(demand) / demand - 1.0).powi(2);
                predictor.follow(clear(seen), 0.3, 2);
            }
            prop_assert!(ours <= naive + 0.01, "{ours} > {naive}");
            prop_assert!((predictor.demand().unwrap() / demand - 1.0).abs() < 0.09);
        }

        #[test]
        fn a_change_of_phase_is_followed_after_patience(
            before in 0.05..1.0f64,
            factor in prop_oneof![1.4..1.9f64, 0.55..0.7f64, 2.5..10.0f64],
            patience in 1..5u32,
        ) {
            let mut predictor = Predictor::default();
            for _ in 0..10 {
                predictor.follow(clear(before), 0.1, patience);
            }
            let after = before * factor;
            for _ in 0..patience {
                predictor.follow(clear(after), 0.1, patience);
            }
            prop_assert!((predictor.demand().unwrap() / after - 1.0).abs() < 0.2);
        }

        #[test]
        fn a_saturated_core_does_not_blot_out_what_was_clear(demand in 0.3..0.9f64, periods in 1..6usize) {
            let mut predictor = Predictor::default();
            predictor.follow(clear(demand), 0.5, 2);
            for _ in 0..periods {
                predictor.follow(Observed { demand: 1.0, at_least: 0.25, confidence: 0.25 }, 0.5, 2);
            }
            let predicted = predictor.demand().unwrap();
            prop_assert!(predicted >= demand * (1.0 - 1e-9) && predicted < demand + (1.0 - demand) * 0.85);
        }
    }
}
