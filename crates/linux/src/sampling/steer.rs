//! On which CPUs to sample: where our threads run, and nowhere else, since the clock would also wake idle CPUs.

use crate::span::{counted, is_due};
use perch_core::PuSet;
use std::{collections::HashMap, time::Duration};

/// For so long a CPU is still sampled after our last thread was seen there.
const LINGER: Duration = Duration::from_secs(2);

/// So much time's samples tell whether some are missing, and so long they are looked for everywhere then: in less there
/// may be too few of a thread.
const LOOK: Duration = Duration::from_secs(1);

/// Below this share of the samples that the threads' CPU time promises, they must have run on CPUs that are not
/// sampled.
const EXPECTED: f64 = 0.7;

/// Samples that may be missing without saying anything.
const SLACK: f64 = 10.0;

/// Where our threads were seen.
#[derive(Debug, Default)]
pub(super) struct Whereabouts {
    /// How long ago one of ours was last seen on a CPU: none for this period.
    seen: HashMap<u32, Duration>,
    /// Samples that were expected, and those that were taken, in this time.
    expected: f64,
    taken: u64,
    passed: Duration,
    /// For how long everything has been looked at.
    everywhere: Option<Duration>,
}

impl Whereabouts {
    /// One of ours was on this CPU in this period.
    pub(super) fn note(&mut self, cpu: u32) {
        self.seen.insert(cpu, Duration::ZERO);
    }

    /// Ends a period: on which CPUs to sample in the next. `expected` samples should have been taken of our threads
    /// and `taken` were; `sampled` CPUs were looked at, of `all` that can be.
    ///
    /// Normally that is where they were seen in the last two seconds or long periods. If many samples are missing they
    /// have moved to CPUs that are not sampled: then everywhere, for a second or a long period.
    pub(super) fn next(
        &mut self,
        period: Duration,
        (expected, taken): (f64, u64),
        sampled: &PuSet,
        all: &PuSet,
    ) -> PuSet {
        self.seen.retain(|_, ago| {
            let lingers = !is_due(*ago, period, LINGER);
            *ago += counted(period);
            lingers
        });
        if let Some(passed) = &mut self.everywhere {
            *passed += period;
            if !is_due(*passed, period, LOOK) {
                return all.clone();
            }
            self.everywhere = None;
            (self.expected, self.taken, self.passed) = (0.0, 0, Duration::ZERO);
        }
        self.expected += expected;
        self.taken += taken;
        self.passed += period;
        let missing = (self.taken as f64) < EXPECTED * self.expected - SLACK;
        let looked = missing || is_due(self.passed, period, LOOK);
        if looked {
            (self.expected, self.taken, self.passed) = (0.0, 0, Duration::ZERO);
        }
        if missing && sampled != all {
            self.everywhere = Some(Duration::ZERO);
            return all.clone();
        }
        let seen: PuSet = self.seen.keys().copied().collect();
        seen.and(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn set(cpus: &[u32]) -> PuSet {
        cpus.iter().copied().collect()
    }

    #[test]
    fn idle_cpus_are_left_in_peace() {
        let all: PuSet = (0..64).collect();
        let mut whereabouts = Whereabouts::default();
        whereabouts.note(3);
        whereabouts.note(7);
        let next = whereabouts.next(SECOND, (500.0, 490), &all, &all);
        assert_eq!(next, set(&[3, 7]));
        whereabouts.note(3);
        assert_eq!(
            whereabouts.next(SECOND, (250.0, 245), &next, &all),
            set(&[3, 7])
        );
        whereabouts.note(3);
        assert_eq!(
            whereabouts.next(SECOND, (250.0, 245), &next, &all),
            set(&[3])
        );
        whereabouts.next(SECOND, (0.0, 0), &all, &all);
        assert!(whereabouts.next(SECOND, (0.0, 0), &all, &all).is_empty());
    }

    #[test]
    fn threads_that_moved_are_looked_for_everywhere() {
        let all: PuSet = (0..64).collect();
        let mut whereabouts = Whereabouts::default();
        whereabouts.note(3);
        let next = whereabouts.next(SECOND, (250.0, 100), &set(&[3]), &all);
        assert_eq!(next, all);
        // found again
        whereabouts.note(9);
        let next = whereabouts.next(SECOND, (250.0, 250), &next, &all);
        assert!(next.contains(9) && next.len() <= 2);
    }

    #[test]
    fn short_periods_remember_as_long_and_look_as_long() {
        let tenth = SECOND / 10;
        let all: PuSet = (0..64).collect();
        let mut whereabouts = Whereabouts::default();
        whereabouts.note(3);
        let seen =
            (0..30).take_while(|_| whereabouts.next(tenth, (0.0, 0), &all, &all).contains(3));
        assert_eq!(seen.count(), 20);
        // Three samples are missing in each tenth of a second: that shows before a second has passed.
        let some = set(&[5]);
        let everywhere: Vec<bool> = (0..20)
            .map(|_| whereabouts.next(tenth, (3.0, 0), &some, &all) == all)
            .collect();
        assert_eq!(everywhere.iter().position(|all| *all), Some(4));
        assert_eq!(everywhere[4..].iter().take_while(|all| **all).count(), 10);
        // As many as are taken when nothing is missing.
        for _ in 0..30 {
            let next = whereabouts.next(tenth, (3.0, 3), &some, &all);
            assert!(next.is_empty() || next == all);
        }
        assert!(whereabouts.next(tenth, (3.0, 3), &some, &all).is_empty());
    }

    proptest! {
        #[test]
        fn only_cpus_that_there_are(
            seen in proptest::collection::vec(0u32..100, 0..20),
            there in proptest::collection::btree_set(0u32..100, 1..50),
            expected in 0.0f64..1000.0,
            taken in 0u64..1000,
        ) {
            let all: PuSet = there.into_iter().collect();
            let mut whereabouts = Whereabouts::default();
            for cpu in &seen {
                whereabouts.note(*cpu);
            }
            let next = whereabouts.next(SECOND, (expected, taken), &all, &all);
            prop_assert!(next.is_subset(&all));
            for cpu in seen {
                prop_assert_eq!(next.contains(cpu), all.contains(cpu));
            }
        }
    }
}
