//! The ways of a shared cache that a thread may fill: Intel's Cache Allocation Technology, and access to it.
//!
//! Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3B, "Intel Resource Director Technology Allocation
//! Features": a capacity bitmask says which ways a class of service may fill. Its set bits are contiguous, and there is at
//! least one. Linux has the same masks in the `schemata` files of resctrl (Documentation/filesystems/resctrl.rst); a hit
//! counts in all ways, so a mask limits what a thread brings in, not what it finds.

use crate::{MaskError, Outcome, ThreadId};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Ways of a set-associative cache: bit n stands for way n. One to 32 neighbouring ways, as Intel's capacity bitmasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct WayMask(u32);

/// The ways that a thread may fill in each of its caches of a level. As text `L3:0x3`, the level and the mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct CacheWays {
    level: u8,
    ways: WayMask,
}

/// As it is written in recordings: `{"level": 3, "ways": 3}`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    level: u8,
    ways: WayMask,
}

/// What is wrong with a mask of ways, or with its text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CacheWaysError {
    /// No way at all.
    #[error("a mask of ways has at least one way")]
    Empty,
    /// Ways with others between them.
    #[error(
        "the ways of a mask are next to each other (0x3, 0x6 or 0xc, for example), unlike those of {0:#x}"
    )]
    Apart(u32),
    /// Not a level at which caches can be allocated.
    #[error("ways are given to threads in caches of level 2 or 3, not {0}")]
    Level(u8),
    /// Not of the form that is expected.
    #[error("expected a cache level and a hexadecimal mask of ways, such as L3:0x3, not `{0}`")]
    Form(String),
}

impl WayMask {
    /// The ways with these bits set.
    ///
    /// # Errors
    /// No bit, or bits that are not next to each other.
    pub fn new(bits: u32) -> Result<Self, CacheWaysError> {
        if bits == 0 {
            return Err(CacheWaysError::Empty);
        }
        let lowest_first = bits >> bits.trailing_zeros();
        match lowest_first & lowest_first.wrapping_add(1) {
            0 => Ok(Self(bits)),
            _ => Err(CacheWaysError::Apart(bits)),
        }
    }

    /// Bit n is set for way n.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// How many ways a cache needs to have all of these: the highest one's number and 1.
    pub fn needs(self) -> u32 {
        u32::BITS - self.0.leading_zeros()
    }
}

impl CacheWays {
    /// The lowest level at which processors can be told which ways to fill.
    pub const FIRST_LEVEL: u8 = 2;
    /// The highest one.
    pub const LAST_LEVEL: u8 = 3;

    /// Ways of the caches of a level, 2 or 3.
    ///
    /// # Errors
    /// Another level.
    pub fn new(level: u8, ways: WayMask) -> Result<Self, CacheWaysError> {
        match (Self::FIRST_LEVEL..=Self::LAST_LEVEL).contains(&level) {
            true => Ok(Self { level, ways }),
            false => Err(CacheWaysError::Level(level)),
        }
    }

    /// The level of the caches, 2 or 3.
    pub fn level(self) -> u8 {
        self.level
    }

    /// The ways that may be filled.
    pub fn ways(self) -> WayMask {
        self.ways
    }
}

impl TryFrom<u32> for WayMask {
    type Error = CacheWaysError;

    fn try_from(bits: u32) -> Result<Self, CacheWaysError> {
        Self::new(bits)
    }
}

impl From<WayMask> for u32 {
    fn from(ways: WayMask) -> Self {
        ways.0
    }
}

impl TryFrom<Parts> for CacheWays {
    type Error = CacheWaysError;

    fn try_from(parts: Parts) -> Result<Self, CacheWaysError> {
        Self::new(parts.level, parts.ways)
    }
}

impl From<CacheWays> for Parts {
    fn from(of: CacheWays) -> Self {
        Self {
            level: of.level,
            ways: of.ways,
        }
    }
}

impl fmt::Display for WayMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for CacheWays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}:{}", self.level, self.ways)
    }
}

impl FromStr for CacheWays {
    type Err = CacheWaysError;

    fn from_str(text: &str) -> Result<Self, CacheWaysError> {
        let form = || CacheWaysError::Form(text.to_owned());
        let (level, ways) = text
            .strip_prefix(['L', 'l'])
            .and_then(|rest| rest.split_once(':'))
            .ok_or_else(form)?;
        let digits = ways.strip_prefix("0x").ok_or_else(form)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(form());
        }
        let level = level.parse().map_err(|_| form())?;
        let bits = u32::from_str_radix(digits, 16).map_err(|_| form())?;
        Self::new(level, WayMask::new(bits)?)
    }
}

/// Sets the ways of a level's caches that a thread may fill to `set`, if they are still `expect`; `None` stands for all
/// ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaysChange {
    /// The thread, by TID and start time.
    pub thread: ThreadId,
    /// The level of the caches, 2 or 3.
    pub level: u8,
    /// The ways that it must have now.
    pub expect: Option<WayMask>,
    /// The ways that it gets.
    pub set: Option<WayMask>,
}

/// Access to the ways that threads may fill. Only machines whose masks end with the session offer it, as nothing of this
/// is journaled.
pub trait CacheAllocation {
    /// The ways of a level's caches that a thread may fill; `None` for all.
    ///
    /// # Errors
    /// A thread that has exited.
    fn ways(&self, thread: ThreadId, level: u8) -> Result<Option<WayMask>, MaskError>;

    /// Whether a thread's ways may be set like this.
    ///
    /// # Errors
    /// Why not: no caches of that level, or one of them has fewer ways.
    fn fits(&self, thread: ThreadId, ways: CacheWays) -> Result<(), String>;

    /// Compare and set: identity and present ways are checked right before.
    fn change_ways(&mut self, change: &WaysChange) -> Outcome;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn masks_are_those_that_processors_take() {
        for bits in [1, 3, 6, 0xc, 0xff00, 0x8000_0000, u32::MAX] {
            assert_eq!(WayMask::new(bits).map(WayMask::bits), Ok(bits));
        }
        assert_eq!(WayMask::new(0), Err(CacheWaysError::Empty));
        for bits in [5, 9, 0xa, 0x8000_0001] {
            assert_eq!(WayMask::new(bits), Err(CacheWaysError::Apart(bits)));
        }
        assert_eq!(WayMask::new(6).unwrap().needs(), 3);
        assert_eq!(WayMask::new(u32::MAX).unwrap().needs(), 32);
    }

    #[test]
    fn what_is_no_mask_is_refused_with_the_reason() {
        let wrong = |text: &str| text.parse::<CacheWays>().unwrap_err().to_string();
        for text in [
            "",
            "L3",
            "L3:",
            "L3:3",
            "L3:0x",
            "L3:0x1ffffffff",
            "3:0x1",
            "Lx:0x1",
            "L3:0x+1",
            "L3:0xg",
        ] {
            assert!(wrong(text).contains("such as L3:0x3"), "{text}");
        }
        assert!(wrong("L3:0x0").contains("at least one way"));
        assert!(wrong("L3:0x5").contains("next to each other"));
        assert!(wrong("L1:0x1").contains("level 2 or 3"));
        assert!(wrong("L4:0x1").contains("level 2 or 3"));
        for text in [
            r#"{"level":1,"ways":1}"#,
            r#"{"level":3,"ways":0}"#,
            r#"{"level":3,"ways":5}"#,
        ] {
            assert!(serde_json::from_str::<CacheWays>(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_and_json_say_the_same(level in 2u8..4, from in 0u32..32, number in 1u32..33) {
            let bits = (u64::from(u32::MAX) >> (32 - number.min(32 - from)) << from) as u32;
            let ways = CacheWays::new(level, WayMask::new(bits).unwrap()).unwrap();
            prop_assert_eq!(ways.to_string().parse::<CacheWays>().unwrap(), ways);
            let json = serde_json::to_string(&ways).unwrap();
            prop_assert_eq!(serde_json::from_str::<CacheWays>(&json).unwrap(), ways);
            prop_assert_eq!(ways.ways().needs(), from + bits.count_ones());
        }
    }
}
