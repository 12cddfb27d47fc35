//! Where pages are.

use super::machine::{machine, packages, tlb};
use perch_sim::{
    counters::Counters,
    memory::{Access, Hierarchy, Memory, Placement},
    model::{MachineModel, TlbModel},
    units::NANOSECOND,
};
use proptest::prelude::*;

fn load(memory: &mut Memory, pu: usize, address: u64) -> u64 {
    memory.access(pu, 0, Access::Load, address, 0, &mut Counters::default())
}

#[test]
fn a_page_is_where_it_was_touched_first() {
    let mut memory = Memory::new(&packages());
    assert_eq!(memory.home(0), None);
    let near = load(&mut memory, 2, 0);
    let far = load(&mut memory, 0, 64);
    assert_eq!(far - near, 50 * NANOSECOND, "half as far again");
    assert_eq!((memory.home(4095), memory.home(4096)), (Some(1), None));
}

#[test]
fn large_pages_are_placed_as_a_whole() {
    let large = TlbModel {
        page: 1 << 21,
        ..tlb(true)
    };
    let mut memory = Memory::new(&MachineModel {
        tlb: Some(large),
        ..packages()
    });
    load(&mut memory, 3, 0);
    load(&mut memory, 0, 1 << 20);
    assert_eq!(
        (
            memory.home(1 << 20),
            memory.home((1 << 21) - 1),
            memory.home(1 << 21)
        ),
        (Some(1), Some(1), None)
    );
}

#[test]
fn without_caches_every_access_is_memorys() {
    let mut memory = Memory::new(&machine(&[0], 1, Vec::new()));
    assert_eq!(load(&mut memory, 0, 0), 100 * NANOSECOND);
    assert_eq!(load(&mut memory, 0, 0), 100 * NANOSECOND);
    assert_eq!(memory.home(0), Some(0));
}

proptest! {
    #[test]
    fn interleaved_pages_go_round(pages in prop::collection::vec((0usize..4, 0u64..1000), 1..50)) {
        let mut memory = Memory::new(&packages());
        memory.set_placement(Placement::Interleave);
        for (pu, page) in pages {
            load(&mut memory, pu, page * 4096);
            prop_assert_eq!(memory.home(page * 4096), Some((page % 2) as u32));
        }
    }
}
