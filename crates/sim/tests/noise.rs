//! Time that the operating system takes from threads: interrupts, ticks at different moments, the costs of changes; and
//! threads that are pinned.

use crate::support::{ALU, compute, machine, mix, workload};
use perch_core::{Machine, PuSet};
use perch_sim::{
    config::{machine_from_text, workload_from_text},
    detail::{Detail, Fidelity},
    machine::SimMachine,
    model::{IrqModel, MachineModel, Multithreading, OperatingPoint},
    os::SchedulerModel,
    system::{SimError, System},
    units::SECOND,
    workload::{Gaps, WorkloadModel},
};
use std::{path::Path, sync::Arc, time::Duration};

const LEVELS: [Fidelity; 2] = [Fidelity::Cycle, Fidelity::Interval];

/// A second of the operating system on the machines of these tests, whose scale is 1,000.
const OS_SECOND: u64 = SECOND / 1_000;

fn cores(number: usize) -> MachineModel {
    machine(number, 1, Multithreading::FineGrained)
}

fn endless(threads: usize) -> WorkloadModel {
    let steps = vec![vec![compute(0, u64::MAX)]; threads];
    workload(vec![mix("alu", ALU, 64)], steps)
}

fn at(fidelity: Fidelity, machine: &MachineModel, workload: WorkloadModel, seed: u64) -> System {
    let (machine, workload) = (Arc::new(machine.clone()), Arc::new(workload));
    let detail = Detail::new(fidelity, &machine, &workload);
    System::at(&detail, machine, workload, SchedulerModel::default(), seed)
}

/// Interrupts of PU 0 that take a tenth of it.
fn tenth(gaps: Gaps) -> MachineModel {
    let mut machine = cores(2);
    machine.os.irqs = vec![IrqModel {
        pus: vec![0],
        gap: 1e6,
        gaps,
        time: 100_000,
    }];
    machine
}

#[test]
fn interrupts_take_their_time_from_the_thread_of_their_pu() {
    for fidelity in LEVELS {
        for (gaps, near) in [(Gaps::Constant, 0.002), (Gaps::Poisson, 0.02)] {
            let mut machine = SimMachine::new(at(fidelity, &tenth(gaps), endless(2), 1), None);
            machine.watch_pus(true).unwrap();
            machine.wait(Duration::from_secs(1)).unwrap();
            let seen = machine.observe().unwrap();
            let lost: Vec<f64> = seen
                .pus
                .iter()
                .map(|pu| pu.interrupts as f64 * 1e-9)
                .collect();
            assert!(
                (lost[0] - 0.1).abs() < near,
                "{fidelity:?} {gaps:?}: {lost:?}"
            );
            assert_eq!(lost[1], 0.0);
            // The thread has the PU all the same, as the kernel counts.
            assert!(seen.pus.iter().all(|pu| pu.busy == pu.interval));
            let system = machine.system();
            let done = |pu: usize| system.pus()[pu].counters.instructions() as f64;
            let slower = done(0) / done(1);
            assert!(
                (slower - (1.0 - lost[0])).abs() < 0.01,
                "{fidelity:?}: {slower} {lost:?}"
            );
        }
    }
}

#[test]
fn an_idle_pu_is_busy_with_its_interrupts_only() {
    for fidelity in LEVELS {
        let system = at(fidelity, &tenth(Gaps::Constant), pinned("[1]"), 1);
        let mut machine = SimMachine::new(system, None);
        machine.watch_pus(true).unwrap();
        machine.wait(Duration::from_secs(1)).unwrap();
        let pus = machine.observe().unwrap().pus;
        assert_eq!(pus[0].busy, pus[0].interrupts);
        assert!((pus[0].busy as f64 * 1e-9 - 0.1).abs() < 0.002, "{pus:?}");
    }
}

#[test]
fn the_seed_decides_when_interrupts_come() {
    for fidelity in LEVELS {
        let done = |seed| {
            let mut system = at(fidelity, &tenth(Gaps::Poisson), endless(2), seed);
            system.run(OS_SECOND / 10).unwrap();
            system.pus()[0]
        };
        assert_eq!(done(1), done(1));
        assert_ne!(done(1).interrupts, done(2).interrupts);
    }
}

/// When threads left their PUs, after a tick of all.
fn switches(skew: bool) -> Vec<(u64, u64)> {
    let mut machine = cores(4);
    machine.os.skew_tick = skew;
    let mut system = at(Fidelity::Interval, &machine, endless(8), 1);
    system.remember_stays();
    system.run(OS_SECOND / 4).unwrap();
    let tick = machine.machine_time(SchedulerModel::default().tick);
    let stays = system.stays();
    let left = stays.iter().filter(|stay| stay.to < system.now());
    let left: Vec<_> = left
        .map(|stay| (u64::from(stay.pu), stay.to % tick))
        .collect();
    assert!(left.len() > 20, "{}", left.len());
    left
}

#[test]
fn with_a_skew_each_pu_has_its_ticks_an_eighth_later_than_the_one_before() {
    assert!(switches(false).iter().all(|(_, after)| *after == 0));
    let tick = cores(4).machine_time(SchedulerModel::default().tick);
    let skewed = switches(true);
    assert!(
        skewed.iter().all(|(pu, after)| *after == pu * tick / 8),
        "{skewed:?}"
    );
    assert!((0..4).all(|pu| skewed.iter().any(|(of, _)| *of == pu)));
}

#[test]
fn changes_cost_the_time_that_the_machine_says() {
    let cost = 10_000_000;
    for fidelity in LEVELS {
        let done = |migrate, set_clock, change: &dyn Fn(&mut System)| {
            let mut machine = cores(3);
            machine.kinds[0].clocks = vec![500_000, 1_000_000];
            machine.os.costs.migrate = migrate;
            machine.os.costs.set_clock = set_clock;
            let mut system = at(fidelity, &machine, pinned("[0, 1, 2]"), 1);
            system.run(OS_SECOND / 10).unwrap();
            change(&mut system);
            let before = system.threads()[0].counters.instructions();
            system.run(OS_SECOND / 5).unwrap();
            system.threads()[0].counters.instructions() - before
        };
        let migrate = |system: &mut System| {
            let pu = (system.threads()[0].last_pu + 1) % 3;
            system.set_mask(0, PuSet::from_iter([pu]));
        };
        let slow = |system: &mut System| {
            for core in 0..3 {
                let clock = 500_000;
                let throttling = 0;
                system.set_point(core, OperatingPoint { clock, throttling });
            }
        };
        // Of 100 ms, 10 are lost: an instruction a cycle.
        for (change, clock) in [(&migrate as &dyn Fn(&mut System), 1.0), (&slow, 0.5)] {
            let lost = done(0, 0, change) as f64 - done(cost, cost, change) as f64;
            let wanted = clock * 10_000.0;
            assert!(
                (lost / wanted - 1.0).abs() < 0.05,
                "{fidelity:?}: {lost}, not {wanted}"
            );
        }
    }
}

/// A program of two threads that are pinned.
fn pinned(pus: &str) -> WorkloadModel {
    let text = format!(
        r#"about = "pinned"
[mixes.alu]
shares = {{ alu = 1 }}
depends = 1
[[programs]]
name = "p"
[[programs.threads]]
name = "t"
count = 2
pus = {pus}
steps = [{{ compute = "alu", instructions = "forever" }}]
"#
    );
    workload_from_text(&text, Path::new("pinned.toml")).unwrap()
}

#[test]
fn pinned_threads_share_a_pu_while_others_are_idle() {
    for fidelity in LEVELS {
        let mut system = at(fidelity, &cores(4), pinned("[2]"), 1);
        system.run(OS_SECOND / 5).unwrap();
        let busy: Vec<u64> = system.pus().iter().map(|pu| pu.busy).collect();
        assert_eq!(busy, [0, 0, OS_SECOND / 5, 0]);
        let mask = PuSet::from_iter([2]);
        assert!(system.threads().iter().all(|thread| thread.mask == mask));
    }
    let mut system = at(Fidelity::Interval, &cores(2), pinned("[2, 3]"), 1);
    let error = system.run(OS_SECOND).unwrap_err();
    assert!(matches!(error, SimError::Pinned { .. }));
    assert_eq!(
        error.to_string(),
        "`t-1` is pinned to PUs that the machine does not have: it has 2, from 0 on"
    );
}

#[track_caller]
fn wrong(keys: &str, error: &str) {
    let text = std::fs::read_to_string("../../machines/cmt-4x4.toml").unwrap();
    let text = format!("{keys}\n{text}");
    let found = machine_from_text(&text, Path::new("m.toml")).unwrap_err();
    let found = found.to_string();
    assert!(found.starts_with(error), "{found}");
}

#[test]
fn mistakes_are_reported_where_they_are() {
    wrong(
        "noise.irqs = [{ rate = \"1k / s\", time = \"2 ms\" }]",
        "m.toml:1:24: PUs would do nothing else: `rate` times `time` must be below 1",
    );
    wrong(
        "noise.irqs = [{ rate = \"1 / s\", time = \"2 us\", pus = [3, 3] }]",
        "m.toml:1:58: PU 3 is in the list already",
    );
    wrong(
        "scheduler = \"linux-2.4\"\nskew-tick = true",
        "m.toml:2:13: only the schedulers `cfs` and `eevdf` have ticks at different moments",
    );
    wrong(
        "costs.set-clock = \"20 us\"",
        "m.toml:1:19: no kind of core has several `clocks`",
    );
}
