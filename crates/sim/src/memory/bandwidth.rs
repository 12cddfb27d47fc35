//! A channel, such as that of a NUMA node's memory: a server with a fixed time per line, and its queue.

use crate::units::{Ps, SECOND};
use std::collections::VecDeque;

/// This many idle times are remembered for requests that come late.
const GAPS: usize = 64;

/// Idle times below this part of what a line takes are forgotten.
const SHORTEST: Ps = 4;

/// A time in which the channel had nothing to do.
#[derive(Debug, Clone, Copy)]
struct Gap {
    from: Ps,
    to: Ps,
}

/// A channel that moves one line at a time.
///
/// Requests that come in order of time are served first come, first served. Cores are simulated one after the other, so
/// a request may be for an earlier time than the one before it: it is served in the idle times since then, as it would have
/// been had it come in order, and what is left of it behind all others. If it had to find one idle time that is long enough,
/// bandwidth would be lost between the others. The channel never does more than one line's work at a time.
#[derive(Debug, Clone)]
pub(crate) struct Channel {
    /// Time to move a line.
    service: Ps,
    /// The end of the last transfer.
    free: Ps,
    /// Idle times before that, by rising time.
    gaps: VecDeque<Gap>,
}

impl Channel {
    /// A channel that moves lines of `line` bytes at `bandwidth` bytes a second; without limit if that is not a positive
    /// number.
    pub fn new(line: u64, bandwidth: f64) -> Self {
        let service = match bandwidth > 0.0 {
            // Rounded up: never faster than said.
            true => (line as f64 / bandwidth * SECOND as f64).ceil() as Ps,
            false => 0,
        };
        Self::with_service(service)
    }

    /// A channel that moves a line in this time; without limit if that is 0.
    pub fn with_service(service: Ps) -> Self {
        Self {
            service,
            free: 0,
            gaps: VecDeque::with_capacity(if service > 0 { GAPS + 1 } else { 0 }),
        }
    }

    /// Whether it moves any number of lines at once.
    pub fn is_unlimited(&self) -> bool {
        self.service == 0
    }

    /// Forgets what is under way.
    pub fn rest(&mut self) {
        self.free = 0;
        self.gaps.clear();
    }

    /// Moves a line, as soon as possible from `now` on. Returns how long it has to wait for its turn.
    pub fn request(&mut self, now: Ps) -> Ps {
        if self.service == 0 {
            return 0;
        }
        if now < self.free {
            return self.fill_gaps(now);
        }
        if now - self.free > self.service / SHORTEST {
            self.remember(Gap {
                from: self.free,
                to: now,
            });
        }
        self.free = now + self.service;
        0
    }

    /// For how long it will be busy with what has come.
    pub fn busy(&self, now: Ps) -> Ps {
        self.free.saturating_sub(now)
    }

    /// How many lines wait or are being moved.
    pub fn backlog(&self, now: Ps) -> u64 {
        match self.service {
            0 => 0,
            service => self.busy(now).div_ceil(service),
        }
    }

    fn remember(&mut self, gap: Gap) {
        if self.gaps.len() == GAPS {
            self.gaps.pop_front();
        }
        self.gaps.push_back(gap);
    }

    /// Moves a line in the idle times from `now` on, and what is left of it behind all others. Returns how long it takes
    /// longer than alone.
    fn fill_gaps(&mut self, now: Ps) -> Ps {
        let recent = self
            .gaps
            .iter()
            .rev()
            .take_while(|gap| gap.to > now)
            .count();
        let mut place = self.gaps.len() - recent;
        let mut left = self.service;
        while let Some(gap) = self.gaps.get(place).copied() {
            let start = gap.from.max(now);
            let end = gap.to.min(start + left);
            left -= end - start;
            let before = (start > gap.from).then_some(Gap {
                from: gap.from,
                to: start,
            });
            let after = (end < gap.to).then_some(Gap {
                from: end,
                to: gap.to,
            });
            match (before, after) {
                (Some(before), Some(after)) => {
                    self.gaps[place] = after;
                    self.gaps.insert(place, before);
                    if self.gaps.len() > GAPS {
                        self.gaps.pop_front();
                    }
                }
                (Some(rest), None) | (None, Some(rest)) => {
                    self.gaps[place] = rest;
                    place += usize::from(after.is_none());
                }
                (None, None) => drop(self.gaps.remove(place)),
            }
            if left == 0 {
                return end - now - self.service;
            }
        }
        self.free += left;
        self.free - now - self.service
    }
}
