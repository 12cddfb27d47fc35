//! The interval level: what must hold whatever is simulated, and where it must agree with the cycle level.

mod cold;
mod cores;
mod prefetch;
mod queueing;

use crate::support::{ALU, MIXED, compute, kinds, machine, mix, state, workload};
use perch_core::PuSet;
use perch_sim::{
    config::find_machine,
    counters::Counters,
    detail::{Detail, Fidelity},
    model::{CoreAt, MachineModel, Multithreading, Op},
    os::SchedulerModel,
    system::System,
    units::SECOND,
    workload::{Mix, Pattern, WorkloadModel},
};
use proptest::prelude::*;
use std::sync::Arc;

fn at(fidelity: Fidelity, machine: &MachineModel, workload: &WorkloadModel, seed: u64) -> System {
    let (machine, workload) = (Arc::new(machine.clone()), Arc::new(workload.clone()));
    let detail = Detail::new(fidelity, &machine, &workload);
    System::at(&detail, machine, workload, SchedulerModel::default(), seed)
}

fn instructions(system: &System) -> Vec<u64> {
    let threads = system.threads().iter();
    threads
        .map(|thread| thread.counters.instructions())
        .collect()
}

/// Threads that compute for ever.
pub fn endless(mixes: Vec<Mix>, threads: &[usize]) -> WorkloadModel {
    let steps = threads.iter().map(|mix| vec![compute(*mix, u64::MAX)]);
    workload(mixes, steps.collect())
}

/// What both levels give for endless threads at fixed places, from `warm` on: cycle level, interval level.
pub fn both(
    machine: &MachineModel,
    workload: &WorkloadModel,
    places: &[u32],
    warm: u64,
    length: u64,
) -> [Vec<Counters>; 2] {
    [Fidelity::Cycle, Fidelity::Interval].map(|fidelity| {
        let mut system = at(fidelity, machine, workload, 1);
        system.run(1).unwrap();
        for (thread, pu) in places.iter().enumerate() {
            system.set_mask(thread, PuSet::single(*pu));
        }
        system.run(warm.max(1)).unwrap();
        let counters = |system: &System| -> Vec<Counters> {
            system
                .threads()
                .iter()
                .map(|thread| thread.counters)
                .collect()
        };
        let before = counters(&system);
        system.run(warm + length).unwrap();
        let after = counters(&system);
        let both = after.iter().zip(&before);
        both.map(|(after, before)| after.since(before)).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Every instruction of the steps is executed once, however often its thread was moved or preempted.
    #[test]
    fn work_is_conserved(
        kind in kinds(),
        cores in 1usize..4,
        contexts in 1u32..5,
        lengths in proptest::collection::vec(1u64..300_000, 1..12),
        moves in proptest::collection::vec((0usize..12, 0u32..12), 0..20),
        seed in any::<u64>(),
    ) {
        let mixes = vec![mix("mixed", MIXED, 64 << 10), mix("alu", ALU, 64)];
        let steps = lengths.iter().enumerate().map(|(at, length)| vec![compute(at % 2, *length)]);
        let workload = workload(mixes, steps.collect());
        let mut system = at(Fidelity::Interval, &machine(cores, contexts, kind), &workload, seed);
        system.run(1).unwrap();
        let pus = cores as u32 * contexts;
        for (step, (thread, pu)) in moves.into_iter().enumerate() {
            if thread < lengths.len() {
                system.set_mask(thread, PuSet::single(pu % pus));
            }
            system.run((step as u64 + 1) * 3_000_000).unwrap();
        }
        let every: PuSet = (0..pus).collect();
        (0..lengths.len()).for_each(|thread| system.set_mask(thread, every.clone()));
        system.run(SECOND).unwrap();
        prop_assert!(system.is_done());
        prop_assert_eq!(instructions(&system), lengths);
        // No thread issues more than a core can.
        for thread in system.threads() {
            let most = match kind { Multithreading::FineGrained => 1, Multithreading::Simultaneous => 4 };
            prop_assert!(thread.counters.instructions() <= most * (thread.cycles + 1));
        }
    }

    /// The same seed gives the same bits, also with what another run has found out, and wherever memory is.
    #[test]
    fn the_same_seed_gives_the_same_bits(
        kind in kinds(),
        seed in any::<u64>(),
        threads in 1usize..20,
        nodes in 1u32..3,
    ) {
        let mut machine = machine(2, 4, kind);
        machine.cores[1].numa_node = nodes - 1;
        machine.memory.distance = vec![vec![1.0, 4.0], vec![2.0, 3.0]];
        // How much of a delay is hidden depends on the delay where some of it is.
        (machine.kinds[0].window, machine.kinds[0].in_order) = (64, false);
        let machine = Arc::new(machine);
        let mixes = vec![mix("mixed", MIXED, 64 << 10), mix("alu", ALU, 64), mix("memory", MIXED, 64 << 20)];
        let kinds: Vec<usize> = (0..threads).map(|thread| thread % 3).collect();
        let workload = Arc::new(endless(mixes, &kinds));
        let detail = Detail::new(Fidelity::Interval, &machine, &workload);
        let play = |detail: &Detail, seed| {
            let (machine, workload) = (Arc::clone(&machine), Arc::clone(&workload));
            let mut system = System::at(detail, machine, workload, SchedulerModel::default(), seed);
            system.run(200_000_000).unwrap();
            state(&system)
        };
        let first = play(&detail, seed);
        let other = play(&detail, seed ^ 1);
        prop_assert_eq!(&play(&detail, seed), &first);
        let fresh = Detail::new(Fidelity::Interval, &machine, &workload);
        prop_assert_eq!(&play(&fresh, seed ^ 1), &other);
        prop_assert_eq!(&play(&fresh, seed), &first);
    }

    /// Like cores and contexts can be exchanged.
    #[test]
    fn symmetric_placements_give_the_same_throughput(
        kind in kinds(),
        threads in 2usize..8,
        shuffle in any::<u64>(),
    ) {
        let machine = machine(4, 2, kind);
        let mixes = vec![mix("mixed", MIXED, 64 << 10), mix("alu", ALU, 64), mix("big", MIXED, 2 << 20)];
        let kinds: Vec<usize> = (0..threads).map(|thread| thread % 3).collect();
        let workload = endless(mixes, &kinds);
        let play = |places: Vec<u32>| {
            let mut system = at(Fidelity::Interval, &machine, &workload, 1);
            system.run(1).unwrap();
            for (thread, pu) in places.into_iter().enumerate() {
                system.set_mask(thread, PuSet::single(pu));
            }
            system.run(300_000_000).unwrap();
            instructions(&system)
        };
        let places: Vec<u32> = (0..threads as u32).collect();
        // Cores in another order, contexts of each the other way round.
        let turn = (shuffle % 4) as u32;
        let turned = places.iter().map(|pu| (pu / 2 + turn) % 4 * 2 + (pu + 1) % 2).collect();
        prop_assert_eq!(play(places), play(turned));
    }
}

#[test]
fn an_idle_machine_executes_nothing() {
    let mut late = workload(vec![mix("alu", ALU, 64)], vec![vec![compute(0, 10)]]);
    late.programs[0].start = 1_000_000_000;
    let mut system = at(
        Fidelity::Interval,
        &machine(2, 2, Multithreading::FineGrained),
        &late,
        1,
    );
    system.run(900_000_000).unwrap();
    assert!(system.threads().is_empty());
    system.run(SECOND).unwrap();
    assert_eq!(instructions(&system), [10]);
}

/// Within `part` of each other.
pub fn near(ours: f64, exact: f64, part: f64, what: &str) {
    assert!(
        (ours - exact).abs() <= part * exact,
        "{what}: {ours} against {exact}"
    );
}

#[test]
fn misses_agree_with_real_caches() {
    // A working set in L1, one in L2, one in neither; in one cache, and co-running.
    let sizes = [4 << 10, 100 << 10, 4 << 20];
    let mixes: Vec<Mix> = sizes.iter().map(|bytes| mix("m", MIXED, *bytes)).collect();
    let machine = machine(2, 2, Multithreading::FineGrained);
    for places in [[0, 2, 3], [0, 1, 2], [2, 0, 1]] {
        let workload = endless(mixes.clone(), &[0, 1, 2]);
        let [exact, ours] = both(&machine, &workload, &places, 8_000_000_000, 2_000_000_000);
        for (thread, (exact, ours)) in exact.iter().zip(&ours).enumerate() {
            let what = |level: usize| format!("{places:?}, thread {thread}, level {level}");
            near(
                ours.instructions() as f64,
                exact.instructions() as f64,
                0.06,
                &what(0),
            );
            for level in 0..2 {
                let ratio = |counters: &Counters| {
                    let accesses =
                        counters.ops[Op::Load as usize] + counters.ops[Op::Store as usize];
                    counters.data_misses[level] as f64 / accesses as f64
                };
                let (ours, exact) = (ratio(ours), ratio(exact));
                assert!(
                    (ours - exact).abs() < 0.02,
                    "{}: {ours} {exact}",
                    what(level + 1)
                );
            }
        }
    }
}

#[test]
fn who_fights_for_a_cache_is_as_fast_as_at_the_cycle_level() {
    // Two threads of one core that have hits of the second level in flight all the time: the one that is a little
    // slower loses lines to the other, and is slower still.
    let machine = find_machine("smt2-zen").unwrap();
    let stores = |stores| {
        [
            (Op::Alu, 0.5),
            (Op::Load, 0.4),
            (Op::Store, stores),
            (Op::Branch, 0.1),
        ]
    };
    let mut mixes = vec![
        mix("half", &stores(0.0), 256 << 10),
        mix("most", &stores(0.1), 434 << 10),
    ];
    mixes[1].mispredicted = 0.02;
    for mix in &mut mixes {
        mix.depends = 0.into();
        mix.working_sets[0].pattern = Pattern::Random;
    }
    let workload = endless(mixes, &[0, 1]);
    let [exact, ours] = both(&machine, &workload, &[0, 1], 500_000_000, 200_000_000);
    for (thread, (exact, ours)) in exact.iter().zip(&ours).enumerate() {
        let (ours, exact) = (ours.instructions() as f64, exact.instructions() as f64);
        near(ours, exact, 0.15, &format!("thread {thread}"));
    }
}

#[test]
fn who_asks_for_more_than_the_memory_gives_has_a_fair_part_of_it() {
    // Streams that wait for nothing, co-running with each other and with one that waits for each of its loads.
    let mut stream = mix("stream", &[(Op::Alu, 0.5), (Op::Load, 0.5)], 32 << 20);
    stream.depends = 0.into();
    stream.working_sets[0].pattern = Pattern::Stride;
    let chain = mix("chain", &[(Op::Alu, 0.5), (Op::Load, 0.5)], 32 << 20);
    let mut machine = machine(3, 1, Multithreading::Simultaneous);
    machine.kinds[0].window = 128;
    machine.memory.bandwidth = 2e9;
    let mixes = vec![stream, chain];
    for threads in [vec![0], vec![0, 0], vec![0, 0, 0], vec![0, 0, 1]] {
        let places: Vec<u32> = (0..threads.len() as u32).collect();
        let workload = endless(mixes.clone(), &threads);
        let [exact, ours] = both(&machine, &workload, &places, 4_000_000_000, 2_000_000_000);
        for (thread, (exact, ours)) in exact.iter().zip(&ours).enumerate() {
            let what = format!("{threads:?}, thread {thread}");
            near(
                ours.instructions() as f64,
                exact.instructions() as f64,
                0.1,
                &what,
            );
        }
    }
}

#[test]
fn accesses_to_one_line_are_one_miss() {
    // As many words of a line as it has, in order: they need one of the core's few entries for misses, not one each.
    let ops = &[(Op::Alu, 0.7), (Op::Load, 0.2), (Op::Branch, 0.1)];
    let mut stream = mix("stream", ops, 32 << 20);
    stream.depends = 0.into();
    let set = &mut stream.working_sets[0];
    (set.pattern, set.stride) = (Pattern::Stride, 8);
    let mut machine = machine(1, 1, Multithreading::Simultaneous);
    machine.kinds[0].window = 128;
    machine.kinds[0].misses = 2;
    machine.memory.bandwidth = 1e11;
    let workload = endless(vec![stream], &[0]);
    let [exact, ours] = both(&machine, &workload, &[0], 400_000_000, 400_000_000);
    let [ours, exact] = [ours, exact].map(|counters| counters[0].instructions() as f64);
    near(ours, exact, 0.05, "instructions");
}

#[test]
fn a_move_costs_what_cold_caches_cost() {
    // Two packages without a common cache; the thread changes sides again and again.
    let mut machine = machine(2, 1, Multithreading::FineGrained);
    machine.cores[1] = CoreAt {
        kind: 0,
        package: 1,
        numa_node: 1,
    };
    machine.memory.distance = vec![vec![1.0, 1.0], vec![1.0, 1.0]];
    let last = machine.caches.len() - 1;
    machine.caches[last].shared_by = vec![vec![0], vec![1]];
    let workload = endless(vec![mix("m", MIXED, 200 << 10)], &[0]);
    let moved = |fidelity| {
        let mut system = at(fidelity, &machine, &workload, 1);
        system.run(1).unwrap();
        system.set_mask(0, PuSet::single(0));
        system.run(4_000_000_000).unwrap();
        let mut side = 0;
        let mut run = |system: &mut System, moves: bool| {
            let before = instructions(system)[0];
            for _ in 0..10 {
                if moves {
                    side ^= 1;
                    system.set_mask(0, PuSet::single(side));
                    // What the other cache still has is not wanted: every move is to a cold one.
                }
                system.run(system.now() + 400_000_000).unwrap();
            }
            instructions(system)[0] - before
        };
        let stayed = run(&mut system, false);
        let moved = run(&mut system, true);
        1.0 - moved as f64 / stayed as f64
    };
    let (exact, ours) = (moved(Fidelity::Cycle), moved(Fidelity::Interval));
    assert!(exact > 0.02, "nothing to be seen: {exact}");
    assert!(
        (ours - exact).abs() < 0.25 * exact,
        "{ours} against {exact}"
    );
}

/// A thread that is bound before it has done anything has its data where it is bound, at both levels.
#[test]
fn data_are_where_a_thread_first_runs_not_where_it_was_first_put() {
    let mut machine = machine(2, 1, Multithreading::FineGrained);
    machine.cores[1].numa_node = 1;
    machine.memory.distance = vec![vec![1.0, 6.0], vec![6.0, 1.0]];
    let workload = endless(vec![mix("memory", MIXED, 64 << 20)], &[0]);
    for fidelity in [Fidelity::Cycle, Fidelity::Interval] {
        let speeds = [0, 1].map(|pu| {
            let mut system = at(fidelity, &machine, &workload, 1);
            system.run(1).unwrap();
            system.set_mask(0, PuSet::single(pu));
            system.run(2_000_000_000).unwrap();
            instructions(&system)[0] as f64
        });
        near(speeds[0], speeds[1], 0.02, &format!("{fidelity:?}"));
    }
}

#[test]
fn more_threads_than_contexts_share_them_as_at_the_cycle_level() {
    let machine = machine(2, 2, Multithreading::FineGrained);
    let mixes = vec![mix("mixed", MIXED, 64 << 10), mix("alu", ALU, 64)];
    let workload = endless(mixes, &[0, 1, 0, 1, 0, 1, 0]);
    let sum = |fidelity| {
        let mut system = at(fidelity, &machine, &workload, 1);
        system.run(600_000_000).unwrap();
        instructions(&system).iter().sum::<u64>() as f64
    };
    near(
        sum(Fidelity::Interval),
        sum(Fidelity::Cycle),
        0.1,
        "throughput",
    );
}

#[test]
fn stores_to_shared_lines_cost_others_their_copies() {
    let mut shared = mix("shared", MIXED, 4 << 10);
    shared.working_sets[0].region = Some("table".into());
    let mut pair = endless(vec![shared], &[0]);
    pair.programs[0].threads[0].count = 2;
    let machine = machine(2, 1, Multithreading::FineGrained);
    let [exact, ours] = both(&machine, &pair, &[0, 1], 200_000_000, 400_000_000);
    for (exact, ours) in exact.iter().zip(&ours) {
        near(
            ours.instructions() as f64,
            exact.instructions() as f64,
            0.15,
            "speed",
        );
        assert!(exact.coherence_misses > 1000 && ours.coherence_misses > 1000);
    }
}
