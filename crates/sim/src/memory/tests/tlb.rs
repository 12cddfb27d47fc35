//! A TLB against lists that move what is used to the front.

use crate::memory::tlb::Tlb;
use proptest::prelude::*;

proptest! {
    #[test]
    fn same_as_lists(
        entries in 1usize..40,
        ways in 0usize..48,
        pages in prop::collection::vec(prop_oneof![0u64..64, (1u64 << 52) - 8..1u64 << 52], 1..500),
    ) {
        let mut tlb = Tlb::new(entries as u32, ways as u32);
        let ways = ways.clamp(1, entries);
        let mut sets = vec![Vec::new(); entries / ways];
        for page in pages {
            let place = page as usize % sets.len();
            let set: &mut Vec<u64> = &mut sets[place];
            let before = set.len();
            set.retain(|here| *here != page);
            let hit = set.len() < before;
            set.insert(0, page);
            set.truncate(ways);
            prop_assert_eq!(tlb.touch(page), hit);
        }
    }

    #[test]
    fn more_ways_hit_wherever_fewer_do(
        sets in 1u32..5,
        ways in 1u32..9,
        more in 1u32..9,
        pages in prop::collection::vec(0u64..60, 1..400),
    ) {
        let mut small = Tlb::new(sets * ways, ways);
        let mut large = Tlb::new(sets * (ways + more), ways + more);
        for page in pages {
            let hit = small.touch(page);
            let also = large.touch(page);
            prop_assert!(also || !hit);
        }
    }
}
