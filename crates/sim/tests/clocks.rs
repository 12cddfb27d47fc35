//! Cores whose clock changes while the machine runs.

use crate::support::{ALU, compute, done, machine, mix, workload};
use perch_core::{
    Affinity, Machine, Outcome, Setting, SettingChange, SettingChoices, SettingValue, Settings,
};
use perch_sim::{
    detail::{Detail, Fidelity},
    machine::SimMachine,
    model::{MachineModel, Multithreading, Op, OperatingPoint},
    os::SchedulerModel,
    system::System,
};
use std::{sync::Arc, time::Duration};

const LOADS: &[(Op, f64)] = &[(Op::Load, 1.0)];
const HIGH: u64 = 1_000_000;
const LOW: u64 = 500_000;

fn with_clocks() -> MachineModel {
    let mut machine = machine(2, 1, Multithreading::FineGrained);
    machine.kinds[0].clocks = vec![LOW, 800_000, HIGH];
    machine
}

/// An endless thread of each of these operations over this much data.
fn system(fidelity: Fidelity, threads: &[(&[(Op, f64)], u64)]) -> System {
    let mixes = threads.iter().map(|(ops, bytes)| mix("m", ops, *bytes));
    let steps = (0..threads.len()).map(|at| vec![compute(at, u64::MAX)]);
    let workload = Arc::new(workload(mixes.collect(), steps.collect()));
    let machine = Arc::new(with_clocks());
    let detail = Detail::new(fidelity, &machine, &workload);
    System::at(&detail, machine, workload, SchedulerModel::default(), 1)
}

fn set_clock(system: &mut System, core: usize, clock: u64) {
    let throttling = 0;
    system.set_point(core, OperatingPoint { clock, throttling });
}

#[test]
fn half_the_clock_halves_what_computes_but_not_what_waits_for_memory() {
    const TIME: u64 = 400_000_000;
    let mut ratios = Vec::new();
    for fidelity in [Fidelity::Cycle, Fidelity::Interval] {
        // The second thread waits for memory most of the time.
        let mut system = system(fidelity, &[(ALU, 64), (LOADS, 64 << 20)]);
        system.run(TIME).unwrap();
        let fast = done(&mut system, TIME);
        let on = |thread: usize| system.threads()[thread].last_pu as usize;
        for core in [on(0), on(1)] {
            set_clock(&mut system, core, LOW);
        }
        let slow = done(&mut system, TIME);
        let ratio = |at: usize| slow[at].0 as f64 / fast[at].0 as f64;
        assert!((ratio(0) - 0.5).abs() < 0.01, "{fidelity:?}: {}", ratio(0));
        assert!(
            ratio(1) > 0.9 && ratio(1) < 1.0,
            "{fidelity:?}: {}",
            ratio(1)
        );
        for at in [0, 1] {
            let cycles = slow[at].1 as f64 / fast[at].1 as f64;
            assert!((cycles - 0.5).abs() < 0.01, "{fidelity:?}: {cycles} cycles");
        }
        ratios.push(ratio(1));
        // And back.
        for core in [0, 1] {
            set_clock(&mut system, core, HIGH);
        }
        let again = done(&mut system, TIME)[0].0 as f64 / fast[0].0 as f64;
        assert!((again - 1.0).abs() < 0.01, "{fidelity:?}: {again}");
    }
    assert!((ratios[0] - ratios[1]).abs() < 0.02, "{ratios:?}");
}

/// The other core keeps its clock.
#[test]
fn one_core_is_slowed_down_alone() {
    for fidelity in [Fidelity::Cycle, Fidelity::Interval] {
        let mut system = system(fidelity, &[(ALU, 64), (ALU, 64)]);
        // Until all code has come once.
        system.run(100_000_000).unwrap();
        let fast = done(&mut system, 100_000_000);
        let core = system.threads()[1].last_pu as usize;
        set_clock(&mut system, core, 800_000);
        let slow = done(&mut system, 100_000_000);
        let ratio = |at: usize| slow[at].0 as f64 / fast[at].0 as f64;
        assert!((ratio(0) - 1.0).abs() < 0.01, "{fidelity:?}: {}", ratio(0));
        assert!((ratio(1) - 0.8).abs() < 0.01, "{fidelity:?}: {}", ratio(1));
    }
}

#[test]
fn a_clock_is_a_setting_that_perch_changes_only_from_what_it_expects() {
    let system = system(Fidelity::Interval, &[(ALU, 64), (ALU, 64)]);
    let mut machine = SimMachine::new(system, Some(Duration::from_secs(9)));
    machine.watch_settings(true).unwrap();
    machine.wait(Duration::from_secs(1)).unwrap();
    let seen = machine.observe().unwrap().settings;
    assert_eq!(seen.len(), 2);
    let one = &seen[1];
    assert_eq!(one.setting, Setting::MaxFrequency(1));
    assert_eq!(one.value, SettingValue::Number(HIGH));
    assert_eq!(
        one.choices,
        SettingChoices::Numbers(vec![LOW, 800_000, HIGH])
    );
    let change = |expect, set| SettingChange {
        setting: Setting::MaxFrequency(1),
        expect: SettingValue::Number(expect),
        set: SettingValue::Number(set),
    };
    let settings = Affinity::settings(&mut machine).unwrap();
    let outcomes = [
        change(LOW, 800_000),
        change(HIGH, 700_000),
        change(HIGH, LOW),
    ]
    .map(|change| settings.change_setting(&change));
    assert_eq!(
        outcomes,
        [
            Outcome::ChangedByOthers,
            Outcome::NotPermitted,
            Outcome::Applied
        ]
    );
    assert_eq!(
        settings.setting(&Setting::MaxFrequency(1)),
        Ok(SettingValue::Number(LOW))
    );
    assert_eq!(
        settings.setting(&Setting::MaxFrequency(0)),
        Ok(SettingValue::Number(HIGH))
    );
    assert!(settings.setting(&Setting::MaxFrequency(2)).is_err());
}

#[test]
fn a_machine_of_one_clock_says_so() {
    let steps = vec![vec![compute(0, u64::MAX)]];
    let workload = Arc::new(workload(vec![mix("alu", ALU, 64)], steps));
    let model = Arc::new(machine(1, 1, Multithreading::FineGrained));
    let system = System::new(model, workload, SchedulerModel::default(), 1);
    let mut machine = SimMachine::new(system, None);
    let error = machine.watch_settings(true).unwrap_err().to_string();
    assert!(error.contains("`clocks`"), "{error}");
    assert!(Affinity::settings(&mut machine).is_none());
    assert!(Settings::settings(&machine).is_empty());
}
