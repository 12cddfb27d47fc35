//! Lines move between caches, through ports of limited bandwidth.

use super::{Memory, Miss};
use crate::{
    memory::{access::Access, topology::Path},
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
