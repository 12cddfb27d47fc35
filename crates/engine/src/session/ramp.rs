//! The first observations of a session whose policy needs no measurements come early, each later than the one before by
//! twice the time: threads that a program creates at its start are bound soon, and the cost of looking stays small.

use super::wants::Wants;
use std::time::Duration;

/// Before the first observation.
const FIRST: Duration = Duration::from_millis(10);

/// The next short wait, while there are any.
#[derive(Debug)]
pub(super) struct Ramp(Option<Duration>);

impl Ramp {
    pub(super) fn of(wants: &Wants) -> Self {
        Self(wants.at_once.then_some(FIRST))
    }

    /// How long to wait for the next observation, where later ones come at this interval.
    pub(super) fn next(&mut self, interval: Duration) -> Duration {
        match self.0.filter(|wait| *wait < interval) {
            Some(wait) => {
                self.0 = Some(2 * wait);
                wait
            }
            None => {
                self.0 = None;
                interval
            }
        }
    }

    /// Whether the last wait was a short one: the policy is asked, however long its period is.
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_interval_and_stay_there() {
        let mut ramp = Ramp(Some(FIRST));
        let interval = Duration::from_millis(100);
        let waits: Vec<u128> = (0..6).map(|_| ramp.next(interval).as_millis()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 100, 100]);
        assert!(!ramp.is_on());
        let mut off = Ramp(None);
        assert_eq!(off.next(interval), interval);
    }
}
