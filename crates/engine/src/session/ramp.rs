//! The first observations of a session whose policy needs no measurements come early, each later than the one before by
//! twice the time: threads that a program creates at its start are bound soon, and the cost of looking stays small.

use super::wants::Wants;
use std::time::Duration;

/// Before the first observation.
const FIRST: Duration = Duration::from_millis(10);

/// The next short wait, while there are any.
#[derive(Debug)]
pub(super) struct Ramp {
    next: Option<Duration>,
    /// Whether the last wait was a short one. None was in sessions whose driver waits by itself.
    was_short: bool,
}

impl Ramp {
    pub(super) fn of(wants: &Wants) -> Self {
        Self {
            next: wants.at_once.then_some(FIRST),
            was_short: false,
        }
    }

    /// How long to wait for the next observation, where later ones come at this interval.
    pub(super) fn next(&mut self, interval: Duration) -> Duration {
        let short = self.next.filter(|wait| *wait < interval);
        self.next = short.map(|wait| 2 * wait);
        self.was_short = short.is_some();
        short.unwrap_or(interval)
    }

    /// Whether the last wait was a short one: the policy is asked, however long its period is.
    pub(super) fn was_short(&self) -> bool {
        self.was_short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_interval_and_stay_there() {
        let mut ramp = Ramp {
            next: Some(FIRST),
            was_short: false,
        };
        assert!(!ramp.was_short());
        let interval = Duration::from_millis(100);
        let waits: Vec<u128> = (0..6).map(|_| ramp.next(interval).as_millis()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 100, 100]);
        assert!(!ramp.was_short());
        let mut off = Ramp {
            next: None,
            was_short: false,
        };
        assert_eq!(off.next(interval), interval);
    }
}
