//! What prefetchers bring, when it is there, and what it costs.

use super::machine::{LINE, level, machine, pair};
use perch_sim::{
    counters::Counters,
    memory::{Access, Hierarchy, Memory},
    model::{Holds, MachineModel, Pattern, Prefetcher},
    units::{NANOSECOND, Ps},
};
use proptest::prelude::*;

/// What a look into the second level takes, and memory without a queue.
const SECOND: Ps = 7 * NANOSECOND;
const MEMORY: Ps = 100 * NANOSECOND;

fn stream() -> Prefetcher {
    Prefetcher {
        pattern: Pattern::Stream,
        streams: 8,
        after: 2,
        ahead: 4,
        longest: 4,
        page: 4096,
        under_way: u32::MAX,
        backlog: u32::MAX,
    }
}

/// Two cores, each with caches for 512 lines on two levels. Caches of one level have prefetchers.
fn cores(at: u8, prefetchers: &[Prefetcher]) -> MachineModel {
    let pus: [&[u32]; 2] = [&[0], &[1]];
    let mut caches = vec![
        level(1, Holds::Instructions, 512, 8, &pus),
        level(1, Holds::Data, 512, 8, &pus),
        level(2, Holds::Both, 512, 8, &pus),
    ];
    let with = caches.iter_mut().rev().find(|cache| cache.level == at);
    with.unwrap().prefetchers = prefetchers.to_vec();
    machine(&[0, 0], 1, caches)
}

/// Loads of lines by PU 0, `apart` from each other: what each takes, and what was counted.
fn loads(memory: &mut Memory, lines: &[u64], apart: Ps) -> (Vec<Ps>, Counters) {
    let mut counters = Counters::default();
    let mut now = 0;
    let load = |line: &u64| {
        now += apart;
        memory.access(0, 0, Access::Load, line * LINE, now, &mut counters)
    };
    let taken = lines.iter().map(load).collect();
    (taken, counters)
}

#[test]
fn a_stream_is_there_before_it_is_needed() {
    let mut memory = Memory::new(&cores(2, &[stream()]));
    let lines: Vec<u64> = (0..64).collect();
    let (taken, counters) = loads(&mut memory, &lines, 1_000 * NANOSECOND);
    assert_eq!(taken[..2], [SECOND + MEMORY; 2]);
    assert_eq!(taken[2..], [SECOND; 62]);
    assert_eq!(counters.data_misses, [64, 2, 0]);
    assert_eq!(counters.prefetches, 62);
    // Each line of the page once, and none of the next page.
    assert_eq!(counters.bus_transactions, 64);
}

#[test]
fn in_the_first_level_a_stream_takes_no_time_at_all() {
    let mut memory = Memory::new(&cores(1, &[stream()]));
    let lines: Vec<u64> = (0..64).collect();
    let (taken, counters) = loads(&mut memory, &lines, 1_000 * NANOSECOND);
    assert_eq!(taken[..2], [SECOND + MEMORY; 2]);
    assert_eq!(taken[2..], [0; 62]);
    assert_eq!(counters.data_misses, [2, 2, 0]);
    assert_eq!(counters.bus_transactions, 64);
}

#[test]
fn who_comes_early_waits_for_the_rest_of_the_way() {
    let mut memory = Memory::new(&cores(2, &[stream()]));
    let apart = 30 * NANOSECOND;
    let (taken, _) = loads(&mut memory, &[0, 1, 2, 3], apart);
    // Line 2 was asked for when line 1 had missed the second level, line 3 with it.
    assert_eq!(taken[2], SECOND + MEMORY - apart);
    assert_eq!(taken[3], SECOND + MEMORY - 2 * apart);
}

#[test]
fn the_next_line_of_each_miss_comes_with_it() {
    let next = Prefetcher {
        pattern: Pattern::NextLine,
        ahead: 1,
        ..stream()
    };
    let mut memory = Memory::new(&cores(2, &[next]));
    let (taken, counters) = loads(&mut memory, &[8, 9, 40, 63], 1_000 * NANOSECOND);
    assert_eq!(
        taken,
        [SECOND + MEMORY, SECOND, SECOND + MEMORY, SECOND + MEMORY]
    );
    // 9, 10 when 9 was used, 41.
    assert_eq!((counters.prefetches, counters.bus_transactions), (3, 6));
}

#[test]
fn a_stride_is_followed_by_the_prefetcher_of_strides_only() {
    let lines: Vec<u64> = (0..12).map(|step| step * 5).collect();
    let stride = Prefetcher {
        pattern: Pattern::Stride,
        after: 3,
        longest: 32,
        ..stream()
    };
    for (prefetcher, misses) in [(stride, 3), (stream(), 12)] {
        let mut memory = Memory::new(&cores(2, &[prefetcher]));
        let (_, counters) = loads(&mut memory, &lines, 1_000 * NANOSECOND);
        assert_eq!(counters.data_misses[1], misses);
    }
}

#[test]
fn no_more_is_asked_for_than_may_be_under_way() {
    let bounded = |under_way, backlog| Prefetcher {
        under_way,
        backlog,
        ..stream()
    };
    let asked = |prefetcher: Prefetcher, bandwidth| {
        let mut model = cores(2, &[prefetcher]);
        model.memory.bandwidth = bandwidth;
        let mut memory = Memory::new(&model);
        loads(&mut memory, &[0, 1], NANOSECOND).1.prefetches
    };
    let (free, slow) = (f64::INFINITY, 64e7);
    assert_eq!(asked(stream(), free), 4);
    assert_eq!(asked(bounded(3, u32::MAX), free), 3);
    // Two lines of the loads wait for the slow memory, a line in 100 ns.
    assert_eq!(asked(stream(), slow), 4);
    assert_eq!(asked(bounded(u32::MAX, 4), slow), 2);
    assert_eq!(asked(bounded(u32::MAX, 2), slow), 0);
}

#[test]
fn code_teaches_nothing() {
    let mut memory = Memory::new(&cores(2, &[stream()]));
    let mut counters = Counters::default();
    for line in 0..20 {
        memory.access(0, 0, Access::Fetch, line * LINE, 0, &mut counters);
    }
    assert_eq!(counters.prefetches, 0);
}

#[test]
fn a_line_that_another_core_has_written_is_asked_of_it() {
    let mut memory = Memory::new(&cores(2, &[stream()]));
    let mut other = Counters::default();
    memory.access(1, 1, Access::Store, 2 * LINE, 0, &mut other);
    let (_, counters) = loads(&mut memory, &[0, 1], 1_000 * NANOSECOND);
    assert_eq!(counters.coherence_misses, 1);
    // To write it again the other core has to ask, and PU 0's copy goes.
    memory.access(1, 1, Access::Store, 2 * LINE, 0, &mut other);
    let (taken, counters) = loads(&mut memory, &[2], 10_000 * NANOSECOND);
    assert_eq!(taken, [SECOND + MEMORY]);
    assert_eq!(counters.coherence_misses, 1);
}

fn prefetcher() -> impl Strategy<Value = Prefetcher> {
    let pattern = prop_oneof![
        Just(Pattern::NextLine),
        Just(Pattern::AdjacentLine),
        Just(Pattern::Stream),
        Just(Pattern::Stride)
    ];
    (pattern, 1u32..4, 2u32..4, 1u32..6, 1u32..9, 1u32..9).prop_map(
        |(pattern, streams, after, ahead, longest, under_way)| Prefetcher {
            pattern,
            streams,
            after,
            ahead: if pattern == Pattern::AdjacentLine {
                1
            } else {
                ahead
            },
            longest,
            page: 1024,
            under_way,
            backlog: u32::MAX,
        },
    )
}

proptest! {
    /// Where everything fits, what prefetchers bring can only save misses; and what is counted as transfers is what the
    /// caches have got.
    #[test]
    fn with_room_for_all_no_access_misses_that_would_not_without(
        prefetchers in proptest::collection::vec(prefetcher(), 1..3),
        at in 1u8..3,
        lines in proptest::collection::vec(0u64..400, 1..200),
    ) {
        let (_, without) = loads(&mut Memory::new(&cores(at, &[])), &lines, 50 * NANOSECOND);
        let mut memory = Memory::new(&cores(at, &prefetchers));
        let (_, with) = loads(&mut memory, &lines, 50 * NANOSECOND);
        for (with, without) in with.data_misses.iter().zip(without.data_misses) {
            prop_assert!(*with <= without);
        }
        let held: u64 = memory.occupancy(2).iter().flat_map(|cache| cache.lines.values()).sum();
        prop_assert_eq!(held, with.bus_transactions);
        prop_assert_eq!(with.data_misses[1] + with.prefetches, with.bus_transactions);
    }

    /// Also in small caches, with several PUs and writes: what a prefetcher brings into the second level drives nothing out
    /// of the first.
    #[test]
    fn an_access_repeated_at_once_hits(
        prefetchers in proptest::collection::vec(prefetcher(), 1..3),
        touches in proptest::collection::vec((0usize..4, any::<bool>(), 0u64..80), 1..200),
    ) {
        let mut model = pair();
        model.caches[2].prefetchers = prefetchers;
        let mut memory = Memory::new(&model);
        let mut now = 0;
        for (pu, store, line) in touches {
            let access = if store { Access::Store } else { Access::Load };
            let mut counters = Counters::default();
            let taken = memory.access(pu, pu as u32, access, line * LINE, now, &mut counters);
            now += taken + NANOSECOND;
            let before = counters;
            let again = memory.access(pu, pu as u32, access, line * LINE, now, &mut counters);
            prop_assert_eq!(again, 0);
            prop_assert_eq!(counters, before);
        }
    }
}
