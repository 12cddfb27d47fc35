//! Two ways of doing the same, measured alternately, pair by pair.

use serde::Serialize;
use statrs::{
    distribution::{Binomial, DiscreteCDF},
    statistics::{Data, Median, OrderStatistics},
};

/// Wall times in seconds, pair by pair.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Times {
    /// Of the usual way.
    pub without: Vec<f64>,
    /// Of the new one.
    pub with: Vec<f64>,
}

/// One way's times, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The lower quartile.
    pub lower_quartile: f64,
    /// The upper quartile.
    pub upper_quartile: f64,
    /// The shortest.
    pub min: f64,
    /// The longest.
    pub max: f64,
    /// All, in the order of the runs.
    pub times: Vec<f64>,
}

impl Spread {
    /// Of these times.
    pub fn new(times: &[f64]) -> Self {
        let mut data = Data::new(times.to_vec());
        Self {
            median: data.median(),
            lower_quartile: data.lower_quartile(),
            upper_quartile: data.upper_quartile(),
            min: times.iter().copied().fold(f64::INFINITY, f64::min),
            max: times.iter().copied().fold(0.0, f64::max),
            times: times.to_vec(),
        }
    }

    /// The quartiles' distance as a part of the median; `None` if there are fewer than two times.
    pub fn relative(&self) -> Option<f64> {
        let part = (self.upper_quartile - self.lower_quartile) / self.median;
        (self.times.len() > 1 && part.is_finite()).then_some(part)
    }
}

/// What two ways' times tell of their difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Without perch.
    pub without: Spread,
    /// With perch.
    pub with: Spread,
    /// Median with / median without: below 1, perch made it faster.
    pub ratio: f64,
    /// The smallest and largest ratio of a pair.
    pub pair_ratios: (f64, f64),
    /// Pairs in which the run with perch was the faster one.
    pub pairs_faster: usize,
    /// How probable at least so lopsided a result is if perch changes nothing (two-sided sign test).
    pub chance: f64,
    /// What may have spoiled the comparison.
    pub remarks: Vec<String>,
}

impl Comparison {
    /// Of these times, with remarks of the caller.
    pub fn new(times: &Times, remarks: Vec<String>) -> Self {
        let (without, with) = (Spread::new(&times.without), Spread::new(&times.with));
        let ratios: Vec<f64> = times
            .with
            .iter()
            .zip(&times.without)
            .map(|(with, without)| with / without)
            .collect();
        let faster = ratios.iter().filter(|ratio| **ratio < 1.0).count();
        Self {
            ratio: with.median / without.median,
            pair_ratios: (
                ratios.iter().copied().fold(f64::INFINITY, f64::min),
                ratios.iter().copied().fold(0.0, f64::max),
            ),
            pairs_faster: faster,
            chance: sign_test(faster as u64, ratios.len() as u64),
            remarks,
            without,
            with,
        }
    }
}

/// Two-sided sign test: how probable a split at least as uneven is among `pairs` fair coins.
pub fn sign_test(faster: u64, pairs: u64) -> f64 {
    let fewer = faster.min(pairs - faster);
    Binomial::new(0.5, pairs).map_or(1.0, |coins| (2.0 * coins.cdf(fewer)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sign_test_is_the_binomial_one() {
        assert!((sign_test(5, 5) - 0.0625).abs() < 1e-12);
        assert!((sign_test(0, 10) - 2.0 / 1024.0).abs() < 1e-12);
        assert_eq!(sign_test(2, 4), 1.0);
    }

    #[test]
    fn a_spread_is_relative_to_the_median_and_needs_two_times() {
        assert_eq!(Spread::new(&[2.0]).relative(), None);
        assert_eq!(Spread::new(&[2.0; 5]).relative(), Some(0.0));
    }
}
