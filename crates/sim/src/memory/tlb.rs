//! A translation look-aside buffer: which pages need no walk through the page tables.

use super::sets::Sets;

/// No page: page numbers have fewer bits.
const EMPTY: u64 = u64::MAX;

/// No slot.
const NONE: u32 = u32::MAX;

/// Spreads page numbers over the buckets (Knuth's multiplicative hashing: 2^64 over the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A place for a page.
#[derive(Debug, Clone, Copy)]
struct Slot {
    page: u64,
    /// The next slot of the same bucket.
    chain: u32,
    /// The slot of the set that was used next after this one; after the newest comes the oldest.
    newer: u32,
    /// The slot of the set that was used last before this one; before the oldest comes the newest.
    older: u32,
}

/// A set-associative TLB with true LRU.
///
/// TLBs have many ways, often all in one set. So pages are found by a hash, and each set is a ring in the order of use:
/// neither a hit nor a miss goes through the ways.
#[derive(Debug, Clone)]
pub(super) struct Tlb {
    sets: Sets,
    slots: Box<[Slot]>,
    /// Of each set the slot that was used last.
    newest: Box<[u32]>,
    /// The first slot of each bucket.
    buckets: Box<[u32]>,
    bucket_shift: u32,
}

impl Tlb {
    /// An empty one.
    pub fn new(entries: u32, ways: u32) -> Self {
        let sets = Sets::new(u64::from(entries), ways);
        let ways = sets.ways();
        let slot = |number: usize| {
            let (first, way) = (number / ways * ways, number % ways);
            Slot {
                page: EMPTY,
                chain: NONE,
                newer: (first + (way + ways - 1) % ways) as u32,
                older: (first + (way + 1) % ways) as u32,
            }
        };
        // Most buckets hold one page or none, so that the host predicts where a search ends.
        let buckets = (sets.capacity() * 8).next_power_of_two();
        Self {
            sets,
            slots: (0..sets.capacity()).map(slot).collect(),
            newest: (0..sets.capacity() as u32).step_by(ways).collect(),
            buckets: vec![NONE; buckets].into_boxed_slice(),
            bucket_shift: 64 - buckets.trailing_zeros(),
        }
    }

    #[inline]
    fn bucket(&self, page: u64) -> usize {
        (page.wrapping_mul(SPREAD) >> self.bucket_shift) as usize
    }

    /// Translates an address in this page. Returns whether the page was here; it is afterwards.
    #[inline]
    pub fn touch(&mut self, page: u64) -> bool {
        let mut found = self.buckets[self.bucket(page)];
        while found != NONE {
            let slot = self.slots[found as usize];
            if slot.page == page {
                self.use_slot(found, slot);
                return true;
            }
            found = slot.chain;
        }
        self.replace(page);
        false
    }

    /// Makes a slot the newest of its set.
    #[inline]
    fn use_slot(&mut self, number: u32, slot: Slot) {
        let newest = &mut self.newest[self.sets.set(slot.page)];
        let before = std::mem::replace(newest, number);
        let oldest = self.slots[before as usize].newer;
        // The oldest is next to the newest already.
        if number == before || number == oldest {
            return;
        }
        self.slots[slot.newer as usize].older = slot.older;
        self.slots[slot.older as usize].newer = slot.newer;
        self.slots[number as usize].older = before;
        self.slots[number as usize].newer = oldest;
        self.slots[before as usize].newer = number;
        self.slots[oldest as usize].older = number;
    }

    /// Puts a page where the oldest of its set was.
    fn replace(&mut self, page: u64) {
        let set = self.sets.set(page);
        let number = self.slots[self.newest[set] as usize].newer;
        self.newest[set] = number;
        let old = self.slots[number as usize];
        if old.page != EMPTY {
            let bucket = self.bucket(old.page);
            let mut link = &mut self.buckets[bucket];
            while *link != number {
                link = &mut self.slots[*link as usize].chain;
            }
            *link = old.chain;
        }
        let bucket = self.bucket(page);
        let slot = &mut self.slots[number as usize];
        slot.page = page;
        slot.chain = std::mem::replace(&mut self.buckets[bucket], number);
    }
}
