//! How fast to sample whole CPUs: fast while threads are new or change, then just fast enough to notice a change.
//!
//! An interrupt costs a microsecond or two on bare metal, but 10 to 20 in a virtual machine. A verdict on a thread
//! needs ten to twenty samples; what is beyond that in every period is paid for nothing.

use perch_core::ThreadId;
use rustc_hash::FxHashMap;

/// Samples of each running thread in a period: enough for the period to speak for itself.
const EACH: f64 = 25.0;

/// The same once all have done the same for a while: with those of the period before still enough for a verdict, and a
/// change is seen in the first.
const EACH_STEADY: f64 = 10.0;

/// Samples after which a thread is no longer new: enough for a verdict.
const KNOWN: u64 = 20;

/// Calm seconds after which all are steady. Longer periods count as one second.
const STEADY: f64 = 3.0;

/// The same once all have done the same for long.
const EACH_CALM: f64 = 6.0;

/// Calm seconds after which all have done the same for long.
const CALM: f64 = 12.0;

/// Seconds for which a thread that does not run is remembered.
const REMEMBERED: f64 = 60.0;

/// A running thread whose FP share moved by more than this between two periods does something else now,
const CHANGE: f64 = 0.05;

/// unless so few samples stand behind it that the move is within this many times 1 / √samples: three standard errors
/// of the most mixed programs.
const CHANCE: f64 = 0.6;

/// Among this many running threads, one always seems new or changed at random: that alone does not raise the rate.
const OF_MANY: usize = 20;

/// Threads with a smaller share of the period than this do not count: to sample them often would cost the others.
const RUNS: f64 = 0.02;

/// Fast enough for steady threads, however many share a CPU: their changes then show a period or two later.
const FASTEST_STEADY: f64 = 50.0;

/// The same for threads that have done the same for long.
const FASTEST_CALM: f64 = 30.0;

/// Slower than this a thread that runs for a short part of the period would be missed.
const SLOWEST: f64 = 20.0;

/// What is known of a thread.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    samples: u64,
    fp_share: f64,
    /// When it was last reported, in seconds.
    at: f64,
}

/// Chooses the rate of the next period.
#[derive(Debug, Default)]
pub(super) struct RateController {
    threads: FxHashMap<ThreadId, Known>,
    /// Seconds so far.
    at: f64,
    /// For how many of the last seconds no thread was new or changed, except at random.
    calm: f64,
    /// Running threads of this period that are new or changed.
    restless: usize,
    /// Running threads of this period.
    running: usize,
}

impl RateController {
    /// A thread that was on a CPU for `share` of the period got this many samples, and did this.
    pub(super) fn note(&mut self, thread: ThreadId, share: f64, samples: u64, fp_share: f64) {
        let known = self.threads.entry(thread).or_default();
        let is_new = known.samples < KNOWN;
        let chance = CHANCE / (samples.max(1) as f64).sqrt();
        let changed = (known.fp_share - fp_share).abs() > CHANGE.max(chance);
        *known = Known {
            samples: known.samples + samples,
            fp_share,
            at: self.at,
        };
        if share < RUNS {
            return;
        }
        self.running += 1;
        self.restless += usize::from(is_new || changed);
    }

    /// A thread that was on a CPU for `share` of the period, of which no more is known yet than before.
    pub(super) fn note_gathering(&mut self, thread: ThreadId, share: f64) {
        let known = self.threads.entry(thread).or_default();
        known.at = self.at;
        if share < RUNS {
            return;
        }
        self.running += 1;
        self.restless += usize::from(known.samples < KNOWN);
    }

    /// Ends a period of `seconds`: samples a second on each of `cpus` CPUs in the next, at most `fastest`.
    pub(super) fn next(&mut self, seconds: f64, cpus: usize, fastest: u32) -> u32 {
        let (running, restless) = (
            std::mem::take(&mut self.running),
            std::mem::take(&mut self.restless),
        );
        let at = self.at;
        let step = seconds.clamp(0.001, 1.0);
        self.at += step;
        // Threads that pause are not new when they go on, but they must not be kept forever.
        self.threads.retain(|_, known| at - known.at < REMEMBERED);
        if restless > running / OF_MANY || running == 0 {
            self.calm = 0.0;
            return fastest;
        }
        self.calm += step;
        let (each, most) = if self.calm < STEADY {
            (EACH, f64::INFINITY)
        } else if self.calm < CALM {
            (EACH_STEADY, FASTEST_STEADY)
        } else {
            (EACH_CALM, FASTEST_CALM)
        };
        let crowd = running as f64 / cpus.max(1) as f64;
        let rate = (crowd.max(1.0) * each / seconds.max(0.001))
            .ceil()
            .min(most);
        (rate.max(SLOWEST) as u32).min(fastest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(tid: i32) -> ThreadId {
        ThreadId { tid, start: 1 }
    }

    fn period(pace: &mut RateController, threads: i32, samples: u64, fp_share: f64) -> u32 {
        for tid in 1..=threads {
            pace.note(id(tid), 0.5, samples, fp_share);
        }
        pace.next(1.0, 2, 251)
    }

    #[test]
    fn fast_while_new_then_slow_and_fast_again_after_a_change() {
        let mut pace = RateController::default();
        assert_eq!(period(&mut pace, 2, 60, 0.3), 251);
        let settled: Vec<u32> = (0..6).map(|_| period(&mut pace, 2, 60, 0.3)).collect();
        assert_eq!(settled, [25, 25, 20, 20, 20, 20]);
        assert_eq!(period(&mut pace, 2, 10, 0.0), 251);
    }

    #[test]
    fn threads_that_share_a_cpu_get_their_samples_all_the_same() {
        let mut pace = RateController::default();
        period(&mut pace, 20, 200, 0.0);
        period(&mut pace, 20, 200, 0.0);
        assert_eq!(period(&mut pace, 20, 200, 0.0), 250);
        assert_eq!(period(&mut pace, 20, 200, 0.0), 50);
        let calm: Vec<u32> = (0..10).map(|_| period(&mut pace, 20, 100, 0.0)).collect();
        assert_eq!(calm, [50, 50, 50, 50, 50, 50, 50, 50, 30, 30]);
    }

    #[test]
    fn one_of_many_that_seems_to_change_disturbs_no_other_thread() {
        for (threads, calm) in [(10, false), (100, true)] {
            let mut pace = RateController::default();
            for _ in 0..5 {
                period(&mut pace, threads, 100, 0.0);
            }
            pace.note(id(1), 0.5, 100, 0.9);
            for tid in 2..=threads {
                pace.note(id(tid), 0.5, 100, 0.0);
            }
            assert_eq!(pace.next(1.0, 2, 251) < 251, calm, "{threads} threads");
        }
    }

    #[test]
    fn nothing_is_kept_of_threads_that_are_gone() {
        let mut pace = RateController::default();
        period(&mut pace, 1000, 10, 0.0);
        for _ in 0..70 {
            let _ = pace.next(1.0, 2, 251);
        }
        assert!(pace.threads.is_empty());
    }

    #[test]
    fn threads_whose_samples_are_being_gathered_are_calm_or_new() {
        let mut pace = RateController::default();
        period(&mut pace, 2, 60, 0.3);
        for _ in 0..150 {
            for tid in 1..=2 {
                pace.note_gathering(id(tid), 0.5);
            }
            assert!(pace.next(0.1, 2, 1_000) < 1_000);
        }
        assert_eq!(pace.next(0.1, 2, 1_000), 1_000, "no thread runs");
        for tid in 1..=3 {
            pace.note_gathering(id(tid), 0.5);
        }
        assert_eq!(pace.next(0.1, 2, 1_000), 1_000, "a new one");
    }

    proptest! {
        #[test]
        fn never_faster_than_allowed_and_never_stopped(
            periods in proptest::collection::vec((0..50i32, 0..300u64, 0.0..1.0f64), 1..20),
            seconds in 0.01..10.0f64,
            cpus in 0..8usize,
            fastest in 1..5000u32,
        ) {
            let mut pace = RateController::default();
            for (threads, samples, fp_share) in periods {
                for tid in 1..=threads {
                    pace.note(id(tid), 0.5, samples, fp_share);
                }
                let rate = pace.next(seconds, cpus, fastest);
                prop_assert!(rate >= 1 && rate <= fastest);
            }
        }
    }
}
