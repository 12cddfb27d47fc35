//! How caches and TLBs fill again, and what that costs a thread.
//!
//! Until a thread has its lines again, visits that would hit miss. A walk in order has them all after one round. Of a random
//! walk over N lines the caches hold more with every miss: N - (N - had) e^(-n/t) of them after n instructions, if it visits
//! them all once in t, until they hold as many as they can keep; the visits that miss meanwhile and would not later are
//! the integral of the difference. Prefetchers make that faster.

use super::warmth::Whose;

/// Steps in which the cost of a miss follows the part of the lines that are missing.
pub(super) const PARTS: usize = 8;

/// Lines that are missing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cold {
    pub cache: usize,
    pub whose: Whose,
    pub code: bool,
    /// How many there are in all. Where N threads share them and bring them together, this and the next two are one thread's
    /// N-th.
    pub all: f64,
    /// How many the cache and those before it have when nothing is missing.
    pub full: f64,
    /// How many they had at first.
    pub had: f64,
    /// How many the cache has itself when nothing is missing, those of others who share them included.
    pub keeps: f64,
    /// Whether they are visited in order.
    pub in_order: bool,
    /// Lines that prefetchers ask for with each that is missed, if they are visited at random: others of the set, and those
    /// that are missing whenever it is.
    pub asked: f64,
    pub paired: f64,
    /// Instructions with as many visits as there are lines.
    pub within: f64,
    /// Instructions since then.
    pub passed: f64,
    /// Whether what misses comes from memory.
    pub last: bool,
    /// What each miss costs, in picoseconds, by the part of all lines that are missing.
    pub cost: [f64; PARTS],
    /// How far the cache fills with each of these costs, the highest first: found once, when the rest is known.
    pub spans: Vec<Span>,
}

/// While misses have one cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Span {
    /// When it ends, in rounds.
    end: f64,
    cost: f64,
    /// Further misses before it begins, and what they have cost.
    missed: f64,
    paid: f64,
}

impl Cold {
    /// The part of all lines that is missing after some rounds of visits at random, and how often one was missed by then, by
    /// line: with p paired lines and a others that are asked for, dx/dr = -(1 + p) x - a x^2.
    fn at_random(&self, rounds: f64) -> (f64, f64) {
        let first = (self.all - self.had) / self.all;
        let (pace, asked) = (1.0 + self.paired, self.asked / (1.0 + self.paired));
        let left = (-pace * rounds).exp();
        let visited = -(-pace * rounds).exp_m1();
        let missing = first * left / (1.0 + asked * first * visited);
        let missed = match asked > 1e-6 {
            true => (asked * first * visited).ln_1p() / asked,
            false => first * visited,
        };
        (missing, missed / pace)
    }

    /// Rounds after which only this part of all lines is missing, or what is missing when the thread has run for long.
    fn rounds_until(&self, part: f64) -> f64 {
        let first = (self.all - self.had) / self.all;
        let part = part.max((self.all - self.full) / self.all);
        let (pace, asked) = (1.0 + self.paired, self.asked / (1.0 + self.paired));
        match part > 0.0 {
            true => {
                let times = (1.0 / part + asked) / (1.0 / first.max(1e-30) + asked);
                times.ln().max(0.0) / pace
            }
            false => f64::INFINITY,
        }
    }

    /// Finds the spans.
    pub fn prepared(mut self) -> Self {
        let (mut missed, mut paid) = (0.0, 0.0);
        self.spans.clear();
        for part in (0..PARTS).rev() {
            let end = match self.in_order {
                true => f64::INFINITY,
                false => self.rounds_until(part as f64 / PARTS as f64),
            };
            let cost = self.cost[part];
            self.spans.push(Span {
                end,
                cost,
                missed,
                paid,
            });
            if end.is_infinite() {
                break;
            }
            let after = self.extra(end * self.within).0;
            paid += (after - missed) * cost;
            missed = after;
        }
        self
    }

    /// The span in which it is after some instructions.
    fn span(&self, instructions: f64) -> Option<&Span> {
        let rounds = instructions / self.within;
        let mut spans = self.spans.iter();
        spans.find(|span| rounds <= span.end).or(self.spans.last())
    }

    /// What the further misses in `instructions` instructions cost.
    fn paid(&self, instructions: f64) -> f64 {
        self.span(instructions).map_or(0.0, |span| {
            span.paid + (self.extra(instructions).0 - span.missed) * span.cost
        })
    }

    /// How many lines come with each that is missed, on the average until none are missing.
    pub fn lines_of_a_miss(&self) -> f64 {
        let first = (self.all - self.had) / self.all;
        match self.in_order || first <= 0.0 {
            true => 1.0,
            false => first / self.at_random(f64::INFINITY).1,
        }
    }

    /// How many are missing after `instructions` instructions.
    fn missing(&self, instructions: f64) -> f64 {
        let rounds = instructions / self.within;
        let missing = match self.in_order {
            true => (self.full - self.had) * (1.0 - rounds),
            false => self.all * self.at_random(rounds).0 - (self.all - self.full),
        };
        missing.max(0.0)
    }

    /// The misses in `instructions` instructions that there would not be if nothing were missing, and the lines that come.
    fn extra(&self, instructions: f64) -> (f64, f64) {
        let rounds = instructions / self.within;
        if self.in_order {
            let misses = (self.full - self.had) * rounds.min(1.0);
            return (misses, misses);
        }
        let rounds = rounds.min(self.rounds_until(0.0));
        let (missing, missed) = self.at_random(rounds);
        let never = (self.all - self.full) * rounds;
        (
            self.all * missed - never,
            self.all - self.had - self.all * missing - never,
        )
    }

    /// How many the cache has itself by now.
    pub fn there(&self) -> f64 {
        self.keeps * (1.0 - self.left() / self.full.max(1e-30)).max(0.0)
    }

    /// How many are missing still.
    pub fn left(&self) -> f64 {
        self.missing(self.passed)
    }

    /// What one more instruction costs after `instructions` further instructions, in picoseconds.
    fn slope(&self, instructions: f64) -> f64 {
        let part = match self.in_order {
            true => {
                f64::from(u8::from(self.passed + instructions < self.within))
                    * (self.full - self.had)
            }
            false => self.missing(self.passed + instructions),
        };
        let cost = self
            .span(self.passed + instructions)
            .map_or(0.0, |span| span.cost);
        part / self.within * cost
    }

    /// Whether what is missing still costs next to nothing, less than this part of a picosecond by one instruction.
    pub fn costs_less(&self, negligible: f64) -> bool {
        let most = self.cost.iter().copied().fold(0.0, f64::max);
        self.left() * most < negligible * self.within
    }

    /// Further misses in `instructions` further instructions.
    pub fn missed(&self, instructions: f64) -> f64 {
        self.extra(self.passed + instructions).0 - self.extra(self.passed).0
    }

    /// Further lines that come in `instructions` further instructions.
    pub fn brought(&self, instructions: f64) -> f64 {
        self.extra(self.passed + instructions).1 - self.extra(self.passed).1
    }
}

/// The time that `instructions` instructions take at a speed.
pub(super) fn time_of(instructions: f64, speed: f64, cold: &[Cold]) -> f64 {
    let extra = |cold: &Cold| cold.paid(cold.passed + instructions) - cold.paid(cold.passed);
    instructions / speed + cold.iter().map(extra).sum::<f64>()
}

/// The instructions that are done in some time.
pub(super) fn done_in(time: f64, speed: f64, cold: &[Cold]) -> f64 {
    if cold.is_empty() {
        return time * speed;
    }
    // Newton's method, kept between what is too little and what is too much: extra time grows ever more slowly.
    let (mut low, mut high) = (0.0, time * speed);
    let mut done = high;
    for _ in 0..40 {
        let wrong = time_of(done, speed, cold) - time;
        match wrong < 0.0 {
            true => low = done,
            false => high = done,
        }
        let slope = 1.0 / speed + cold.iter().map(|cold| cold.slope(done)).sum::<f64>();
        let next = done - wrong / slope;
        let next = match next > low && next < high {
            true => next,
            false => (low + high) / 2.0,
        };
        if (next - done).abs() < 1e-3 {
            return next;
        }
        done = next;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cold() -> impl Strategy<Value = Cold> {
        let parts = (2.0f64..1e5, 0.0f64..=1.0, 0.0f64..1.0);
        let rest = (1.0f64..1e6, 1.0f64..1e5, any::<bool>());
        let asked = (0.0f64..30.0, 0.0f64..=1.0);
        (parts, rest, asked).prop_map(
            |((all, full, had), (within, cost, in_order), (asked, paired))| {
                Cold {
                    cache: 0,
                    whose: Whose::Thread(0, 0),
                    code: false,
                    all,
                    full: all * full,
                    had: all * full * had,
                    keeps: all * full,
                    in_order,
                    asked,
                    paired,
                    within,
                    passed: 0.0,
                    last: false,
                    // The costlier the fewer are missing, but for those visited in order.
                    cost: std::array::from_fn(|part| match in_order {
                        true => cost,
                        false => cost / (1.0 + part as f64),
                    }),
                    spans: Vec::new(),
                }
                .prepared()
            },
        )
    }

    proptest! {
        /// Time and instructions belong together, and cold caches never make anybody faster.
        #[test]
        fn what_is_done_in_a_time_takes_that_time(
            time in 1e3f64..1e9,
            speed in 1e-5f64..1e-2,
            cold in proptest::collection::vec(cold(), 0..5),
        ) {
            let done = done_in(time, speed, &cold);
            prop_assert!(done <= time * speed * (1.0 + 1e-9));
            // An instruction more or less.
            prop_assert!(time_of((done - 1.0).max(0.0), speed, &cold) <= time * (1.0 + 1e-6));
            prop_assert!(time_of(done + 1.0, speed, &cold) >= time * (1.0 - 1e-6));
        }

        /// What two spans bring is what one brings, never less than nothing, and at last nothing more.
        #[test]
        fn lines_are_brought_once(cold in cold(), first in 0.0f64..1e6, second in 0.0f64..1e6) {
            for count in [Cold::missed, Cold::brought] {
                let mut later = cold.clone();
                later.passed = first;
                let (both, parts) = (count(&cold, first + second), count(&cold, first) + count(&later, second));
                prop_assert!((both - parts).abs() <= 1e-6 * (1.0 + both));
                prop_assert!(count(&later, second) >= -1e-6 * cold.all);
                prop_assert!(later.left() <= cold.left() + 1e-9);
                later.passed = 100.0 * cold.within;
                prop_assert!(count(&later, second) <= 1e-6 * cold.all);
            }
        }

        /// A random walk through lines that all fit, simulated visit by visit, with prefetchers that ask for others of the
        /// lines with each that is missed, or for the other one of a pair.
        #[test]
        fn a_random_walk_misses_as_often_as_that(
            pairs in 250u64..1500,
            asked in 0u32..8,
            paired in any::<bool>(),
            rounds in 0.1f64..3.0,
            seed in any::<u64>(),
        ) {
            let (mut random, lines) = (crate::stream::Random::new(seed), 2 * pairs);
            let mut there = vec![false; lines as usize];
            let visits = (rounds * lines as f64) as usize;
            let mut missed = 0.0;
            for _ in 0..visits {
                let line = random.below(lines) as usize;
                if std::mem::replace(&mut there[line], true) {
                    continue;
                }
                missed += 1.0;
                there[line ^ 1] |= paired;
                for _ in 0..asked {
                    there[random.below(lines) as usize] = true;
                }
            }
            let lines = lines as f64;
            let cold = Cold {
                cache: 0,
                whose: Whose::Thread(0, 0),
                code: false,
                all: lines,
                full: lines,
                had: 0.0,
                keeps: lines,
                in_order: false,
                asked: f64::from(asked),
                paired: f64::from(u8::from(paired)),
                within: lines,
                passed: 0.0,
                last: false,
                cost: [1.0; PARTS],
                spans: Vec::new(),
            };
            let brought = there.iter().filter(|there| **there).count() as f64;
            prop_assert!((cold.missed(visits as f64) - missed).abs() < 6.0 * lines.sqrt());
            prop_assert!((cold.brought(visits as f64) - brought).abs() < 6.0 * lines.sqrt());
        }
    }
}
