//! Energy and cache occupancy, against what adds up.

use crate::support::{compute, machine, mix, system, workload};
use perch_core::{EventChoice, EventPlan, EventSet, Machine};
use perch_sim::{
    energy::{EnergyModel, KindEnergy},
    machine::SimMachine,
    model::{MachineModel, Multithreading, Op},
    system::System,
    units::SECOND,
    workload::Step,
};
use proptest::prelude::*;
use std::{collections::BTreeSet, time::Duration};

fn energy(ops: f64, active: f64, idle: f64, base: f64) -> EnergyModel {
    EnergyModel {
        kinds: vec![KindEnergy {
            ops: [ops; Op::COUNT],
            active,
            idle,
            voltage: 1.0,
        }],
        caches: [0.0; 3],
        transfer: 0.0,
        base,
    }
}

fn finish(mut system: System) -> System {
    system.run(SECOND).unwrap();
    assert!(system.is_done());
    system
}

fn alone(machine: MachineModel) -> System {
    let alu = mix("alu", &[(Op::Alu, 1.0)], 64);
    finish(system(
        machine,
        workload(vec![alu], vec![vec![compute(0, 100_000)]]),
        1,
    ))
}

#[track_caller]
fn near(value: f64, wanted: f64) {
    assert!((value / wanted - 1.0).abs() < 1e-6, "{value}, not {wanted}");
}

#[test]
fn energy_is_that_of_instructions_cores_and_base() {
    let mut one = machine(2, 1, Multithreading::FineGrained);
    one.energy = Some(energy(0.5, 2.0, 0.25, 10.0));
    let system = alone(one.clone());
    let stats = system.energy().unwrap();
    near(stats.dynamic, 100_000.0 * 0.5e-9);
    near(stats.base, 10.0 * stats.seconds);
    let busy = system.threads()[0].cpu_time as f64 * 1e-12;
    near(
        stats.cores,
        2.0 * busy + 0.25 * (2.0 * stats.seconds - busy),
    );
    near(stats.joules, stats.dynamic + stats.cores + stats.base);
    near(stats.watts, stats.joules / stats.seconds);
    near(stats.energy_delay, stats.joules * stats.seconds);
    // The thread had its core to itself.
    near(
        system.threads()[0].energy,
        (stats.dynamic + 2.0 * busy) * 1e9,
    );

    // Throttled, the same instructions take as much; the core's own power flows for twice as long.
    one.kinds[0].duty = 0.5;
    let throttled = alone(one.clone()).energy().unwrap();
    near(throttled.dynamic, stats.dynamic);
    assert!(
        (throttled.cores / stats.cores - 2.0).abs() < 0.02,
        "{throttled:?} {stats:?}"
    );

    // Energy of events goes with the square of the voltage, power with the voltage.
    if let Some(energy) = &mut one.energy {
        energy.kinds[0].voltage = 0.8;
    }
    let lower = alone(one).energy().unwrap();
    near(lower.dynamic, throttled.dynamic * 0.64);
    near(lower.cores, throttled.cores * 0.8);
}

#[test]
fn accesses_and_lines_take_energy_where_they_happen() {
    let mut one = machine(1, 1, Multithreading::FineGrained);
    let mut model = energy(0.0, 0.0, 0.0, 0.0);
    (model.caches, model.transfer) = ([0.1, 0.7, 0.0], 20.0);
    one.energy = Some(model);
    let loads = mix("loads", &[(Op::Load, 1.0)], 256 << 10);
    let system = finish(system(
        one,
        workload(vec![loads], vec![vec![compute(0, 20_000)]]),
        1,
    ));
    let counted = system.threads()[0].counters;
    assert!(counted.bus_transactions > 0);
    let looks = (counted.data_misses[0] + counted.fetch_misses[0]) as f64;
    let wanted = 20_000.0 * 0.1 + looks * 0.7 + counted.bus_transactions as f64 * 20.0;
    near(system.threads()[0].energy, wanted);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// What threads took, idle cores and the base are all there is, however threads share cores.
    #[test]
    fn energy_adds_up(
        cores in 1usize..4,
        contexts in 1u32..4,
        lengths in proptest::collection::vec((1u64..20_000, 0u64..3), 1..10),
        seed in any::<u64>(),
    ) {
        let mut one = machine(cores, contexts, Multithreading::Simultaneous);
        one.energy = Some(energy(0.3, 1.5, 0.0, 0.0));
        let mixes = vec![mix("m", &[(Op::Alu, 0.6), (Op::Load, 0.4)], 32 << 10)];
        let steps = lengths.iter().map(|(length, sleep)| vec![compute(0, *length), Step::Sleep(sleep * 500_000 + 1), compute(0, *length)]);
        let steps = steps.collect();
        let system = finish(system(one, workload(mixes, steps), seed));
        let stats = system.energy().unwrap();
        let threads: f64 = system.threads().iter().map(|thread| thread.energy * 1e-9).sum();
        prop_assert!((threads / stats.joules - 1.0).abs() < 1e-6, "{threads} {stats:?}");
        let instructions: u64 = lengths.iter().map(|(length, _)| 2 * length).sum();
        prop_assert!((stats.dynamic / (instructions as f64 * 0.3e-9) - 1.0).abs() < 1e-6);
    }
}

fn plan(events: &[&str]) -> EventPlan {
    let event = |name: &&str| EventChoice {
        alias: (*name).into(),
        spellings: vec![format!("sim::{name}")],
        pmu: None,
    };
    EventPlan {
        limits: None,
        sets: vec![EventSet::new("all", events.iter().map(event).collect())],
    }
}

#[test]
fn what_a_thread_holds_of_the_cache_is_its_working_set() {
    let large = 256 << 10;
    let mixes = vec![
        mix("large", &[(Op::Load, 1.0)], large),
        mix("small", &[(Op::Load, 1.0)], 4 << 10),
    ];
    let steps = vec![vec![compute(0, u64::MAX)], vec![compute(1, u64::MAX)]];
    let system = system(
        machine(2, 1, Multithreading::FineGrained),
        workload(mixes, steps),
        1,
    );
    let mut machine = SimMachine::new(system, None);
    machine.configure(&plan(&["LLC_OCCUPANCY"])).unwrap();
    machine.wait(Duration::from_secs(2)).unwrap();
    let seen = machine.observe().unwrap();
    let held: Vec<f64> = seen
        .threads
        .iter()
        .map(|thread| thread.counts[0].value)
        .collect();
    // The data, and the code where it missed the first level.
    assert!((held[0] / large as f64 - 1.0).abs() < 0.02, "{held:?}");
    assert!((4096.0..=8192.0).contains(&held[1]), "{held:?}");
    // The machine's file does not give its energy, so it is not counted.
    machine.configure(&plan(&["CYCLES", "ENERGY_NJ"])).unwrap();
    machine.wait(Duration::from_millis(1)).unwrap();
    let seen = machine.observe().unwrap();
    let counts: Vec<&str> = seen.threads[0]
        .counts
        .iter()
        .map(|count| &*count.alias)
        .collect();
    assert_eq!(counts, ["CYCLES"]);
}

#[test]
fn energy_is_counted_by_period() {
    let mut one = machine(1, 1, Multithreading::FineGrained);
    one.energy = Some(energy(2.0, 0.0, 0.0, 0.0));
    let alu = mix("alu", &[(Op::Alu, 1.0)], 64);
    let mut machine = SimMachine::new(
        system(
            one,
            workload(vec![alu], vec![vec![compute(0, u64::MAX)]]),
            1,
        ),
        None,
    );
    machine
        .configure(&plan(&["INSTRUCTIONS", "ENERGY_NJ"]))
        .unwrap();
    for _ in 0..3 {
        machine.wait(Duration::from_millis(100)).unwrap();
        let seen = machine.observe().unwrap();
        let counts = &seen.threads[0].counts;
        assert!(
            (counts[1].value - 2.0 * counts[0].value).abs() <= 1.0,
            "{counts:?}"
        );
    }
}

/// Threads come and go between two observations: each is reported once, and its end once.
#[test]
fn every_end_is_told_once() {
    let text = "about = \"waves\"\n[mixes.m]\nshares = { alu = 1 }\n[[programs]]\nname = \"p\"\n[[programs.threads]]\nname = \"main\"\nrepeat = 60\n\
        steps = [{ spawn = \"child\", count = 5 }, { join = \"child\" }]\n\
        [[programs.threads]]\nname = \"child\"\ncount = 0\nsteps = [{ compute = \"m\", instructions = 5_000 }]\n";
    let model = perch_sim::config::workload_from_text(text, "waves.toml".as_ref()).unwrap();
    let mut machine = SimMachine::new(
        system(machine(2, 2, Multithreading::Simultaneous), model, 1),
        None,
    );
    machine.configure(&plan(&["INSTRUCTIONS"])).unwrap();
    let (mut ended, mut instructions) = (Vec::new(), 0.0);
    while !machine.system().is_done() {
        machine.wait(Duration::from_millis(7)).unwrap();
        let seen = machine.observe().unwrap();
        ended.extend(seen.ended.iter().map(|thread| thread.tid));
        instructions += seen
            .threads
            .iter()
            .map(|thread| thread.counts[0].value)
            .sum::<f64>();
    }
    assert_eq!(instructions, 60.0 * 5.0 * 5_000.0);
    assert_eq!(ended.iter().collect::<BTreeSet<_>>().len(), 301);
    assert_eq!(ended.len(), 301);
}
