//! For how much of a thread's CPU time its counts stand.
//!
//! Counters are read a moment after CPU times, in which the thread may go on: what it does then is in this reading's counts,
//! but in the next one's CPU time.

/// How far, in nanoseconds of a thread's CPU time, its counters were read ahead of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ahead(u64);

impl Ahead {
    /// The CPU time for which the counts of a reading stand: its events were on for `enabled`, while the thread ran for
    /// `cpu_time`. If that was whenever it ran, what is missing was the kernel's, which switches threads: up to `beside`.
    /// All in nanoseconds.
    pub fn cover(&mut self, enabled: u64, cpu_time: u64, beside: u64) -> u64 {
        let due = cpu_time.saturating_sub(self.0);
        let covered = enabled.max(due.min(enabled.saturating_add(beside)));
        self.0 = self.0.saturating_add(covered).saturating_sub(cpu_time);
        covered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The thread runs for 10 ms in each interval. The counters of the first were read 2 ms late.
    #[test]
    fn what_was_read_too_early_is_not_covered_twice() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.cover(12, 10, 5), 12);
        // The rest of the second interval: nothing is missing in it.
        assert_eq!(ahead.cover(8, 10, 5), 8);
        assert_eq!(ahead.cover(9, 10, 5), 10);
        // More than switches take is missing.
        assert_eq!(ahead.cover(3, 10, 5), 8);
    }

    proptest! {
        /// However late readings are, what is covered in all is never more than what the thread had run when its counters
        /// were read. What its switches took is missing in it once for each late reading at most.
        #[test]
        fn sums_are_those_of_the_thread(
            intervals in proptest::collection::vec((0u64..1000, 0u64..100, 0u64..=100), 1..40),
        ) {
            let mut ahead = Ahead::default();
            let (mut ran, mut read, mut covered, mut lacking) = (0u64, 0u64, 0u64, 0u64);
            for (cpu_time, late, missing) in intervals {
                ran += cpu_time;
                let at = (ran + late).max(read);
                let enabled = (at - read).saturating_sub(missing);
                read = at;
                covered += ahead.cover(enabled, cpu_time, 100);
                prop_assert!(covered + lacking >= ran, "{covered} of {ran}");
                prop_assert!(covered <= at, "{covered} up to {at}");
                lacking += if late > 0 { missing } else { 0 };
            }
        }
    }
}
