//! Time as it is counted whatever the interval, so that the same is remembered for as long, and done as often a second, at
//! every interval.

use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// No interval is exactly as long as asked for: from this length on it counts as a second.
const NEARLY: Duration = Duration::from_millis(900);

/// What an interval counts for. Longer ones count as one second: what is remembered for seconds is remembered for as many
/// long intervals.
pub(crate) fn counted(interval: Duration) -> Duration {
    match interval >= NEARLY {
        true => SECOND,
        false => interval,
    }
}

/// Whether the end of this interval is the one that is nearest to `after`, so much time having passed, the interval
/// included: intervals are never exactly as long as asked for.
pub(crate) fn is_due(passed: Duration, interval: Duration, after: Duration) -> bool {
    passed + counted(interval) / 2 >= after
}

/// What may be done so often a second, at most a second's worth at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    a_second: f64,
    left: f64,
}

impl Allowance {
    /// The first second's is there at once.
    pub(crate) fn new(a_second: usize) -> Self {
        let a_second = a_second as f64;
        Self {
            a_second,
            left: a_second,
        }
    }

    /// An interval has passed.
    pub(crate) fn refill(&mut self, interval: Duration) {
        let more = self.a_second * counted(interval).as_secs_f64();
        self.left = (self.left + more).min(self.a_second);
    }

    /// How often now.
    pub(crate) fn left(&self) -> usize {
        self.left as usize
    }

    /// Once, if it may be done.
    pub(crate) fn take(&mut self) -> bool {
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the intervals, a second's worth a second and no more than that at once.
        #[test]
        fn an_allowance_is_for_a_second(
            a_second in 1usize..200,
            intervals in prop::collection::vec(5u64..3_000, 1..100),
        ) {
            let mut allowance = Allowance::new(a_second);
            let (mut taken, mut passed) = (0, 0.0);
            for milliseconds in intervals {
                prop_assert!(allowance.left() <= a_second);
                while allowance.take() {
                    taken += 1;
                }
                let interval = Duration::from_millis(milliseconds);
                allowance.refill(interval);
                passed += counted(interval).as_secs_f64();
            }
            let most = a_second as f64 * (passed + 1.0);
            prop_assert!(f64::from(taken) <= most + 1e-6, "{taken} in {passed} s");
        }
    }

    #[test]
    fn intervals_of_a_second_have_all_of_it_and_short_ones_their_part() {
        let mut allowance = Allowance::new(64);
        for (milliseconds, expected) in [(1_000, 64), (995, 64), (5_000, 64), (250, 16), (100, 6)] {
            while allowance.take() {}
            allowance.left = 0.0;
            allowance.refill(Duration::from_millis(milliseconds));
            assert_eq!(allowance.left(), expected, "{milliseconds} ms");
        }
    }

    #[test]
    fn what_is_due_after_a_second_is_due_at_each_end_of_a_second() {
        let second = Duration::from_secs(1);
        let at = |milliseconds| Duration::from_millis(milliseconds);
        for jitter in [990, 1_000, 1_010, 5_000] {
            assert!(is_due(counted(at(jitter)), at(jitter), second));
        }
        let due = (1..20).find(|n| is_due(at(100) * *n, at(100), second));
        assert_eq!(due, Some(10));
    }
}
