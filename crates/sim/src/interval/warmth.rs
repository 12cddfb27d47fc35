//! What threads still have in caches and TLBs, and what it costs to bring the rest again.
//!
//! A thread that has run somewhere for long has as many lines there as [`super::fate::Kept`] says. One that comes
//! back finds what the others have left of them, one that is new finds nothing: until it has them again, visits that
//! would hit miss. A walk in order has them all after one round. Of a random walk over N lines the cache holds more with
//! every miss: N - (N - had) e^(-n/t) of them after n instructions, if it visits them all once in t, until it holds as
//! many as it can keep; the visits that miss meanwhile and would not later are the integral of the difference.

use super::owner::Owner;
use crate::ways::Ways;
use rustc_hash::FxHashMap;

/// Fewer entries are not worth sweeping.
const FEW: usize = 4096;

/// Whose lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Whose {
    /// A thread's, of one sort.
    Thread(u32, usize),
    /// Those of several threads.
    Shared(Owner),
}

/// Lines that were there at some time.
#[derive(Debug, Clone)]
struct There {
    lines: f64,
    /// How many lines the cache had taken in by then.
    mark: f64,
    /// How often each of them had been written by then.
    written: f64,
    /// The same as `mark` for each way, if some threads may fill only some ways.
    by_way: Option<Box<[f64]>>,
    /// Which ways these are: bit n for way n; 0 for all.
    ways: u32,
}

/// What is in all caches and TLBs.
#[derive(Debug, Clone, Default)]
pub(super) struct Warmth {
    there: FxHashMap<(usize, Whose), There>,
    /// How often each line was written so far: a store takes it away from caches that the writer does not use.
    written: FxHashMap<Whose, f64>,
    /// Lines that each cache or TLB has taken in.
    taken_in: Vec<f64>,
    places: Vec<f64>,
    /// The level of each cache; TLBs, which come behind, have none.
    levels: Vec<u8>,
    /// Lines that each way of each cache has taken in since the first thread was confined to some ways.
    by_way: Option<Vec<Box<[f64]>>>,
    /// With this many entries it is time to sweep.
    sweep_at: usize,
}

impl Warmth {
    /// Empty caches with `places` places each, and TLBs behind those that have levels.
    pub fn new(places: Vec<f64>, levels: Vec<u8>) -> Self {
        Self {
            there: FxHashMap::default(),
            written: FxHashMap::default(),
            taken_in: vec![0.0; places.len()],
            places,
            levels,
            by_way: None,
            sweep_at: FEW,
        }
    }

    /// From now on threads may fill only some ways. `ways` says how many each cache has.
    pub fn confine(&mut self, ways: impl Iterator<Item = f64>) {
        let none = |ways: f64| vec![0.0; ways as usize].into();
        self.by_way.get_or_insert_with(|| ways.map(none).collect());
    }

    /// The ways of a cache that a thread may fill, as bits.
    fn bits(&self, cache: usize, ways: Ways) -> u32 {
        self.levels.get(cache).map_or(0, |level| ways.bits(*level))
    }

    /// How many lines an owner still has in a cache.
    pub fn lines(&self, cache: usize, whose: Whose) -> f64 {
        self.there.get(&(cache, whose)).map_or(0.0, |there| {
            if let Some(left) = self.left_in_ways(cache, there) {
                let written = self.written_of(whose) - there.written;
                return there.lines * left * (-written).exp();
            }
            let since = (self.taken_in[cache] - there.mark) / self.places[cache];
            let written = self.written_of(whose) - there.written;
            there.lines * (-since - written).exp()
        })
    }

    /// The part of some lines that other lines have left, if some threads may fill only some ways. They are in those
    /// ways first that take in least: what is elsewhere goes out soon, and comes back there.
    fn left_in_ways(&self, cache: usize, there: &There) -> Option<f64> {
        let now = self.by_way.as_ref()?.get(cache)?;
        let then = there.by_way.as_ref()?;
        let each = self.places[cache] / now.len() as f64;
        let here = (0..now.len()).filter(|way| is_in(*way, there.ways));
        let mut taken_in: Vec<f64> = here.map(|way| now[way] - then[way]).collect();
        taken_in.sort_by(f64::total_cmp);
        let (mut rest, mut left) = (there.lines, 0.0);
        for taken_in in taken_in {
            let lines = rest.min(each);
            left += lines * (-taken_in / each).exp();
            rest -= lines;
        }
        (there.lines > 0.0).then(|| left / there.lines)
    }

    /// Remembers how many there are now, of a thread that may fill these ways.
    pub fn remember(&mut self, cache: usize, whose: Whose, lines: f64, ways: Ways) {
        let by_way = self.by_way.as_ref();
        let there = There {
            lines,
            mark: self.taken_in[cache],
            written: self.written_of(whose),
            by_way: by_way.and_then(|all| all.get(cache).cloned()),
            ways: self.bits(cache, ways),
        };
        self.there.insert((cache, whose), there);
    }

    /// Each of an owner's lines is written `times` times.
    pub fn write(&mut self, whose: Whose, times: f64) {
        *self.written.entry(whose).or_default() += times;
    }

    fn written_of(&self, whose: Whose) -> f64 {
        self.written.get(&whose).copied().unwrap_or(0.0)
    }

    /// A cache takes in lines of a thread that may fill these ways.
    pub fn take_in(&mut self, cache: usize, lines: f64, ways: Ways) {
        self.taken_in[cache] += lines;
        let bits = self.bits(cache, ways);
        if let Some(all) = self.by_way.as_mut().and_then(|all| all.get_mut(cache)) {
            let number = (0..all.len()).filter(|way| is_in(*way, bits)).count();
            for (way, taken_in) in all.iter_mut().enumerate() {
                if is_in(way, bits) {
                    *taken_in += lines / number as f64;
                }
            }
        }
    }

    /// Forgets threads that have ended, when there is much to remember.
    pub fn sweep(&mut self, ended: impl Fn(u32) -> bool) {
        if self.there.len() < self.sweep_at {
            return;
        }
        let stays = |whose: &Whose| match whose {
            Whose::Thread(thread, _) => !ended(*thread),
            Whose::Shared(_) => true,
        };
        self.there.retain(|(_, whose), _| stays(whose));
        self.written.retain(|whose, _| stays(whose));
        self.sweep_at = (2 * self.there.len()).max(FEW);
    }

    /// Lines of each thread in a cache.
    pub fn of_threads(&self, cache: usize) -> impl Iterator<Item = (u32, f64)> {
        let own = self.there.keys().filter(move |(at, _)| *at == cache);
        own.filter_map(move |(_, whose)| match whose {
            Whose::Thread(thread, _) => Some((*thread, self.lines(cache, *whose))),
            Whose::Shared(_) => None,
        })
    }
}

/// Whether a way is one of these, as bits; 0 for all.
fn is_in(way: usize, ways: u32) -> bool {
    ways == 0 || way < 32 && ways >> way & 1 == 1
}

/// Lines that are missing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cold {
    pub cache: usize,
    pub whose: Whose,
    pub code: bool,
    /// How many there are in all.
    pub all: f64,
    /// How many the cache keeps when nothing is missing.
    pub full: f64,
    /// How many it had at first.
    pub had: f64,
    /// Whether they are visited in order.
    pub in_order: bool,
    /// Instructions with as many visits as there are lines.
    pub within: f64,
    /// Instructions since then.
    pub passed: f64,
    /// How many threads bring them together just now: the numbers of lines above are one's part.
    pub sharers: f64,
    /// Whether what misses comes from memory.
    pub last: bool,
    /// What each miss costs, in picoseconds.
    pub cost: f64,
}

impl Cold {
    /// How many are missing after `instructions` instructions.
    fn missing(&self, instructions: f64) -> f64 {
        let rounds = instructions / self.within;
        let missing = match self.in_order {
            true => (self.full - self.had) * (1.0 - rounds),
            false => (self.all - self.had) * (-rounds).exp() - (self.all - self.full),
        };
        missing.max(0.0)
    }

    /// The misses in `instructions` instructions that there would not be if nothing were missing.
    fn extra(&self, instructions: f64) -> f64 {
        let rounds = instructions / self.within;
        if self.in_order {
            return (self.full - self.had) * rounds.min(1.0);
        }
        let (lacks, never) = (self.all - self.had, self.all - self.full);
        let rounds = match never > 0.0 {
            true => rounds.min((lacks / never).ln()),
            false => rounds,
        };
        lacks * -(-rounds).exp_m1() - never * rounds
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
        part / self.within * self.cost
    }

    /// Further misses in `instructions` further instructions.
    pub fn brought(&self, instructions: f64) -> f64 {
        self.extra(self.passed + instructions) - self.extra(self.passed)
    }
}

/// The time that `instructions` instructions take at a speed.
pub(super) fn time_of(instructions: f64, speed: f64, cold: &[Cold]) -> f64 {
    let extra = |cold: &Cold| cold.brought(instructions) * cold.cost;
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
        (parts, rest).prop_map(|((all, full, had), (within, cost, in_order))| Cold {
            cache: 0,
            whose: Whose::Thread(0, 0),
            code: false,
            all,
            full: all * full,
            had: all * full * had,
            in_order,
            within,
            passed: 0.0,
            sharers: 1.0,
            last: false,
            cost,
        })
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
            let mut later = cold.clone();
            later.passed = first;
            let (both, parts) = (cold.brought(first + second), cold.brought(first) + later.brought(second));
            prop_assert!((both - parts).abs() <= 1e-6 * (1.0 + both));
            prop_assert!(later.brought(second) >= -1e-6);
            prop_assert!(later.left() <= cold.left() + 1e-9);
            later.passed = 100.0 * cold.within;
            prop_assert!(later.brought(second) <= 1e-6 * cold.all);
        }

        /// A random walk through lines that all fit, simulated visit by visit.
        #[test]
        fn a_random_walk_misses_as_often_as_that(lines in 500u64..3000, rounds in 0.1f64..3.0, seed in any::<u64>()) {
            let mut random = crate::stream::Random::new(seed);
            let mut there = vec![false; lines as usize];
            let visits = (rounds * lines as f64) as usize;
            let mut missed = 0.0;
            for _ in 0..visits {
                let there = &mut there[random.below(lines) as usize];
                missed += f64::from(u8::from(!std::mem::replace(there, true)));
            }
            let lines = lines as f64;
            let cold = Cold {
                cache: 0,
                whose: Whose::Thread(0, 0),
                code: false,
                all: lines,
                full: lines,
                had: 0.0,
                in_order: false,
                within: lines,
                passed: 0.0,
                sharers: 1.0,
                last: false,
                cost: 1.0,
            };
            prop_assert!((cold.brought(visits as f64) - missed).abs() < 6.0 * lines.sqrt());
        }
    }
}
