//! How soon a stream comes back to a line: reuse times, and what follows from them.
//!
//! A reuse time is counted in the stream's own visits of lines. From their distribution follows how many different
//! lines a stretch of visits touches (Eklov and Hagersten, StatStack, ISPASS 2010: the expected number is the sum over
//! the stretch of the share of visits whose reuse reaches beyond it), and from that who evicts whom.

use std::sync::Arc;

/// The ends of the classes of reuse times of a random walk, as shares of all visits: fine at both ends, since caches
/// that hold little or nearly all of a working set are decided there.
const SHARES: [f64; 21] = [
    0.0, 0.001, 0.003, 0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.94, 0.97,
    0.99, 0.997, 0.999, 1.0,
];

/// Some visits with about the same reuse time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    /// Visits until the line is visited again.
    pub after: f64,
    /// Share of all visits.
    pub share: f64,
}

/// The reuse times of a stream.
#[derive(Debug, Clone)]
pub(super) struct Reuse {
    times: Arc<Times>,
}

#[derive(Debug)]
struct Times {
    /// By rising time.
    points: Box<[Point]>,
    /// Before each point, and after the last: how many different lines the earlier ones touch at most, and the share of
    /// all visits that the others are.
    sums: Box<[(f64, f64)]>,
}

impl Reuse {
    /// Every line is as likely as any other: reuse times are exponential.
    pub fn random(lines: f64) -> Self {
        if lines <= 1.0 {
            return Self::cyclic(1.0);
        }
        // The integral of t e^-t from a on.
        let beyond = |share: f64| match share < 1.0 {
            true => (1.0 - share) * (1.0 - (1.0 - share).ln()),
            false => 0.0,
        };
        let points = SHARES.windows(2).map(|ends| {
            let share = ends[1] - ends[0];
            Point {
                after: lines * (beyond(ends[0]) - beyond(ends[1])) / share,
                share,
            }
        });
        Self::measured(points.collect())
    }

    /// All lines one after the other, again and again.
    pub fn cyclic(lines: f64) -> Self {
        let point = Point {
            after: lines.max(1.0),
            share: 1.0,
        };
        Self::measured(vec![point])
    }

    /// As measured, by rising time; the shares add up to 1.
    pub fn measured(points: Vec<Point>) -> Self {
        let mut sums: Vec<(f64, f64)> = vec![(0.0, 0.0); points.len() + 1];
        for (at, point) in points.iter().enumerate() {
            sums[at + 1].0 = sums[at].0 + point.share * point.after;
        }
        for (at, point) in points.iter().enumerate().rev() {
            sums[at].1 = sums[at + 1].1 + point.share;
        }
        let times = Times {
            points: points.into(),
            sums: sums.into(),
        };
        Self {
            times: Arc::new(times),
        }
    }

    /// Whether both are one, not only alike.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.times, &other.times)
    }

    /// The classes of reuse times, by rising time.
    pub fn points(&self) -> &[Point] {
        &self.times.points
    }

    /// Whether all lines are visited one after the other.
    pub fn in_order(&self) -> bool {
        self.points().len() == 1
    }

    /// How many different lines this many visits touch.
    pub fn distinct(&self, visits: f64) -> f64 {
        let times = &self.times;
        let (touched, later) = times.sums[times.points.partition_point(|p| p.after <= visits)];
        if later > 0.0 {
            touched + later * visits
        } else {
            touched
        }
    }

    /// What the next level sees, if of each class this share misses. The number of lines stays what it is.
    pub fn missed(&self, misses: &[f64]) -> Self {
        let total: f64 = self.weigh(misses, |_| 1.0);
        if total <= 0.0 {
            return self.clone();
        }
        let lines = self.distinct(f64::INFINITY);
        let mean = self.weigh(misses, |point| point.after) / total;
        let points = self
            .points()
            .iter()
            .zip(misses)
            .map(|(point, missed)| Point {
                after: (point.after * lines / mean).max(1.0),
                share: point.share * missed / total,
            });
        Self::measured(points.filter(|point| point.share > 0.0).collect())
    }

    fn weigh(&self, weights: &[f64], value: impl Fn(&Point) -> f64) -> f64 {
        let weighed = self.points().iter().zip(weights);
        weighed
            .map(|(point, weight)| point.share * weight * value(point))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(reuse: &Reuse) -> f64 {
        reuse.distinct(f64::INFINITY)
    }

    proptest! {
        /// A walk touches what chance says: N (1 - e^(-v/N)) lines in v visits, and all of them at last.
        #[test]
        fn a_random_walk_touches_as_many_lines_as_chance_says(n in 2.0f64..1e6, v in 0.01f64..5.0) {
            let reuse = Reuse::random(n);
            prop_assert!((lines(&reuse) / n - 1.0).abs() < 1e-9);
            let expected = n * (1.0 - (-v).exp());
            prop_assert!((reuse.distinct(v * n) / expected - 1.0).abs() < 0.02);
        }

        /// Shares add up to one and the number of lines stays, whatever a cache keeps.
        #[test]
        fn a_cache_takes_visits_away_and_no_lines(
            n in 2.0f64..1e6,
            kept in proptest::collection::vec(0.0f64..1.0, SHARES.len() - 1),
        ) {
            let rest = Reuse::random(n).missed(&kept);
            let shares: f64 = rest.points().iter().map(|point| point.share).sum();
            prop_assert!((shares - 1.0).abs() < 1e-9);
            prop_assert!((lines(&rest) / n - 1.0).abs() < 0.05, "{}", lines(&rest) / n);
        }
    }
}
