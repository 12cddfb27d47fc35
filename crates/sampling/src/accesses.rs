//! The memory that a thread was seen to touch lately.

use crate::footprint::LINE_BYTES;
use std::{collections::VecDeque, time::Duration};

/// Accesses that are remembered.
const WINDOW: usize = 1024;

/// Periods that are looked back on,
const PERIODS: usize = 16;

/// of about a second each, or longer ones: so at short intervals as much is known as at usual ones.
const PERIOD: Duration = Duration::from_secs(1);

/// Largest number of accesses that one sample gives.
pub(crate) const PER_SAMPLE: usize = 4;

/// One access to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The first byte's address.
    pub address: u64,
    /// Whether it writes; else it only reads.
    pub write: bool,
}

/// The lines of a thread's sampled accesses: of the last 16 seconds or
/// longer intervals, 1,024 at most. One without any holds no heap memory.
#[derive(Debug, Clone, Default)]
pub struct Accesses {
    /// Each line's number and, in the lowest bit, whether it was written.
    lines: VecDeque<u64>,
    /// How many of them are of each period, the present one last.
    periods: VecDeque<usize>,
    /// How much of the present one has passed.
    passed: Duration,
}

impl Accesses {
    /// Adds one access.
    #[inline]
    pub fn add(&mut self, access: Access) {
        if self.lines.len() == WINDOW {
            self.lines.pop_front();
            while self.periods.front() == Some(&0) {
                self.periods.pop_front();
            }
            if let Some(oldest) = self.periods.front_mut() {
                *oldest -= 1;
            }
        }
        self.lines
            .push_back(((access.address / LINE_BYTES) << 1) | u64::from(access.write));
        match self.periods.back_mut() {
            Some(present) => *present += 1,
            None => self.periods.push_back(1),
        }
    }

    /// An interval of this length is over: what is older than the last periods is forgotten.
    pub fn end_interval(&mut self, length: Duration) {
        if self.lines.is_empty() {
            *self = Self::default();
            return;
        }
        self.passed += length;
        // At the end of the interval that is nearest to a whole second.
        if self.passed + length.min(PERIOD) / 2 < PERIOD {
            return;
        }
        self.passed = Duration::ZERO;
        self.periods.push_back(0);
        if self.periods.len() > PERIODS {
            let old = self.periods.pop_front().unwrap_or(0);
            self.lines.drain(..old.min(self.lines.len()));
        }
    }

    /// Number of accesses held.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The latest of them, at most this many: each line's number and whether it was written.
    pub(crate) fn latest(&self, most: usize) -> impl Iterator<Item = (u64, bool)> + '_ {
        let latest = self.lines.iter().rev().take(most);
        latest.map(|packed| (packed >> 1, packed & 1 == 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_much_time_is_looked_back_on_at_every_interval() {
        let remembered = |milliseconds: u64, each: u64| {
            let mut accesses = Accesses::default();
            for address in 0..400 / each {
                for _ in 0..each {
                    accesses.add(Access {
                        address,
                        write: false,
                    });
                }
                accesses.end_interval(Duration::from_millis(milliseconds));
            }
            accesses.len()
        };
        // The present period is one of them, and is empty.
        assert_eq!(remembered(1_000, 10), 150);
        assert_eq!(remembered(990, 10), 150);
        assert_eq!(remembered(5_000, 10), 150);
        assert_eq!(remembered(100, 1), 150);
    }

    proptest! {
        /// What is remembered is the end of what was added, and of the last periods only.
        #[test]
        fn the_latest_are_remembered(periods in prop::collection::vec(0usize..600, 1..40)) {
            let mut accesses = Accesses::default();
            let (mut all, mut ends) = (Vec::new(), Vec::new());
            for count in periods {
                for at in 0..count as u64 {
                    let access = Access { address: at * 64 + 7, write: at % 3 == 0 };
                    accesses.add(access);
                    all.push((at, access.write));
                }
                prop_assert!(accesses.len() <= WINDOW);
                accesses.end_interval(PERIOD);
                ends.push(all.len());
                let seen: Vec<_> = accesses.latest(usize::MAX).collect();
                let expected: Vec<_> = all.iter().rev().take(seen.len()).copied().collect();
                prop_assert_eq!(&seen, &expected);
                // The present and empty one is among the periods.
                let old = ends.len().checked_sub(PERIODS).map_or(0, |at| ends[at]);
                prop_assert!(seen.len() <= all.len() - old);
                let recent = all.len() - old;
                prop_assert!(seen.len() >= recent.min(WINDOW));
            }
        }
    }
}
