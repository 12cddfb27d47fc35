//! Energy and cache occupancy, against what adds up.

use crate::support::{compute, machine, mix, plan, system, workload};
use perch_core::{Machine, Reading};
use perch_sim::{
    energy::Energy,
    machine::SimMachine,
    model::{EnergyModel, KindEnergy, MachineModel, Multithreading, Op, OperatingPoint},
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
            issue: [0.0; Op::COUNT],
            caches: None,
            active,
            idle,
            voltage: 1.0,
            voltages: Vec::new(),
        }],
        caches: [0.0; 3],
        transfer: 0.0,
        background: 0.0,
        uncore: 0.0,
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
    near(stats.parts.base, 10.0 * stats.seconds);
    let busy = system.threads()[0].cpu_time as f64 * 1e-12;
    near(
        stats.parts.cores,
        2.0 * busy + 0.25 * (2.0 * stats.seconds - busy),
    );
    near(
        stats.joules,
        stats.dynamic + stats.parts.cores + stats.parts.base,
    );
    near(stats.watts, stats.joules / stats.seconds);
    near(stats.energy_delay, stats.joules * stats.seconds);
    // The thread had its core to itself.
    near(
        system.threads()[0].energy.total(),
        (stats.dynamic + 2.0 * busy) * 1e9,
    );

    // Throttled, the same instructions take as much; the core's own power flows for twice as long.
    one.kinds[0].duty = 0.5;
    let throttled = alone(one.clone()).energy().unwrap();
    near(throttled.dynamic, stats.dynamic);
    assert!(
        (throttled.parts.cores / stats.parts.cores - 2.0).abs() < 0.02,
        "{throttled:?} {stats:?}"
    );

    // Energy of events goes with the square of the voltage, power with the voltage.
    if let Some(energy) = &mut one.energy {
        energy.kinds[0].voltage = 0.8;
    }
    let lower = alone(one).energy().unwrap();
    near(lower.dynamic, throttled.dynamic * 0.64);
    near(lower.parts.cores, throttled.parts.cores * 0.8);
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
    near(system.threads()[0].energy.total(), wanted);
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
        let threads: f64 = system.threads().iter().map(|thread| thread.energy.total() * 1e-9).sum();
        prop_assert!((threads / stats.joules - 1.0).abs() < 1e-6, "{threads} {stats:?}");
        let instructions: u64 = lengths.iter().map(|(length, _)| 2 * length).sum();
        prop_assert!((stats.dynamic / (instructions as f64 * 0.3e-9) - 1.0).abs() < 1e-6);
    }
}

/// A machine of two packages and nodes, where every part takes something.
fn all_parts(contexts: u32) -> MachineModel {
    let mut one = machine(2, contexts, Multithreading::Simultaneous);
    let mut model = energy(0.3, 1.5, 0.2, 3.0);
    model.kinds[0].issue = [0.11; Op::COUNT];
    model.kinds[0].voltages = vec![(500_000, 0.8), (1_000_000, 1.0)];
    (model.caches, model.transfer) = ([0.05, 0.4, 0.0], 7.0);
    (model.background, model.uncore) = (0.6, 0.9);
    one.kinds[0].clocks = vec![500_000, 1_000_000];
    one.energy = Some(model);
    (one.cores[1].package, one.cores[1].numa_node) = (1, 1);
    one.memory.distance = vec![vec![1.0, 1.5], vec![1.5, 1.0]];
    one
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// The parts are all there is, and the PUs have all of it, however threads come and go and clocks change.
    #[test]
    fn parts_and_pus_add_up(
        contexts in 1u32..3,
        lengths in proptest::collection::vec((1u64..20_000, 0u64..3), 1..8),
        steps in proptest::collection::vec((1u64..60_000_000, 0usize..2, any::<bool>()), 1..12),
        from in 0usize..4,
        seed in any::<u64>(),
    ) {
        let mixes = vec![mix("m", &[(Op::Alu, 0.6), (Op::Load, 0.4)], 256 << 10)];
        let work = lengths.iter().map(|(length, sleep)| vec![compute(0, *length), Step::Sleep(sleep * 500_000 + 1), compute(0, *length)]);
        let mut system = system(all_parts(contexts), workload(mixes, work.collect()), seed);
        let mut before = (0, Energy::default());
        for (at, (time, core, high)) in steps.into_iter().enumerate() {
            system.run(system.now() + time).unwrap();
            if at == from {
                system.measure_energy_from(system.now());
                before = (system.now(), of_pus(&system));
            }
            let clock = if high { 1_000_000 } else { 500_000 };
            system.set_point(core, OperatingPoint { clock, throttling: 0 });
        }
        system.run(system.now() + 1).unwrap();
        let stats = system.energy().unwrap();
        let parts = stats.parts;
        let sum = parts.issue + parts.units + parts.caches.iter().sum::<f64>() + parts.transfers
            + parts.cores + parts.background + parts.uncore + parts.base;
        let near = |one: f64, other: f64| (one - other).abs() <= 1e-9 * other.abs() + 1e-18;
        prop_assert!(near(sum, stats.joules), "{stats:?}");
        // No time passes once all threads have ended.
        let takes = stats.seconds > 0.0;
        prop_assert!([parts.cores, parts.background, parts.uncore].iter().all(|part| (*part > 0.0) == takes), "{stats:?}");
        let pus = (of_pus(&system) - before.1).times(1e-9);
        for (of_pus, all) in [
            (pus.total(), stats.joules),
            (pus.dynamic(), stats.dynamic),
            (pus.cores, parts.cores),
            (pus.background, parts.background),
            (pus.uncore, parts.uncore),
            (pus.base, parts.base),
        ] {
            prop_assert!((of_pus - all).abs() <= 1e-6 * all + 1e-15, "{of_pus} {all}: {pus:?} {stats:?}");
        }
        let seconds = (system.now() - before.0) as f64 / SECOND as f64;
        prop_assert!(near(stats.seconds, seconds));
        prop_assert!((parts.uncore - 2.0 * 0.9 * seconds).abs() < 1e-12, "two packages: {parts:?}");
        prop_assert!((parts.background - 2.0 * 0.6 * seconds).abs() < 1e-12, "two nodes: {parts:?}");
    }
}

fn of_pus(system: &System) -> Energy {
    let mut sum = Energy::default();
    for deed in system.pus() {
        sum += deed.energy;
        sum += deed.rest;
    }
    sum
}

/// A lower clock has a lower voltage: the same instructions take its square less, and the core's power goes with it.
#[test]
fn a_lower_clock_takes_less_of_each_instruction() {
    let alu = mix("alu", &[(Op::Alu, 1.0)], 64);
    let work = workload(vec![alu], vec![vec![compute(0, u64::MAX)]]);
    let mut system = system(all_parts(1), work, 1);
    const TIME: u64 = SECOND / 10_000;
    system.run(TIME).unwrap();
    let each = |system: &mut System| {
        system.measure_energy_from(system.now());
        let done = system.threads()[0].counters.instructions();
        system.run(system.now() + TIME).unwrap();
        let done = (system.threads()[0].counters.instructions() - done) as f64;
        let parts = system.energy().unwrap().parts;
        (parts.units / done, parts.issue / done, parts.cores)
    };
    let high = each(&mut system);
    for core in 0..2 {
        let throttling = 0;
        system.set_point(
            core,
            OperatingPoint {
                clock: 500_000,
                throttling,
            },
        );
    }
    let low = each(&mut system);
    near(high.0, 0.3e-9);
    near(high.1, 0.11e-9);
    near(low.0 / high.0, 0.64);
    near(low.1 / high.1, 0.64);
    near(low.2 / high.2, 0.8);
}

/// Every part is counted at the same moment as instructions are; what packages take comes as a sensor's reading.
#[test]
fn parts_of_energy_are_counters_of_a_period() {
    let load = mix("m", &[(Op::Alu, 0.6), (Op::Load, 0.4)], 256 << 10);
    let work = workload(vec![load], vec![vec![compute(0, u64::MAX)]]);
    let mut machine = SimMachine::new(system(all_parts(1), work, 1), None);
    let of_threads = [
        "INSTRUCTIONS",
        "ENERGY_NJ",
        "ENERGY_ISSUE_NJ",
        "ENERGY_UNITS_NJ",
        "ENERGY_CACHES_NJ",
        "ENERGY_MEMORY_NJ",
        "ENERGY_CORES_NJ",
    ];
    let rest = [
        "ENERGY_IDLE_NJ",
        "ENERGY_BACKGROUND_NJ",
        "ENERGY_UNCORE_NJ",
        "ENERGY_BASE_NJ",
    ];
    machine
        .configure(&plan(&[&of_threads[..], &rest].concat()))
        .unwrap();
    machine.watch_pus(true).unwrap();
    let mut all = 0.0;
    for _ in 0..3 {
        machine.wait(Duration::from_millis(200)).unwrap();
        let seen = machine.observe().unwrap();
        let counts: Vec<f64> = seen.threads[0]
            .counts
            .iter()
            .map(|count| count.value)
            .collect();
        assert_eq!(counts.len(), of_threads.len(), "what is the PUs' only");
        assert!(
            (counts[1] - counts[2..].iter().sum::<f64>()).abs() <= 5.0,
            "{counts:?}"
        );
        assert!((counts[3] - 0.3 * counts[0]).abs() <= 1.0, "{counts:?}");
        assert!((counts[2] - 0.11 * counts[0]).abs() <= 1.0, "{counts:?}");
        let of_pus = seen.pus.iter().flat_map(|pu| &pu.counts);
        let counted = |count: &&perch_core::Count| {
            *count.alias == *"ENERGY_NJ" || rest.contains(&&*count.alias)
        };
        all += of_pus.filter(counted).map(|count| count.value).sum::<f64>();
        // 0.2 ms of two packages, whose cores take 1.5 and 0.2 W.
        let packages: Vec<(u32, f64)> = seen
            .readings
            .iter()
            .filter_map(Reading::package_energy)
            .collect();
        assert_eq!(packages.len(), 2);
        let busy = seen.threads[0].last_pu.unwrap();
        for (package, joules) in packages {
            let steady = 0.2e-3 * (0.9 + if package == busy { 1.5 } else { 0.2 });
            let events = 1e-9 * counts[2..5].iter().sum::<f64>();
            let wanted = steady + if package == busy { events } else { 0.0 };
            assert!((joules / wanted - 1.0).abs() < 0.01, "{joules} {wanted}");
        }
    }
    let stats = machine.system().energy().unwrap();
    assert!((all - stats.joules * 1e9).abs() < 100.0, "{all} {stats:?}");
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
