//! What must hold whatever the machine and the workload.

use crate::support::{ALU, MIXED, compute, kinds, machine, mix, state, system, workload};
use perch_core::PuSet;
use perch_sim::{
    counters::Counters,
    detail::{Detail, Fidelity},
    model::{Latency, Multithreading, Op},
    os::SchedulerModel,
    system::{SimError, System},
    units::SECOND,
    workload::{ProgramModel, Step, ThreadModel},
};
use proptest::prelude::*;
use std::sync::Arc;

const LOADS: &[(Op, f64)] = &[(Op::Load, 1.0)];
/// When everything had ended.
fn finish(mut system: System) -> System {
    system.run(SECOND).unwrap();
    assert!(system.is_done());
    system
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Every instruction of the steps is executed once, however often its thread was moved or preempted; time adds up.
    #[test]
    fn work_and_time_are_conserved(
        kind in kinds(),
        cores in 1usize..4,
        contexts in 1u32..5,
        lengths in proptest::collection::vec(1u64..30_000, 1..12),
        moves in proptest::collection::vec((0usize..12, 0u32..12), 0..20),
        seed in any::<u64>(),
    ) {
        let mixes = vec![mix("mixed", MIXED, 64 << 10), mix("alu", ALU, 64)];
        let steps = lengths.iter().enumerate().map(|(at, length)| vec![compute(at % 2, *length)]).collect();
        let mut system = system(machine(cores, contexts, kind), workload(mixes, steps), seed);
        let pus = cores as u32 * contexts;
        let mut at = 0;
        for (thread, pu) in moves {
            at += 3_000_000;
            system.run(at).unwrap();
            if let Some(there) = system.threads().get(thread)
                && there.ended.is_none()
            {
                system.set_mask(thread, PuSet::single(pu % pus));
            }
        }
        system.run(SECOND).unwrap();
        prop_assert!(system.is_done());
        for (thread, length) in system.threads().iter().zip(&lengths) {
            prop_assert_eq!(thread.counters.instructions(), *length);
            let lived = thread.ended.unwrap() - thread.identity.started;
            // A core's quantum may end within a cycle.
            prop_assert!(thread.cpu_time + thread.wait_time <= lived + 100_000, "{} + {} of {lived}", thread.cpu_time, thread.wait_time);
        }
        let spent: u64 = system.threads().iter().map(|t| t.cpu_time).sum();
        prop_assert!(spent <= system.now() * u64::from(pus));
    }

    /// The seed decides everything, and nothing else does.
    #[test]
    fn the_same_seed_gives_the_same_bits(kind in kinds(), seed in any::<u64>(), threads in 1usize..20) {
        let run = || {
            let steps = (0..threads).map(|at| vec![compute(0, 5_000 + 100 * at as u64), Step::Sleep(1_000_000), compute(0, 3_000)]);
            let steps = steps.collect();
            state(&finish(system(machine(2, 2, kind), workload(vec![mix("m", MIXED, 32 << 10)], steps), seed)))
        };
        prop_assert_eq!(run(), run());
    }

    /// A lone thread on an in-order core is never slowed by a shorter latency or by more ways of its cache.
    #[test]
    fn better_hardware_never_slows_a_lone_thread(
        latency in 1u32..20,
        less in 0u32..19,
        ways in 0u32..3,
        bytes in 64u64..(64 << 10),
        seed in any::<u64>(),
    ) {
        let time = |latency: u32, ways: u32| {
            let mut machine = machine(1, 1, Multithreading::FineGrained);
            machine.kinds[0].latencies[Op::Load as usize].cycles = latency;
            // More ways, the same number of sets.
            machine.caches[1].size = (8 << 10) * u64::from(ways) / 4;
            machine.caches[1].ways = ways;
            let steps = vec![vec![compute(0, 20_000)]];
            finish(system(machine, workload(vec![mix("m", MIXED, bytes)], steps), seed)).threads()[0].ended
        };
        prop_assert!(time(latency.saturating_sub(less).max(1), 4 << ways) <= time(latency, 4));
    }

    /// Cores of one kind are alike: where a set of threads runs together does not matter.
    #[test]
    fn symmetric_placements_give_the_same_throughput(
        kind in kinds(),
        rotate in 0usize..4,
        seed in any::<u64>(),
    ) {
        let run = |rotate: usize| {
            let steps = (0..8).map(|at| vec![compute(at % 2, u64::MAX)]).collect();
            let mixes = vec![mix("alu", ALU, 64), mix("loads", LOADS, 64)];
            let mut system = system(machine(4, 2, kind), workload(mixes, steps), seed);
            system.run(1).unwrap();
            for thread in 0..8 {
                let core = (thread / 2 + rotate) % 4;
                system.set_mask(thread, PuSet::single((core * 2 + thread % 2) as u32));
            }
            system.run(200_000_000).unwrap();
            let before: u64 = system.threads().iter().map(|t| t.counters.instructions()).sum();
            system.run(400_000_000).unwrap();
            system.threads().iter().map(|t| t.counters.instructions()).sum::<u64>() - before
        };
        let (one, other) = (run(0) as f64, run(rotate) as f64);
        prop_assert!((one / other - 1.0).abs() < 0.005, "{one} {other}");
    }
}

#[test]
fn an_idle_machine_executes_nothing() {
    let mut system = system(
        machine(2, 2, Multithreading::FineGrained),
        workload(
            vec![mix("m", ALU, 64)],
            vec![vec![Step::Sleep(1_000_000_000_000), compute(0, 1)]],
        ),
        1,
    );
    system.run(SECOND / 1_000).unwrap();
    let thread = &system.threads()[0];
    assert_eq!((thread.cpu_time, thread.counters), (0, Counters::default()));
}

/// Four threads on one core in system B, one each in C: paper 004, figures 1 and 2.
#[test]
fn contexts_hide_latency_and_share_units() {
    let throughput = |cores, contexts, shares| {
        let steps = vec![vec![compute(0, u64::MAX)]; 4];
        let machine = machine(cores, contexts, Multithreading::FineGrained);
        let mut system = system(machine, workload(vec![mix("m", shares, 8)], steps), 3);
        let done = |system: &System| {
            system
                .threads()
                .iter()
                .map(|t| t.counters.instructions())
                .sum::<u64>()
        };
        // Caches are cold at first.
        system.run(100_000_000).unwrap();
        let before = done(&system);
        system.run(300_000_000).unwrap();
        (done(&system) - before) as f64
    };
    for (shares, b, c) in [(ALU, 1.0, 4.0), (LOADS, 4.0, 4.0)] {
        let a = throughput(1, 1, shares);
        let (got_b, got_c) = (throughput(1, 4, shares) / a, throughput(4, 1, shares) / a);
        assert!(
            (got_b / b - 1.0).abs() < 0.02 && (got_c / c - 1.0).abs() < 0.02,
            "{got_b} {got_c}"
        );
    }
}

#[test]
fn a_barrier_that_nobody_opens_is_reported() {
    let mut workload = workload(vec![mix("m", ALU, 64)], Vec::new());
    let thread = |name: &str, steps| ThreadModel {
        name: name.into(),
        count: 1,
        steps,
        repeat: 1,
        nice: 0,
        pus: Vec::new(),
    };
    workload.programs.push(ProgramModel {
        name: "p".into(),
        count: 1,
        start: 0,
        restart: false,
        system: false,
        requests: None,
        threads: vec![
            thread("a", vec![Step::Lock("l".into()), Step::Barrier("b".into())]),
            thread(
                "b",
                vec![
                    compute(0, 1_000),
                    Step::Lock("l".into()),
                    Step::Barrier("b".into()),
                ],
            ),
        ],
    });
    let mut system = system(machine(1, 2, Multithreading::FineGrained), workload, 1);
    let SimError::Deadlock { waiting, .. } = system.run(SECOND).unwrap_err() else {
        panic!("no deadlock");
    };
    assert_eq!(
        waiting,
        [
            "  a of p waits at barrier `b` (1 of 2 are there)",
            "  b of p waits for lock `l`, held by a"
        ]
    );
}

#[test]
fn threads_that_wait_for_each_other_go_on_together() {
    let mut workload = workload(vec![mix("m", ALU, 64)], Vec::new());
    workload.programs.push(ProgramModel {
        name: "p".into(),
        count: 1,
        start: 0,
        restart: false,
        system: false,
        requests: None,
        threads: vec![ThreadModel {
            name: "t".into(),
            count: 6,
            steps: vec![
                compute(0, 10_000),
                Step::Barrier("b".into()),
                Step::Lock("l".into()),
                compute(0, 500),
                Step::Unlock("l".into()),
            ],
            repeat: 5,
            nice: 0,
            pus: Vec::new(),
        }],
    });
    let system = finish(system(
        machine(2, 2, Multithreading::Simultaneous),
        workload,
        9,
    ));
    for thread in system.threads() {
        assert_eq!(thread.counters.instructions(), 5 * 10_500);
    }
}

#[test]
fn a_program_starts_again_until_the_longest_has_ended() {
    let mut both = workload(
        vec![mix("m", ALU, 64)],
        vec![vec![compute(0, 1_000)], vec![compute(0, 50_000)]],
    );
    for program in &mut both.programs {
        program.restart = true;
    }
    let system = finish(system(machine(2, 1, Multithreading::FineGrained), both, 1));
    let ended = |program| {
        system
            .processes()
            .iter()
            .filter(|p| p.program == program && p.ended.is_some())
            .count()
    };
    assert_eq!(ended(1), 1);
    assert!(ended(0) > 10, "{}", ended(0));
}

#[test]
fn more_threads_than_contexts_share_them_fairly() {
    let steps = vec![vec![compute(0, u64::MAX)]; 6];
    let mut system = system(
        machine(1, 2, Multithreading::Simultaneous),
        workload(vec![mix("m", ALU, 64)], steps),
        5,
    );
    system.run(400_000_000).unwrap();
    let times: Vec<f64> = system.threads().iter().map(|t| t.cpu_time as f64).collect();
    let mean = times.iter().sum::<f64>() / 6.0;
    assert!((mean * 3.0 / 400e6 - 1.0).abs() < 0.02, "{times:?}");
    assert!(
        times.iter().all(|time| (time / mean - 1.0).abs() < 0.15),
        "{times:?}"
    );
}

/// The trace accounts for all time on PUs, and no PU has two threads at once.
#[test]
fn stays_are_the_time_on_pus() {
    let steps = vec![
        vec![
            compute(0, 40_000),
            Step::Sleep(2_000_000),
            compute(0, 10_000)
        ];
        7
    ];
    let mut system = system(
        machine(2, 2, Multithreading::Simultaneous),
        workload(vec![mix("m", MIXED, 16 << 10)], steps),
        4,
    );
    system.remember_stays();
    let system = finish(system);
    let mut stays = system.stays();
    for (number, thread) in system.threads().iter().enumerate() {
        let time: u64 = stays
            .iter()
            .filter(|s| s.thread == number)
            .map(|s| s.to - s.from)
            .sum();
        assert_eq!(time, thread.cpu_time);
    }
    stays.sort_by_key(|stay| (stay.pu, stay.from, stay.to));
    assert!(
        stays
            .windows(2)
            .all(|w| w[0].pu != w[1].pu || w[0].to <= w[1].from)
    );
    let named = perch_sim::timeline::stays(&system);
    assert_eq!(named.len(), stays.len());
    for (named, stay) in named.iter().zip(&stays) {
        let thread = &system.threads()[stay.thread];
        assert_eq!((named.pu, &named.name), (stay.pu, &thread.identity.name));
        assert_eq!(named.from, system.machine().os_time(stay.from));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However many instructions may wait for a unit, and of however many contexts: it does one after the other.
    #[test]
    fn a_unit_bounds_what_any_window_gets(window in 2u32..400, busy in 1u32..100, contexts in 1u32..3, count in 1u32..3) {
        let mut machine = machine(1, contexts, Multithreading::Simultaneous);
        let kind = &mut machine.kinds[0];
        (kind.window, kind.in_order, kind.units[0].count) = (window, false, count);
        kind.latencies[Op::Divide as usize] = Latency { cycles: busy, busy };
        let mut divides = mix("divides", &[(Op::Divide, 1.0)], 8);
        divides.depends = 0.into();
        let steps = vec![vec![compute(0, u64::MAX)]; contexts as usize];
        let mut system = system(machine, workload(vec![divides], steps), 1);
        let done = |system: &System| system.threads().iter().map(|t| t.counters.instructions()).sum::<u64>();
        system.run(100_000_000).unwrap();
        let before = done(&system);
        system.run(400_000_000).unwrap();
        let each = 300_000.0 / (done(&system) - before) as f64;
        // Of a window of few, not all units have one; four a cycle are issued.
        let fewest = f64::from(count.min(window * contexts));
        let expected = (f64::from(busy) / fewest).max(0.25);
        prop_assert!((each / expected - 1.0).abs() < 0.03, "{each} cycles each instead of {expected}");
    }
}

/// A thread that shared a PU has run less than one that had a PU for itself; that gives it no claim on the other's PU.
#[test]
fn who_comes_from_a_shared_pu_gets_half_of_the_next_one() {
    for fidelity in [Fidelity::Cycle, Fidelity::Interval] {
        let machine = machine(2, 1, Multithreading::FineGrained);
        let steps = (0..4).map(|_| vec![compute(0, u64::MAX)]).collect();
        let workload = workload(vec![mix("alu", ALU, 64)], steps);
        let (machine, workload) = (Arc::new(machine), Arc::new(workload));
        let detail = Detail::new(fidelity, &machine, &workload);
        let mut system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
        system.run(1).unwrap();
        for (thread, pu) in [0, 0, 0, 1].into_iter().enumerate() {
            system.set_mask(thread, PuSet::single(pu));
        }
        system.run(3_000_000_000).unwrap();
        let before: Vec<u64> = system.threads().iter().map(|t| t.cpu_time).collect();
        // Thread 0 had a third of a PU, thread 3 had one for itself.
        system.set_mask(0, PuSet::single(1));
        system.run(4_000_000_000).unwrap();
        let got =
            |thread: usize, system: &System| system.threads()[thread].cpu_time - before[thread];
        for thread in [0, 3] {
            let share = got(thread, &system) as f64 / 1e9;
            assert!(
                (share - 0.5).abs() < 0.05,
                "{fidelity:?}: thread {thread} got {share}"
            );
        }
        let before: Vec<u64> = system.threads().iter().map(|t| t.cpu_time).collect();
        system.set_mask(3, PuSet::single(0));
        system.run(5_000_000_000).unwrap();
        for thread in [1, 2, 3] {
            let share = (system.threads()[thread].cpu_time - before[thread]) as f64 / 1e9;
            assert!(
                (share - 1.0 / 3.0).abs() < 0.05,
                "{fidelity:?}: thread {thread} got {share}"
            );
        }
    }
}
