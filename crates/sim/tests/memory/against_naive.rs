//! Random accesses of several PUs: the same misses, transfers and latencies as the naive model at every step.

use super::{
    machine::{LINE, modules, packages, pair, tlb, uneven},
    naive::Naive,
};
use perch_sim::{
    counters::Counters,
    memory::{Access, Hierarchy, Memory},
    model::{MachineModel, TlbModel},
};
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Touch {
    pu: usize,
    access: Access,
    address: u64,
}

fn touch() -> impl Strategy<Value = Touch> {
    let access = prop_oneof![
        1 => Just(Access::Fetch),
        4 => Just(Access::Load),
        3 => Just(Access::Store),
    ];
    // Some lines that everybody wants, more that fill the caches, and the same far apart.
    let line = prop_oneof![
        0u64..6,
        0u64..80,
        (0u64..40).prop_map(|line| line * 37),
        (0u64..20).prop_map(|line| line << 12)
    ];
    (0usize..4, access, line, 0u64..LINE).prop_map(|(pu, access, line, byte)| Touch {
        pu,
        access,
        address: line * LINE + byte,
    })
}

fn any_machine() -> impl Strategy<Value = MachineModel> {
    let tlbs = prop_oneof![
        Just(None),
        Just(Some(tlb(true))),
        Just(Some(tlb(false))),
        Just(Some(TlbModel {
            page: 32_768,
            ..tlb(true)
        })),
    ];
    let base = prop_oneof![
        Just(pair()),
        Just(packages()),
        Just(modules()),
        Just(uneven())
    ];
    (base, tlbs).prop_map(|(base, tlb)| MachineModel { tlb, ..base })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn same_as_naive(model in any_machine(), touches in prop::collection::vec(touch(), 1..600)) {
        let mut memory = Memory::new(&model);
        let mut naive = Naive::new(&model);
        let (mut ours, mut theirs) = (Counters::default(), Counters::default());
        for (step, touch) in touches.iter().enumerate() {
            let pu = touch.pu % model.pus();
            let beyond = memory.access(pu, 1, touch.access, touch.address, step as u64, &mut ours);
            let expected = naive.access(pu, touch.access, touch.address, &mut theirs);
            prop_assert_eq!(ours, theirs, "counters at step {} of {:?}", step, touch);
            prop_assert_eq!(beyond, expected, "latency at step {} of {:?}", step, touch);
        }
        for level in 1..=3 {
            let held: Vec<usize> = memory
                .occupancy(level)
                .iter()
                .map(|cache| cache.lines.values().sum::<u64>() as usize)
                .collect();
            prop_assert_eq!(held, naive.held(level));
        }
    }

    /// With bandwidth, the same misses; nothing is faster than without.
    #[test]
    fn bandwidth_only_delays(
        model in any_machine(),
        touches in prop::collection::vec((touch(), 0u64..40_000), 1..300),
    ) {
        let mut narrow = model.clone();
        narrow.memory.bandwidth = 1e9;
        let (mut wide, mut narrow) = (Memory::new(&model), Memory::new(&narrow));
        let (mut wide_counters, mut narrow_counters) = (Counters::default(), Counters::default());
        for (touch, now) in touches {
            let pu = touch.pu % model.pus();
            let free = wide.access(pu, 1, touch.access, touch.address, now, &mut wide_counters);
            let queued = narrow.access(pu, 1, touch.access, touch.address, now, &mut narrow_counters);
            prop_assert!(queued >= free);
            prop_assert_eq!(wide_counters, narrow_counters);
        }
    }

    /// What misses a level has missed the one before, if every PU has all levels.
    #[test]
    fn misses_fall_with_the_level(
        model in prop_oneof![Just(pair()), Just(packages()), Just(modules())],
        touches in prop::collection::vec(touch(), 1..600),
    ) {
        let mut memory = Memory::new(&model);
        let mut counters = Counters::default();
        let mut data = 0;
        for touch in touches {
            data += u64::from(touch.access != Access::Fetch);
            memory.access(touch.pu, 0, touch.access, touch.address, 0, &mut counters);
        }
        let last = model.caches.iter().map(|level| level.level).max().map_or(0, usize::from);
        for misses in [counters.fetch_misses, counters.data_misses] {
            prop_assert!(misses[..last].is_sorted_by(|before, after| before >= after));
            prop_assert!(misses[last..].iter().all(|misses| *misses == 0));
        }
        prop_assert!(counters.data_misses[0] <= data);
        prop_assert!(counters.bus_transactions >= counters.fetch_misses[last - 1] + counters.data_misses[last - 1]);
    }
}
