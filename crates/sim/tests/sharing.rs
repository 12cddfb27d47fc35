//! Threads that share memory: both levels find the same pairs, wherever they run, and sharing costs time.

use crate::support::{compute, machine, mix, workload};
use perch_core::{Machine, PuSet};
use perch_sim::{
    Shared,
    config::{find_machine, find_workload},
    detail::{Detail, Fidelity},
    machine::SimMachine,
    model::{CoreAt, MachineModel, Multithreading, Op},
    os::SchedulerModel,
    system::System,
    workload::{Mix, Pattern, Step, WorkloadModel},
};
use std::{sync::Arc, time::Duration};

const LEVELS: [Fidelity; 2] = [Fidelity::Cycle, Fidelity::Interval];

/// Writes to memory, and reads it.
const WRITES: &[(Op, f64)] = &[(Op::Alu, 0.7), (Op::Store, 0.3)];
const READS: &[(Op, f64)] = &[(Op::Alu, 0.7), (Op::Load, 0.3)];

/// Two packages, each a node with two cores of two contexts and a cache of its own.
fn packages() -> MachineModel {
    let mut machine = machine(4, 2, Multithreading::FineGrained);
    for core in 2..4 {
        machine.cores[core] = CoreAt {
            kind: 0,
            package: 1,
            numa_node: 1,
        };
    }
    machine.memory.distance = vec![vec![1.0, 1.6], vec![1.6, 1.0]];
    let last = machine.caches.len() - 1;
    machine.caches[last].shared_by = vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7]];
    machine
}

/// A mix over a region.
fn over(region: &str, shares: &[(Op, f64)], bytes: u64, pattern: Pattern) -> Mix {
    let mut mix = mix(region, shares, bytes);
    mix.working_sets[0].region = Some(region.into());
    mix.working_sets[0].pattern = pattern;
    mix
}

/// One process with a thread for each mix.
fn process(mixes: Vec<Mix>, threads: &[usize]) -> WorkloadModel {
    let steps = threads.iter().map(|mix| vec![compute(*mix, u64::MAX)]);
    let mut workload = workload(mixes, steps.collect());
    let others = workload.programs.split_off(1);
    let threads = others.into_iter().flat_map(|program| program.threads);
    workload.programs[0].threads.extend(threads);
    workload
}

/// A producer, its consumer, and two threads that share nothing.
fn pair(bytes: u64, pattern: Pattern) -> WorkloadModel {
    let mixes = vec![
        over("buffer", WRITES, bytes, pattern),
        over("buffer", READS, bytes, pattern),
        mix("own", WRITES, bytes),
        mix("own", READS, bytes),
    ];
    process(mixes, &[0, 1, 2, 3])
}

/// What threads at these places needed from each other in 300 ms of the machine's 1,000-fold time, and how many
/// instructions each executed.
fn played(
    fidelity: Fidelity,
    workload: &WorkloadModel,
    places: &[&[u32]],
) -> (Vec<Shared>, Vec<u64>) {
    let (machine, workload) = (Arc::new(packages()), Arc::new(workload.clone()));
    let detail = Detail::new(fidelity, &machine, &workload);
    let mut system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
    system.run(1).unwrap();
    for (thread, pus) in places.iter().enumerate() {
        system.set_mask(thread, pus.iter().copied().collect::<PuSet>());
    }
    system.run(100_000_000).unwrap();
    system.take_shared();
    let done = |system: &System| -> Vec<u64> {
        let threads = system.threads().iter();
        threads
            .map(|thread| thread.counters.instructions())
            .collect()
    };
    let before = done(&system);
    system.run(400_000_000).unwrap();
    let after = done(&system);
    let done = after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before);
    (system.take_shared(), done.collect())
}

/// The only pair that shares is the first two threads. Returns how many lines went between them.
fn only_pair(shared: &[Shared]) -> f64 {
    assert_eq!(shared.len(), 1, "{shared:?}");
    assert_eq!(shared[0].threads, (0, 1));
    shared[0].lines
}

#[test]
fn both_levels_find_the_pair_and_nobody_else() {
    for (bytes, pattern) in [
        (2 << 10, Pattern::Random),
        (64 << 10, Pattern::Random),
        (64 << 10, Pattern::Stride),
    ] {
        let workload = pair(bytes, pattern);
        let [exact, ours] = LEVELS.map(|level| {
            let (shared, _) = played(level, &workload, &[&[0], &[2], &[4], &[6]]);
            only_pair(&shared)
        });
        assert!(exact > 1000.0, "{exact}");
        let ratio = ours / exact;
        assert!(
            (0.8..1.25).contains(&ratio),
            "{bytes} {pattern:?}: {ours} for {exact}"
        );
    }
}

#[test]
fn both_levels_agree_on_every_pair_of_several() {
    // Each reads and writes, more or less, and goes at its own speed.
    let both = [(Op::Alu, 0.6), (Op::Load, 0.25), (Op::Store, 0.15)];
    let hardly = [(Op::Alu, 0.9), (Op::Load, 0.08), (Op::Store, 0.02)];
    let mixes = vec![
        over("board", &both, 8 << 10, Pattern::Random),
        over("board", &hardly, 8 << 10, Pattern::Random),
        over("board", READS, 8 << 10, Pattern::Random),
    ];
    let workload = process(mixes, &[0, 1, 2]);
    let [exact, ours] = LEVELS.map(|level| played(level, &workload, &[&[0], &[2], &[4]]).0);
    let pairs = |shared: &[Shared]| -> Vec<_> { shared.iter().map(|s| s.threads).collect() };
    assert_eq!(pairs(&exact), [(0, 1), (0, 2), (1, 2)]);
    assert_eq!(pairs(&exact), pairs(&ours));
    for (exact, ours) in exact.iter().zip(&ours) {
        let ratio = ours.lines / exact.lines;
        assert!((0.8..1.25).contains(&ratio), "{ours:?} for {exact:?}");
    }
}

#[test]
fn reading_together_is_no_sharing() {
    let mixes = vec![over("table", READS, 8 << 10, Pattern::Random)];
    let readers = process(mixes, &[0, 0, 0]);
    for level in LEVELS {
        let (shared, _) = played(level, &readers, &[&[0], &[2], &[4]]);
        assert_eq!(shared, []);
    }
}

#[test]
fn the_figure_does_not_hang_on_the_place() {
    let workload = pair(32 << 10, Pattern::Random);
    for level in LEVELS {
        // Per instruction of the consumer, as places change speeds: siblings, one cache, two packages, one PU.
        let places: [[&[u32]; 2]; 4] = [[&[0], &[1]], [&[0], &[2]], [&[0], &[4]], [&[0], &[0]]];
        let rates: Vec<f64> = places
            .iter()
            .map(|[producer, consumer]| {
                let (shared, done) = played(level, &workload, &[producer, consumer, &[6], &[7]]);
                only_pair(&shared) / done[1] as f64
            })
            .collect();
        for rate in &rates[..3] {
            assert!(
                (0.7..1.4).contains(&(rate / rates[0])),
                "{level:?}: {rates:?}"
            );
        }
        // In turns a line is needed once a turn at most, however often it was written.
        assert!(
            rates[3] > 0.0 && rates[3] < 1.2 * rates[0],
            "{level:?}: {rates:?}"
        );
    }
}

#[test]
fn sharing_is_faster_below_one_cache_than_across_packages() {
    let workload = pair(16 << 10, Pattern::Random);
    let speeds = LEVELS.map(|level| {
        [2, 4].map(|consumer| {
            let (_, done) = played(level, &workload, &[&[0], &[consumer], &[6], &[7]]);
            done[1] as f64
        })
    });
    let gains = speeds.map(|[near, far]| near / far);
    assert!(gains.iter().all(|gain| *gain > 1.5), "{gains:?}");
    assert!((gains[1] / gains[0] - 1.0).abs() < 0.2, "{gains:?}");
    for (exact, ours) in speeds[0].iter().zip(&speeds[1]) {
        assert!((ours / exact - 1.0).abs() < 0.2, "{speeds:?}");
    }
}

#[test]
fn an_observation_says_who_shares() {
    let workload = Arc::new(pair(16 << 10, Pattern::Random));
    for level in LEVELS {
        let machine = Arc::new(packages());
        let detail = Detail::new(level, &machine, &workload);
        let workload = Arc::clone(&workload);
        let system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
        let mut machine = SimMachine::new(system, None);
        let mut rates = Vec::new();
        for period in [100, 100, 200] {
            machine.wait(Duration::from_millis(period)).unwrap();
            let seen = machine.observe().unwrap();
            assert_eq!(seen.sharing.len(), 1, "{:?}", seen.sharing);
            let sharing = seen.sharing[0];
            let names = [sharing.threads.0, sharing.threads.1].map(|id| id.tid);
            assert_eq!((names, sharing.confidence), ([1, 2], 1.0));
            rates.push(sharing.transfers);
        }
        // A rate, however long the period is.
        assert!((rates[2] / rates[1] - 1.0).abs() < 0.2, "{rates:?}");
    }
}

/// The shipped workload on a shipped machine: what every pair needed from each other, and how many instructions all
/// consumers executed. Threads: four times producer and consumer, then the loners.
fn shipped(
    fidelity: Fidelity,
    machine: &str,
    name: &str,
    places: &[u32; 12],
) -> (Vec<Shared>, f64) {
    let machine = Arc::new(find_machine(machine).unwrap());
    let workload = Arc::new(find_workload(name).unwrap());
    let detail = Detail::new(fidelity, &machine, &workload);
    let mut system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
    system.run(1).unwrap();
    for (thread, pu) in places.iter().enumerate() {
        system.set_mask(thread, PuSet::single(*pu));
    }
    // Caches are warm after 300 ms of the operating system's time.
    system.run(300_000_000).unwrap();
    system.take_shared();
    let done = |system: &System| -> u64 {
        let consumers = system
            .threads()
            .iter()
            .filter(|of| of.identity.name == "consumer");
        consumers.map(|of| of.counters.instructions()).sum()
    };
    let before = done(&system);
    system.run(600_000_000).unwrap();
    (system.take_shared(), (done(&system) - before) as f64)
}

/// `--nocapture` prints the numbers of the table in docs/sharing.md.
#[test]
fn the_shipped_pairs_are_found_and_gain_by_being_together() {
    // On siblings, on cores below one cache, and on two packages.
    let together = [0, 1, 2, 3, 4, 5, 6, 7, 16, 18, 20, 22];
    let near = [0, 8, 2, 10, 4, 12, 6, 14, 16, 18, 20, 22];
    let apart = [0, 16, 2, 18, 4, 20, 6, 22, 8, 10, 24, 26];
    let seen = LEVELS.map(|level| {
        [together, near, apart].map(|places| shipped(level, "numa-2", "producer-consumer", &places))
    });
    for of_level in &seen {
        for (shared, _) in of_level {
            let pairs: Vec<_> = shared.iter().map(|shared| shared.threads).collect();
            assert_eq!(pairs, [(0, 1), (2, 3), (4, 5), (6, 7)]);
        }
        // Consumers go far faster where they find lines nearer.
        let [(_, together), (_, near), (_, apart)] = of_level;
        assert!(
            together > &(1.5 * near) && near > &(1.5 * apart),
            "{of_level:?}"
        );
    }
    let [exact, ours] = seen;
    for ((exact, speed), (ours, our_speed)) in exact.iter().zip(&ours) {
        let lines = |shared: &[Shared]| shared.iter().map(|shared| shared.lines).sum::<f64>();
        let each = [*speed, *our_speed, lines(exact), lines(ours)].map(|all| (all / 4.0).round());
        println!("instructions and lines of each pair, at both levels: {each:?}");
        for ratio in [lines(ours) / lines(exact), our_speed / speed] {
            assert!(
                (0.8..1.25).contains(&ratio),
                "{ours:?} {our_speed} for {exact:?} {speed}"
            );
        }
    }
}

#[test]
fn nobody_is_found_where_nobody_shares() {
    let places = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
    for level in LEVELS {
        let (shared, _) = shipped(level, "smt2-zen", "producer-consumer-unshared", &places);
        assert_eq!(shared, []);
    }
}

/// How fast the second thread reads a table that is larger than all caches, on a PU of the other node and on one of the
/// first thread's, relative to each other. The first has touched the whole table before, or both touch it together.
fn remote(fidelity: Fidelity, alone_first: bool) -> f64 {
    let bytes = 8 << 20;
    let wait = if alone_first { 400_000_000 } else { 1 };
    let mut workload = process(vec![over("table", READS, bytes, Pattern::Random)], &[0, 0]);
    workload.programs[0].threads[1].steps = vec![
        Step::Compute {
            mix: 0,
            instructions: 1,
        },
        Step::Sleep(wait),
        Step::Compute {
            mix: 0,
            instructions: u64::MAX,
        },
    ];
    let (machine, workload) = (Arc::new(packages()), Arc::new(workload));
    let detail = Detail::new(fidelity, &machine, &workload);
    let speed = |pu: u32| {
        let (machine, workload) = (Arc::clone(&machine), Arc::clone(&workload));
        let mut system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
        system.run(1).unwrap();
        system.set_mask(0, PuSet::single(0));
        system.set_mask(1, PuSet::single(pu));
        system.run(600_000_000).unwrap();
        let done = |system: &System| system.threads()[1].counters.instructions() as f64;
        let before = done(&system);
        system.run(1_000_000_000).unwrap();
        done(&system) - before
    };
    speed(4) / speed(2)
}

#[test]
fn a_table_that_another_node_has_filled_is_far_away() {
    for alone_first in [true, false] {
        let [exact, ours] = LEVELS.map(|level| remote(level, alone_first));
        assert!(
            (ours / exact - 1.0).abs() < 0.05,
            "{alone_first}: {ours} for {exact}"
        );
        if alone_first {
            assert!(exact < 0.75, "{exact}");
        }
    }
}
