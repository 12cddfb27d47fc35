//! How far back the results stand that instructions need.

use serde::{Deserialize, Serialize};

/// The longest distance of a dependency: every core remembers this many results.
pub const FURTHEST: u16 = 63;

/// Distances of the dependencies of a mix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Depends {
    /// Each instruction has this distance; 0: none.
    Always(u16),
    /// The share of each distance from 0 (none) to [`FURTHEST`]. They add up to 1.
    Shares(Vec<f64>),
}

impl Default for Depends {
    fn default() -> Self {
        Depends::Always(0)
    }
}

impl From<u16> for Depends {
    fn from(distance: u16) -> Self {
        Depends::Always(distance)
    }
}

impl Depends {
    /// A geometric distribution of this mean, 1 or more. The part beyond [`FURTHEST`] has distance 0, since a core
    /// remembers no more results, and so old ones are there.
    pub fn geometric(mean: f64) -> Self {
        let ends = 1.0 / mean.max(1.0);
        let mut beyond = 1.0;
        let mut shares = vec![0.0];
        for _ in 1..=FURTHEST {
            shares.push(beyond * ends);
            beyond *= 1.0 - ends;
        }
        shares[0] = beyond;
        Depends::Shares(shares)
    }

    /// Distances with their relative shares, of which one is above 0. `None` if a distance is beyond [`FURTHEST`] or
    /// no share is above 0.
    pub fn listed(list: &[(u16, f64)]) -> Option<Self> {
        let mut shares = vec![0.0; usize::from(FURTHEST) + 1];
        for (distance, share) in list {
            *shares.get_mut(usize::from(*distance))? += share;
        }
        let all: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= all);
        (all > 0.0).then_some(Depends::Shares(shares))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_geometric_distribution_has_its_mean_and_its_tail_is_none() {
        let Depends::Shares(shares) = Depends::geometric(2.5) else {
            panic!("no distribution");
        };
        let mean: f64 = (0..)
            .zip(&shares)
            .map(|(at, share)| f64::from(at) * share)
            .sum();
        assert!((mean - 2.5).abs() < 1e-9, "{mean}");
        assert!((shares[1] - 0.4).abs() < 1e-9 && (shares[2] - 0.24).abs() < 1e-9);
        let Depends::Shares(wide) = Depends::geometric(63.0) else {
            panic!("no distribution");
        };
        assert!((wide[0] - (62.0f64 / 63.0).powi(63)).abs() < 1e-9);
        assert!((wide.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
