//! How far what the interval level says of placements is what the cycle level says.

use super::score::Again;

/// Compares both levels over all results that were judged again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Agreement {
    /// Mean of |ratio at the interval level - ratio at the cycle level|; ratios are those of [`Again`].
    pub mean: f64,
    /// The largest.
    pub largest: f64,
    /// Results in which the same placement is ahead at both levels.
    pub agreed: usize,
    /// Results of which the cycle level's caches had not settled with one of both placements.
    pub unsettled: usize,
}

impl Agreement {
    /// Of these results; nothing if there are none.
    pub fn of(again: &[Again]) -> Option<Self> {
        if again.is_empty() {
            return None;
        }
        let differences = || again.iter().map(|one| (one.interval - one.cycle).abs());
        let agrees = |one: &&Again| (one.interval > 1.0) == (one.cycle > 1.0);
        Some(Self {
            mean: differences().sum::<f64>() / again.len() as f64,
            largest: differences().fold(0.0, f64::max),
            agreed: again.iter().filter(agrees).count(),
            unsettled: again.iter().filter(|one| !one.settled).count(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(interval: f64, cycle: f64) -> Again {
        Again {
            machine: "m".into(),
            workload: 0,
            contestant: "p".into(),
            interval,
            cycle,
            settled: cycle > 1.0,
        }
    }

    #[test]
    fn the_levels_agree_on_who_is_ahead_or_not() {
        let all = [again(1.1, 1.08), again(0.9, 1.01), again(0.9, 0.9)];
        let found = Agreement::of(&all).unwrap();
        assert_eq!((found.agreed, found.unsettled), (2, 1));
        assert!((found.largest - 0.11).abs() < 1e-9, "{found:?}");
        assert!((found.mean - 0.13 / 3.0).abs() < 1e-9, "{found:?}");
        assert_eq!(Agreement::of(&[]), None);
    }
}
