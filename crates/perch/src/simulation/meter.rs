//! How far one of several simulations is, as steps of the common bar.

use crate::render::progress::Bar;
use std::time::Duration;

/// Counts a simulation's milliseconds of the operating system on the bar; what it leaves out is added at its end.
#[derive(Debug)]
pub struct Meter<'a> {
    bar: &'a Bar,
    told: u64,
    of: u64,
}

/// The steps of so much simulated time.
pub fn steps(time: Duration) -> u64 {
    time.as_millis() as u64
}

impl<'a> Meter<'a> {
    /// For a simulation of this length at most.
    pub fn new(bar: &'a Bar, time: Duration) -> Self {
        Self {
            bar,
            told: 0,
            of: steps(time),
        }
    }

    /// It has come to this time of the operating system, in nanoseconds.
    pub fn is_at(&mut self, ns: u64) {
        let at = (ns / 1_000_000).clamp(self.told, self.of.max(self.told));
        self.bar.adds(at - self.told);
        self.told = at;
    }
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        self.bar.adds(self.of.saturating_sub(self.told));
    }
}
