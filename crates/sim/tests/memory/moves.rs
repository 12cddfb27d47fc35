//! How lines move between caches: victim caches and ports of limited bandwidth.

use super::machine::{LINE, level, machine, modules};
use perch_sim::{
    config::find_machine,
    counters::Counters,
    memory::{Access, Hierarchy, Memory},
    model::{Holds, MachineModel},
    units::{NANOSECOND, Ps},
};
use std::ops::Range;

/// Two cores with a first level of 4 lines and a second of 8 each, before a third of 16 for both, all in one set.
fn victim() -> MachineModel {
    let cores: [&[u32]; 2] = [&[0], &[1]];
    let mut caches = vec![
        level(1, Holds::Data, 4, 4, &cores),
        level(2, Holds::Both, 8, 8, &cores),
        level(3, Holds::Both, 16, 16, &[&[0, 1]]),
    ];
    caches[2].victim = true;
    machine(&[0, 0], 1, caches)
}

/// Accesses at one moment.
struct Probe {
    memory: Memory,
    counters: Counters,
}

impl Probe {
    fn new(model: &MachineModel) -> Self {
        Self {
            memory: Memory::new(model),
            counters: Counters::default(),
        }
    }

    fn access(&mut self, pu: usize, access: Access, line: u64) -> Ps {
        let address = line * LINE;
        self.memory
            .access(pu, pu as u32, access, address, 0, &mut self.counters)
    }

    fn load(&mut self, pu: usize, line: u64) -> Ps {
        self.access(pu, Access::Load, line)
    }

    fn walk(&mut self, pu: usize, lines: Range<u64>) {
        for line in lines {
            self.load(pu, line);
        }
    }

    /// Lines in the third level.
    fn third(&self) -> u64 {
        self.memory.occupancy(3)[0].lines.values().sum()
    }
}

#[test]
fn a_victim_cache_takes_what_the_caches_before_it_evict() {
    let mut probe = Probe::new(&victim());
    probe.walk(0, 0..8);
    assert_eq!(probe.third(), 0, "a miss does not fill it");
    probe.walk(0, 8..12);
    assert_eq!(probe.third(), 4, "clean lines come in as well");
    assert_eq!(probe.load(0, 0), (7 + 31) * NANOSECOND, "it is there");
    assert_eq!(probe.third(), 4, "one went up, another came down");
}

#[test]
fn the_second_level_and_a_victim_cache_add_up() {
    let walk = |victim_cache: bool| {
        let mut model = victim();
        model.caches[2].victim = victim_cache;
        let mut probe = Probe::new(&model);
        for _ in 0..3 {
            probe.walk(0, 0..22);
        }
        probe.counters.bus_transactions
    };
    assert_eq!(walk(true), 22, "8 lines and 16 lines hold 22");
    assert_eq!(walk(false), 66, "16 lines do not");
}

#[test]
fn a_line_that_several_cores_use_stays_in_a_victim_cache() {
    let mut probe = Probe::new(&victim());
    probe.load(0, 0);
    assert_eq!(probe.load(1, 0), (7 + 31) * NANOSECOND, "by way of it");
    assert_eq!(probe.third(), 1);
    probe.walk(1, 100..108);
    assert_eq!(probe.load(1, 0), (7 + 31) * NANOSECOND);
    assert!(probe.memory.occupancy(3)[0].lines.contains_key(&0));
}

#[test]
fn what_was_written_is_written_back_from_wherever_it_is() {
    let mut probe = Probe::new(&victim());
    probe.access(0, Access::Store, 0);
    // Down to the third level, up again, and down and out at last.
    probe.walk(0, 1..16);
    assert_eq!(probe.load(0, 0), (7 + 31) * NANOSECOND);
    let before = probe.counters.bus_transactions;
    probe.walk(0, 100..140);
    assert_eq!(probe.counters.bus_transactions - before, 41, "40 in, 1 out");
}

#[test]
fn refills_queue_at_the_next_levels_port() {
    let mut model = modules();
    model.caches[2].line_transfer = 3 * NANOSECOND;
    let mut probe = Probe::new(&model);
    probe.walk(0, 0..4);
    let again = |memory: &Memory, pus: [usize; 2], lines: [u64; 2]| {
        let mut memory = memory.clone();
        let mut load = |at: usize| {
            let now = 1_000_000 * NANOSECOND;
            let counters = &mut Counters::default();
            memory.access(pus[at], 0, Access::Load, lines[at] * LINE, now, counters)
        };
        [load(0), load(1)]
    };
    // Both cores of a module come by one port, in turn.
    let both = again(&probe.memory, [1, 1], [0, 1]);
    assert_eq!(both, [7 * NANOSECOND, 10 * NANOSECOND]);
    let apart = again(&probe.memory, [1, 2], [0, 1000]);
    assert_eq!(apart[0], 7 * NANOSECOND);
    assert_eq!(apart[1], (7 + 31 + 100) * NANOSECOND, "a port of its own");
}

#[test]
fn write_backs_pass_the_port_too() {
    let mut model = modules();
    model.caches[2].line_transfer = 1_000 * NANOSECOND;
    let time = |access| {
        let mut probe = Probe::new(&model);
        // Four lines of the first level, and four that push them out, all of the second level.
        probe.walk(1, 0..16);
        let now = 1_000_000 * NANOSECOND;
        let waits = (0..8).map(|line| {
            let counters = &mut Counters::default();
            probe
                .memory
                .access(0, 0, access, line * LINE, now, counters)
        });
        waits.max().unwrap()
    };
    let (read, written) = (time(Access::Load), time(Access::Store));
    assert_eq!(read, 7 * NANOSECOND + 7_000 * NANOSECOND);
    assert!(written >= read + 3_000 * NANOSECOND, "{written} {read}");
}

/// Two modules whose first levels of data are written through, with a buffer of this many lines a module.
fn through(buffer: u64) -> MachineModel {
    let mut model = modules();
    model.caches[1].write_through = Some(buffer * LINE);
    model.caches[2].line_transfer = 1_000 * NANOSECOND;
    model
}

#[test]
fn a_store_that_misses_does_not_bring_its_line_where_it_is_written_through() {
    let mut probe = Probe::new(&through(0));
    assert!(probe.access(0, Access::Store, 0) > 0);
    assert_eq!(probe.counters.data_misses, [1, 1, 1]);
    probe.load(0, 0);
    assert_eq!(probe.counters.data_misses, [2, 1, 1], "the second level");
    assert_eq!(probe.load(0, 0), 0);
}

#[test]
fn what_is_written_through_is_dirty_in_the_second_level_only() {
    let mut probe = Probe::new(&through(0));
    probe.load(0, 0);
    probe.access(0, Access::Store, 0);
    // Its sibling shares the second level: nothing has to be written back there.
    probe.load(1, 0);
    assert_eq!(probe.counters.coherence_misses, 0);
    probe.load(2, 0);
    assert_eq!(probe.counters.coherence_misses, 1, "the other module asks");
    probe.access(0, Access::Store, 5);
    let before = probe.counters.bus_transactions;
    probe.walk(0, 100..400);
    let moved = probe.counters.bus_transactions - before;
    assert_eq!(moved, 302, "300 lines in, both that were written out");
}

#[test]
fn stores_to_one_line_are_merged_in_the_coalescing_buffer() {
    let waits = |buffer: u64, lines: &[u64]| -> Vec<Ps> {
        let mut probe = Probe::new(&through(buffer));
        probe.walk(0, 0..4);
        let now = 1_000_000 * NANOSECOND;
        let mut store = |line: &u64| {
            let counters = &mut Counters::default();
            let address = line * LINE;
            let memory = &mut probe.memory;
            memory.access(0, 0, Access::Store, address, now, counters) / NANOSECOND
        };
        lines.iter().map(&mut store).collect()
    };
    assert_eq!(waits(0, &[0, 0, 0]), [0, 1_000, 2_000], "each by itself");
    assert_eq!(waits(2, &[0, 0, 1, 0, 1]), [0, 0, 1_000, 0, 0]);
    assert_eq!(
        waits(2, &[0, 1, 2, 0]),
        [0, 1_000, 2_000, 3_000],
        "too many lines"
    );
}

#[test]
fn bulldozer_s_third_level_holds_what_its_second_levels_evict() {
    let mut probe = Probe::new(&find_machine("amd-bulldozer").unwrap());
    // All in one set of a second level of 2,048 sets and 16 ways, too far apart for a prefetcher.
    let line = |number: u64| 2_048 * number;
    (0..16).for_each(|number| _ = probe.load(0, line(number)));
    assert_eq!(probe.third(), 0, "what memory sends passes it by");
    probe.load(0, line(16));
    assert_eq!(probe.third(), 1, "one line had to leave the second level");
    let before = probe.counters.data_misses;
    probe.load(0, line(0));
    let of = |level: usize| probe.counters.data_misses[level] - before[level];
    assert_eq!([of(0), of(1), of(2)], [1, 1, 0], "it is that line");
    assert_eq!(probe.third(), 1, "it went up, another one came down");
}

#[test]
fn bulldozer_s_first_level_is_written_through_to_a_coalescing_buffer() {
    let mut probe = Probe::new(&find_machine("amd-bulldozer").unwrap());
    probe.access(0, Access::Store, 0);
    probe.load(0, 0);
    assert_eq!(probe.counters.data_misses, [2, 1, 1], "the second level");
    probe.access(0, Access::Store, 0);
    probe.load(1, 0);
    assert_eq!(probe.counters.coherence_misses, 0, "its sibling asks none");
    let stores = |memory: &Memory, lines: [u64; 3]| {
        let mut memory = memory.clone();
        lines.map(|line| {
            let now = 1_000_000 * NANOSECOND;
            let counters = &mut Counters::default();
            memory.access(0, 0, Access::Store, line * LINE, now, counters)
        })
    };
    assert_eq!(stores(&probe.memory, [0, 0, 0]), [0, 0, 0], "merged");
    probe.walk(0, 1..3);
    let apart = stores(&probe.memory, [0, 1, 2]);
    assert!(apart[2] > apart[1], "{apart:?}: others pass the port");
}
