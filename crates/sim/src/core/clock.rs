//! A core's clock: from cycles to time and back, exactly, also when it goes at another pace from some moment on.

use crate::{model::Pace, units::Ps};

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

/// Cycles and time. Cycles are numbered from the beginning, at whatever pace they went; while the clock stops, none
/// begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    period: Divisor,
    pace: Pace,
    /// A cycle since which the pace has been this one.
    cycle: u64,
    /// When that began.
    at: Ps,
    /// How many cycles there were before it since the last stop; 0 if the clock never stops.
    first: u64,
}

impl Clock {
    /// A clock whose cycle 0 begins at time 0, after this part of the cycles between two stops.
    pub fn new(pace: Pace, part: f64) -> Self {
        Self {
            period: Divisor::new(pace.cycle),
            pace,
            cycle: 0,
            at: 0,
            first: match pace.stops() {
                true => ((pace.run as f64 * part) as u64).min(pace.run - 1),
                false => 0,
            },
        }
    }

    /// The pace.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// From the beginning of cycle `cycle` on, cycles come at this pace: first of all this part of those between two
    /// stops is over.
    pub fn change(&mut self, cycle: u64, pace: Pace, part: f64) {
        let at = self.time(cycle);
        *self = Self {
            cycle,
            at,
            ..Self::new(pace, part)
        };
    }

    /// When a cycle begins, if it is none from before the last change.
    #[inline]
    pub fn time(&self, cycle: u64) -> Ps {
        let since = cycle.saturating_sub(self.cycle);
        match self.pace.stops() {
            true => self.at + self.time_with_stops(since),
            false => self.at + since * self.period.by,
        }
    }

    /// The first cycle that begins at a moment or later.
    #[inline]
    pub fn cycle(&self, at: Ps) -> u64 {
        let since = at.saturating_sub(self.at);
        match self.pace.stops() {
            true => self.cycle + self.cycles_with_stops(since),
            false => self.cycle + self.period.ceil(since),
        }
    }

    /// How many cycles from the beginning of cycle `from` on some time takes, the last one whole: while the clock
    /// stops, it passes without any.
    #[inline]
    pub fn cycles(&self, from: u64, time: Ps) -> u64 {
        match self.pace.stops() {
            true => self.cycle(self.time(from) + time).saturating_sub(from),
            false => self.period.ceil(time),
        }
    }

    /// The time from the last change to the beginning of the cycle that comes this many cycles later.
    #[cold]
    fn time_with_stops(&self, since: u64) -> Ps {
        let place = self.first + since;
        let (windows, cycles) = (place / self.pace.run, place % self.pace.run);
        windows * self.pace.window + cycles * self.period.by - self.first * self.period.by
    }

    /// The cycles that have begun this time after the last change.
    #[cold]
    fn cycles_with_stops(&self, since: Ps) -> u64 {
        let since = since + self.first * self.period.by;
        let (windows, time) = (since / self.pace.window, since % self.pace.window);
        // What comes while the clock stops is seen when it runs again.
        let cycles = self.period.ceil(time).min(self.pace.run);
        windows * self.pace.run + cycles - self.first
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
            let mut clock = Clock::new(Pace::steady(1000), 0.0);
            let (mut cycle, mut at) = (0, 0);
            for (cycles, period) in changes {
                let before = clock.pace().cycle;
                prop_assert_eq!(clock.time(cycle + cycles), at + cycles * before);
                at += cycles * before;
                cycle += cycles;
                clock.change(cycle, Pace::steady(period), 0.0);
                prop_assert_eq!(clock.time(cycle), at);
                prop_assert_eq!(clock.cycle(at), cycle);
                prop_assert_eq!(clock.cycle(at + 1), cycle + 1);
                prop_assert_eq!(clock.cycle(at + period), cycle + 1);
            }
        }

        /// Cycles begin as if they were counted one by one, with a stop after as many as there are between two.
        #[test]
        fn a_clock_stops_and_goes_on(
            paces in proptest::collection::vec((1u64..2000, 0.01f64..1.2, 1u64..20_000, 0.0f64..1.0, 1u64..200), 1..5),
            time in 0u64..100_000,
        ) {
            let mut clock: Option<Clock> = None;
            let (mut cycle, mut at) = (0, 0);
            for (length, duty, stop, part, cycles) in paces {
                let pace = Pace::modulated(length, duty, stop);
                match &mut clock {
                    None => clock = Some(Clock::new(pace, part)),
                    Some(clock) => clock.change(cycle, pace, part),
                }
                let clock = clock.as_ref().unwrap();
                let mut done = clock.first;
                for _ in 0..cycles {
                    prop_assert_eq!(clock.time(cycle), at);
                    prop_assert_eq!(clock.cycle(at), cycle);
                    prop_assert_eq!(clock.cycle(at + 1), cycle + 1);
                    prop_assert_eq!(clock.cycles(cycle, 0), 0);
                    let later = clock.cycle(at + time);
                    prop_assert_eq!(clock.cycles(cycle, time), later - cycle);
                    prop_assert!(clock.time(later) >= at + time);
                    prop_assert!(later == cycle || clock.time(later - 1) < at + time);
                    (cycle, at, done) = (cycle + 1, at + pace.cycle, done + 1);
                    if done == pace.run {
                        (at, done) = (at + pace.stop(), 0);
                    }
                }
            }
        }

        #[test]
        fn a_modulated_clock_runs_for_its_share(cycle in 100u64..3000, eighths in 1u32..8, stop in 1u64..5_000_000) {
            let duty = f64::from(eighths) / 8.0;
            let pace = Pace::modulated(cycle, duty, stop);
            prop_assert!((pace.duty() - duty).abs() < 0.5 / cycle as f64, "{:?}", pace);
            // Of the length of the stop at most what a cycle takes with its part of the stop.
            let off = pace.stop().abs_diff(stop) as f64;
            prop_assert!(off <= cycle as f64 * (1.0 - duty) / duty + 1.0, "{:?}", pace);
        }
    }
}
