//! Windows by address, for one address space.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::window::Window;

/// What is known about the code at an address; `None` is remembered too, so that an address without
/// valid code is not decoded again and again.
pub(crate) type Entry = Option<Window>;

/// A bounded map from sampled address to window.
///
/// Two generations approximate least-recently-used eviction at constant cost: an entry found in the old
/// generation moves to the young one, and when the young one is full it becomes the old one, whose
/// remaining entries are dropped.
#[derive(Debug, Default)]
pub(crate) struct CodeCache {
    young: FxHashMap<u64, Entry>,
    old: FxHashMap<u64, Entry>,
    capacity: usize,
}

impl CodeCache {
    /// A cache of at most `capacity` entries (at least two).
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            young: FxHashMap::default(),
            old: FxHashMap::default(),
            capacity: capacity.max(2),
        }
    }

    /// The entry for `ip`, if there is one.
    #[inline]
    pub(crate) fn get(&mut self, ip: u64) -> Option<&Entry> {
        if !self.young.contains_key(&ip) {
            let entry = self.old.remove(&ip)?;
            self.insert(ip, entry);
        }
        self.young.get(&ip)
    }

    /// Adds or replaces the entry for `ip`.
    pub(crate) fn insert(&mut self, ip: u64, entry: Entry) {
        if self.young.len() >= self.capacity / 2 && !self.young.contains_key(&ip) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(ip, entry);
    }

    /// Drops what was learnt from code in `range`: windows at, or reaching into, these addresses.
    pub(crate) fn invalidate(&mut self, range: &Range<u64>) {
        let stays = |ip: &u64, entry: &mut Entry| {
            let touched = match entry {
                Some(window) => window.span.start < range.end && range.start < window.span.end,
                None => false,
            };
            !touched && !range.contains(ip)
        };
        self.young.retain(stays);
        self.old.retain(stays);
    }

    /// Drops the addresses without valid code.
    pub(crate) fn forget_undecoded(&mut self) {
        self.young.retain(|_, entry| entry.is_some());
        self.old.retain(|_, entry| entry.is_some());
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    /// Entries held.
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bounded_and_the_latest_is_there(
            capacity in 2usize..64,
            addresses in prop::collection::vec(0u64..200, 1..500),
        ) {
            let mut cache = CodeCache::new(capacity);
            for ip in addresses {
                if cache.get(ip).is_none() {
                    cache.insert(ip, None);
                }
                prop_assert!(cache.get(ip).is_some());
                prop_assert!(cache.len() <= capacity);
            }
        }

        #[test]
        fn invalidated_addresses_are_gone_and_others_stay(
            addresses in prop::collection::btree_set(0u64..1_000, 1..100),
            start in 0u64..1_000,
            length in 0u64..200,
        ) {
            let mut cache = CodeCache::new(1_000);
            addresses.iter().for_each(|&ip| cache.insert(ip, None));
            let range = start..start + length;
            cache.invalidate(&range);
            for ip in addresses {
                prop_assert_eq!(cache.get(ip).is_some(), !range.contains(&ip));
            }
            cache.forget_undecoded();
            prop_assert_eq!(cache.len(), 0);
        }
    }
}
