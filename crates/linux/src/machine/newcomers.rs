//! Counters of new threads between observations: a thread that starts just after one would not be counted until the next,
//! which may be a second later.

use super::LiveMachine;
use crate::perf::task_events::Buffering;
use std::time::{Duration, Instant};

/// Between two looks for new threads lies at least this time, however many the kernel reports,
const SOONEST: Duration = Duration::from_millis(5);

/// and at most this: a ring holds more records than threads can make in it. Where the kernel reports nothing, at least this.
const LATEST: Duration = Duration::from_millis(50);

/// Looks take at most one part in this many of the time, as far as the limits above allow.
const SHARE: u32 = 100;

/// When to look for new threads.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    wanted: bool,
    /// A record has come since the last look.
    told: bool,
    /// No look before this moment.
    rest: Option<Instant>,
}

impl Newcomers {
    /// From now on every record of a new thread is a reason to look.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// The kernel has told of a thread.
    pub(super) fn told(&mut self) {
        self.told = true;
    }

    /// How records are to be buffered.
    pub(super) fn buffering(&self) -> Buffering {
        let usual = Buffering::default();
        match self.wanted {
            true => Buffering {
                wake_at: 1,
                ..usual
            },
            false => usual,
        }
    }

    /// Whether records may wake perch now.
    pub(super) fn listen(&self) -> bool {
        !self.wanted || self.rest.is_none()
    }

    /// When the next look is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let now = || (self.wanted && self.told).then(Instant::now);
        self.rest.or_else(now)
    }

    /// Whether to look now.
    fn is_due(&self, now: Instant, records: bool) -> bool {
        self.wanted && self.rest.is_none_or(|rest| now >= rest) && (self.told || !records)
    }

    /// A look that began at this moment was made.
    fn looked(&mut self, began: Instant, records: bool) {
        let now = Instant::now();
        let rest = (now - began) * SHARE;
        self.rest = Some(
            now + match records {
                true => rest.clamp(SOONEST, LATEST),
                false => rest.max(LATEST),
            },
        );
        self.told = false;
    }
}

impl LiveMachine {
    /// Counts the threads that have appeared since the last look, if it is time.
    pub(super) fn count_newcomers(&mut self) {
        let now = Instant::now();
        let records = self.task_events.is_some();
        if self.tracker.is_empty() {
            // New threads belong to programs that are not followed.
            self.newcomers = Newcomers {
                wanted: self.newcomers.wanted,
                ..Newcomers::default()
            };
            return;
        }
        if !self.newcomers.is_due(now, records) {
            self.newcomers.rest = self.newcomers.rest.filter(|rest| now < *rest);
            return;
        }
        self.tracker.discover();
        self.open_counters();
        self.newcomers.looked(now, records);
    }

    /// Counts the threads that were found since the last call.
    pub(super) fn open_counters(&mut self) {
        for (id, pid) in self.tracker.take_newcomers() {
            self.counting.count(id, pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_as_rare_as_they_are_dear() {
        let mut newcomers = Newcomers::default();
        let now = Instant::now();
        newcomers.told();
        assert!(!newcomers.is_due(now, true) && newcomers.listen());
        assert_eq!(newcomers.buffering(), Buffering::default());
        newcomers.want();
        assert_eq!(newcomers.buffering().wake_at, 1);
        assert!(newcomers.is_due(now, true));
        // Dear or cheap: between 5 and 50 ms.
        for (took, least, most) in [(0, 5, 6), (100, 10, 11), (10_000, 50, 51)] {
            let began = Instant::now();
            newcomers.looked(began - Duration::from_micros(took), true);
            let rest = newcomers.due().unwrap();
            let rests = |ms| began + Duration::from_millis(ms);
            assert!(rest >= rests(least), "{took}");
            assert!(
                rest < rests(most) + (Instant::now() - began) * SHARE,
                "{took}"
            );
            assert!(!newcomers.listen());
            newcomers.told();
            assert!(!newcomers.is_due(began, true));
            assert!(newcomers.is_due(rest, true));
        }
        // Without records, again and again.
        newcomers.looked(now, false);
        let rest = newcomers.due().unwrap();
        assert!(!newcomers.is_due(rest, true) && newcomers.is_due(rest, false));
    }
}
