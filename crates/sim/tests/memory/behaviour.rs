//! What sharing, migrating and queueing do to a thread.

use super::machine::{LINE, packages, pair, tlb};
use perch_sim::{
    counters::Counters,
    memory::{Access, Hierarchy, Memory},
    model::MachineModel,
    units::{NANOSECOND, Ps},
};
use proptest::prelude::*;

/// A memory that counts each access by itself.
struct Probe {
    memory: Memory,
}

impl Probe {
    fn new(model: &MachineModel) -> Self {
        Self {
            memory: Memory::new(model),
        }
    }

    fn access(&mut self, pu: usize, access: Access, address: u64) -> (Ps, Counters) {
        let mut counters = Counters::default();
        let beyond = self
            .memory
            .access(pu, pu as u32, access, address, 0, &mut counters);
        (beyond, counters)
    }

    fn load(&mut self, pu: usize, address: u64) -> (Ps, Counters) {
        self.access(pu, Access::Load, address)
    }

    fn store(&mut self, pu: usize, address: u64) -> (Ps, Counters) {
        self.access(pu, Access::Store, address)
    }
}

#[test]
fn a_second_load_hits_whatever_the_byte() {
    let mut probe = Probe::new(&pair());
    let (beyond, counters) = probe.load(0, 5 * LINE);
    assert_eq!(beyond, 107 * NANOSECOND);
    assert_eq!(
        (counters.data_misses, counters.bus_transactions),
        ([1, 1, 0], 1)
    );
    assert_eq!(probe.load(0, 5 * LINE + 63), (0, Counters::default()));
    assert_eq!(
        probe.load(1, 5 * LINE),
        (0, Counters::default()),
        "its sibling shares the first level"
    );
    assert_eq!(
        probe.load(2, 5 * LINE).0,
        7 * NANOSECOND,
        "the other core finds it in the second"
    );
}

#[test]
fn a_line_written_elsewhere_comes_from_the_nearest_common_level() {
    let mut probe = Probe::new(&packages());
    probe.store(0, 0);
    let (beyond, counters) = probe.load(1, 0);
    assert_eq!(beyond, (7 + 31) * NANOSECOND, "the package's third level");
    assert_eq!(
        (counters.coherence_misses, counters.bus_transactions),
        (1, 0)
    );
    probe.store(1, 0);
    let (beyond, counters) = probe.load(2, 0);
    assert_eq!(
        beyond,
        (7 + 31 + 150) * NANOSECOND,
        "the other package's memory"
    );
    assert_eq!(
        (counters.coherence_misses, counters.bus_transactions),
        (1, 2),
        "written back, then read"
    );
    assert_eq!(probe.load(2, 0), (0, Counters::default()));
}

#[test]
fn reading_together_costs_nothing_and_writing_in_turn_does() {
    let mut probe = Probe::new(&pair());
    probe.load(0, 0);
    probe.load(2, 0);
    for _ in 0..10 {
        assert_eq!(probe.load(0, 0).0 + probe.load(2, 0).0, 0);
    }
    let mut moved = 0;
    for _ in 0..10 {
        moved += probe.store(0, 0).1.coherence_misses + probe.store(2, 0).1.coherence_misses;
    }
    assert_eq!(
        moved, 19,
        "all but the first store take the line from the other core"
    );
}

#[test]
fn a_migrated_thread_misses_first_and_hits_later() {
    let mut probe = Probe::new(&MachineModel {
        tlb: Some(tlb(false)),
        ..pair()
    });
    let mut walk = |pu: usize| -> (u64, u64) {
        let misses = (0..8).map(|line| {
            let counters = probe.load(pu, line * LINE).1;
            (counters.data_misses[0], counters.tlb_misses)
        });
        misses.fold((0, 0), |sum, misses| (sum.0 + misses.0, sum.1 + misses.1))
    };
    assert_eq!(walk(0), (8, 1));
    assert_eq!(walk(0), (0, 0));
    assert_eq!(walk(2), (8, 1), "on the other core all is cold");
    assert_eq!(walk(2), (0, 0));
    assert_eq!(
        walk(1),
        (0, 0),
        "and where it came from nothing is lost, as nobody ran there"
    );
}

#[test]
fn a_queue_at_memory_delays_those_behind() {
    let mut model = packages();
    model.memory.bandwidth = 64e9 / 50.0;
    let mut memory = Memory::new(&model);
    let mut counters = Counters::default();
    let mut load =
        |pu, line: u64| memory.access(pu, 0, Access::Load, line * LINE, 0, &mut counters);
    let first = load(0, 0);
    assert_eq!(load(0, 1000) - first, 50 * NANOSECOND);
    assert_eq!(
        load(1, 2000) - first,
        100 * NANOSECOND,
        "a node's cores share its channel"
    );
    assert_eq!(load(2, 3000), first, "the other node has its own");
}

#[test]
fn writebacks_use_bandwidth() {
    let mut model = pair();
    model.memory.bandwidth = 1e9;
    let time = |access| {
        let mut memory = Memory::new(&model);
        let mut counters = Counters::default();
        let mut now = 0;
        for line in 0..500 {
            now += memory.access(0, 0, access, line * LINE, now, &mut counters);
        }
        (now, counters.bus_transactions)
    };
    let ((reading, lines_in), (writing, lines_moved)) = (time(Access::Load), time(Access::Store));
    assert_eq!(lines_in, 500);
    assert!(
        lines_moved > 900,
        "{lines_moved}: nearly every line is written back"
    );
    assert!(
        writing > reading * 5 / 4,
        "{writing} ps, {reading} ps if only read"
    );
}

#[test]
fn occupancy_tells_who_holds_what() {
    let model = pair();
    let mut memory = Memory::new(&model);
    let mut counters = Counters::default();
    for line in 0..4 {
        memory.access(0, 7, Access::Load, line * LINE, 0, &mut counters);
    }
    for line in 4..6 {
        memory.access(2, 300_000, Access::Load, line * LINE, 0, &mut counters);
    }
    let second = &memory.occupancy(2)[0];
    assert_eq!(second.pus, [0, 1, 2, 3]);
    assert_eq!(
        second
            .lines
            .iter()
            .map(|(thread, lines)| (*thread, *lines))
            .collect::<Vec<_>>(),
        [(7, 4), (131_071, 2)]
    );
    let first: Vec<u64> = memory
        .occupancy(1)
        .iter()
        .map(|cache| cache.lines.values().sum())
        .collect();
    assert_eq!(first, [0, 0, 4, 2]);
    assert!(memory.occupancy(3).is_empty());
}

proptest! {
    /// After a store by any core, another core's next access to the line is no hit in its first level.
    #[test]
    fn a_store_takes_the_line_from_others(
        writer in 0usize..4,
        reader in 0usize..4,
        before in prop::collection::vec((0usize..4, any::<bool>(), 0u64..16), 0..60),
        line in 0u64..16,
        two_packages in any::<bool>(),
    ) {
        let model = if two_packages { packages() } else { pair() };
        let core = |pu: usize| model.places()[pu].0;
        prop_assume!(core(writer) != core(reader));
        let mut probe = Probe::new(&model);
        for (pu, store, line) in before {
            let access = if store { Access::Store } else { Access::Load };
            probe.access(pu, access, line * LINE);
        }
        probe.store(writer, line * LINE);
        let counters = probe.load(reader, line * LINE).1;
        prop_assert_eq!(counters.data_misses[0], 1);
        prop_assert_eq!(counters.coherence_misses, 1);
        prop_assert_eq!(probe.load(reader, line * LINE), (0, Counters::default()));
    }

    /// More ways of the last level, with as many sets, never miss there more often.
    #[test]
    fn more_ways_of_the_last_level_miss_no_more(
        lines in prop::collection::vec((0u64..120, any::<bool>()), 1..600),
        more in 1u32..4,
    ) {
        let mut larger = pair();
        larger.caches[2].ways += more;
        larger.caches[2].size = 8 * u64::from(larger.caches[2].ways) * LINE;
        let misses = |model: &MachineModel| {
            let mut memory = Memory::new(model);
            let mut counters = Counters::default();
            for (line, store) in &lines {
                let access = if *store { Access::Store } else { Access::Load };
                memory.access(0, 0, access, line * LINE, 0, &mut counters);
            }
            counters.data_misses
        };
        let (small, large) = (misses(&pair()), misses(&larger));
        prop_assert_eq!(small[0], large[0]);
        prop_assert!(large[1] <= small[1]);
    }
}
