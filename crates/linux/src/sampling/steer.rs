//! On which CPUs to sample: where our threads run, and nowhere else, since the clock would also wake idle CPUs.

use perch_core::PuSet;
use std::collections::HashMap;

/// Periods for which a CPU is still sampled after our last thread was seen there.
const LINGER: u64 = 2;

/// Below this share of the samples that the threads' CPU time promises, they must have run on CPUs that are not
/// sampled.
const EXPECTED: f64 = 0.7;

/// Samples that may be missing without saying anything.
const SLACK: f64 = 10.0;

/// Where our threads were seen.
#[derive(Debug, Default)]
pub(super) struct Whereabouts {
    /// The period in which one of ours was last seen on a CPU.
    seen: HashMap<u32, u64>,
    period: u64,
}

impl Whereabouts {
    /// One of ours was on this CPU in this period.
    pub(super) fn note(&mut self, cpu: u32) {
        self.seen.insert(cpu, self.period);
    }

    /// Ends a period: on which CPUs to sample in the next. `expected` samples should have been taken of our threads
    /// and `taken` were; `sampled` CPUs were looked at, of `all` that can be.
    ///
    /// Normally that is where they were seen in the last two periods. If many samples are missing they have moved to on
    /// CPUs that are not sampled: then everywhere, for a period.
    pub(super) fn next(
        &mut self,
        expected: f64,
        taken: u64,
        sampled: &PuSet,
        all: &PuSet,
    ) -> PuSet {
        let period = self.period;
        self.period += 1;
        self.seen.retain(|_, seen| period - *seen < LINGER);
        let missing = (taken as f64) < EXPECTED * expected - SLACK;
        if missing && sampled != all {
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

    fn set(cpus: &[u32]) -> PuSet {
        cpus.iter().copied().collect()
    }

    #[test]
    fn idle_cpus_are_left_in_peace() {
        let all: PuSet = (0..64).collect();
        let mut whereabouts = Whereabouts::default();
        whereabouts.note(3);
        whereabouts.note(7);
        let next = whereabouts.next(500.0, 490, &all, &all);
        assert_eq!(next, set(&[3, 7]));
        whereabouts.note(3);
        assert_eq!(whereabouts.next(250.0, 245, &next, &all), set(&[3, 7]));
        whereabouts.note(3);
        assert_eq!(whereabouts.next(250.0, 245, &next, &all), set(&[3]));
        whereabouts.next(0.0, 0, &all, &all);
        assert!(whereabouts.next(0.0, 0, &all, &all).is_empty());
    }

    #[test]
    fn threads_that_moved_are_looked_for_everywhere() {
        let all: PuSet = (0..64).collect();
        let mut whereabouts = Whereabouts::default();
        whereabouts.note(3);
        let next = whereabouts.next(250.0, 100, &set(&[3]), &all);
        assert_eq!(next, all);
        // found again
        whereabouts.note(9);
        let next = whereabouts.next(250.0, 250, &next, &all);
        assert!(next.contains(9) && next.len() <= 2);
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
            let next = whereabouts.next(expected, taken, &all, &all);
            prop_assert!(next.is_subset(&all));
            for cpu in seen {
                prop_assert_eq!(next.contains(cpu), all.contains(cpu));
            }
        }
    }
}
