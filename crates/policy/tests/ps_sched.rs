//! PS-Sched-1 and -2: the operating system's work on one PU or core, and programs beside or off it.

use crate::support::{Spec, World, cores};
use perch_core::{
    IrqLoad, Metric, MetricSource, Metrics, Plan, Policy, PuSet, Setting, SettingChoices,
    SettingState, SettingValue, Snapshot, Work, metric::names, snapshot::Unmanaged,
};
use perch_policy::{Method, PsSched, PsSchedConfig};
use proptest::prelude::*;

fn set(text: &str) -> PuSet {
    text.parse().unwrap()
}

fn policy(method: Method, system: &str) -> PsSched {
    let config = PsSchedConfig {
        system: system.to_owned(),
        ..PsSchedConfig::default()
    };
    config.check().unwrap();
    PsSched::new(method, config)
}

/// Four cores of one PU; `program` busy threads of a program and `system` of the operating system.
fn world(program: usize, system: usize) -> World {
    let specs = vec![Spec::busy(0.0); program + system];
    let mut world = World::new(&cores(1, 4, 1), &specs);
    for thread in &mut world.snapshot.threads[program..] {
        thread.info.work = Work::System;
        thread.target = 1;
        thread.activity = 0.01;
    }
    world
}

fn where_to(plan: &Plan, snapshot: &Snapshot) -> Vec<String> {
    let of = |thread: &perch_core::ThreadState| {
        let mut bindings = plan.bindings.iter();
        let binding = bindings.find(|binding| binding.thread == thread.info.id);
        binding.map_or("-".to_owned(), |binding| binding.pus.to_string())
    };
    snapshot.threads.iter().map(of).collect()
}

#[test]
fn the_first_method_keeps_programs_off_the_pu_of_the_operating_system() {
    let world = world(3, 2);
    let plan = policy(Method::One, "pu").decide(&world.snapshot);
    assert_eq!(
        where_to(&plan, &world.snapshot),
        ["1-3", "1-3", "1-3", "0", "0"]
    );
    assert_eq!(plan.own, Some(set("0")));
    assert!(
        plan.remarks.iter().all(|remark| remark.code == "no-clock"),
        "{:?}",
        plan.remarks
    );
}

#[test]
fn the_second_method_lets_one_thread_of_a_program_stay_where_that_is_needed() {
    let mut four = world(4, 1);
    let mut method = policy(Method::Two, "pu");
    let plan = method.decide(&four.snapshot);
    assert_eq!(
        where_to(&plan, &four.snapshot),
        ["0", "1-3", "1-3", "1-3", "0"]
    );
    // The chosen one stays while it is busy, and another takes its place.
    four.snapshot.threads[1].activity = 0.0;
    let plan = method.decide(&four.snapshot);
    assert_eq!(where_to(&plan, &four.snapshot)[0], "0");
    four.snapshot.threads[1].activity = 0.9;
    four.snapshot.threads[0].activity = 0.0;
    let plan = method.decide(&four.snapshot);
    assert_eq!(
        where_to(&plan, &four.snapshot)[..2],
        ["1-3", "1-3"],
        "three have three PUs"
    );
    // With a PU for each, nobody runs beside the operating system.
    let three = world(3, 1);
    let plan = policy(Method::Two, "pu").decide(&three.snapshot);
    assert_eq!(where_to(&plan, &three.snapshot), ["1-3", "1-3", "1-3", "0"]);
}

#[test]
fn each_program_may_have_one_thread_beside_the_operating_system() {
    let mut world = world(6, 1);
    for thread in &mut world.snapshot.threads[3..6] {
        thread.target = 2;
    }
    let plan = policy(Method::Two, "pu").decide(&world.snapshot);
    let places = where_to(&plan, &world.snapshot);
    assert_eq!(places, ["0", "1-3", "1-3", "0", "1-3", "1-3", "0"]);
}

#[test]
fn threads_that_must_be_left_alone_are_left_and_named_with_their_cost() {
    let mut world = world(2, 3);
    let threads = &mut world.snapshot.threads;
    for thread in &mut threads[2..] {
        thread.last_pu = Some(2);
    }
    threads[2].info.work = Work::SystemFixed;
    threads[2].info.name = "kworker/2:1".into();
    threads[3].unmanaged = Some(Unmanaged::PlacedBefore);
    threads[3].info.name = "irqbalance".into();
    let plan = policy(Method::One, "pu").decide(&world.snapshot);
    assert_eq!(
        where_to(&plan, &world.snapshot),
        ["1-3", "1-3", "-", "-", "0"]
    );
    let remark = plan
        .remarks
        .iter()
        .find(|remark| remark.code == "not-moved")
        .unwrap();
    for part in [
        "2.0 %",
        "kworker/2:1 (the kernel keeps it",
        "irqbalance (it was bound before)",
    ] {
        assert!(remark.text.contains(part), "{}", remark.text);
    }
}

#[test]
fn a_program_with_more_threads_than_pus_is_told_how_many_to_start() {
    let world = world(4, 0);
    let plan = policy(Method::One, "pu").decide(&world.snapshot);
    let remark = plan
        .remarks
        .iter()
        .find(|remark| remark.code == "crowded")
        .unwrap();
    assert!(remark.text.contains("OMP_NUM_THREADS=3"), "{}", remark.text);
}

#[test]
fn interrupts_and_queues_go_unless_an_administrator_has_said_where() {
    let mut world = world(1, 0);
    let irq = |irq, allowed: &str, pu| IrqLoad {
        irq,
        rates: vec![(pu, 100.0)],
        allowed: set(allowed),
        bound: None,
    };
    world.snapshot.irqs = vec![
        irq(4, "0-3", 2),
        irq(5, "2", 2),
        irq(6, "", 3),
        irq(7, "0", 0),
    ];
    let queues = |before: &str| SettingState {
        setting: Setting::WorkQueues,
        governs: set("0-3"),
        before: SettingValue::Pus(set(before)),
        choices: SettingChoices::Pus,
        given: None,
        foreign: false,
    };
    world.snapshot.settings = vec![queues("0-7")];
    let plan = policy(Method::One, "pu").decide(&world.snapshot);
    let moved: Vec<(u32, String)> = plan
        .irqs
        .iter()
        .map(|irq| (irq.irq, irq.pus.to_string()))
        .collect();
    assert_eq!(moved, [(4, "0".to_owned())]);
    assert_eq!(plan.settings.len(), 1);
    assert_eq!(plan.settings[0].value, SettingValue::Pus(set("0")));
    let remark = plan
        .remarks
        .iter()
        .find(|remark| remark.code == "not-moved")
        .unwrap();
    assert!(
        remark.text.contains("200 interrupts") && remark.text.ends_with("IRQ 5, 6"),
        "{}",
        remark.text
    );
    world.snapshot.settings = vec![queues("0-2")];
    let plan = policy(Method::One, "pu").decide(&world.snapshot);
    assert_eq!(plan.settings, []);
}

#[test]
fn with_one_pu_nothing_is_done() {
    let world = World::new(&cores(1, 1, 1), &[Spec::busy(0.0)]);
    let plan = policy(Method::One, "pu").decide(&world.snapshot);
    assert_eq!(plan.bindings, []);
    assert_eq!(plan.remarks[0].code, "nothing-to-place");
    let two = World::new(&cores(1, 1, 2), &[Spec::busy(0.0)]);
    assert_eq!(
        policy(Method::One, "core").decide(&two.snapshot).bindings,
        []
    );
    let plan = policy(Method::One, "pu").decide(&two.snapshot);
    assert_eq!(where_to(&plan, &two.snapshot), ["1"]);
}

#[test]
fn wrong_options_say_what_to_write() {
    let with = |system: &str, clock: &str| {
        let config = PsSchedConfig {
            system: system.to_owned(),
            clock: clock.to_owned(),
            ..PsSchedConfig::default()
        };
        config.check()
    };
    for clock in ["", "keep", "75%", "86 %", "2.1GHz", "900MHz", "100%"] {
        assert_eq!(with("core", clock), Ok(()), "{clock}");
    }
    for clock in [
        "0%", "101%", "fast", "-1GHz", "nan%", "infGHz", "2.1", "GHz",
    ] {
        let error = with("pu", clock).unwrap_err();
        assert!(error.contains("75%") && error.contains(clock), "{error}");
    }
    for system in ["", "socket", "1-0", "0,,"] {
        let error = with(system, "").unwrap_err();
        assert!(error.contains("`core`"), "{error}");
    }
}

proptest! {
    /// Whatever there is: threads of programs and of the operating system share PUs only as the method says, and every
    /// binding is one that the engine may make.
    #[test]
    fn work_is_separated(
        pus in 1usize..9,
        program in 0usize..12,
        system in 0usize..12,
        two: bool,
        core: bool,
        masks in proptest::collection::vec(0u32..256, 24),
        odd in proptest::collection::vec(0u8..8, 24),
    ) {
        let specs = vec![Spec::busy(0.0); program + system];
        let mut world = World::new(&cores(1, pus, 2), &specs);
        let usable = world.snapshot.topology.usable();
        for (at, thread) in world.snapshot.threads.iter_mut().enumerate() {
            if at >= program {
                thread.info.work = Work::System;
                thread.target = 9;
            } else {
                thread.target = u32::from(odd[at] > 3);
            }
            let mask: PuSet = (0..8).filter(|pu| masks[at] >> pu & 1 == 1).collect();
            if !mask.is_disjoint(&usable) {
                thread.allowed = mask.and(&usable);
            }
            match odd[at] {
                0 => thread.unmanaged = Some(Unmanaged::PlacedBefore),
                1 if at >= program => thread.info.work = Work::SystemFixed,
                2 => thread.activity = 0.0,
                _ => {}
            }
        }
        let method = if two { Method::Two } else { Method::One };
        let mut policy = policy(method, if core { "core" } else { "pu" });
        for _ in 0..3 {
            let plan = policy.decide(&world.snapshot);
            let os = plan.own.clone().unwrap_or_default();
            let mut beside = std::collections::BTreeMap::new();
            let mut seen = std::collections::BTreeSet::new();
            for binding in &plan.bindings {
                let thread = world.snapshot.thread(binding.thread).unwrap();
                prop_assert!(seen.insert(binding.thread));
                prop_assert!(thread.unmanaged.is_none() && thread.info.work != Work::SystemFixed);
                prop_assert!(!binding.pus.is_empty() && binding.pus.is_subset(&thread.allowed));
                if !thread.info.work.is_program() {
                    prop_assert!(binding.pus.is_subset(&os));
                } else if !binding.pus.is_disjoint(&os) {
                    prop_assert_eq!(method, Method::Two);
                    *beside.entry(thread.target).or_insert(0) += 1;
                }
            }
            prop_assert!(beside.values().all(|count| *count == 1), "{:?}", beside);
            // What may run on either side is bound to one.
            for thread in &world.snapshot.threads {
                let either = !thread.allowed.is_disjoint(&os) && !thread.allowed.is_subset(&os);
                let ours = thread.unmanaged.is_none() && thread.info.work != Work::SystemFixed;
                if either && ours && plan.own.is_some() {
                    prop_assert!(seen.contains(&thread.info.id));
                }
            }
            world.apply(&plan);
        }
    }
}

fn searching() -> PsSched {
    let config = PsSchedConfig {
        clock: "search".to_owned(),
        goal: "energy".to_owned(),
        ..PsSchedConfig::default()
    };
    config.check().unwrap();
    PsSched::new(Method::Two, config)
}

/// The highest clock of PU 1, in kHz.
const CLOCK: u64 = 2_000_000;

fn with_clocks(world: &mut World) {
    let state = |pu: u32| SettingState {
        setting: Setting::MaxFrequency(pu),
        governs: PuSet::single(pu),
        before: SettingValue::Number(CLOCK),
        choices: SettingChoices::Range(CLOCK / 4, CLOCK),
        given: None,
        foreign: false,
    };
    world.snapshot.settings = (0..4).map(state).collect();
}

fn counted(world: &mut World, instructions: f64) {
    for thread in &mut world.snapshot.threads {
        let metric = Metric {
            value: instructions,
            confidence: 1.0,
            source: MetricSource::Counters,
        };
        thread.metrics.set(names::INSTRUCTIONS.into(), metric);
    }
}

#[test]
fn a_search_needs_energy_and_instructions_and_says_which_it_lacks() {
    let mut world = world(4, 1);
    with_clocks(&mut world);
    let told = |world: &World| {
        let plan = searching().decide(&world.snapshot);
        assert!(plan.settings.is_empty(), "{:?}", plan.settings);
        let mut remarks = plan.remarks.into_iter();
        remarks
            .find(|remark| remark.code == "no-search")
            .map(|remark| remark.text)
    };
    let text = told(&world).unwrap();
    assert!(text.contains("no counter of energy"), "{text}");
    world.snapshot.energy = Some(30.0);
    let text = told(&world).unwrap();
    assert!(text.contains("no hardware counters"), "{text}");
    counted(&mut world, 1e9);
    assert_eq!(told(&world), None);
    let told = |clock: &str, goal: &str| {
        let config = PsSchedConfig {
            clock: clock.to_owned(),
            goal: goal.to_owned(),
            ..PsSchedConfig::default()
        };
        config.check().unwrap_err()
    };
    assert!(told("75%", "energy").contains("for clock = \"search\""));
    assert!(told("search", "edp").contains("`ed`"));
}

/// All the time goes to memory, so that the pace does not depend on the clock: the lowest takes the least energy.
#[test]
fn a_search_holds_the_clock_of_least_cost() {
    let mut world = world(4, 1);
    with_clocks(&mut world);
    let mut policy = searching();
    let mut clock = CLOCK;
    for _ in 0..100 {
        world.snapshot.energy = Some(10.0 + 20.0 * (clock as f64 / CLOCK as f64).powi(3));
        counted(&mut world, 1e9);
        let plan = policy.decide(&world.snapshot);
        let mut settings = plan.settings.iter();
        let of_pu = settings.find(|binding| binding.setting == Setting::MaxFrequency(1));
        clock = match of_pu.map(|binding| &binding.value) {
            Some(SettingValue::Number(clock)) => *clock,
            _ => CLOCK,
        };
    }
    // Below a third of the clock, less than 2 % can be saved.
    assert!(clock < CLOCK / 2, "{clock}");
}

#[test]
fn a_period_in_which_nothing_runs_spoils_no_search() {
    let mut world = world(4, 1);
    with_clocks(&mut world);
    let mut policy = searching();
    let mut clock = CLOCK;
    for period in 0..300 {
        let idle = period % 3 == 2;
        world.snapshot.energy = Some(10.0 + 20.0 * (clock as f64 / CLOCK as f64).powi(3));
        counted(&mut world, 1e9);
        let mut snapshot = world.snapshot.clone();
        if idle {
            for thread in &mut snapshot.threads {
                thread.activity = 0.0;
                thread.metrics = Metrics::default();
            }
        }
        let plan = policy.decide(&snapshot);
        assert!(
            plan.remarks.iter().all(|remark| remark.code != "no-search"),
            "{:?}",
            plan.remarks
        );
        let mut settings = plan.settings.iter();
        let of_pu = settings.find(|binding| binding.setting == Setting::MaxFrequency(1));
        let now = match of_pu.map(|binding| &binding.value) {
            Some(SettingValue::Number(clock)) => *clock,
            _ => CLOCK,
        };
        assert!(!idle || now == clock, "{clock} {now}");
        clock = now;
    }
    assert!(clock < CLOCK / 2, "{clock}");
}
