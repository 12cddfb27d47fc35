//! How far an estimated share may be off, given the spread of its samples.

/// Two-sided 99 % quantile of the normal distribution.
pub const Z99: f64 = 2.575_829_303_548_901;

/// An error of this size is small enough to act on: five points.
pub const TOLERANCE: f64 = 0.05;

/// Spread assumed before samples have shown theirs, and how many samples that assumption is worth.
/// A standard deviation of 0.2 is what the most mixed programs show.
const PRIOR_VARIANCE: f64 = 0.2 * 0.2;
const PRIOR_WEIGHT: f64 = 2.0;

/// Running mean and variance of a share, one value a sample.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spread {
    count: u64,
    sum: f64,
    squares: f64,
}

impl Spread {
    /// Adds one sample's share, 0 to 1.
    #[inline]
    pub fn add(&mut self, share: f64) {
        self.count += 1;
        self.sum += share;
        self.squares += share * share;
    }

    /// Samples added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Mean share; 0 without samples.
    pub fn mean(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.sum / self.count as f64
        }
    }

    /// Standard error of the mean, infinite without samples:
    /// sqrt(v / n), v = (Σ(x - mean)² + 2 · 0.2²) / (n + 2).
    ///
    /// The two pseudo-samples keep a handful of equal samples from claiming certainty.
    pub fn standard_error(&self) -> f64 {
        if self.count == 0 {
            return f64::INFINITY;
        }
        let n = self.count as f64;
        let deviations = (self.squares - self.sum * self.sum / n).max(0.0);
        let variance = (deviations + PRIOR_WEIGHT * PRIOR_VARIANCE) / (n + PRIOR_WEIGHT);
        (variance / n).sqrt()
    }

    /// Half-width of the 99 % interval around the mean, at most 1. It knows of sampling noise only.
    pub fn half_width(&self) -> f64 {
        (Z99 * self.standard_error()).min(1.0)
    }
}

/// Probability that an estimate with this standard error is within `tolerance` of the truth, by the normal
/// approximation: erf(tolerance / (√2 · error)).
pub fn within(tolerance: f64, error: f64) -> f64 {
    if error <= 0.0 {
        return 1.0;
    }
    libm::erf(tolerance / (std::f64::consts::SQRT_2 * error))
}

/// Whether `share`, with this standard error, is above `threshold`, with the probability that the truth is on the same
/// side (at least one half).
pub fn above(share: f64, error: f64, threshold: f64) -> (bool, f64) {
    let distance = share - threshold;
    (distance >= 0.0, 0.5 * (1.0 + within(distance.abs(), error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spread(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut spread = Spread::default();
        values.into_iter().for_each(|value| spread.add(value));
        spread
    }

    #[test]
    fn a_hundred_and_ten_mixed_samples_give_five_points_at_99_percent() {
        // Alternating between 0.1 and 0.5: standard deviation 0.2.
        let many = spread((0..110).map(|i| if i % 2 == 0 { 0.1 } else { 0.5 }));
        assert!(
            (many.half_width() - 0.05).abs() < 0.001,
            "{}",
            many.half_width()
        );
        assert!(within(TOLERANCE, many.standard_error()) > 0.98);
    }

    #[test]
    fn ten_samples_give_a_verdict() {
        let integer = spread([0.0; 10]);
        let (is_above, probability) = above(integer.mean(), integer.standard_error(), 0.05);
        assert!(!is_above && probability > 0.95, "{probability}");
        let float = spread((0..10).map(|i| if i % 2 == 0 { 0.1 } else { 0.5 }));
        let (is_above, probability) = above(float.mean(), float.standard_error(), 0.05);
        assert!(is_above && probability > 0.99, "{probability}");
    }

    #[test]
    fn no_sample_is_no_confidence() {
        assert_eq!(within(TOLERANCE, Spread::default().standard_error()), 0.0);
        assert_eq!(Spread::default().half_width(), 1.0);
    }

    proptest! {
        #[test]
        fn more_of_the_same_is_more_certain(values in prop::collection::vec(0.0f64..=1.0, 1..40)) {
            let once = spread(values.iter().copied());
            let thrice = spread(values.iter().chain(&values).chain(&values).copied());
            prop_assert!(thrice.half_width() <= once.half_width() + 1e-12);
            let confidence = |spread: &Spread| within(TOLERANCE, spread.standard_error());
            prop_assert!(confidence(&thrice) >= confidence(&once) - 1e-12);
            prop_assert!((thrice.mean() - once.mean()).abs() < 1e-9);
        }
    }
}
