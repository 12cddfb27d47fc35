//! How repeated measurements spread.

use serde::Serialize;
use statrs::statistics::{Data, Median, OrderStatistics};

/// Values of one kind, such as run times in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The lower quartile.
    pub lower_quartile: f64,
    /// The upper quartile.
    pub upper_quartile: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// All, in the order in which they were measured.
    #[serde(skip)]
    pub values: Vec<f64>,
}

impl Spread {
    /// Of these values.
    pub fn new(values: &[f64]) -> Self {
        let mut data = Data::new(values.to_vec());
        Self {
            median: data.median(),
            lower_quartile: data.lower_quartile(),
            upper_quartile: data.upper_quartile(),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(0.0, f64::max),
            values: values.to_vec(),
        }
    }

    /// The quartiles' distance as a part of the median; `None` if there are fewer than two values.
    pub fn relative(&self) -> Option<f64> {
        let part = (self.upper_quartile - self.lower_quartile) / self.median;
        (self.values.len() > 1 && part.is_finite()).then_some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_relative_to_the_median_and_needs_two_values() {
        assert_eq!(Spread::new(&[2.0]).relative(), None);
        assert_eq!(Spread::new(&[2.0; 5]).relative(), Some(0.0));
    }
}
