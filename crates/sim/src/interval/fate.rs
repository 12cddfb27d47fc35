//! What becomes of a thread's accesses: hits, misses and transfers by one instruction.

use super::{
    homes::{Home, Homes},
    layout::LEVELS,
    links::Crossings,
    prefetch::Cover,
};

/// What happens to one thread's accesses.
#[derive(Debug, Clone, Default)]
pub(super) struct Fate {
    /// Misses of level 1, 2, 3 by one instruction, of data and of code.
    pub data: [f64; LEVELS],
    pub fetch: [f64; LEVELS],
    /// TLB misses by one instruction.
    pub tlb: f64,
    /// Lines over the channel by one instruction, out included.
    pub transfers: f64,
    /// Those of them that do not come from its own memory, by home.
    pub apart: Vec<(Home, f64)>,
    /// Lines that pass the ports of caches by one instruction, if their bandwidth is limited.
    pub ports: Vec<Passed>,
    /// Lines that cross links between nodes, if their bandwidth is limited.
    pub links: Crossings,
    /// Lines taken from other cores by one instruction.
    pub coherence: f64,
    /// By how much longer than from its own memory they take that no cache is in common for, by one instruction, in
    /// picoseconds.
    pub farther: f64,
    /// Lines from memory that prefetchers ask for in time, or a little late.
    pub prefetched: Vec<Prefetched>,
    /// Lines that prefetchers bring by one instruction, from memory or not.
    pub prefetches: f64,
    /// Lines that it would find again in each cache of its path, and how fast it would visit them: visits by one
    /// instruction that hit.
    pub kept: Vec<Kept>,
}

impl Fate {
    /// How many lines prefetchers have under way for it, at most.
    pub fn ahead(&self) -> f64 {
        let ahead = self.prefetched.iter().map(|its| its.cover.ahead);
        ahead.fold(0.0, f64::max)
    }

    /// Lines pass the port of a cache. So do `vain` others, which prefetchers ask for in vain, `at_once` at a time.
    pub fn pass(&mut self, cache: usize, lines: f64, (vain, at_once): (f64, f64)) {
        let at = self.ports.iter().position(|known| known.cache == cache);
        let at = at.unwrap_or_else(|| {
            self.ports.push(Passed {
                cache,
                ..Passed::default()
            });
            self.ports.len() - 1
        });
        let known = &mut self.ports[at];
        known.lines += lines + vain;
        known.vain += vain;
        known.times += vain / at_once.max(1.0);
    }

    /// Lines go over the channel of their home.
    pub fn transfer(&mut self, lines: f64, home: Home, own: Homes) {
        self.transfers += lines;
        if home == Home::Node(own.own) || lines <= 0.0 {
            return;
        }
        match self.apart.iter_mut().find(|(known, _)| *known == home) {
            Some((_, sum)) => *sum += lines,
            None => self.apart.push((home, lines)),
        }
    }
}

/// Lines that pass the port of a cache, by one instruction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Passed {
    pub cache: usize,
    /// All of them.
    pub lines: f64,
    /// Those that prefetchers ask for in vain, and how often they do that.
    pub vain: f64,
    pub times: f64,
}

/// Lines that come from memory and are asked for before they are needed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Prefetched {
    /// Which lines: an index of the demand's.
    pub which: usize,
    /// The place of the cache to which they go on the path of the data.
    pub step: usize,
    /// How many, by one instruction.
    pub lines: f64,
    /// What prefetchers do for these.
    pub cover: Cover,
}

/// What a thread has in a cache when it has run there for long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Kept {
    /// The cache; TLBs are counted on from there.
    pub cache: usize,
    /// Which lines: an index of the demand's.
    pub which: usize,
    /// How many, together with those who share them.
    pub lines: f64,
    /// Hits by one instruction.
    pub hits: f64,
    /// Misses by one instruction.
    pub misses: f64,
    /// Those of them that no prefetcher saves.
    pub unsaved: f64,
}
