//! Cores whose clock stops from time to time.

use crate::support::{ALU, compute, done, machine, mix, workload};
use perch_core::{
    Affinity, Machine, Outcome, Setting, SettingChange, SettingChoices, SettingValue,
};
use perch_sim::{
    detail::{Detail, Fidelity},
    machine::SimMachine,
    model::{MachineModel, Multithreading, Op, OperatingPoint, UnitPool},
    os::SchedulerModel,
    system::System,
    units::MICROSECOND,
    workload::{Depends, Mix},
};
use std::{sync::Arc, time::Duration};

const LOADS: &[(Op, f64)] = &[(Op::Load, 1.0)];
const BOTH: &[(Op, f64)] = &[(Op::Load, 0.2), (Op::Alu, 0.8)];
const LEVELS: [Fidelity; 2] = [Fidelity::Cycle, Fidelity::Interval];

fn modulated(duty: f64, stop: u64) -> MachineModel {
    let mut machine = machine(2, 1, Multithreading::FineGrained);
    machine.kinds[0].duty = duty;
    machine.kinds[0].modulation = stop;
    machine
}

/// An endless thread of each mix, after all of it has been in the caches.
fn system(fidelity: Fidelity, machine: MachineModel, mixes: &[Mix]) -> System {
    let steps = (0..mixes.len()).map(|at| vec![compute(at, u64::MAX)]);
    let workload = Arc::new(workload(mixes.to_vec(), steps.collect()));
    let machine = Arc::new(machine);
    let detail = Detail::new(fidelity, &machine, &workload);
    let mut system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
    system.run(1).unwrap();
    system.warm();
    system.run(100 * MICROSECOND).unwrap();
    system
}

/// Instructions of one thread that has the machine to itself.
fn instructions(fidelity: Fidelity, machine: &MachineModel, mix: &Mix) -> f64 {
    let mut system = system(fidelity, machine.clone(), std::slice::from_ref(mix));
    done(&mut system, 600 * MICROSECOND)[0].0 as f64
}

/// The same machine with a duty cycle.
fn slowed(full: &MachineModel, duty: f64, stop: u64) -> MachineModel {
    let mut slowed = full.clone();
    slowed.kinds[0].duty = duty;
    slowed.kinds[0].modulation = stop;
    slowed
}

/// The part of those instructions that a duty cycle leaves.
fn left(fidelity: Fidelity, full: &MachineModel, duty: f64, stop: u64, mix: &Mix) -> f64 {
    let slowed = slowed(full, duty, stop);
    instructions(fidelity, &slowed, mix) / instructions(fidelity, full, mix)
}

/// The review's point: with a longer cycle, threads that wait for memory would lose next to nothing.
#[test]
fn who_waits_for_memory_loses_nearly_as_much_as_who_computes() {
    let full = modulated(1.0, 3 * MICROSECOND);
    for duty in [0.25, 0.5, 0.75] {
        for fidelity in LEVELS {
            let of = |ops, bytes| {
                let mix = mix("m", ops, bytes);
                left(fidelity, &full, duty, 3 * MICROSECOND, &mix)
            };
            let computes = of(ALU, 64);
            assert!(
                (computes / duty - 1.0).abs() < 0.01,
                "{fidelity:?}: {computes} at {duty}"
            );
            let waits = of(LOADS, 64 << 20);
            assert!(
                waits > duty - 0.01 && waits < duty + 0.03,
                "{fidelity:?}: {waits} at {duty}"
            );
        }
    }
}

/// Requests under way arrive while the clock stops: of stops that are short against them, nearly nothing is lost.
#[test]
fn short_stops_are_hidden_by_waiting_for_memory() {
    let full = modulated(1.0, 3 * MICROSECOND);
    for fidelity in LEVELS {
        let of = |ops, bytes| left(fidelity, &full, 0.5, 8_000, &mix("m", ops, bytes));
        let (computes, waits) = (of(ALU, 64), of(LOADS, 64 << 20));
        assert!((computes - 0.5).abs() < 0.01, "{fidelity:?}: {computes}");
        assert!(waits > 0.85, "{fidelity:?}: {waits}");
    }
}

/// In order and out of order, with stops shorter and longer than what memory takes.
#[test]
fn both_levels_agree_about_what_stops_leave() {
    let simple = modulated(1.0, MICROSECOND);
    let mut large = simple.clone();
    let kind = &mut large.kinds[0];
    (kind.window, kind.in_order, kind.width) = (64, false, 2);
    kind.units = vec![UnitPool {
        count: 2,
        ..kind.units[0].clone()
    }];
    // Stops of a few cycles keep time with what memory takes, which no mean speed shows.
    let stops = [(20_000, 0.15), (200_000, 0.07), (3 * MICROSECOND, 0.06)];
    let mixes = [(LOADS, 64 << 20), (BOTH, 64 << 20), (BOTH, 256 << 10)];
    let mut mixes = mixes.map(|(ops, bytes)| mix("m", ops, bytes)).to_vec();
    // Loads that overlap.
    mixes.push(Mix {
        depends: Depends::Always(0),
        ..mixes[1].clone()
    });
    for machine in [simple, large] {
        for mix in &mixes {
            let full = LEVELS.map(|fidelity| instructions(fidelity, &machine, mix));
            for (stop, most) in stops {
                for duty in [0.25, 0.75] {
                    let slowed = slowed(&machine, duty, stop);
                    let slowed = LEVELS.map(|fidelity| instructions(fidelity, &slowed, mix));
                    let [cycle, interval] = [0, 1].map(|at| slowed[at] / full[at]);
                    let apart = (interval / cycle - 1.0).abs();
                    let window = machine.kinds[0].window;
                    assert!(
                        apart < most,
                        "window {window}, stops of {stop} ps, duty {duty}, {mix:?}: {cycle}, {interval}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_core_is_throttled_while_the_machine_runs() {
    for fidelity in LEVELS {
        let mut machine = modulated(1.0, 3 * MICROSECOND);
        machine.kinds[0].duty_steps = 8;
        let mut system = system(fidelity, machine, &[mix("a", ALU, 64), mix("b", ALU, 64)]);
        const TIME: u64 = 600 * MICROSECOND;
        let full = done(&mut system, TIME);
        let core = system.threads()[1].last_pu as usize;
        let point = system.point(core);
        let throttled = OperatingPoint {
            throttling: 6,
            ..point
        };
        system.set_point(core, throttled);
        let slow = done(&mut system, TIME);
        let ratio = |at: usize| slow[at].0 as f64 / full[at].0 as f64;
        assert!((ratio(0) - 1.0).abs() < 0.01, "{fidelity:?}: {}", ratio(0));
        assert!((ratio(1) - 0.25).abs() < 0.01, "{fidelity:?}: {}", ratio(1));
        // Cycles are those of the clock, which stops.
        let cycles = slow[1].1 as f64 / full[1].1 as f64;
        assert!((cycles - 0.25).abs() < 0.01, "{fidelity:?}: {cycles}");
        system.set_point(core, point);
        let again = done(&mut system, TIME)[1].0 as f64 / full[1].0 as f64;
        assert!((again - 1.0).abs() < 0.02, "{fidelity:?}: {again}");
    }
}

#[test]
fn throttling_is_a_setting_that_perch_changes_only_from_what_it_expects() {
    let mut machine = modulated(0.75, 3 * MICROSECOND);
    machine.kinds[0].duty_steps = 8;
    let system = system(Fidelity::Interval, machine, &[mix("a", ALU, 64)]);
    let mut machine = SimMachine::new(system, Some(Duration::from_secs(9)));
    machine.watch_settings(true).unwrap();
    machine.wait(Duration::from_secs(1)).unwrap();
    let seen = machine.observe().unwrap().settings;
    assert_eq!(seen.len(), 2);
    let one = &seen[1];
    assert_eq!(one.setting, Setting::Throttling(1));
    assert_eq!(one.value, SettingValue::Number(2));
    assert_eq!(one.choices, SettingChoices::Range(0, 7));
    let change = |expect, set| SettingChange {
        setting: Setting::Throttling(1),
        expect: SettingValue::Number(expect),
        set: SettingValue::Number(set),
    };
    let settings = Affinity::settings(&mut machine).unwrap();
    let outcomes =
        [change(0, 3), change(2, 8), change(2, 7)].map(|change| settings.change_setting(&change));
    assert_eq!(
        outcomes,
        [
            Outcome::ChangedByOthers,
            Outcome::NotPermitted,
            Outcome::Applied
        ]
    );
    assert_eq!(
        settings.setting(&Setting::Throttling(1)),
        Ok(SettingValue::Number(7))
    );
    assert!(settings.setting(&Setting::MaxFrequency(1)).is_err());
}
