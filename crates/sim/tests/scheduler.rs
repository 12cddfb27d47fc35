//! The model of the default scheduler does what the kernel's does in cases that can be told in advance.

use crate::support::{ALU, compute, machine, mix, system, workload};
use perch_core::PuSet;
use perch_sim::{
    config::find_machine,
    detail::{Detail, Fidelity},
    model::{MachineModel, Multithreading, SchedulerKind},
    os::SchedulerModel,
    system::System,
    thread::State,
    workload::{Mix, Step, WorkloadModel},
};
use std::{collections::BTreeSet, sync::Arc};

/// A millisecond of the operating system, on a machine of scale 1,000.
const MS: u64 = 1_000_000;

fn alu() -> Vec<Mix> {
    vec![mix("alu", ALU, 64)]
}

/// Endless threads.
fn endless(threads: usize) -> WorkloadModel {
    workload(alu(), vec![vec![compute(0, u64::MAX)]; threads])
}

fn cores(number: usize) -> MachineModel {
    machine(number, 1, Multithreading::FineGrained)
}

fn eevdf(number: usize) -> MachineModel {
    MachineModel {
        scheduler: SchedulerKind::Eevdf,
        ..cores(number)
    }
}

fn at_interval(machine: MachineModel, workload: WorkloadModel, seed: u64) -> System {
    let (machine, workload) = (Arc::new(machine), Arc::new(workload));
    let detail = Detail::new(Fidelity::Interval, &machine, &workload);
    System::at(&detail, machine, workload, SchedulerModel::default(), seed)
}

/// Lets threads that must be somewhere at first be there.
fn bound(system: &mut System, masks: &[&[u32]]) {
    for (thread, mask) in masks.iter().enumerate() {
        system.set_mask(thread, mask.iter().copied().collect());
    }
}

fn pus_of(system: &System) -> Vec<Option<u32>> {
    let threads = system.threads().iter();
    threads
        .map(|thread| thread.place.map(|place| place.pu))
        .collect()
}

/// `find_busiest_group` prefers groups without a thread also while nobody waits.
#[test]
fn threads_are_spread_over_caches_from_the_beginning_and_later() {
    for seed in 0..20 {
        let mut system = at_interval(find_machine("core2-quad").unwrap(), endless(2), seed);
        system.run(1).unwrap();
        let caches = |system: &System| -> BTreeSet<u32> {
            pus_of(system).iter().flatten().map(|pu| pu / 2).collect()
        };
        assert_eq!(caches(&system).len(), 2, "seed {seed}");
        // Moved together, and freed.
        bound(&mut system, &[&[0], &[1]]);
        assert_eq!(caches(&system).len(), 1);
        bound(&mut system, &[&[0, 1, 2, 3], &[0, 1, 2, 3]]);
        let scale = system.machine().scale;
        let ms = |ms: f64| (ms * 1e9 / scale) as u64;
        // At first the kernel only tries.
        system.run(system.now() + ms(10.0)).unwrap();
        assert_eq!(caches(&system).len(), 1, "seed {seed}");
        system.run(system.now() + ms(90.0)).unwrap();
        assert_eq!(caches(&system).len(), 2, "seed {seed}");
    }
}

/// `detach_tasks` takes ever heavier threads the more often it failed: a thread that is one too many moves from PU to PU.
#[test]
fn a_thread_too_many_goes_round() {
    let mut system = at_interval(cores(4), endless(5), 1);
    let seconds = 60;
    system.run(seconds * 1_000 * MS).unwrap();
    for thread in system.threads() {
        let share = thread.cpu_time as f64 / (seconds * 1_000 * MS) as f64;
        // Not half a PU for two of them, and a whole one for the others.
        assert!((0.65..0.95).contains(&share), "{share}");
    }
    let moves: u64 = system
        .threads()
        .iter()
        .map(|thread| thread.migrations)
        .sum();
    // Busy PUs balance every 64 ms here, and several times in vain.
    assert!((60..2_000).contains(&moves), "{moves}");
}

/// Each queue is looked at, not only the longest.
#[test]
fn an_idle_pu_finds_those_who_may_come() {
    let mut system = at_interval(cores(4), endless(7), 1);
    system.run(1).unwrap();
    // Three on PU 0 who may only be there, two on PU 1 of whom one may go to PU 3.
    bound(&mut system, &[&[0], &[0], &[0], &[1], &[1, 3], &[2], &[3]]);
    system.run(20 * MS).unwrap();
    // Its thread goes away, to PU 2.
    bound(&mut system, &[&[0], &[0], &[0], &[1], &[1, 3], &[2], &[2]]);
    system.run(system.now() + 1).unwrap();
    let running = pus_of(&system);
    assert!(running.contains(&Some(3)), "{running:?}");
    assert!(
        running[3] == Some(1) && running[4] == Some(3),
        "{running:?}"
    );
}

/// What a thread has waited before a new mask moves it counts.
#[test]
fn waiting_time_outlasts_a_move() {
    let mut system = at_interval(cores(2), endless(3), 1);
    system.run(1).unwrap();
    bound(&mut system, &[&[0], &[0], &[1]]);
    let accounted = |system: &System| -> u64 {
        let threads = system.threads().iter();
        let waiting = |since: u64| system.now() - since;
        threads
            .map(|t| t.cpu_time + t.wait_time + t.waiting_since.map_or(0, waiting))
            .sum()
    };
    for step in 1..40u64 {
        system.run(step * 5 * MS).unwrap();
        let (here, there): (&[u32], &[u32]) = if step % 2 == 0 {
            (&[0], &[1])
        } else {
            (&[1], &[0])
        };
        bound(&mut system, &[here, there, here]);
    }
    system.run(system.now() + MS).unwrap();
    let all = 3 * system.now();
    let found = accounted(&system);
    // Less what switches cost.
    assert!(all - found < all / 100, "{found} of {all}");
}

/// `check_preempt_wakeup`: a thread that mostly sleeps does not wait for the end of a slice.
#[test]
fn who_wakes_takes_the_place_of_who_has_had_more() {
    let sleeper = vec![compute(0, 100), Step::Sleep(20_000_000)];
    let mut model = workload(alu(), vec![vec![compute(0, u64::MAX)], sleeper]);
    model.programs[1].threads[0].repeat = u64::MAX;
    let mut system = system(cores(1), model, 1);
    system.run(2_000 * MS).unwrap();
    let sleeper = &system.threads()[1];
    let wakes = sleeper.switches;
    assert!(wakes > 80, "{wakes}");
    // In 100 instructions of a nanosecond each, on a machine whose milliseconds are microseconds.
    assert!(
        sleeper.wait_time / wakes < MS,
        "{} for {wakes}",
        sleeper.wait_time
    );
}

/// `sched_slice` and `check_preempt_tick`: half of 6 ms on one PU; half of 24 ms from 8 PUs on, and up to a tick more.
#[test]
fn turns_are_as_long_as_the_kernel_s() {
    for (pus, least, most) in [(1, 3, 8), (8, 12, 16)] {
        let mut system = at_interval(cores(pus), endless(pus + 1), 1);
        system.run(1).unwrap();
        let mut masks: Vec<Vec<u32>> = (0..pus as u32).map(|pu| vec![pu]).collect();
        masks.push(vec![0]);
        let masks: Vec<&[u32]> = masks.iter().map(Vec::as_slice).collect();
        bound(&mut system, &masks);
        system.run(2_400 * MS).unwrap();
        let switches = system.threads()[0].switches;
        let turn = 1_200 / switches;
        assert!((least..=most).contains(&turn), "{turn} ms on {pus}");
    }
}

/// The same of the fair class since Linux 6.6: each has its share of the PU, whatever it weighs.
#[test]
fn eevdf_shares_a_pu_by_weight_in_turns_of_a_tick() {
    let nices = [0, 5, -5];
    let mut model = endless(3);
    for (program, nice) in model.programs.iter_mut().zip(nices) {
        program.threads[0].nice = nice;
    }
    let mut system = at_interval(eevdf(1), model, 1);
    system.run(6_000 * MS).unwrap();
    let weights = nices.map(|nice| f64::from(perch_core::scheduler_weight(nice)));
    let all: f64 = weights.iter().sum();
    for (thread, weight) in system.threads().iter().zip(weights) {
        let share = thread.cpu_time as f64 / system.now() as f64;
        assert!(
            (share - weight / all).abs() < 0.02,
            "{share} of {}",
            weight / all
        );
    }
    let mut equal = at_interval(eevdf(1), endless(2), 1);
    equal.run(2_400 * MS).unwrap();
    let turn = 1_200 / equal.threads()[0].switches;
    assert!((3..=5).contains(&turn), "{turn} ms");
}

/// A thread that sleeps gets no more than its share for that, and does not wait for long.
#[test]
fn eevdf_owes_a_sleeper_nothing() {
    let work = 3_000_000 / 1_000;
    let sleeper = vec![compute(0, work), Step::Sleep(1_000_000)];
    let rare = vec![compute(0, 100), Step::Sleep(20_000_000)];
    let endless = vec![compute(0, u64::MAX)];
    let mut model = workload(alu(), vec![endless, sleeper, rare]);
    for program in &mut model.programs[1..] {
        program.threads[0].repeat = u64::MAX;
    }
    let mut system = system(eevdf(1), model, 1);
    system.run(2_000 * MS).unwrap();
    let threads = system.threads();
    let share = threads[1].cpu_time as f64 / system.now() as f64;
    assert!((0.35..0.52).contains(&share), "{share}");
    let waits = threads[2].wait_time / threads[2].switches.max(1);
    assert!(threads[2].switches > 60, "{}", threads[2].switches);
    assert!(waits < 5 * MS, "{waits}");
}

#[test]
fn the_longest_sleep_does_not_end_at_once() {
    let steps = vec![compute(0, 10), Step::Sleep(u64::MAX), compute(0, 10)];
    let other = vec![compute(0, 100_000)];
    let mut system = system(cores(1), workload(alu(), vec![steps, other]), 1);
    system.run(50 * MS).unwrap();
    assert!(matches!(system.threads()[0].state, State::Sleeping(_)));
    assert_eq!(system.threads()[0].counters.instructions(), 10);
    assert!(system.default_mask().is_subset(&PuSet::single(0)));
}

/// Four big and four little cores.
fn big_little() -> MachineModel {
    find_machine("big-little").unwrap()
}

/// The same where the kernel does not know that they differ.
fn without_capacities() -> MachineModel {
    let mut machine = big_little();
    machine
        .kinds
        .iter_mut()
        .for_each(|kind| kind.dmips_per_mhz = None);
    machine
}

/// A thread that needs more than a little core has goes to a big one that is idle (`migrate_misfit`), whichever it began on.
#[test]
fn demanding_threads_go_to_big_cores() {
    for fair in [SchedulerKind::Cfs, SchedulerKind::Eevdf] {
        for seed in 0..8 {
            let machine = MachineModel {
                scheduler: fair,
                ..big_little()
            };
            let mut system = at_interval(machine, endless(4), seed);
            let second = (1e12 / system.machine().scale) as u64;
            system.run(second / 2).unwrap();
            let pus = pus_of(&system);
            assert!(
                pus.iter().all(|pu| pu.is_some_and(|pu| pu < 4)),
                "{fair:?}, seed {seed}: {pus:?}"
            );
            let moves = |system: &System| -> u64 {
                let threads = system.threads().iter();
                threads.map(|thread| thread.migrations).sum()
            };
            // And stays: no little core takes it back.
            let before = moves(&system);
            system.run(2 * second).unwrap();
            assert_eq!(moves(&system), before, "{fair:?}, seed {seed}");
        }
    }
}

/// With six, two have to do with little cores; when a thread on a big one ends, one of them takes its place.
#[test]
fn a_big_core_that_becomes_idle_takes_a_demanding_thread() {
    let second = 1_000_000_000_000 / big_little().scale as u64;
    let steps = |thread: usize| match thread {
        0 => compute(0, second / 1_000),
        _ => compute(0, u64::MAX),
    };
    let threads = (0..6).map(|thread| vec![steps(thread)]).collect();
    let mut system = at_interval(big_little(), workload(alu(), threads), 3);
    let on_little = |system: &System| {
        let pus = pus_of(system).into_iter().flatten();
        pus.filter(|pu| *pu >= 4).count()
    };
    system.run(1).unwrap();
    system.set_mask(0, (0..4).collect());
    while system.threads()[0].state != State::Ended {
        system.run(system.now() + second / 100).unwrap();
    }
    system.run(system.now() + second / 10).unwrap();
    assert_eq!(on_little(&system), 1, "{:?}", pus_of(&system));
}

/// A thread that mostly sleeps fits on any core, and stays where it is; without capacities nobody moves.
#[test]
fn threads_that_fit_stay_on_little_cores() {
    let second = 1_000_000_000_000 / big_little().scale as u64;
    let mostly_asleep = vec![compute(0, second / 2_000_000), Step::Sleep(20 * MS)];
    let endless = vec![compute(0, u64::MAX)];
    let moved = |machine: MachineModel, steps: &[Step]| {
        let mut steps = steps.to_vec();
        let repeated: Vec<Step> = steps.iter().cycle().take(400).cloned().collect();
        if steps.len() > 1 {
            steps = repeated;
        }
        let mut system = at_interval(machine, workload(alu(), vec![steps]), 1);
        system.run(1).unwrap();
        system.set_mask(0, PuSet::single(5));
        system.run(second / 2).unwrap();
        system.set_mask(0, (0..8).collect());
        system.run(second).unwrap();
        system.threads()[0].last_pu != 5
    };
    assert!(moved(big_little(), &endless));
    assert!(!moved(big_little(), &mostly_asleep));
    assert!(!moved(without_capacities(), &endless));
}
