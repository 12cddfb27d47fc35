//! Prefetchers see misses and first uses, and ask for lines.

use super::{Claim, Gone, Memory, Miss};
use crate::{
    counters::Counters,
    memory::{
        access::Access,
        cache::{LINE_MASK, PREFETCHED},
        prefetch::Need,
    },
    units::Ps,
};

impl Memory {
    /// A line is used for the first time that a prefetcher had brought into the first cache. Returns how long after a moment
    /// it is there.
    #[cold]
    pub(super) fn first_use(&mut self, miss: Miss, at: Ps, counters: &mut Counters) -> Ps {
        let number = self.topology.places[miss.pu].data.first();
        let cache = &mut self.topology.caches[number];
        if let Some(entry) = cache.tags.find(miss.line) {
            *entry = entry.without(PREFETCHED);
        }
        let Some(prefetch) = &cache.prefetch else {
            return 0;
        };
        let wait = prefetch.wait(miss.line, at);
        if miss.access != Access::Fetch {
            self.learn(miss, [Some(false), None, None], counters);
        }
        wait
    }

    /// Prefetchers of the caches on the way of an access learn from it, and ask for lines. By place on the path: whether the
    /// cache missed.
    #[cold]
    pub(super) fn learn(
        &mut self,
        miss: Miss,
        learning: [Option<bool>; 3],
        counters: &mut Counters,
    ) {
        let path = self.topology.places[miss.pu].data;
        let mut at = miss.at;
        for (place, number) in path.all().iter().enumerate() {
            let cache = &mut self.topology.caches[*number as usize];
            at += cache.latency;
            let Some(missed) = learning[place] else {
                continue;
            };
            let Some(mut prefetch) = cache.prefetch.take() else {
                continue;
            };
            let need = Need {
                line: miss.line,
                missed,
            };
            let wanted = prefetch.learn(need);
            for want in &wanted {
                if !prefetch.has_room(*want, at) {
                    continue;
                }
                let ask = Miss {
                    access: Access::Load,
                    line: want.line & LINE_MASK,
                    at,
                    ..miss
                };
                if let Some(there) = self.prefetch(ask, place, want.backlog, counters) {
                    prefetch.ask(ask.line, there);
                }
            }
            prefetch.give_back(wanted);
            self.topology.caches[*number as usize].prefetch = Some(prefetch);
        }
    }

    /// How many lines wait where one that comes from memory would: for the channel, and for the link when that has moved it.
    fn backlog(&self, claim: &Claim, at: Ps) -> u64 {
        let (home, node) = (claim.home, claim.node as usize);
        let channel = &self.channels[home];
        let there = at + channel.busy(at) + self.latencies[node * self.channels.len() + home];
        channel.backlog(at) + self.links.backlog(home, node, there)
    }

    /// Brings a line that nobody needs yet into the cache at a place of the path, and those behind it. Returns when it is
    /// there; `None` if it is not brought.
    pub(super) fn prefetch(
        &mut self,
        miss: Miss,
        place: usize,
        backlog: u32,
        counters: &mut Counters,
    ) -> Option<Ps> {
        let path = self.topology.places[miss.pu].data;
        let first = path.all()[place] as usize;
        if self.topology.caches[first].tags.find(miss.line).is_some() {
            return None;
        }
        let claim = self.claim(&miss, counters);
        if backlog < u32::MAX && self.backlog(&claim, miss.at) >= u64::from(backlog) {
            return None;
        }
        let mut gone = Gone::none(claim.entry);
        // The look into the first cache has been counted.
        let mut at = miss.at;
        let mut hit = false;
        let (mut reached, mut before) = (path.all().len(), first);
        for (step, number) in path.all()[place..].iter().enumerate() {
            let cache = &mut self.topology.caches[*number as usize];
            let entry = if step == 0 {
                claim.entry.with(PREFETCHED)
            } else {
                at += cache.latency;
                claim.entry
            };
            let (here, out) = cache.pass(entry);
            if let Some(here) = here {
                hit = true;
                reached = place + step;
                if here.has(PREFETCHED)
                    && let Some(prefetch) = &cache.prefetch
                {
                    at += prefetch.wait(miss.line, at);
                }
                if cache.victim {
                    self.topology.caches[before].keep_dirty(here);
                }
                break;
            }
            gone.note(out, cache);
            before = *number as usize;
        }
        counters.prefetches += 1;
        if !hit {
            at += self.fetch_line(&claim, at, counters);
        }
        if self.ported {
            at += self.move_up(&path, place..reached, at);
        }
        self.write_back_all(&gone, (claim.node, at), counters);
        Some(at)
    }
}
