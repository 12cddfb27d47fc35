//! Marks of cycles, as far ahead as a core looks.

/// Cycles ahead for which there are marks.
pub(super) const AHEAD: usize = 1024;

const WORDS: usize = AHEAD / 64;

/// A mark for each of [`AHEAD`] cycles in a row, by cycle modulo that: the next one with a mark is found in a step
/// for 64 of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Ring([u64; WORDS]);

impl Ring {
    /// Marks a cycle, or leaves it as it is.
    #[inline]
    pub fn set(&mut self, cycle: u64, marked: bool) {
        let (word, bit) = place(cycle);
        self.0[word] |= bit * u64::from(marked);
    }

    #[inline]
    pub fn clear(&mut self, cycle: u64) {
        let (word, bit) = place(cycle);
        self.0[word] &= !bit;
    }

    pub fn clear_all(&mut self) {
        self.0.fill(0);
    }

    /// The first cycle with a mark, of these, which are [`AHEAD`] at most.
    #[inline]
    pub fn marked(&self, from: u64, end: u64) -> Option<u64> {
        let first = from % 64;
        let (mut word, _) = place(from);
        let mut marks = self.0[word] >> first;
        let mut cycle = from;
        while marks == 0 {
            cycle = (cycle | 63) + 1;
            if cycle >= end {
                return None;
            }
            word = (word + 1) % WORDS;
            marks = self.0[word];
        }
        cycle += u64::from(marks.trailing_zeros());
        (cycle < end).then_some(cycle)
    }
}

/// Where the mark of a cycle is.
#[inline]
fn place(cycle: u64) -> (usize, u64) {
    let at = cycle as usize % AHEAD;
    (at / 64, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The next one is what looking at each gives.
        #[test]
        fn the_next_mark_is_found(
            marks in proptest::collection::vec((0u64..AHEAD as u64, 0u64..80), 0..20),
            from in 0u64..5000,
            length in 0u64..=AHEAD as u64,
        ) {
            let (mut ring, mut all) = (Ring::default(), vec![false; AHEAD]);
            for (mark, length) in marks {
                for cycle in mark..mark + length {
                    ring.set(cycle, true);
                    all[cycle as usize % AHEAD] = true;
                }
                ring.clear(mark);
                all[mark as usize] = false;
            }
            let is_marked = |cycle: &u64| all[*cycle as usize % AHEAD];
            let end = from + length;
            prop_assert_eq!(ring.marked(from, end), (from..end).find(is_marked));
        }
    }
}
