//! Lines move between caches, through ports of limited bandwidth.

use super::{Memory, Miss};
use crate::{
    counters::Counters,
    memory::{
        access::Access,
        cache::{DIRTY, Entry, PREFETCHED},
        topology::{Path, Place},
    },
    units::Ps,
};
use std::ops::Range;

impl Memory {
    /// The caches that an access passes.
    pub(super) fn path(&self, miss: &Miss) -> Path {
        let place = &self.topology.places[miss.pu];
        match miss.access {
            Access::Fetch => place.fetch,
            Access::Load | Access::Store => place.data,
        }
    }

    /// A store goes on to the level behind the first, where alone the line is dirty. Returns how long it waits for the port,
    /// if it is not merged with stores to the same line that are on their way still.
    #[cold]
    pub(super) fn write_through(
        &mut self,
        pu: usize,
        thread: u32,
        line: u64,
        at: Ps,
        counters: &mut Counters,
    ) -> Ps {
        let Place {
            data: path, node, ..
        } = self.topology.places[pu];
        let Some(number) = path.all().get(1).map(|number| *number as usize) else {
            return 0;
        };
        let cache = &mut self.topology.caches[number];
        let entry = Entry::new(line, thread);
        let merged = cache
            .coalescing
            .as_mut()
            .is_some_and(|buffer| buffer.touch_or_insert(entry).0.is_some());
        if let Some(held) = cache.tags.find(line) {
            *held = held.with(DIRTY).without(PREFETCHED);
            return if merged { 0 } else { cache.port.request(at) };
        }
        self.write_back(Some(number), entry.with(DIRTY), (node, at), counters);
        0
    }

    /// A line moves up from the end of a range of places on a path to its beginning: from memory, if no cache is at the end.
    /// It does not pass a victim cache on its way. Returns how long it waits for ports, from `at` on.
    pub(super) fn move_up(&mut self, path: &Path, places: Range<usize>, at: Ps) -> Ps {
        let mut wait = 0;
        for place in places.start + 1..=places.end {
            let Some(number) = path.all().get(place) else {
                break;
            };
            let cache = &mut self.topology.caches[*number as usize];
            if !cache.victim || place == places.end {
                wait += cache.port.request(at + wait);
            }
        }
        wait
    }
}
