//! What threads still have in caches and TLBs: what they left there, without what others have put in its place since.
//!
//! A thread that has run somewhere for long has as many lines there as [`super::fate::Kept`] says. One that comes
//! back finds what the others have left of them, one that is new finds nothing ([`super::filling`]).

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

    /// What an owner has written since these lines were remembered takes none of them away: the writer used this cache.
    pub fn stays(&mut self, cache: usize, whose: Whose) {
        let written = self.written_of(whose);
        if let Some(there) = self.there.get_mut(&(cache, whose)) {
            there.written = written;
        }
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
