//! A small and fast generator (Vigna's xoroshiro128++ would do as well): splitmix64, of which each seed is another
//! sequence. Streams draw several numbers an instruction, and the same seed must give the same bits everywhere.

/// Pseudo-random numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another sequence for a part of what this one is for.
    #[must_use]
    pub fn part(&self, number: u64) -> Self {
        let mut other = Self(self.0 ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        other.next();
        other
    }

    /// The next number.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Puts items into an order of chance.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }

    /// A number from 0 up to 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
