//! The model of the O(1) scheduler does what its source says in cases with a known result.

use crate::support::{ALU, compute, machine, mix, system, workload};
use perch_core::PuSet;
use perch_sim::{
    config::find_machine,
    detail::{Detail, Fidelity},
    model::{MachineModel, Multithreading, SchedulerKind},
    os::SchedulerModel,
    system::System,
    workload::{Step, WorkloadModel},
};
use proptest::prelude::*;
use std::{collections::BTreeSet, sync::Arc};

/// A millisecond of the operating system, on a machine of scale 1,000.
const MS: u64 = 1_000_000;

fn old(machine: MachineModel) -> MachineModel {
    MachineModel {
        scheduler: SchedulerKind::Linux2611,
        ..machine
    }
}

fn cores(number: usize) -> MachineModel {
    old(machine(number, 1, Multithreading::FineGrained))
}

fn threads(threads: Vec<Vec<Step>>) -> WorkloadModel {
    workload(vec![mix("alu", ALU, 64)], threads)
}

fn endless(number: usize) -> WorkloadModel {
    threads(vec![vec![compute(0, u64::MAX)]; number])
}

fn at_interval(machine: MachineModel, workload: WorkloadModel, seed: u64) -> System {
    let (machine, workload) = (Arc::new(machine), Arc::new(workload));
    let detail = Detail::new(Fidelity::Interval, &machine, &workload);
    System::at(&detail, machine, workload, SchedulerModel::default(), seed)
}

fn cpu_times(system: &System) -> Vec<f64> {
    let times = system.threads().iter().map(|thread| thread.cpu_time as f64);
    times.collect()
}

fn bound(system: &mut System, masks: &[&[u32]]) {
    for (thread, mask) in masks.iter().enumerate() {
        system.set_mask(thread, mask.iter().copied().collect());
    }
}

/// Slices of 100 ms at nice value 0, 5 ms at 19, 800 ms at -20, one after the other.
#[test]
fn slices_are_as_long_as_nice_values_say() {
    for (nice, slice) in [(0, 100.0), (19, 5.0), (-20, 800.0)] {
        let mut system = system(cores(1), endless(2), 1);
        system.run(1).unwrap();
        system.set_nice(1, nice);
        // Until both have lost the bonus with which a shell's programs begin.
        system.run(40_000 * MS).unwrap();
        let (from, before) = (system.now(), cpu_times(&system));
        let switches = system.threads()[1].switches;
        system.run(from + 27_000 * MS).unwrap();
        let ran = |thread: usize| cpu_times(&system)[thread] - before[thread];
        let ratio = ran(1) / ran(0);
        assert!(
            (ratio / (slice / 100.0) - 1.0).abs() < 0.15,
            "{nice}: {ratio}"
        );
        let slices = (system.threads()[1].switches - switches) as f64;
        let mean = ran(1) / slices / MS as f64;
        assert!((mean / slice - 1.0).abs() < 0.15, "{nice}: {mean} ms");
    }
}

/// A thread that mostly sleeps takes the PU as soon as it wakes.
#[test]
fn a_thread_that_sleeps_takes_the_pu_of_one_that_computes() {
    let asleep = [compute(0, 2_000), Step::Sleep(50 * MS)];
    let steps: Vec<Step> = asleep.iter().cycle().take(400).cloned().collect();
    let load = threads(vec![vec![compute(0, u64::MAX)], steps]);
    let mut system = system(cores(1), load, 1);
    system.run(2_000 * MS).unwrap();
    let waited = system.threads()[1].wait_time;
    let switches = system.threads()[1].switches;
    system.run(8_000 * MS).unwrap();
    let sleeper = &system.threads()[1];
    let waits = (sleeper.wait_time - waited) / (sleeper.switches - switches).max(1);
    assert!(sleeper.switches > 60, "{}", sleeper.switches);
    assert!(waits < MS / 10, "{waits}");
}

/// Programs begin on the first PU with the least load, be its core busy or not; the balance spreads them over cores.
#[test]
fn programs_are_spread_over_packages_after_a_while() {
    for seed in 0..6 {
        let machine = old(find_machine("intel-xeon-ht").unwrap());
        let second = (1e12 / machine.scale) as u64;
        let mut system = at_interval(machine, endless(2), seed);
        system.run(2 * second).unwrap();
        let cores: BTreeSet<u32> = system.threads().iter().map(|t| t.last_pu / 2).collect();
        assert_eq!(cores.len(), 2, "seed {seed}");
        // Two on one core, with the other one idle: one of them is moved, though it runs.
        bound(&mut system, &[&[0], &[1]]);
        bound(&mut system, &[&[0, 1, 2, 3], &[0, 1, 2, 3]]);
        let from = system.now();
        system.run(from + 2 * second).unwrap();
        let cores: BTreeSet<u32> = system.threads().iter().map(|t| t.last_pu / 2).collect();
        assert_eq!(cores.len(), 2, "seed {seed}");
    }
}

/// One thread too many stays on its PU: `find_busiest_group` wants an eighth of a PU more, which no move brings.
#[test]
fn a_thread_too_many_does_not_go_round() {
    let mut system = at_interval(cores(2), endless(3), 1);
    system.run(30_000 * MS).unwrap();
    let mut times = cpu_times(&system);
    times.sort_by(f64::total_cmp);
    let shares: Vec<f64> = times
        .iter()
        .map(|time| time / system.now() as f64)
        .collect();
    assert!(
        shares[2] > 0.9 && shares[0] > 0.4 && shares[1] < 0.6,
        "{shares:?}"
    );
}

#[test]
fn a_pu_that_becomes_idle_takes_who_waits() {
    let first = vec![compute(0, 20_000)];
    let mut load = vec![vec![compute(0, u64::MAX)]; 3];
    load.push(first);
    let mut system = system(cores(2), threads(load), 5);
    system.run(1).unwrap();
    bound(&mut system, &[&[0, 1], &[0, 1], &[0], &[1]]);
    system.run(400 * MS).unwrap();
    // The short one has ended: no thread waits for a PU while the other is idle.
    let busy: f64 = cpu_times(&system).iter().sum();
    assert!(busy > 1.9 * (400 * MS) as f64, "{busy}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever sleeps, ends and masks there are: each PU has one thread at most, where it may be, and none of its own
    /// waits while it is idle.
    #[test]
    fn no_pu_is_idle_while_its_own_threads_wait(
        pus in 1usize..5,
        plans in proptest::collection::vec((1u64..400, 0u64..40, 1usize..6), 1..9),
        masks in proptest::collection::vec((0usize..9, 1u32..16), 0..12),
        seed: u64,
    ) {
        let steps = plans.iter().map(|(work, sleep, times)| {
            let once = [compute(0, *work * 1_000), Step::Sleep(*sleep * MS)];
            once.iter().cycle().take(2 * times).cloned().collect()
        });
        let mut system = system(cores(pus), threads(steps.collect()), seed);
        let mut masks = masks.into_iter();
        for _ in 0..60 {
            system.run(system.now() + 7 * MS).unwrap();
            // What the last tick decided is carried out with the next step.
            system.run(system.now() + 1).unwrap();
            if system.is_done() {
                break;
            }
            if let Some((thread, mask)) = masks.next() {
                let mask: PuSet = (0..pus as u32).filter(|pu| mask >> pu & 1 == 1).collect();
                if thread < system.threads().len() && !mask.is_empty() {
                    system.set_mask(thread, mask);
                }
            }
            let all = system.threads();
            for pu in 0..pus as u32 {
                let at = all.iter().filter(|thread| thread.place.is_some_and(|place| place.pu == pu));
                let at: Vec<_> = at.collect();
                prop_assert!(at.len() <= 1);
                prop_assert!(at.iter().all(|thread| thread.mask.contains(pu)));
                let waits = all.iter().any(|thread| {
                    thread.is_runnable() && thread.place.is_none() && thread.last_pu == pu
                });
                prop_assert!(at.len() == 1 || !waits, "PU {pu} is idle");
            }
        }
    }
}
