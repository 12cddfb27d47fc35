//! Whose samples are seen together: that is more exact than each by itself, but takes milliseconds for a program with
//! much code.

use perch_sampling::ThreadMix;
use std::time::{Duration, Instant};

/// Time for it in a period. One thread gets its turn whatever it takes.
const BUDGET: Duration = Duration::from_millis(3);

/// Deals out turns among the threads of one period, going on where the last one stopped.
pub(super) struct Walks<'a> {
    /// The thread with which the next period begins.
    turn: &'a mut usize,
    first: usize,
    threads: usize,
    since: Option<Instant>,
    spent: bool,
}

impl<'a> Walks<'a> {
    /// For this many threads.
    pub(super) fn new(threads: usize, turn: &'a mut usize) -> Self {
        let first = if *turn < threads { *turn } else { 0 };
        *turn = 0;
        Self {
            turn,
            first,
            threads,
            since: None,
            spent: false,
        }
    }

    /// Whether the thread at this place gets its turn. Threads without floating-point work need none: their verdict is
    /// the same either way.
    pub(super) fn next(&mut self, at: usize, mix: &ThreadMix) -> bool {
        if at < self.first || !mix.has_fp() {
            return false;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if !self.spent && since.elapsed() >= BUDGET {
            self.spent = true;
            *self.turn = at % self.threads;
        }
        !self.spent
    }
}
