//! The ways of caches that a thread may fill.

use perch_core::{CacheWays, WayMask};

/// The ways that a thread may fill at each level where that can be chosen; all of them at first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ways([u32; LEVELS]);

const LEVELS: usize = (CacheWays::LAST_LEVEL - CacheWays::FIRST_LEVEL + 1) as usize;

fn place(level: u8) -> Option<usize> {
    let place = level.checked_sub(CacheWays::FIRST_LEVEL)?;
    (level <= CacheWays::LAST_LEVEL).then_some(usize::from(place))
}

impl Ways {
    /// Those of a level, 1 to 3; `None` for all.
    pub fn of(self, level: u8) -> Option<WayMask> {
        WayMask::new(self.bits(level)).ok()
    }

    /// The same as bits, bit n for way n; none is set if all ways may be filled.
    pub(crate) fn bits(self, level: u8) -> u32 {
        place(level).map_or(0, |place| self.0[place])
    }

    /// Sets those of a level; `None` for all. Levels where that cannot be chosen stay as they are.
    pub fn set(&mut self, level: u8, ways: Option<WayMask>) {
        if let Some(place) = place(level) {
            self.0[place] = ways.map_or(0, WayMask::bits);
        }
    }

    /// As one number: 0 for all ways.
    pub(crate) fn pack(self) -> u64 {
        let shift = |packed: u64, ways: &u32| packed << u32::BITS | u64::from(*ways);
        self.0.iter().fold(0, shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_has_its_own_ways() {
        let mut ways = Ways::default();
        assert_eq!((ways.pack(), ways.of(3)), (0, None));
        ways.set(3, WayMask::new(6).ok());
        ways.set(2, WayMask::new(1).ok());
        ways.set(1, WayMask::new(1).ok());
        assert_eq!([1, 2, 3, 4].map(|level| ways.bits(level)), [0, 1, 6, 0]);
        assert_eq!(ways.pack(), 1 << 32 | 6);
        ways.set(2, None);
        assert_eq!(ways.of(2), None);
    }
}
