//! One cache: real tags, true LRU.
//!
//! A set is a run of entries, the most recently used first, so that the usual hit is the first comparison and a victim
//! is the last entry. An entry is one word: the line's number, the thread that brought it in, and two flags.

use super::sets::Sets;

/// The line was written here and not below.
pub(super) const DIRTY: u64 = 1;

/// Caches of other cores may hold the line too: a store has to ask first.
pub(super) const SHARED: u64 = 2;

/// Where the thread's number begins in an entry.
const THREAD_SHIFT: u32 = 2;

/// Where the line's number begins in an entry.
const LINE_SHIFT: u32 = 20;

/// The last thread that has a number of its own in an entry; those beyond are counted together.
pub(super) const LAST_THREAD: u32 = (1 << (LINE_SHIFT - THREAD_SHIFT)) - 1;

/// Bits of a line number that tell lines apart: at 64 bytes a line, addresses of 49 bits.
pub(super) const LINE_MASK: u64 = (1 << 43) - 1;

/// No line: its top bit is none of a line number's.
const EMPTY: u64 = !(DIRTY | SHARED);

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

/// A set-associative cache with true LRU.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    sets: Sets,
    entries: Box<[Entry]>,
}

impl Cache {
    /// An empty cache. `size` and `line` are in bytes.
    pub fn new(size: u64, line: u32, ways: u32) -> Self {
        let sets = Sets::new(size / u64::from(line.max(1)), ways);
        Self {
            sets,
            entries: vec![Entry(EMPTY); sets.capacity()].into_boxed_slice(),
        }
    }

    #[inline]
    fn set(&mut self, line: u64) -> &mut [Entry] {
        let first = self.sets.set(line) * self.sets.ways();
        &mut self.entries[first..first + self.sets.ways()]
    }

    /// Uses a line: if it is here, it becomes the most recently used.
    #[inline]
    pub fn touch(&mut self, line: u64) -> Option<&mut Entry> {
        let set = self.set(line);
        let way = set.iter().position(|entry| entry.is(line))?;
        let entry = set[way];
        for to in (1..=way).rev() {
            set[to] = set[to - 1];
        }
        set[0] = entry;
        Some(&mut set[0])
    }

    /// Brings in a line that is not here, as the most recently used. Returns the line that had to go.
    #[inline]
    pub fn insert(&mut self, entry: Entry) -> Option<Entry> {
        let set = self.set(entry.line());
        let mut out = entry;
        for place in set {
            std::mem::swap(place, &mut out);
        }
        (out.0 != EMPTY).then_some(out)
    }

    /// Uses a line, and brings it in if it is not here. The flags of `entry` are added to it.
    /// Returns whether it was here, and the line that had to go.
    #[inline]
    pub fn touch_or_insert(&mut self, entry: Entry) -> (bool, Option<Entry>) {
        let line = entry.line();
        let set = self.set(line);
        // All move on by one place, up to where the line was or the last one falls out.
        let mut moving = entry;
        for way in 0..set.len() {
            let here = std::mem::replace(&mut set[way], moving);
            if here.is(line) {
                set[0] = here.with(entry.0 & (DIRTY | SHARED));
                return (true, None);
            }
            moving = here;
        }
        (false, (moving.0 != EMPTY).then_some(moving))
    }

    /// A line as it is here, without using it.
    pub fn find(&mut self, line: u64) -> Option<&mut Entry> {
        self.set(line).iter_mut().find(|entry| entry.is(line))
    }

    /// Takes a line out.
    pub fn remove(&mut self, line: u64) -> Option<Entry> {
        let set = self.set(line);
        let way = set.iter().position(|entry| entry.is(line))?;
        let entry = std::mem::replace(&mut set[way], Entry(EMPTY));
        set[way..].rotate_left(1);
        Some(entry)
    }

    /// All lines that are here.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.entries
            .iter()
            .copied()
            .filter(|entry| entry.0 != EMPTY)
    }
}
