//! The model of Linux 2.4's scheduler does what its source says in cases with a known result.

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
        scheduler: SchedulerKind::Linux24,
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

/// "Prioritize an idle package over an idle CPU" (paper 001, appendix).
#[test]
fn a_core_whose_contexts_are_both_idle_comes_first() {
    let xeon = || old(find_machine("intel-xeon-ht").unwrap());
    let packages = xeon().cores.len();
    let mut beginnings = BTreeSet::new();
    for seed in 0..10 {
        let mut system = at_interval(xeon(), endless(packages), seed);
        system.run(1).unwrap();
        let pus = system.threads().iter().map(|thread| thread.last_pu);
        let pus: Vec<u32> = pus.collect();
        beginnings.insert(pus.clone());
        let cores: BTreeSet<u32> = pus.iter().map(|pu| pu / 2).collect();
        // The shell keeps its own package from being idle until it waits.
        assert!(cores.len() + 1 >= packages, "seed {seed}: {pus:?}");
        let all: BTreeSet<u32> = pus.iter().copied().collect();
        assert_eq!(all.len(), packages, "seed {seed}: {pus:?}");
    }
    assert!(beginnings.len() > 1, "{beginnings:?}");
}

/// Three on two PUs get two thirds of one each, as all have used up their ticks before any gets new ones.
#[test]
fn threads_share_all_pus_evenly() {
    let mut system = system(cores(2), endless(3), 1);
    system.run(6_000 * MS).unwrap();
    for time in cpu_times(&system) {
        let share = time / (6_000 * MS) as f64;
        assert!((0.62..0.71).contains(&share), "{share}");
    }
    let moves: u64 = system
        .threads()
        .iter()
        .map(|thread| thread.migrations)
        .sum();
    assert!(moves > 10, "{moves}");
}

/// Six ticks at nice value 0, one at 19, eleven at -20: the thread that has the PU keeps it for all of them. Of equals, the
/// one that has it when all get new ticks keeps it for those too, as its address space is there.
#[test]
fn slices_are_as_long_as_nice_values_say() {
    for (nice, ticks) in [(0, 6.0), (19, 1.0), (-20, 11.0)] {
        let mut system = system(cores(1), endless(2), 1);
        system.run(1).unwrap();
        system.set_nice(1, nice);
        system.run(8_400 * MS).unwrap();
        let times = cpu_times(&system);
        let ratio = times[1] / times[0];
        assert!((ratio / (ticks / 6.0) - 1.0).abs() < 0.1, "{nice}: {ratio}");
        let slice = times[0] / system.threads()[0].switches as f64 / MS as f64;
        assert!(nice != 0 || (slice - 120.0).abs() < 8.0, "{slice} ms");
    }
}

/// A thread that sleeps keeps half of what is left at each renewal, and takes the PU when it wakes.
#[test]
fn a_thread_that_wakes_takes_the_pu_of_one_that_computes() {
    let asleep = [compute(0, 100), Step::Sleep(200 * MS)];
    let steps: Vec<Step> = asleep.iter().cycle().take(40).cloned().collect();
    let mut system = system(
        cores(1),
        threads(vec![vec![compute(0, u64::MAX)], steps]),
        1,
    );
    system.run(4_000 * MS).unwrap();
    let sleeper = &system.threads()[1];
    assert!(sleeper.switches > 15, "{}", sleeper.switches);
    // The first wait apart, it never waits for a slice of 60 ms to end.
    assert!(sleeper.wait_time < 70 * MS, "{}", sleeper.wait_time);
}

/// A thread stays on its PU: without others that wait, nothing moves it.
#[test]
fn nobody_moves_without_need() {
    let mut system = at_interval(old(find_machine("core2-quad").unwrap()), endless(4), 3);
    system.run(200_000 * MS).unwrap();
    assert!(system.threads().iter().all(|thread| thread.migrations == 0));
    // Also where ticks are passed over at the interval level, they are counted.
    let share = cpu_times(&system)
        .into_iter()
        .map(|time| time / system.now() as f64);
    assert!(share.into_iter().all(|share| share > 0.99));
}

#[test]
fn a_thread_whose_mask_excludes_its_pu_moves_at_once() {
    let mut system = system(cores(2), endless(2), 1);
    system.run(10 * MS).unwrap();
    let pu = system.threads()[0].last_pu;
    system.set_mask(0, PuSet::single(1 - pu));
    let places = |system: &System| -> Vec<Option<u32>> {
        let threads = system.threads().iter();
        threads
            .map(|thread| thread.place.map(|place| place.pu))
            .collect()
    };
    system.run(2_000 * MS).unwrap();
    // The other one has either PU; no PU is idle meanwhile.
    let times = cpu_times(&system);
    assert!(
        times.iter().sum::<f64>() > 1.97 * (2_000 * MS) as f64,
        "{times:?}"
    );
    let at = places(&system);
    assert!(at[0].is_none_or(|at| at == 1 - pu), "{at:?}");
    system.set_mask(1, PuSet::single(1 - pu));
    system.run(4_000 * MS).unwrap();
    assert!(
        system
            .threads()
            .iter()
            .all(|thread| thread.last_pu == 1 - pu)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// No PU is idle while a thread waits that may run there, whatever sleeps, ends and masks there are; and each thread
    /// is on one PU at most.
    #[test]
    fn no_pu_is_idle_while_somebody_waits_for_it(
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
            let at = |pu: u32| all.iter().filter(|thread| thread.place.is_some_and(|place| place.pu == pu)).count();
            for pu in 0..pus as u32 {
                prop_assert!(at(pu) <= 1);
                let waits = all.iter().any(|thread| thread.is_runnable() && thread.place.is_none() && thread.mask.contains(pu));
                prop_assert!(at(pu) == 1 || !waits, "PU {pu} is idle");
            }
        }
    }
}
