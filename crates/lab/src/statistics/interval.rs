//! Where a true value lies, from few repetitions with outliers.
//!
//! Two bounds are computed, and the wider one counts, so that the interval holds if either one's assumption does:
//!
//! - **Student's**, of the trimmed mean with the winsorised variance (Tukey and McLaughlin 1963; Yuen, *Biometrika* 61,
//!   1974; Wilcox, *Introduction to Robust Estimation and Hypothesis Testing*, section 4.3). It learns the spread from
//!   the repetitions themselves, and assumes that they are about normal but for some outliers.
//! - **Chernoff's**, from draws of the noise alone that were measured in the same conditions ([`Noise`]; Chernoff,
//!   *Annals of Mathematical Statistics* 23, 1952). Few repetitions may agree by accident, above all if the noise has
//!   only two values (another guest is active or not); many draws of noise tell how probable that is.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Of the sorted repetitions one in so many is trimmed at either end.
const TRIMMED: usize = 8;

/// Tilts at which Chernoff's bound is tried: so many a factor of two, from 1/16 to 64 times 1 / the noise. Any tilt gives a
/// bound; the best one for normal noise is sqrt(2 ln(2 / level) / n) / the noise.
const PER_DOUBLING: i32 = 2;
const DOUBLINGS: std::ops::RangeInclusive<i32> = -4..=6;

/// A mean and what its error is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The trimmed mean.
    pub middle: f64,
    /// The interval reaches so far to either side; infinite if nothing is known.
    pub half: f64,
}

impl Interval {
    /// The interval that holds the true value with probability 1 - `level`: of independent `values`, whose noise without
    /// their mean is drawn from `noise`. The half is infinite for fewer than 3 values.
    pub fn new(values: &[f64], noise: &Noise, level: f64) -> Self {
        let Some((middle, error, freedom)) = trimmed(values) else {
            let sum: f64 = values.iter().sum();
            return Self {
                middle: sum / values.len().max(1) as f64,
                half: f64::INFINITY,
            };
        };
        let student = StudentsT::new(0.0, 1.0, freedom)
            .map_or(f64::INFINITY, |t| -t.inverse_cdf(level / 2.0));
        let half = match error > 0.0 {
            true => student * error,
            false => 0.0,
        };
        Self {
            middle,
            half: half.max(noise.half(values.len(), level)),
        }
    }

    /// The lower end.
    pub fn low(&self) -> f64 {
        self.middle - self.half
    }

    /// The upper end.
    pub fn high(&self) -> f64 {
        self.middle + self.half
    }
}

/// The trimmed mean, its standard error and the degrees of freedom; `None` for fewer than 3 values.
pub fn trimmed(values: &[f64]) -> Option<(f64, f64, f64)> {
    let n = values.len();
    if n < 3 {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = n / TRIMMED;
    let kept = n - 2 * cut;
    let mean = sorted[cut..n - cut].iter().sum::<f64>() / kept as f64;
    let (least, most) = (sorted[cut], sorted[n - 1 - cut]);
    let drawn_in: Vec<f64> = sorted.iter().map(|x| x.clamp(least, most)).collect();
    let middle = drawn_in.iter().sum::<f64>() / n as f64;
    let squares: f64 = drawn_in.iter().map(|x| (x - middle).powi(2)).sum();
    let error = (squares / (kept * (kept - 1)) as f64).sqrt();
    Some((mean, error, (kept - 1) as f64))
}

/// Draws of noise around 0, as symmetric as the noise is: only their sizes count.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Noise {
    /// Tilts, and the logarithm of the mean of cosh(tilt · draw) at each.
    tilts: Vec<(f64, f64)>,
}

impl Noise {
    /// From these draws; without any, none is known.
    pub fn new(draws: &[f64]) -> Self {
        let squares: f64 = draws.iter().map(|draw| draw * draw).sum();
        let size = (squares / draws.len().max(1) as f64).sqrt();
        if size <= 0.0 {
            return Self::default();
        }
        let steps = PER_DOUBLING * DOUBLINGS.start()..=PER_DOUBLING * DOUBLINGS.end();
        let tilts = steps.map(|step| {
            let tilt = (f64::from(step) / f64::from(PER_DOUBLING)).exp2() / size;
            (tilt, generated(draws, tilt))
        });
        Self {
            tilts: tilts.collect(),
        }
    }

    /// The mean of `n` draws is farther from 0 than this with a probability of at most `level`, if the draws from which
    /// this noise is known are like others.
    pub fn half(&self, n: usize, level: f64) -> f64 {
        let n = n.max(1) as f64;
        let bound = |(tilt, generated): &(f64, f64)| ((2.0 / level).ln() / n + generated) / tilt;
        let least = self.tilts.iter().map(bound).fold(f64::INFINITY, f64::min);
        if least.is_finite() { least } else { 0.0 }
    }
}

/// The logarithm of the mean of cosh(tilt · draw), without overflow.
fn generated(draws: &[f64], tilt: f64) -> f64 {
    let most = draws
        .iter()
        .map(|draw| (tilt * draw).abs())
        .fold(0.0, f64::max);
    let of = |draw: &f64| {
        let x = (tilt * draw).abs();
        (x - most).exp() * (1.0 + (-2.0 * x).exp()) / 2.0
    };
    let mean = draws.iter().map(of).sum::<f64>() / draws.len() as f64;
    most + mean.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_trimming_it_is_students_interval() {
        // Of 1 to 5: mean 3, standard error sqrt(2.5 / 5), t(4, 0.975) = 2.7764451.
        let found = Interval::new(&[1.0, 2.0, 3.0, 4.0, 5.0], &Noise::default(), 0.05);
        assert!((found.middle - 3.0).abs() < 1e-12);
        assert!(
            (found.half - 2.776_445_1 * 0.5f64.sqrt()).abs() < 1e-5,
            "{found:?}"
        );
        // A table's value far out: t(5, 0.9995) = 6.8688.
        let six = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let found = Interval::new(&six, &Noise::default(), 0.001);
        assert!(
            (found.half - 6.8688 * (3.5f64 / 6.0).sqrt()).abs() < 1e-3,
            "{found:?}"
        );
    }

    #[test]
    fn an_outlier_of_eight_hardly_counts() {
        let mut values = [0.01, -0.01, 0.02, -0.02, 0.0, 0.01, -0.01, 0.0];
        let clean = Interval::new(&values, &Noise::default(), 0.05);
        values[3] = 5.0;
        let found = Interval::new(&values, &Noise::default(), 0.05);
        assert!(
            found.middle < 0.01 && found.half < 2.0 * clean.half,
            "{found:?}"
        );
    }

    #[test]
    fn of_too_few_nothing_is_known() {
        assert_eq!(
            Interval::new(&[1.0, 1.0], &Noise::default(), 0.05).half,
            f64::INFINITY
        );
        assert_eq!(Interval::new(&[1.0; 3], &Noise::default(), 0.05).half, 0.0);
    }

    #[test]
    fn chernoffs_bound_is_hoeffdings_for_a_coin() {
        // Draws of ±1: the bound of the mean of n is at most sqrt(2 ln(2 / level) / n) (Hoeffding 1963), and not above 1
        // by more than the grid of tilts is coarse.
        let coin = Noise::new(&[1.0, -1.0]);
        for (n, level) in [(6, 0.05), (40, 0.01), (6, 1e-5)] {
            let hoeffding = (2.0 * (2.0f64 / level).ln() / n as f64).sqrt();
            let half = coin.half(n, level);
            assert!(half <= 1.05 * hoeffding, "{n} {level}: {half} {hoeffding}");
            // It cannot be less than what happens with that probability: all draws alike have 2^(1 - n).
            if 2f64.powi(1 - n as i32) > level {
                assert!(half >= 1.0, "{n} {level}: {half}");
            }
        }
    }

    #[test]
    fn noise_scales_and_no_noise_adds_nothing() {
        let (one, ten) = (Noise::new(&[0.1, 0.2, -0.3]), Noise::new(&[1.0, 2.0, -3.0]));
        assert!((10.0 * one.half(6, 1e-4) - ten.half(6, 1e-4)).abs() < 1e-9);
        assert_eq!(Noise::new(&[0.0; 9]).half(6, 1e-4), 0.0);
        assert_eq!(Noise::new(&[]).half(6, 1e-4), 0.0);
    }
}
