//! How far what the interval level says of placements is what the cycle level says.

use super::score::{Again, DRAW};

/// Compares both levels over all results that were judged again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Agreement {
    /// Mean of |ratio at the interval level - ratio at the cycle level|; ratios are those of [`Again`].
    pub mean: f64,
    /// The largest.
    pub largest: f64,
    /// Results in which the interval level sees one placement ahead of the other by more than 0.5 %.
    pub decided: usize,
    /// Those of them in which the same placement is ahead at the cycle level.
    pub agreed: usize,
}

impl Agreement {
    /// Of these results; nothing if there are none.
    pub fn of(again: &[Again]) -> Option<Self> {
        if again.is_empty() {
            return None;
        }
        let differences = || again.iter().map(|one| (one.interval - one.cycle).abs());
        let decided = || again.iter().filter(|one| (one.interval - 1.0).abs() > DRAW);
        let agrees = |one: &&Again| (one.interval > 1.0) == (one.cycle > 1.0);
        Some(Self {
            mean: differences().sum::<f64>() / again.len() as f64,
            largest: differences().fold(0.0, f64::max),
            decided: decided().count(),
            agreed: decided().filter(agrees).count(),
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
        }
    }

    #[test]
    fn only_clear_differences_are_held_against_the_cycle_level() {
        let all = [again(1.1, 1.08), again(0.9, 1.01), again(1.002, 0.99)];
        let found = Agreement::of(&all).unwrap();
        assert_eq!((found.decided, found.agreed), (2, 1));
        assert!((found.largest - 0.11).abs() < 1e-9, "{found:?}");
        assert!((found.mean - 0.142 / 3.0).abs() < 1e-9, "{found:?}");
        assert_eq!(Agreement::of(&[]), None);
    }
}
