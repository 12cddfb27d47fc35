//! What threads still have in caches and TLBs, and what it costs to bring the rest again.
//!
//! A thread that has run somewhere for long has as many lines there as [`super::traffic::Kept`] says. One that comes
//! back finds what the others have left of them, one that is new finds nothing: until it has them again, visits that
//! would hit miss. A walk in order has them all after one round; a random one finds ever fewer that are missing.

use super::demand::Owner;
use rustc_hash::FxHashMap;

/// Fewer entries are not worth sweeping.
const FEW: usize = 4096;

/// Whose lines.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Whose {
    /// A thread's, of one sort.
    Thread(u32, usize),
    /// Those of several threads.
    Shared(Owner),
}

/// Lines that were there at some time.
#[derive(Debug, Clone, Copy)]
struct There {
    lines: f64,
    /// How many lines the cache had taken in by then.
    mark: f64,
}

/// What is in all caches and TLBs.
#[derive(Debug, Clone, Default)]
pub(super) struct Warmth {
    there: FxHashMap<(usize, Whose), There>,
    /// Lines that each cache or TLB has taken in.
    taken_in: Vec<f64>,
    places: Vec<f64>,
    /// With so many entries it is time to sweep.
    sweep_at: usize,
}

impl Warmth {
    /// Empty caches with so many places.
    pub fn new(places: Vec<f64>) -> Self {
        Self {
            there: FxHashMap::default(),
            taken_in: vec![0.0; places.len()],
            places,
            sweep_at: FEW,
        }
    }

    /// How many lines somebody still has in a cache.
    pub fn lines(&self, cache: usize, whose: &Whose) -> f64 {
        let key = (cache, whose.clone());
        self.there.get(&key).map_or(0.0, |there| {
            let since = self.taken_in[cache] - there.mark;
            there.lines * (-since / self.places[cache]).exp()
        })
    }

    /// Remembers how many there are now.
    pub fn remember(&mut self, cache: usize, whose: Whose, lines: f64) {
        let mark = self.taken_in[cache];
        self.there.insert((cache, whose), There { lines, mark });
    }

    /// A cache takes in lines.
    pub fn take_in(&mut self, cache: usize, lines: f64) {
        self.taken_in[cache] += lines;
    }

    /// Forgets threads that have ended, when there is much to remember.
    pub fn sweep(&mut self, ended: impl Fn(u32) -> bool) {
        if self.there.len() < self.sweep_at {
            return;
        }
        self.there.retain(|(_, whose), _| match whose {
            Whose::Thread(thread, _) => !ended(*thread),
            Whose::Shared(_) => true,
        });
        self.sweep_at = (2 * self.there.len()).max(FEW);
    }

    /// Lines of each thread in a cache.
    pub fn of_threads(&self, cache: usize) -> impl Iterator<Item = (u32, f64)> {
        let own = self.there.keys().filter(move |(at, _)| *at == cache);
        own.filter_map(move |(_, whose)| match whose {
            Whose::Thread(thread, _) => Some((*thread, self.lines(cache, whose))),
            Whose::Shared(_) => None,
        })
    }
}

/// Lines that are missing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cold {
    pub cache: usize,
    pub whose: Whose,
    pub code: bool,
    /// How many there are when nothing is missing.
    pub full: f64,
    /// How many were missing at first.
    pub missing: f64,
    /// Whether they are visited in order.
    pub in_order: bool,
    /// Instructions of a round; of a random walk, those in which the rest falls to 1/e.
    pub within: f64,
    /// Instructions since then.
    pub passed: f64,
    /// What each costs, in picoseconds.
    pub cost: f64,
}

impl Cold {
    fn rest(&self, instructions: f64) -> f64 {
        let rounds = instructions / self.within;
        self.missing
            * match self.in_order {
                true => (1.0 - rounds).max(0.0),
                false => (-rounds).exp(),
            }
    }

    /// How many are missing still.
    pub fn left(&self) -> f64 {
        self.rest(self.passed)
    }

    /// How many are brought by so many further instructions.
    pub fn brought(&self, instructions: f64) -> f64 {
        self.left() - self.rest(self.passed + instructions)
    }
}

/// The time that so many instructions take at a speed.
pub(super) fn time_of(instructions: f64, speed: f64, cold: &[Cold]) -> f64 {
    let extra = |cold: &Cold| cold.brought(instructions) * cold.cost;
    instructions / speed + cold.iter().map(extra).sum::<f64>()
}

/// The instructions that are done in some time.
pub(super) fn done_in(time: f64, speed: f64, cold: &[Cold]) -> f64 {
    if cold.is_empty() {
        return time * speed;
    }
    let (mut low, mut high) = (0.0, time * speed);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        match time_of(middle, speed, cold) < time {
            true => low = middle,
            false => high = middle,
        }
        if high - low < 0.01 {
            break;
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Time and instructions belong together, and cold caches never make anybody faster.
        #[test]
        fn what_is_done_in_a_time_takes_that_time(
            time in 1e3f64..1e9,
            speed in 1e-5f64..1e-2,
            cold in proptest::collection::vec((1.0f64..1e5, 1.0f64..1e6, 1.0f64..1e5, any::<bool>()), 0..5),
        ) {
            let cold: Vec<Cold> = cold
                .into_iter()
                .map(|(missing, within, cost, in_order)| Cold {
                    cache: 0,
                    whose: Whose::Thread(0, 0),
                    code: false,
                    full: missing,
                    missing,
                    in_order,
                    within,
                    passed: 0.0,
                    cost,
                })
                .collect();
            let done = done_in(time, speed, &cold);
            prop_assert!(done <= time * speed * (1.0 + 1e-9));
            // An instruction more or less.
            prop_assert!(time_of((done - 1.0).max(0.0), speed, &cold) <= time * (1.0 + 1e-6));
            prop_assert!(time_of(done + 1.0, speed, &cold) >= time * (1.0 - 1e-6));
        }
    }
}
