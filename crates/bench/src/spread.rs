//! Medians and quartiles.

use serde::Serialize;
use statrs::statistics::{Data, Median, OrderStatistics};
use std::fmt;

/// A median with its quartiles.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The lower quartile.
    pub lower: f64,
    /// The upper quartile.
    pub upper: f64,
}

impl Spread {
    /// Of these values.
    pub fn of(values: &[f64]) -> Self {
        let mut data = Data::new(values.to_vec());
        Self {
            median: data.median(),
            lower: data.lower_quartile(),
            upper: data.upper_quartile(),
        }
    }

    /// The same in another unit.
    #[must_use]
    pub fn scaled(self, by: f64) -> Self {
        Self {
            median: self.median * by,
            lower: self.lower * by,
            upper: self.upper * by,
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2} ({:.2} – {:.2})",
            self.median, self.lower, self.upper
        )
    }
}
