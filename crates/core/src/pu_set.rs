//! Sets of PUs (hardware threads), by operating-system number.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
};

/// The largest PU number that a set may hold; a guard against `0-4000000000` in a file.
pub const MAX_PU: u32 = 65_535;

/// A set of PUs, written like the kernel writes CPU lists: `0-3,8,10-11`. The empty set is written ``.
#[derive(Clone, Default, Eq, PartialOrd, Ord)]
pub struct PuSet(bit_set::BitSet);

impl PuSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The set of one PU.
    pub fn single(pu: u32) -> Self {
        [pu].into_iter().collect()
    }

    /// Adds a PU; true if it was not there.
    pub fn insert(&mut self, pu: u32) -> bool {
        self.0.insert(pu as usize)
    }

    /// Takes a PU out; true if it was there.
    pub fn remove(&mut self, pu: u32) -> bool {
        self.0.remove(pu as usize)
    }

    /// Whether the PU is in the set.
    pub fn contains(&self, pu: u32) -> bool {
        self.0.contains(pu as usize)
    }

    /// Number of PUs in the set.
    pub fn len(&self) -> usize {
        self.0.count()
    }

    /// Whether the set holds none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest PU.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The highest PU.
    pub fn last(&self) -> Option<u32> {
        self.iter().last()
    }

    /// The PUs in rising order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().map(|pu| pu as u32)
    }

    /// The PUs that are in both.
    pub fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.0.intersect_with(&other.0);
        both
    }

    /// The PUs that are in either.
    pub fn or(&self, other: &Self) -> Self {
        let mut either = self.clone();
        either.insert_all(other);
        either
    }

    /// Adds all PUs of the other set: many small sets are put together without a copy for each.
    pub fn insert_all(&mut self, other: &Self) {
        self.0.union_with(&other.0);
    }

    /// All PUs of these sets.
    pub fn union<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::new();
        sets.into_iter().for_each(|set| all.insert_all(set));
        all
    }

    /// The PUs of this set that are not in the other.
    pub fn minus(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.0.difference_with(&other.0);
        rest
    }

    /// Whether every PU of this set is in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        // Policies ask this of every thread: without a branch a word, unlike the library's.
        let (these, those) = (self.0.get_ref().storage(), other.0.get_ref().storage());
        let (these, rest) = these.split_at(these.len().min(those.len()));
        let missing = (these.iter().zip(those)).fold(0, |missing, (a, b)| missing | (a & !b));
        missing == 0 && rest.iter().all(|word| *word == 0)
    }

    /// Whether the sets have no PU in common.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.0.is_disjoint(&other.0)
    }

    /// Reads the kernel's hexadecimal mask format, e.g. `ff` or `00000001,ffffffff` (`Cpus_allowed` in proc(5)).
    ///
    /// # Errors
    /// A text that is no such mask.
    pub fn from_mask(text: &str) -> Result<Self, PuSetError> {
        let wrong = || PuSetError(text.to_owned());
        let digits: Vec<u32> = text
            .trim()
            .chars()
            .filter(|c| *c != ',')
            .map(|c| c.to_digit(16).ok_or_else(wrong))
            .collect::<Result<_, _>>()?;
        if digits.is_empty() || digits.len() > (MAX_PU as usize + 1) / 4 {
            return Err(wrong());
        }
        let nibbles = digits.iter().rev().enumerate();
        Ok(nibbles
            .flat_map(|(i, nibble)| {
                (0..4)
                    .filter(move |bit| nibble >> bit & 1 == 1)
                    .map(move |bit| i as u32 * 4 + bit)
            })
            .collect())
    }

    /// Writes the format that [`PuSet::from_mask`] reads, in groups of 32 PUs: `f`, `1,00000000`.
    pub fn to_mask(&self) -> String {
        let mut words = vec![0u32; self.last().unwrap_or(0) as usize / 32 + 1];
        for pu in self.iter() {
            words[pu as usize / 32] |= 1 << (pu % 32);
        }
        let mut words = words.into_iter().rev();
        let first = words.next().map(|word| format!("{word:x}"));
        let words = words.map(|word| format!("{word:08x}"));
        first.into_iter().chain(words).collect::<Vec<_>>().join(",")
    }
}

// Word by word; the library compares PU by PU.
impl PartialEq for PuSet {
    fn eq(&self, other: &Self) -> bool {
        self.is_subset(other) && other.is_subset(self)
    }
}

impl Hash for PuSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl FromIterator<u32> for PuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(pus: T) -> Self {
        Self(pus.into_iter().map(|pu| pu as usize).collect())
    }
}

impl Extend<u32> for PuSet {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, pus: T) {
        self.0.extend(pus.into_iter().map(|pu| pu as usize));
    }
}

impl fmt::Display for PuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pus = self.iter().peekable();
        let mut separator = "";
        while let Some(start) = pus.next() {
            let mut end = start;
            while let Some(next) = pus.next_if_eq(&(end + 1)) {
                end = next;
            }
            match end - start {
                0 => write!(f, "{separator}{start}")?,
                _ => write!(f, "{separator}{start}-{end}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for PuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// A text that is no PU list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a valid PU list: write numbers and ranges such as 0-3,8 (at most {MAX_PU})")]
pub struct PuSetError(pub String);

impl FromStr for PuSet {
    type Err = PuSetError;

    fn from_str(text: &str) -> Result<Self, PuSetError> {
        let wrong = || PuSetError(text.to_owned());
        let number = |digits: &str| -> Result<u32, PuSetError> {
            let value = digits.trim().parse().map_err(|_| wrong())?;
            if value > MAX_PU {
                Err(wrong())
            } else {
                Ok(value)
            }
        };
        let mut set = Self::new();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            set.extend(first..=last);
        }
        Ok(set)
    }
}

impl Serialize for PuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_round_trip(pus in proptest::collection::btree_set(0..2000u32, 0..40)) {
            let set: PuSet = pus.iter().copied().collect();
            prop_assert_eq!(set.len(), pus.len());
            prop_assert_eq!(&set.to_string().parse::<PuSet>().unwrap(), &set);
            prop_assert!(set.iter().eq(pus.iter().copied()));
        }

        #[test]
        fn mask_round_trip(pus in proptest::collection::btree_set(0..2000u32, 0..40)) {
            let set: PuSet = pus.iter().copied().collect();
            let mask = set.to_mask();
            // Groups of 32, as the kernel's `bitmap_parse` takes them.
            prop_assert!(mask.split(',').all(|group| (1..=8).contains(&group.len())), "{}", mask);
            prop_assert!(mask.split(',').skip(1).all(|group| group.len() == 8), "{}", mask);
            prop_assert_eq!(PuSet::from_mask(&mask).unwrap(), set);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,30}") {
            let _ = text.parse::<PuSet>();
            let _ = PuSet::from_mask(&text);
        }

        #[test]
        fn set_algebra(a in proptest::collection::vec(0..300u32, 0..30), b in proptest::collection::vec(0..300u32, 0..30)) {
            let (a, b): (PuSet, PuSet) = (a.into_iter().collect(), b.into_iter().collect());
            prop_assert_eq!(a.and(&b).len() + a.minus(&b).len(), a.len());
            prop_assert_eq!(a.or(&b).len(), a.len() + b.minus(&a).len());
            prop_assert!(a.and(&b).is_subset(&a) && a.is_subset(&a.or(&b)));
            prop_assert!(a.and(&b).iter().eq(a.iter().filter(|pu| b.contains(*pu))));
            prop_assert!(a.minus(&b).iter().eq(a.iter().filter(|pu| !b.contains(*pu))));
            prop_assert_eq!(PuSet::union([&a, &b]), a.or(&b));
        }
    }

    #[test]
    fn sets_that_hold_the_same_are_equal_whatever_their_history() {
        let mut grown = PuSet::single(900);
        grown.remove(900);
        grown.insert(2);
        assert_eq!(grown, PuSet::single(2));
    }

    #[test]
    fn kernel_masks() {
        assert_eq!(PuSet::from_mask("ff").unwrap().to_string(), "0-7");
        assert_eq!(
            PuSet::from_mask("00000001,80000000\n").unwrap().to_string(),
            "31-32"
        );
        assert!(PuSet::from_mask("").is_err());
    }

    #[test]
    fn huge_ranges_are_refused() {
        assert!("0-4000000000".parse::<PuSet>().is_err());
        assert!("5-2".parse::<PuSet>().is_err());
        assert_eq!("".parse::<PuSet>().unwrap(), PuSet::new());
    }
}
