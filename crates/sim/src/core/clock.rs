//! A core's clock: from cycles to time and back, exactly, also when it goes at another pace from some moment on.

use crate::units::Ps;

/// Divides by a number that seldom changes, without a division.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Divisor {
    by: u64,
    /// 2^64 over `by`, rounded up: the upper half of a product with it is the quotient, for numbers and divisors below
    /// 2^32 (Lemire, Kaser, Kurz: Faster remainder by direct computation, 2019).
    inverse: u64,
}

impl Divisor {
    fn new(by: u64) -> Self {
        Self {
            by,
            inverse: (u64::MAX / by).wrapping_add(1),
        }
    }

    /// The quotient rounded up.
    #[inline]
    fn ceil(self, number: u64) -> u64 {
        let above = number + (self.by - 1);
        if above | self.by > u64::from(u32::MAX) || self.by == 1 {
            return above / self.by;
        }
        ((u128::from(above) * u128::from(self.inverse)) >> 64) as u64
    }
}

/// Cycles and time. Cycles are numbered from the beginning, at whatever pace they went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    period: Divisor,
    /// A cycle since which the pace has been this one.
    cycle: u64,
    /// When that began.
    at: Ps,
}

impl Clock {
    /// A clock whose cycle 0 begins at time 0. A period of 0 is taken as 1.
    pub fn new(period: Ps) -> Self {
        Self {
            period: Divisor::new(period.max(1)),
            cycle: 0,
            at: 0,
        }
    }

    /// How long a cycle is.
    pub fn period(&self) -> Ps {
        self.period.by
    }

    /// From the beginning of cycle `cycle` on, cycles take so long.
    pub fn change(&mut self, cycle: u64, period: Ps) {
        self.at = self.time(cycle);
        self.cycle = cycle;
        self.period = Divisor::new(period.max(1));
    }

    /// When a cycle begins, if it is none from before the last change.
    #[inline]
    pub fn time(&self, cycle: u64) -> Ps {
        self.at + cycle.saturating_sub(self.cycle) * self.period.by
    }

    /// The first cycle that begins at a moment or later.
    #[inline]
    pub fn cycle(&self, at: Ps) -> u64 {
        self.cycle + self.cycles(at.saturating_sub(self.at))
    }

    /// How many cycles some time takes, the last one whole.
    #[inline]
    pub fn cycles(&self, time: Ps) -> u64 {
        self.period.ceil(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn division_is_exact(bits in 1u32..63, number in any::<u64>(), by in 1u64..1 << 40) {
            let number = number >> (64 - bits);
            prop_assert_eq!(Divisor::new(by).ceil(number), number.div_ceil(by));
            let near = number / by * by;
            prop_assert_eq!(Divisor::new(by).ceil(near), near.div_ceil(by));
        }

        /// Whatever the changes, cycles follow each other without gap or overlap, and time leads back to the cycle.
        #[test]
        fn time_goes_on_through_changes(changes in proptest::collection::vec((0u64..1000, 1u64..5000), 1..20)) {
            let mut clock = Clock::new(1000);
            let (mut cycle, mut at) = (0, 0);
            for (cycles, period) in changes {
                let before = clock.period();
                prop_assert_eq!(clock.time(cycle + cycles), at + cycles * before);
                at += cycles * before;
                cycle += cycles;
                clock.change(cycle, period);
                prop_assert_eq!(clock.time(cycle), at);
                prop_assert_eq!(clock.cycle(at), cycle);
                prop_assert_eq!(clock.cycle(at + 1), cycle + 1);
                prop_assert_eq!(clock.cycle(at + period), cycle + 1);
            }
        }
    }
}
