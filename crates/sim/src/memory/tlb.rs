//! A translation look-aside buffer: which pages need no walk through the page tables.

use super::sets::Sets;

/// No page: page numbers have fewer bits.
const EMPTY: u64 = u64::MAX;

/// Spreads page numbers over the hints (Knuth's multiplicative hashing: 2^64 over the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A set-associative TLB with true LRU.
///
/// TLBs have many ways, often all in one set, so pages stay where they are and times of use tell the order; a hint says
/// where a page was last seen, so that a hit searches nothing.
#[derive(Debug, Clone)]
pub(super) struct Tlb {
    sets: Sets,
    pages: Box<[u64]>,
    /// When each was used last, in accesses; 0: never.
    used: Box<[u64]>,
    accesses: u64,
    /// Where to look first; wrong at worst.
    hints: Box<[u32]>,
    hint_shift: u32,
}

impl Tlb {
    /// An empty one.
    pub fn new(entries: u32, ways: u32) -> Self {
        let sets = Sets::new(u64::from(entries), ways);
        let hints = (sets.capacity() * 4).next_power_of_two();
        Self {
            sets,
            pages: vec![EMPTY; sets.capacity()].into_boxed_slice(),
            used: vec![0; sets.capacity()].into_boxed_slice(),
            accesses: 0,
            hints: vec![0; hints].into_boxed_slice(),
            hint_shift: 64 - hints.trailing_zeros(),
        }
    }

    /// Translates an address in this page. Returns whether the page was here; it is afterwards.
    #[inline]
    pub fn touch(&mut self, page: u64) -> bool {
        self.accesses += 1;
        let hint = (page.wrapping_mul(SPREAD) >> self.hint_shift) as usize;
        let place = self.hints[hint] as usize;
        if self.pages[place] == page {
            self.used[place] = self.accesses;
            return true;
        }
        self.search(page, hint)
    }

    fn search(&mut self, page: u64, hint: usize) -> bool {
        let first = self.sets.first(page);
        let set = first..first + self.sets.ways();
        let found = self.pages[set.clone()]
            .iter()
            .position(|here| *here == page);
        let place = match found {
            Some(way) => first + way,
            None => set.min_by_key(|place| self.used[*place]).unwrap_or(first),
        };
        self.pages[place] = page;
        self.used[place] = self.accesses;
        self.hints[hint] = place as u32;
        found.is_some()
    }
}
