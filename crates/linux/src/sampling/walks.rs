//! Whose samples are seen together: that is more exact than each by itself, but takes milliseconds for a program with
//! much code.

use crate::span::{counted, is_due};
use perch_sampling::ThreadMix;
use std::time::{Duration, Instant};

/// Share of an interval that may be spent on walks: 3 ms a second. One thread is walked whatever that takes.
const SHARE: f64 = 0.003;

/// No other thread is walked until that time is within the share again, or for at most this long.
const REST: Duration = Duration::from_secs(1);

/// Deals out turns, interval by interval.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The thread with which the next interval begins.
    turn: usize,
    /// Since the last turns began, and how long their time is to last.
    passed: Duration,
    rest: Duration,
}

/// Turns among the threads of one interval, going on where the last one stopped. When it is dropped they are over.
pub(super) struct WalkBudget<'a> {
    turns: &'a mut Turns,
    first: usize,
    threads: usize,
    budget: Duration,
    since: Option<Instant>,
    /// No further thread is walked in this interval.
    over: bool,
}

impl Turns {
    /// An interval of this length with this many threads is over.
    pub(super) fn begin(&mut self, threads: usize, interval: Duration) -> WalkBudget<'_> {
        let first = if self.turn < threads { self.turn } else { 0 };
        self.passed = self.passed.saturating_add(interval);
        let resting = !is_due(self.passed, interval, self.rest);
        if !resting {
            self.turn = 0;
        }
        WalkBudget {
            first,
            threads,
            budget: counted(interval).mul_f64(SHARE),
            since: None,
            over: resting,
            turns: self,
        }
    }

    /// So much time was spent.
    fn spent(&mut self, time: Duration) {
        self.passed = Duration::ZERO;
        self.rest = time.div_f64(SHARE).min(REST);
    }
}

impl WalkBudget<'_> {
    /// Whether the thread at this place gets its turn. Threads without floating-point work need none: their verdict is
    /// the same either way.
    pub(super) fn next(&mut self, at: usize, mix: &ThreadMix) -> bool {
        if self.over || at < self.first || !mix.has_fp() {
            return false;
        }
        let spent = self.since.get_or_insert_with(Instant::now).elapsed();
        if spent >= self.budget {
            self.over = true;
            self.turns.turn = at % self.threads;
            self.turns.spent(spent);
            self.since = None;
        }
        !self.over
    }
}

impl Drop for WalkBudget<'_> {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            self.turns.spent(since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_sampling::{Arch, CodeImage, Estimator};

    /// A sample of code with floating-point work.
    fn float() -> ThreadMix {
        let mut code = CodeImage::new(Arch::X86_64);
        code.add(0x1000, [0xf2, 0x0f, 0x58, 0xc1, 0xc3]);
        let mut mix = ThreadMix::default();
        mix.add(&Estimator::new(Arch::X86_64).sample(&code, 0x1000, None));
        assert!(mix.has_fp());
        mix
    }

    /// In how many of these intervals a thread has its turn, if each turn takes so long.
    fn turns(intervals: &[u64], took: Duration) -> usize {
        let (mut turns, mix) = (Turns::default(), float());
        let mut had = 0;
        for milliseconds in intervals {
            let mut walks = turns.begin(1, Duration::from_millis(*milliseconds));
            let has = walks.next(0, &mix);
            walks.since = None;
            drop(walks);
            if has {
                turns.spent(took);
                had += 1;
            }
        }
        had
    }

    #[test]
    fn turns_take_the_same_part_of_the_time_at_every_interval() {
        let long = Duration::from_millis(20);
        assert_eq!(turns(&[1_000; 10], long), 10);
        assert_eq!(turns(&[5_000, 700, 1_300, 1_000], long), 4);
        assert_eq!(turns(&[100; 100], long), 10);
        // 0.6 ms are 3 ‰ of 200 ms.
        assert_eq!(turns(&[100; 100], Duration::from_micros(600)), 50);
        assert_eq!(turns(&[100; 100], Duration::from_micros(100)), 100);
    }

    #[test]
    fn the_next_begins_with_whom_the_last_had_no_time_for() {
        let (mut turns, mix) = (Turns::default(), float());
        let second = Duration::from_secs(1);
        let mut walks = turns.begin(3, second);
        assert!(walks.next(0, &mix));
        walks.since = Instant::now().checked_sub(second);
        assert!(!walks.next(1, &mix) && !walks.next(2, &mix));
        drop(walks);
        // Not before the budget is positive again, and no thread loses its turn until then.
        let mut walks = turns.begin(3, second / 10);
        assert!(!walks.next(1, &mix));
        drop(walks);
        let mut walks = turns.begin(3, second);
        assert!(!walks.next(0, &mix) && walks.next(1, &mix));
    }
}
