//! One cache: real tags, true LRU.
//!
//! A set is a run of entries, which stay where they are; in which order they were used is said apart. An entry is one
//! word: the line's number, the thread that brought it in, and three flags.

use super::{lru::Lru, sets::Sets};
use wide::u32x4;

/// The line was written here and not below.
pub(super) const DIRTY: u64 = 1;

/// Caches of other cores may hold the line too: a store has to ask first.
pub(super) const SHARED: u64 = 2;

/// A prefetcher brought the line in, and nothing has needed it since.
pub(super) const PREFETCHED: u64 = 4;

/// Where the thread's number begins in an entry.
const THREAD_SHIFT: u32 = 3;

/// Where the line's number begins in an entry.
const LINE_SHIFT: u32 = 20;

/// The last thread that has a number of its own in an entry; those beyond are counted together.
pub(super) const LAST_THREAD: u32 = (1 << (LINE_SHIFT - THREAD_SHIFT)) - 1;

/// Bits of a line number that tell lines apart: at 64 bytes a line, addresses of 49 bits.
pub(super) const LINE_MASK: u64 = (1 << 43) - 1;

/// No line: its top bit is none of a line number's.
const EMPTY: u64 = !(DIRTY | SHARED | PREFETCHED);

/// One line as a cache holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(u64);

impl Entry {
    /// A clean line that a thread brought in.
    #[inline]
    pub fn new(line: u64, thread: u32) -> Self {
        Self((line & LINE_MASK) << LINE_SHIFT | u64::from(thread.min(LAST_THREAD)) << THREAD_SHIFT)
    }

    /// The same with flags set besides.
    #[inline]
    pub fn with(self, flags: u64) -> Self {
        Self(self.0 | flags)
    }

    /// The same without these flags.
    #[inline]
    pub fn without(self, flags: u64) -> Self {
        Self(self.0 & !flags)
    }

    /// Whether any of the flags is set.
    #[inline]
    pub fn has(self, flags: u64) -> bool {
        self.0 & flags != 0
    }

    /// The number of the line.
    #[inline]
    pub fn line(self) -> u64 {
        self.0 >> LINE_SHIFT
    }

    /// Who brought it in.
    pub fn thread(self) -> u32 {
        (self.0 >> THREAD_SHIFT) as u32 & LAST_THREAD
    }

    #[inline]
    fn is(self, line: u64) -> bool {
        self.0 >> LINE_SHIFT == line
    }
}

/// Tags that are compared at once.
const TOGETHER: usize = 4;

/// Tags whose comparisons fit into one word.
const BLOCK: usize = 32;

/// Which of at most [`BLOCK`] tags are this one: bit n for the n-th.
#[inline(always)]
fn alike(tags: &[u32], tag: u32) -> u32 {
    let (groups, rest) = tags.as_chunks::<TOGETHER>();
    let mut alike = 0;
    for (number, group) in groups.iter().enumerate() {
        let equal = u32x4::new(*group).simd_eq(u32x4::splat(tag));
        alike |= equal.to_bitmask() << (number * TOGETHER);
    }
    for (number, its) in rest.iter().enumerate() {
        alike |= u32::from(*its == tag) << (groups.len() * TOGETHER + number);
    }
    alike
}

/// A set-associative cache with true LRU.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    sets: Sets,
    entries: Box<[Entry]>,
    /// The lowest bits of the numbers of the lines in `entries`: many are compared at once.
    tags: Box<[u32]>,
    /// Ways without a line are the oldest of their set.
    lru: Lru,
    /// The ways that each thread may fill, bit n for way n; none if all may fill all.
    confined: Option<Box<[u32]>>,
}

impl Cache {
    /// An empty cache. `size` and `line` are in bytes.
    pub fn new(size: u64, line: u32, ways: u32) -> Self {
        let sets = Sets::new(size / u64::from(line.max(1)), ways);
        Self {
            sets,
            entries: vec![Entry(EMPTY); sets.capacity()].into_boxed_slice(),
            tags: vec![0; sets.capacity()].into_boxed_slice(),
            lru: Lru::new(sets.capacity() / sets.ways(), sets.ways()),
            confined: None,
        }
    }

    /// From now on a thread may fill only these ways, bit n for way n; all if no bit is set. What is there stays there.
    pub fn confine(&mut self, thread: u32, ways: u32) {
        let thread = thread.min(LAST_THREAD) as usize;
        let mut all = self.confined.take().unwrap_or_default().into_vec();
        if all.len() <= thread {
            all.resize(thread + 1, 0);
        }
        all[thread] = ways;
        self.confined = all.iter().any(|ways| *ways != 0).then(|| all.into());
    }

    /// The way that a line of a thread gets, whatever is there.
    #[inline(always)]
    fn victim(&mut self, set: usize, entry: Entry) -> usize {
        if let Some(confined) = &self.confined {
            let ways = confined.get(entry.thread() as usize).copied();
            if let Some(ways) = ways.filter(|ways| *ways != 0) {
                return self.lru.replace_within(set, ways);
            }
        }
        self.lru.replace(set)
    }

    /// The way of a set where a line is.
    #[inline(always)]
    fn way(&self, set: usize, line: u64) -> Option<usize> {
        let before = set * self.sets.ways();
        let tags = &self.tags[before..before + self.sets.ways()];
        let tag = line as u32;
        // A line may be in any way: with a branch for each of them, the host would mispredict most of the time.
        let mut first = 0;
        for tags in tags.chunks(BLOCK) {
            let mut alike = alike(tags, tag);
            while alike != 0 {
                let way = first + alike.trailing_zeros() as usize;
                if self.entries[before + way].is(line) {
                    return Some(way);
                }
                alike &= alike - 1;
            }
            first += BLOCK;
        }
        None
    }

    #[inline]
    fn entry(&mut self, set: usize, way: usize) -> &mut Entry {
        &mut self.entries[set * self.sets.ways() + way]
    }

    /// Uses a line: if it is here, it becomes the most recently used.
    #[inline]
    pub fn touch(&mut self, line: u64) -> Option<&mut Entry> {
        let set = self.sets.set(line);
        let way = self.way(set, line)?;
        self.lru.touch(set, way);
        Some(self.entry(set, way))
    }

    /// Brings in a line that is not here, as the most recently used. Returns the line that had to go.
    #[inline]
    pub fn insert(&mut self, entry: Entry) -> Option<Entry> {
        self.replace(self.sets.set(entry.line()), entry)
    }

    #[inline(always)]
    fn replace(&mut self, set: usize, entry: Entry) -> Option<Entry> {
        let place = set * self.sets.ways() + self.victim(set, entry);
        self.tags[place] = entry.line() as u32;
        let gone = std::mem::replace(&mut self.entries[place], entry);
        (gone.0 != EMPTY).then_some(gone)
    }

    /// Uses a line, and brings it in if it is not here. The flags of `entry` are added to it, but [`PREFETCHED`]: it is used
    /// now. Returns the line as it was, if it was here, and the line that had to go.
    #[inline(always)]
    pub fn touch_or_insert(&mut self, entry: Entry) -> (Option<Entry>, Option<Entry>) {
        let set = self.sets.set(entry.line());
        let Some(way) = self.way(set, entry.line()) else {
            return (None, self.replace(set, entry));
        };
        self.lru.touch(set, way);
        let here = self.entry(set, way);
        let before = *here;
        *here = before.with(entry.0 & (DIRTY | SHARED)).without(PREFETCHED);
        (Some(before), None)
    }

    /// A line as it is here, without using it.
    pub fn find(&mut self, line: u64) -> Option<&mut Entry> {
        let set = self.sets.set(line);
        let way = self.way(set, line)?;
        Some(self.entry(set, way))
    }

    /// Takes a line out.
    pub fn remove(&mut self, line: u64) -> Option<Entry> {
        let set = self.sets.set(line);
        let way = self.way(set, line)?;
        self.lru.retire(set, way);
        Some(std::mem::replace(self.entry(set, way), Entry(EMPTY)))
    }

    /// All lines that are here.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.entries
            .iter()
            .copied()
            .filter(|entry| entry.0 != EMPTY)
    }
}
