//! How a capacity is divided into sets, and which set a number belongs to.

/// The sets of a set-associative structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sets {
    count: u64,
    /// One less than the count if that is a power of two.
    mask: Option<u64>,
    ways: usize,
}

impl Sets {
    /// Sets of `ways` places each for `capacity` entries. There are never fewer than one set and one way, nor more ways
    /// than entries; a remainder that fills no set is left out.
    pub fn new(capacity: u64, ways: u32) -> Self {
        let capacity = capacity.max(1);
        let ways = u64::from(ways).clamp(1, capacity);
        let count = capacity / ways;
        Self {
            count,
            mask: count.is_power_of_two().then(|| count - 1),
            ways: ways as usize,
        }
    }

    /// Entries of all sets.
    pub fn capacity(&self) -> usize {
        self.count as usize * self.ways
    }

    /// Entries of one set.
    #[inline]
    pub fn ways(&self) -> usize {
        self.ways
    }

    /// The set where `number` belongs.
    #[inline]
    pub fn set(&self, number: u64) -> usize {
        match self.mask {
            Some(mask) => (number & mask) as usize,
            None => (number % self.count) as usize,
        }
    }
}
