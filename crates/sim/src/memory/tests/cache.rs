//! A cache against lists that move what is used to the front.

use crate::memory::cache::{Cache, DIRTY, Entry, LAST_THREAD, LINE_MASK};
use proptest::prelude::*;

/// Lists of lines by set, each with its dirtiness, the most recently used first.
struct Lists {
    ways: usize,
    sets: Vec<Vec<(u64, bool)>>,
}

impl Lists {
    fn new(lines: usize, ways: usize) -> Self {
        let ways = ways.clamp(1, lines.max(1));
        Self {
            ways,
            sets: vec![Vec::new(); lines.max(1) / ways],
        }
    }

    fn set(&mut self, line: u64) -> &mut Vec<(u64, bool)> {
        let count = self.sets.len() as u64;
        &mut self.sets[(line % count) as usize]
    }

    /// Whether the line was here, and what it drove out.
    fn use_line(&mut self, line: u64, dirty: bool) -> (bool, Option<(u64, bool)>) {
        let ways = self.ways;
        let set = self.set(line);
        let old = set
            .iter()
            .position(|(here, _)| *here == line)
            .map(|place| set.remove(place));
        set.insert(0, (line, dirty || old.is_some_and(|(_, dirty)| dirty)));
        let out = if set.len() > ways { set.pop() } else { None };
        (old.is_some(), out)
    }

    fn remove(&mut self, line: u64) -> Option<(u64, bool)> {
        let set = self.set(line);
        let place = set.iter().position(|(here, _)| *here == line)?;
        Some(set.remove(place))
    }
}

#[derive(Debug, Clone)]
enum Step {
    Use { line: u64, dirty: bool },
    Remove(u64),
    Find(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let line = prop_oneof![0u64..48, (LINE_MASK - 20)..=LINE_MASK];
    prop_oneof![
        6 => (line.clone(), any::<bool>()).prop_map(|(line, dirty)| Step::Use { line, dirty }),
        1 => line.clone().prop_map(Step::Remove),
        1 => line.prop_map(Step::Find),
    ]
}

proptest! {
    #[test]
    fn same_as_lists(lines in 1usize..40, ways in 0usize..12, steps in prop::collection::vec(step(), 1..400)) {
        let mut cache = Cache::new(lines as u64 * 64 + 7, 64, ways as u32);
        let mut lists = Lists::new(lines, ways);
        let plain = |entry: Entry| (entry.line(), entry.has(DIRTY));
        for step in steps {
            match step {
                Step::Use { line, dirty } => {
                    let entry = Entry::new(line, 3).with(if dirty { DIRTY } else { 0 });
                    let (here, out) = cache.touch_or_insert(entry);
                    let hit = here.is_some();
                    prop_assert_eq!((hit, out.map(plain)), lists.use_line(line, dirty));
                }
                Step::Remove(line) => prop_assert_eq!(cache.remove(line).map(plain), lists.remove(line)),
                Step::Find(line) => {
                    let there = lists.set(line).iter().copied().find(|(here, _)| *here == line);
                    prop_assert_eq!(cache.find(line).map(|entry| plain(*entry)), there);
                }
            }
            let held: usize = lists.sets.iter().map(Vec::len).sum();
            prop_assert_eq!(cache.entries().count(), held);
        }
    }

    /// What a set of LRU holds is part of what a larger one holds, so that no hit is lost.
    #[test]
    fn more_ways_hit_wherever_fewer_do(
        sets in 1u64..9,
        ways in 1u32..8,
        more in 1u32..5,
        lines in prop::collection::vec(0u64..80, 1..500),
    ) {
        let mut small = Cache::new(sets * u64::from(ways) * 64, 64, ways);
        let mut large = Cache::new(sets * u64::from(ways + more) * 64, 64, ways + more);
        for line in lines {
            let hit = small.touch_or_insert(Entry::new(line, 0)).0.is_some();
            let also = large.touch_or_insert(Entry::new(line, 0)).0.is_some();
            prop_assert!(also || !hit);
        }
    }

    #[test]
    fn entries_keep_line_and_thread(line in any::<u64>(), thread in any::<u32>(), flags in 0u64..4) {
        let entry = Entry::new(line, thread).with(flags);
        prop_assert_eq!(entry.line(), line & LINE_MASK);
        prop_assert_eq!(entry.thread(), thread.min(LAST_THREAD));
        prop_assert_eq!(entry.has(DIRTY), flags & DIRTY != 0);
        prop_assert_eq!(entry.without(3), Entry::new(line, thread));
    }
}
