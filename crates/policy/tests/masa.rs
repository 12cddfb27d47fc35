//! What the policy `masa` promises, and the paper's own example by hand.

mod support;

use perch_core::{Metric, MetricName, MetricSource, Plan, Policy, PuSet, ThreadState};
use perch_policy::{Calibration, Masa, MasaConfig, masa::Variant};
use proptest::prelude::*;
use std::collections::BTreeMap;
use support::{Spec, World, any_cores, any_threads, cores, id};

/// Table 6: what one program alone does in 5 seconds, as limits in events per second.
const PAPER: &str = r#"
machine = "two packages of Intel Xeon with Hyper-Threading (MASA, table 6)"
date = "2002-06-01"

[[metric]]
name = "l2_load"
priority = 1
share = "l2"
limit = 9385179.8
ratio = 9.5049e-6

[[metric]]
name = "fp_load"
priority = 2
share = "fp"
limit = 21397063.2
ratio = 9.2411e-6
"#;

/// Table 3: L2 misses and FP micro-operations of 5 seconds.
const INT_A: (f64, f64) = (4_604_056.0, 61.0);
const INT_B: (f64, f64) = (5_219_503.0, 105.0);
const FP_A: (f64, f64) = (1_434_903.0, 62_467_839.0);
const FP_B: (f64, f64) = (1_355_739.0, 60_287_239.0);
const L2C_A: (f64, f64) = (39_424_290.0, 55_080.0);
const L2C_B: (f64, f64) = (34_522_937.0, 81_583.0);

fn paper(variant: Variant) -> Masa {
    let config = MasaConfig {
        variant,
        ..MasaConfig::default()
    };
    let calibration = Calibration::parse(PAPER, "paper.toml").unwrap();
    Masa::with_calibration(config, &calibration).unwrap()
}

fn learning() -> Masa {
    Masa::new(MasaConfig::default()).unwrap()
}

fn set(thread: &mut ThreadState, name: &str, value: f64) {
    let metric = Metric {
        value,
        confidence: 1.0,
        source: MetricSource::Counters,
    };
    thread.metrics.set(MetricName::from(name), metric);
}

/// Threads on PUs 0, 1, …, busy all the time, with these events of 5 seconds.
fn world(packages: u32, smt: usize, loads: &[(f64, f64)]) -> World {
    let spec = |at| Spec {
        share: None,
        activity: 1.0,
        last_pu: at,
        ..Spec::busy(0.0)
    };
    let specs: Vec<Spec> = (0..loads.len()).map(spec).collect();
    let mut world = World::new(&cores(packages, 1, smt), &specs);
    for (at, (l2, fp)) in loads.iter().enumerate() {
        load(&mut world, at, (*l2, *fp));
    }
    world
}

fn load(world: &mut World, at: usize, (l2, fp): (f64, f64)) {
    let thread = &mut world.snapshot.threads[at];
    set(thread, "l2_load", l2 / 5.0);
    set(thread, "fp_load", fp / 5.0);
}

/// One period, without the rule that no two are bound to one PU.
fn step(world: &mut World, policy: &mut Masa) -> Plan {
    let plan = policy.decide(&world.snapshot);
    let usable = world.snapshot.topology.usable();
    for binding in &plan.bindings {
        let thread = world.snapshot.thread(binding.thread).unwrap();
        assert!(thread.hands_off.is_none() && !binding.pus.is_empty());
        assert!(binding.pus.is_subset(&thread.allowed.and(&usable)));
    }
    let bound: BTreeMap<_, _> = (plan.bindings.iter())
        .map(|b| (b.thread, b.pus.clone()))
        .collect();
    assert_eq!(bound.len(), plan.bindings.len());
    for thread in &mut world.snapshot.threads {
        thread.bound = bound.get(&thread.info.id).cloned();
        if let Some(pus) = &thread.bound
            && !pus.contains(thread.last_pu.unwrap())
        {
            thread.last_pu = pus.first();
        }
    }
    world.snapshot.period += 1;
    plan
}

fn pus(world: &World) -> Vec<u32> {
    let threads = world.snapshot.threads.iter();
    threads.map(|thread| thread.last_pu.unwrap()).collect()
}

fn package(pu: u32) -> u32 {
    pu / 2
}

#[test]
fn two_fp_programs_in_one_package_are_parted_by_the_one_swap_that_the_paper_calls_for() {
    for variant in [Variant::Paper, Variant::Perch] {
        let mut world = world(2, 2, &[INT_A, INT_B, FP_A, FP_B]);
        let mut policy = paper(variant);
        let plan = step(&mut world, &mut policy);
        // L2 misses are below their limit in both packages. FP: 122.8 million in package 1, above the 107.0 million of
        // one program alone; imbalance (122.8 - 0) / 2 = 50 %. Half of the difference, 61.4 million, is nearest to
        // FP_B's 60.3 against 62.5: 61.4 - 60.3 = 1.1 = 62.5 - 61.4, nearly a tie; the integer programs decide it.
        assert_eq!(plan.bindings.len(), 2, "{plan:?}");
        assert_eq!(policy.swaps(), (1, 0));
        let places = pus(&world);
        assert_ne!(package(places[0]), package(places[1]), "{places:?}");
        assert_ne!(package(places[2]), package(places[3]), "{places:?}");
        for _ in 0..5 {
            step(&mut world, &mut policy);
        }
        assert_eq!((pus(&world), policy.swaps()), (places, (1, 0)));
    }
}

#[test]
fn two_cache_programs_in_one_package_are_parted_too() {
    for variant in [Variant::Paper, Variant::Perch] {
        let mut world = world(2, 2, &[INT_A, INT_B, L2C_A, L2C_B]);
        let mut policy = paper(variant);
        let plan = step(&mut world, &mut policy);
        // 73.9 million against 9.8; half of the difference is 32.1. L2C_B for INT_A moves 29.9, L2C_A for INT_B 34.2: that
        // is nearer by 0.05 million, and 44.6 million are below the limit of 46.9 in both packages.
        assert_eq!(policy.swaps(), (1, 0));
        assert_eq!(pus(&world), [0, 2, 1, 3]);
        let reason = &plan.bindings[1].reason;
        assert_eq!(
            reason.text, "l2_load above its limit: swapped with 1001",
            "{reason:?}"
        );
        let number = |name: &str| {
            let mut numbers = reason.numbers.iter();
            numbers.find(|(known, _)| &**known == name).unwrap().1 * 5.0
        };
        let near = |a: f64, b: f64| (a - b).abs() < 1.0;
        assert!(near(number("highest before"), L2C_A.0 + L2C_B.0));
        assert!(near(number("highest after"), L2C_B.0 + INT_B.0));
        assert!(near(number("lowest after"), L2C_A.0 + INT_A.0));
    }
}

#[test]
fn programs_that_are_mixed_well_stay() {
    // Table 3, (INT, L2C) (INT, L2C): package 1 has 48.3 million, above the limit, but package 0 has hardly less.
    let mixed = [
        (4_832_876.0, 0.0),
        (34_197_735.0, 143_644.0),
        (10_127_606.0, 150.0),
        (38_214_884.0, 580_769.0),
    ];
    for loads in [&mixed[..], &[INT_A, FP_A, INT_B, FP_B]] {
        let mut world = world(2, 2, loads);
        let mut policy = paper(Variant::Paper);
        let plan = step(&mut world, &mut policy);
        assert!(plan.bindings.is_empty());
        assert!(plan.remarks[0].contains("nothing is bound"), "{plan:?}");
    }
}

#[test]
fn a_swap_that_would_exceed_another_limit_is_refused() {
    // Two FP programs in package 1, L2 misses hardly below the limit of 61 million in both packages: 40 + 20.5 and
    // 29 + 31. Whoever is swapped, one package has at least 69. With 23 + 32 and 29 + 16 there is room.
    let int = (23_000_000.0, 0.0);
    let fp = (31_000_000.0, 60_000_000.0);
    let other = (29_000_000.0, 60_000_000.0);
    let light = (16_000_000.0, 60_000_000.0);
    for (second, swaps) in [(fp, 0), (light, 1)] {
        for variant in [Variant::Paper, Variant::Perch] {
            let calibration = PAPER.replace("limit = 9385179.8", "limit = 12200000.0");
            let calibration = Calibration::parse(&calibration, "a").unwrap();
            let config = MasaConfig {
                variant,
                ..MasaConfig::default()
            };
            let mut policy = Masa::with_calibration(config, &calibration).unwrap();
            let mut world = world(2, 2, &[int, (32_000_000.0, 0.0), other, second]);
            if swaps == 0 {
                load(&mut world, 0, (40_000_000.0, 0.0));
                load(&mut world, 1, (20_500_000.0, 0.0));
            }
            step(&mut world, &mut policy);
            assert_eq!(policy.swaps().0, swaps, "{variant:?}");
        }
    }
}

#[test]
fn a_quarter_is_the_imbalance_from_which_on_threads_swap() {
    // 120 million against `low`: half the difference over 120 is 25 % at 60 million.
    for (low, swaps) in [(61e6, 0), (59e6, 1)] {
        let loads = [(0.0, low / 2.0), (0.0, low / 2.0), (0.0, 70e6), (0.0, 50e6)];
        let mut world = world(2, 2, &loads);
        let mut policy = paper(Variant::Paper);
        step(&mut world, &mut policy);
        assert_eq!(policy.swaps().0, swaps, "{low}");
    }
}

#[test]
fn imbalance_inside_a_package_comes_first() {
    for variant in [Variant::Paper, Variant::Perch] {
        let mut world = world(2, 2, &[FP_A, FP_B, INT_A, INT_B]);
        // Both FP programs are bound to PU 0, PU 1 has nobody; the integer programs run in the other package.
        for at in [0, 1] {
            world.snapshot.threads[at].last_pu = Some(0);
            world.snapshot.threads[at].bound = Some(PuSet::single(0));
        }
        let mut policy = paper(variant);
        let plan = step(&mut world, &mut policy);
        let mut places = pus(&world);
        assert_eq!(places[2..], [2, 3]);
        places.truncate(2);
        places.sort_unstable();
        assert_eq!(places, [0, 1], "{plan:?}");
        assert_eq!(policy.swaps(), (0, 0));
        // And only then the packages.
        step(&mut world, &mut policy);
        assert_eq!(policy.swaps(), (1, 0));
        let places = pus(&world);
        assert_ne!(package(places[0]), package(places[1]));
    }
}

#[test]
fn swaps_that_come_back_are_counted_and_wait_longer_each_time() {
    let mut world = world(2, 2, &[INT_A, INT_B, FP_A, FP_B]);
    let mut policy = paper(Variant::Perch);
    let mut remarks = Vec::new();
    for period in 0..40 {
        // Whoever shares a package turns FP-heavy: swapping never helps.
        let places = pus(&world);
        for at in 0..4 {
            let heavy = package(places[at]) == package(places[0]);
            load(&mut world, at, if heavy { FP_A } else { INT_A });
        }
        let plan = step(&mut world, &mut policy);
        remarks.extend(plan.remarks);
        let (swaps, back) = policy.swaps();
        assert!(back < swaps.max(1) && swaps <= period + 1);
    }
    let (swaps, back) = policy.swaps();
    assert!(back >= 2, "{swaps} {back}");
    assert!(swaps < 20, "{swaps} swaps in 40 periods: nobody waited");
    assert!(
        remarks
            .iter()
            .any(|remark| remark.contains("brought a thread back"))
    );
}

#[test]
fn sampled_shares_are_enough_and_what_is_missing_is_said() {
    let mut world = World::regular(2, 1, 2, &[0.01, 0.02, 0.4, 0.5]);
    let mut policy = learning();
    let plan = world.step(&mut policy);
    assert_eq!(plan.bindings.len(), 2);
    assert_eq!(
        world.bound(|t| t.metrics.value("fp_share") > Some(0.1)),
        [1, 0]
    );
    let told = plan.remarks.join("\n");
    assert!(
        told.contains("caches (l2_load or memory_intensity)"),
        "{told}"
    );
    assert!(!told.contains("fp_share"), "{told}");
    let plan = World::new(
        &cores(2, 1, 2),
        &[Spec {
            share: None,
            ..Spec::busy(0.0)
        }],
    )
    .step(&mut learning());
    assert!(
        plan.remarks[0].contains("no load metric is measured"),
        "{plan:?}"
    );
}

#[test]
fn an_idle_pu_takes_a_thread_without_an_exchange() {
    // Two FP programs in package 0, nobody in package 1.
    let mut world = world(2, 2, &[FP_A, FP_B]);
    let mut policy = paper(Variant::Perch);
    let plan = step(&mut world, &mut policy);
    assert_eq!(plan.bindings.len(), 1);
    let places = pus(&world);
    assert_ne!(package(places[0]), package(places[1]));
    assert!(plan.bindings[0].reason.text.contains("nobody uses"));
}

#[test]
fn threads_that_fall_idle_are_let_go_and_others_come_and_go() {
    let mut world = world(2, 2, &[INT_A, INT_B, FP_A, FP_B]);
    let mut policy = paper(Variant::Perch);
    let bound: Vec<_> = step(&mut world, &mut policy).bindings;
    let gone = bound[0].thread;
    world
        .snapshot
        .threads
        .iter_mut()
        .find(|t| t.info.id == bound[1].thread)
        .unwrap()
        .activity = 0.0;
    world
        .snapshot
        .threads
        .retain(|thread| thread.info.id != gone);
    let plan = step(&mut world, &mut policy);
    assert_eq!(plan.released[0].0, bound[1].thread);
    assert!(
        plan.bindings
            .iter()
            .all(|b| b.thread != gone && b.thread != bound[1].thread)
    );
}

#[test]
fn the_paper_needs_a_calibration_and_options_have_their_ranges() {
    let refused = |config: MasaConfig| Masa::new(config).unwrap_err().to_string();
    let paper = MasaConfig {
        variant: Variant::Paper,
        ..MasaConfig::default()
    };
    insta::assert_snapshot!(
        [
            refused(paper),
            refused(MasaConfig {
                imbalance: 1.5,
                ..MasaConfig::default()
            }),
            refused(MasaConfig {
                outstanding: 0.0,
                ..MasaConfig::default()
            }),
            refused(MasaConfig {
                headroom: 0.5,
                ..MasaConfig::default()
            }),
            refused(MasaConfig {
                calibration: "/nowhere/c.toml".to_owned(),
                ..MasaConfig::default()
            }),
        ]
        .join("\n")
    );
}

/// Threads with loads of both metrics; some without.
fn any_world() -> impl Strategy<Value = World> {
    let level =
        || prop_oneof![1 => Just(None), 2 => Just(Some(0.0)), 5 => (0.0..120e6f64).prop_map(Some)];
    let loads = proptest::collection::vec((level(), level()), 24);
    (any_cores(), any_threads(), loads).prop_map(|(cores, threads, loads)| {
        let mut world = World::new(&cores, &threads);
        for (thread, (l2, fp)) in world.snapshot.threads.iter_mut().zip(loads) {
            if thread.hands_off.is_some() && thread.allowed.len() == 1 {
                thread.last_pu = thread.allowed.first();
            }
            if let Some(l2) = l2 {
                set(thread, "l2_load", l2 / 5.0);
            }
            if let Some(fp) = fp {
                set(thread, "fp_load", fp / 5.0);
            }
        }
        world
    })
}

fn any_policy() -> impl Strategy<Value = fn() -> Masa> {
    let policies: [fn() -> Masa; 3] =
        [learning, || paper(Variant::Perch), || paper(Variant::Paper)];
    proptest::sample::select(policies.to_vec())
}

/// What is above the limits (squared) by core, in order of priority; by PU counts first.
fn excess(world: &World) -> f64 {
    let cores = &world.snapshot.topology.cores;
    // A thread last seen on a PU that went away is on its way to another one.
    let usable = world.snapshot.topology.usable();
    let over = |name: &str, limit: f64| {
        let load = |core: &perch_core::topology::Core| {
            let there = world.snapshot.threads.iter().filter(|thread| {
                let busy = thread.activity + thread.waiting
                    >= if thread.bound.is_some() { 0.05 } else { 0.1 };
                busy && thread
                    .last_pu
                    .is_some_and(|pu| usable.contains(pu) && core.pus.contains(pu))
            });
            there
                .map(|t| t.metrics.value(name).unwrap_or(0.0) * t.activity)
                .sum::<f64>()
        };
        cores
            .iter()
            .map(|core| (load(core) - limit).max(0.0).powi(2))
            .sum::<f64>()
    };
    over("l2_load", 9385179.8)
}

proptest! {
    #[test]
    fn plans_can_be_applied_and_bind_at_most_one_to_a_pu(mut world in any_world(), calibrated: bool) {
        let mut policy = if calibrated { paper(Variant::Perch) } else { learning() };
        for _ in 0..4 {
            world.step(&mut policy);
        }
    }

    #[test]
    fn the_same_input_again_and_again_settles(mut world in any_world(), policy in any_policy()) {
        let mut policy = policy();
        let mut last = Vec::new();
        let mut changed = 0;
        let periods = 80;
        for period in 0..periods {
            step(&mut world, &mut policy);
            let now = pus(&world);
            if now != last {
                changed = period;
            }
            last = now;
        }
        prop_assert!(changed < periods - 20, "still moving in period {changed}");
    }

    #[test]
    fn the_metric_of_the_first_priority_never_gets_worse(mut world in any_world()) {
        let mut policy = paper(Variant::Perch);
        for _ in 0..10 {
            let before = excess(&world);
            let plan = step(&mut world, &mut policy);
            let inside = plan.bindings.iter().any(|b| b.reason.text.contains("outstanding"));
            if inside || !plan.released.is_empty() {
                break;
            }
            prop_assert!(excess(&world) <= before * (1.0 + 1e-6) + 1.0);
        }
    }

    #[test]
    fn thread_numbers_do_not_matter(world in any_world(), policy in any_policy(), seed: u64) {
        let mut other = world.clone();
        let count = other.snapshot.threads.len();
        // A permutation: sorted by a scrambled number.
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|at| (*at as u64 + 1).wrapping_mul(seed | 1).rotate_left(17));
        let old = other.snapshot.threads.clone();
        for (place, from) in order.iter().enumerate() {
            let mut thread = old[*from].clone();
            thread.info.id = id(place);
            other.snapshot.threads[place] = thread;
        }
        let (mut a, mut b) = (policy(), policy());
        let (mut world, mut other) = (world, other);
        for _ in 0..3 {
            step(&mut world, &mut a);
            step(&mut other, &mut b);
            prop_assert_eq!(seen(&world), seen(&other));
        }
    }
}

/// What the threads are and where, whatever their numbers.
fn seen(world: &World) -> Vec<String> {
    let threads = world.snapshot.threads.iter();
    let mut seen: Vec<String> = threads
        .map(|t| {
            format!(
                "{:?} {:?} {:?} {:?} {} {:?}",
                t.metrics, t.last_pu, t.bound, t.allowed, t.activity, t.hands_off
            )
        })
        .collect();
    seen.sort();
    seen
}
