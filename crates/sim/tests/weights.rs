//! Threads share PUs in proportion to the weights of their nice values.

use crate::support::{ALU, compute, machine, mix, workload};
use perch_core::{Affinity, Machine, NiceChange, Outcome, PuSet, scheduler_weight};
use perch_sim::{
    detail::{Detail, Fidelity},
    machine::SimMachine,
    model::Multithreading,
    os::SchedulerModel,
    system::System,
    units::SECOND,
};
use std::{sync::Arc, time::Duration};

/// A second of the operating system, on a machine of this scale.
const SECOND_THERE: u64 = SECOND / 1_000;

/// Endless threads of these nice values, on PUs without siblings.
fn system(fidelity: Fidelity, pus: usize, nices: &[i32]) -> System {
    let steps = nices.iter().map(|_| vec![compute(0, u64::MAX)]).collect();
    let mut workload = workload(vec![mix("alu", ALU, 64)], steps);
    for (program, nice) in workload.programs.iter_mut().zip(nices) {
        program.threads[0].nice = *nice;
    }
    let machine = Arc::new(machine(pus, 1, Multithreading::FineGrained));
    let workload = Arc::new(workload);
    let detail = Detail::new(fidelity, &machine, &workload);
    System::at(&detail, machine, workload, SchedulerModel::default(), 1)
}

/// The part of a PU that each thread gets in some seconds of the operating system.
fn shares(system: &mut System, seconds: u64) -> Vec<f64> {
    let before: Vec<u64> = system.threads().iter().map(|t| t.cpu_time).collect();
    let (from, until) = (system.now(), system.now() + seconds * SECOND_THERE);
    system.run(until).unwrap();
    let threads = system.threads().iter().zip(before);
    threads
        .map(|(thread, before)| (thread.cpu_time - before) as f64 / (until - from) as f64)
        .collect()
}

/// What the weights of threads on one PU entitle them to.
fn entitled(nices: &[i32]) -> Vec<f64> {
    let weights = nices.iter().map(|nice| f64::from(scheduler_weight(*nice)));
    let all: f64 = weights.clone().sum();
    weights.map(|weight| weight / all).collect()
}

fn assert_near(found: &[f64], expected: &[f64]) {
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 0.02, "{found} of {expected}");
    }
}

#[test]
fn a_pu_is_shared_by_weight() {
    for fidelity in [Fidelity::Cycle, Fidelity::Interval] {
        let nices = [0, 5, 10, -5];
        let mut system = system(fidelity, 1, &nices);
        assert_near(&shares(&mut system, 6), &entitled(&nices));
    }
}

#[test]
fn a_new_weight_counts_from_then_on() {
    let mut system = system(Fidelity::Interval, 1, &[0, 0]);
    assert_near(&shares(&mut system, 6), &[0.5, 0.5]);
    system.set_nice(1, 10);
    assert_near(&shares(&mut system, 6), &entitled(&[0, 10]));
    system.set_nice(1, 0);
    assert_near(&shares(&mut system, 6), &[0.5, 0.5]);
}

/// Numbers of threads would be the same on both PUs.
#[test]
fn weights_are_balanced_not_numbers() {
    for nices in [[-10, 0, 0, 0], [0, 0, 0, -10]] {
        let mut system = system(Fidelity::Interval, 2, &nices);
        shares(&mut system, 2);
        let found = shares(&mut system, 6);
        for (share, nice) in found.iter().zip(nices) {
            let expected = if nice < 0 { 1.0 } else { 1.0 / 3.0 };
            assert!((share - expected).abs() < 0.05, "{nices:?}: {found:?}");
        }
    }
}

#[test]
fn perch_changes_a_nice_value_only_from_what_it_expects() {
    let system = system(Fidelity::Interval, 1, &[0, 3]);
    let mut machine = SimMachine::new(system, Some(Duration::from_secs(9)));
    machine.wait(Duration::from_secs(1)).unwrap();
    assert!(machine.observe().unwrap().nices.is_empty());
    machine.watch_weights(true).unwrap();
    machine.wait(Duration::from_secs(1)).unwrap();
    let seen = machine.observe().unwrap();
    let nices: Vec<i32> = seen.nices.iter().map(|sample| sample.nice).collect();
    assert_eq!(nices, [0, 3]);
    let thread = seen.nices[1].thread;
    let change = |expect, set| NiceChange {
        thread,
        expect,
        set,
    };
    let weights = machine.affinity().weights().unwrap();
    assert_eq!(weights.nice(thread), Ok(3));
    assert_eq!(
        weights.change_nice(&change(2, 10)),
        Outcome::ChangedByOthers
    );
    assert_eq!(weights.nice(thread), Ok(3));
    assert_eq!(weights.change_nice(&change(3, 10)), Outcome::Applied);
    assert_eq!(weights.nice(thread), Ok(10));
    let ran = |machine: &SimMachine| machine.system().threads()[1].cpu_time;
    let before = ran(&machine);
    machine.wait(Duration::from_secs(6)).unwrap();
    let share = (ran(&machine) - before) as f64 / (6 * SECOND_THERE) as f64;
    assert_near(&[share], &entitled(&[10, 0])[..1]);
    assert!(
        machine
            .mask(thread)
            .unwrap()
            .is_subset(&PuSet::from_iter([0]))
    );
}
