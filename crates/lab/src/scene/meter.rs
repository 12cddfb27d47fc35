//! How far one of several simulations is, as steps of the whole.

use std::time::Duration;

/// Tells a person who waits how far all simulations are.
pub trait Progress: Sync {
    /// So many steps are to be done in all.
    fn begins(&self, steps: u64);

    /// What is simulated now.
    fn says(&self, what: &str);

    /// So many more steps are done.
    fn adds(&self, steps: u64);
}

/// Where nobody waits.
impl Progress for () {
    fn begins(&self, _steps: u64) {}

    fn says(&self, _what: &str) {}

    fn adds(&self, _steps: u64) {}
}

/// Counts a simulation's milliseconds of the operating system as steps; what it leaves out is added at its end.
pub struct Meter<'a> {
    progress: &'a dyn Progress,
    told: u64,
    of: u64,
}

/// The steps of so much simulated time.
pub fn steps(time: Duration) -> u64 {
    time.as_millis() as u64
}

impl<'a> Meter<'a> {
    /// For a simulation of this length at most.
    pub fn new(progress: &'a dyn Progress, time: Duration) -> Self {
        Self {
            progress,
            told: 0,
            of: steps(time),
        }
    }

    /// It has come to this time of the operating system, in nanoseconds.
    pub fn is_at(&mut self, ns: u64) {
        let at = (ns / 1_000_000).clamp(self.told, self.of.max(self.told));
        self.progress.adds(at - self.told);
        self.told = at;
    }
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        self.progress.adds(self.of.saturating_sub(self.told));
    }
}
