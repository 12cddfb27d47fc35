//! From counts to metrics, and which counts are not believed.

use perch_core::{
    Count, CountQuality, EventPlan, MetricSource, Topology, UnitClass, metric::names,
};
use perch_profile::{Library, Profile};
use proptest::prelude::*;
use std::sync::LazyLock;

const SECOND: u64 = 1_000_000_000;

fn profile(name: &str) -> Profile {
    static LIBRARY: LazyLock<Library> = LazyLock::new(Library::embedded);
    LIBRARY.find(name).unwrap().clone()
}

fn count(alias: &str, value: f64) -> Count {
    Count {
        alias: alias.into(),
        value,
        quality: CountQuality::Exact,
    }
}

fn scaled(alias: &str, value: f64, share: f64) -> Count {
    Count {
        alias: alias.into(),
        value,
        quality: CountQuality::Scaled(share),
    }
}

fn aliases(plan: &EventPlan) -> Vec<&str> {
    plan.sets
        .iter()
        .flat_map(|set| &set.events)
        .map(|event| &*event.alias)
        .collect()
}

#[test]
fn equation_1_on_bulldozer() {
    let counts = [
        count("cycles", 3e9),
        count("instructions", 2e9),
        count("fpu_empty", 2.4e9),
    ];
    let (metrics, problems) = profile("bulldozer").metrics(None, &counts, SECOND);
    assert!((metrics.value(names::FP_SHARE).unwrap() - 0.2).abs() < 1e-12);
    assert_eq!(metrics.get(names::FP_SHARE).unwrap().confidence, 1.0);
    assert_eq!(problems, [""; 0]);
}

#[test]
fn equation_2_on_power7() {
    let counts = [
        count("cycles", 4e9),
        count("instructions", 2e9),
        count("fp_ops", 1e9),
    ];
    let (metrics, problems) = profile("power7").metrics(None, &counts, SECOND);
    assert_eq!(metrics.value(names::FP_SHARE), Some(0.25));
    assert_eq!(metrics.value(names::IPC), Some(0.5));
    assert_eq!(problems, [""; 0]);
}

#[test]
fn a_metric_is_as_sure_as_its_worst_count() {
    let counts = [
        count("cycles", 3e9),
        scaled("instructions", 2e9, 0.75),
        scaled("fpu_empty", 2.4e9, 0.25),
    ];
    let (metrics, _) = profile("bulldozer").metrics(None, &counts, SECOND);
    let confidence = |name| metrics.get(name).unwrap().confidence;
    assert_eq!(confidence(names::CYCLES), 1.0);
    assert_eq!(confidence(names::IPC), 0.75);
    assert_eq!(confidence(names::FP_SHARE), 0.25);
}

#[test]
fn a_ratio_slightly_outside_its_range_is_clamped_and_one_far_outside_left_out() {
    let bulldozer = profile("bulldozer");
    let with = |empty| {
        let counts = [
            count("cycles", 3e9),
            count("instructions", 2e9),
            scaled("fpu_empty", empty, 0.5),
        ];
        bulldozer.metrics(None, &counts, SECOND)
    };
    assert_eq!(with(3.03e9).0.value(names::FP_SHARE), Some(0.0));
    let (metrics, problems) = with(3.14e9);
    assert_eq!(metrics.value(names::FP_SHARE), Some(0.0));
    assert_eq!(problems, [""; 0]);
    // More moves than operations.
    let counts = [
        count("cycles", 3e9),
        count("instructions", 2e9),
        count("fp_ops", 1e9),
        count("fp_moves", 2e9),
    ];
    let (metrics, problems) = profile("zen5").metrics(None, &counts, SECOND);
    assert_eq!(metrics.value(names::FP_SHARE), None);
    assert!(metrics.value(names::IPC).is_some());
    insta::assert_snapshot!(problems.join("\n"), @"no fp_share: `(fp_ops - fp_moves) / cycles` gives -0.3333, but it lies between 0 and 16");
}

#[test]
fn a_counter_that_does_not_count_is_named_and_nothing_of_it_believed() {
    let counts = [
        count("cycles", 2.9e9),
        count("instructions", 395.0),
        count("fp_ops", 0.0),
    ];
    let (metrics, problems) = profile("zen4").metrics(None, &counts, SECOND);
    assert!(metrics.is_empty());
    insta::assert_snapshot!(problems.join("\n"), @"`instructions` counted 395 instructions in 1.00 s on a PU: the counter does not count, as in many virtual machines");
}

#[test]
fn counts_that_cannot_be() {
    let zen4 = profile("zen4");
    let said = |counts: &[Count], time| {
        let doubts = zen4.doubts(counts, time);
        doubts
            .into_iter()
            .map(|doubt| doubt.why)
            .collect::<Vec<_>>()
            .join("\n")
    };
    insta::assert_snapshot!(said(&[count("cycles", 9e9)], SECOND), @"`cycles` counted 9.00e9 cycles in 1.00 s on a PU: no processor runs at 9 GHz");
    insta::assert_snapshot!(said(&[count("cycles", 12.0)], SECOND / 2), @"`cycles` counted 12 cycles in 500.00 ms on a PU: the counter does not count, as in many virtual machines");
    insta::assert_snapshot!(said(&[count("cycles", 1e9), count("instructions", 40e9)], SECOND), @"`instructions` counted 40.00e9 instructions in 1.00e9 cycles: this processor retires at most 16 in a cycle");
    insta::assert_snapshot!(said(&[count("cycles", 1e9), count("fp_ops", 65e9)], SECOND), @"`fp_ops` counted 65.00e9 in 1.00e9 cycles: it cannot happen more than 16 times in a cycle");
    insta::assert_snapshot!(said(&[count("fp_ops", -3.0), count("loads", f64::NAN)], SECOND), @r#"
    `fp_ops` counted -3, which is no count
    `loads` counted NaN, which is no count
    "#);
    // Too short to say.
    assert_eq!(
        said(
            &[count("cycles", 12.0), count("instructions", 4.0)],
            9_000_000
        ),
        ""
    );
    assert_eq!(said(&[count("cycles", 12.0)], 0), "");
}

#[test]
fn what_the_machine_disbelieves_is_not_used() {
    let mut counts = vec![
        count("cycles", 3e9),
        count("instructions", 2e9),
        count("fpu_empty", 1e9),
    ];
    counts[2].quality = CountQuality::Implausible("it reads 0 on this core".to_owned());
    let (metrics, problems) = profile("bulldozer").metrics(None, &counts, SECOND);
    assert_eq!(metrics.value(names::FP_SHARE), None);
    assert!(metrics.value(names::IPC).is_some());
    assert_eq!(
        problems,
        ["`fpu_empty` is ignored: it reads 0 on this core"]
    );
}

#[test]
fn division_by_zero_leaves_the_metric_out_with_the_reason() {
    let counts = [count("cycles", 0.0), count("instructions", 0.0)];
    let (metrics, problems) = profile("generic").metrics(None, &counts, 1_000_000);
    assert_eq!(metrics.value(names::IPC), None);
    assert_eq!(
        problems,
        ["no ipc: `instructions / cycles` has no value where cycles and instructions are 0"]
    );
}

#[test]
fn kinds_of_core_are_told_apart_and_put_together() {
    let hybrid = profile("alder-lake");
    let counts = [
        count("cycles@cpu_core", 3e9),
        count("instructions@cpu_core", 6e9),
        count("fp_scalar@cpu_core", 3e9),
        count("fp_vector@cpu_core", 0.0),
        count("cycles@cpu_atom", 1e9),
        count("instructions@cpu_atom", 1e9),
    ];
    let (big, _) = hybrid.metrics(Some("cpu_core"), &counts, SECOND);
    assert_eq!(
        (big.value(names::IPC), big.value(names::CYCLES)),
        (Some(2.0), Some(3e9))
    );
    let (little, _) = hybrid.metrics(Some("cpu_atom"), &counts, SECOND);
    assert_eq!(
        (little.value(names::IPC), little.value(names::CYCLES)),
        (Some(1.0), Some(1e9))
    );
    assert_eq!(little.value(names::FP_SHARE), None);
    let (both, problems) = hybrid.metrics(None, &counts, SECOND);
    assert_eq!(
        (both.value(names::IPC), both.value(names::CYCLES)),
        (Some(1.75), Some(4e9))
    );
    // Known for three quarters of the cycles.
    let fp = both.get(names::FP_SHARE).unwrap();
    assert_eq!((fp.value, fp.confidence), (1.0, 0.75));
    assert_eq!(problems, [""; 0]);
}

#[test]
fn a_thread_that_moves_between_kinds_of_core_is_no_two_threads() {
    let scaled = |alias: &str, value: f64, share: f64| Count {
        quality: CountQuality::Scaled(share),
        ..count(alias, value)
    };
    // Nineteen twentieths of the time on one kind, each kind's counts scaled up to all of the time.
    let counts = [
        scaled("cycles@cpu_core", 4.9e9, 0.95),
        scaled("instructions@cpu_core", 9.8e9, 0.95),
        scaled("cycles@cpu_atom", 3.6e9, 0.05),
        scaled("instructions@cpu_atom", 3.6e9, 0.05),
    ];
    let (metrics, problems) = profile("alder-lake").metrics(None, &counts, SECOND);
    assert_eq!(problems, [""; 0]);
    let (cycles, instructions) = (0.95 * 4.9e9 + 0.05 * 3.6e9, 0.95 * 9.8e9 + 0.05 * 3.6e9);
    let near = |name: &str, wanted: f64| {
        let value = metrics.value(name).unwrap();
        assert!(
            (value / wanted - 1.0).abs() < 1e-9,
            "{name}: {value} for {wanted}"
        );
    };
    near(names::CYCLES, cycles);
    near(names::IPC, instructions / cycles);
}

#[test]
fn a_thread_that_never_ran_on_one_kind_of_core_has_the_others_metrics() {
    let counts = [
        count("cycles@cpu_core", 0.0),
        count("instructions@cpu_core", 0.0),
        count("fp_scalar@cpu_core", 0.0),
        count("fp_vector@cpu_core", 0.0),
        count("cycles@cpu_atom", 2e9),
        count("instructions@cpu_atom", 1e9),
    ];
    let (metrics, problems) = profile("alder-lake").metrics(None, &counts, SECOND);
    assert_eq!(metrics.value(names::IPC), Some(0.5));
    assert_eq!(metrics.value(names::FP_SHARE), None);
    assert_eq!(problems, [""; 0]);
}

#[test]
fn only_what_is_asked_for_is_counted() {
    let zen4 = profile("zen4");
    assert_eq!(
        aliases(&zen4.event_plan_for(&[names::FP_SHARE])),
        ["cycles", "instructions", "fp_ops"]
    );
    let mpki = zen4.event_plan_for(&[names::L2_MPKI, "unheard_of"]);
    assert_eq!(aliases(&mpki), ["cycles", "instructions", "l2_misses"]);
    assert!(!aliases(&zen4.event_plan()).contains(&"l2_misses"));
}

#[test]
fn sets_on_demand_are_counted_with_all_that_their_formulas_take() {
    let zen4 = profile("zen4");
    let always = zen4.event_plan();
    assert_eq!(
        zen4.event_plan_with(&[names::FP_SHARE, "unheard_of"]),
        always
    );
    let plan = zen4.event_plan_with(&[names::FP_SHARE, names::L2_MPKI]);
    assert_eq!(plan.sets[..always.sets.len()], always.sets);
    let [caches] = &plan.sets[always.sets.len()..] else {
        panic!("{plan:?}")
    };
    assert_eq!(&*caches.name, "caches");
    let aliases: Vec<&str> = caches.events.iter().map(|event| &*event.alias).collect();
    // The misses lead, and the instructions by which they are divided are counted in the same turn.
    assert_eq!(aliases, ["l2_misses", "instructions"]);
}

#[test]
fn every_metric_that_is_asked_for_can_be_had_in_one_turn() {
    let library = Library::embedded();
    let mut on_demand = 0;
    // Of processors with several kinds of core each kind has its own sets.
    for profile in library
        .list()
        .iter()
        .filter(|profile| profile.kinds.is_empty())
    {
        let always = profile.event_plan().sets.len();
        for rule in &profile.metrics {
            let name = &*rule.name;
            let plan = profile.event_plan_with(&[name]);
            assert!(plan.sets.len() <= always + 1, "{}: {name}", profile.name);
            let Some(set) = plan.sets.get(always) else {
                continue;
            };
            on_demand += 1;
            let whole = profile.event_plan_for(&[name]);
            let needed = whole
                .sets
                .iter()
                .find(|needed| needed.name == set.name)
                .unwrap();
            for event in &needed.events {
                assert!(
                    set.events.contains(event),
                    "{}: {name} lacks {event:?}",
                    profile.name
                );
            }
            let counts = set.events.iter().map(|event| count(&event.alias, 2e9));
            let counts: Vec<Count> = counts.collect();
            let (metrics, problems) = profile.metrics(None, &counts, SECOND);
            assert!(
                metrics.get(name).is_some() || problems.iter().any(|p| p.contains(name)),
                "{}: {name} cannot be had from {counts:?}: {problems:?}",
                profile.name
            );
        }
    }
    assert!(on_demand > 40, "{on_demand}");
}

#[test]
fn what_cannot_be_had_is_told_with_the_events_it_lacks() {
    let lacking =
        profile("zen4").lacking(&["cycles", "instructions", "memory_stalls", "smt_lost_slots"]);
    let told: Vec<_> = lacking
        .iter()
        .map(|(metric, events)| (&**metric, &*events[0]))
        .collect();
    assert_eq!(told, [(names::FP_SHARE, "fp_ops"), ("fp_load", "fp_ops")]);
}

#[test]
fn check_asks_for_each_event_once() {
    let power10 = profile("power10");
    let answer = |choice: &perch_core::EventChoice| match choice.spellings.first() {
        Some(spelling) if spelling.starts_with("cpu/") => Ok(spelling.clone()),
        _ => Err("no libpfm".to_owned()),
    };
    let checks = power10.check(&answer);
    assert_eq!(checks.len(), power10.events.len());
    let fp = checks
        .iter()
        .find(|check| &*check.alias == "fp_ops")
        .unwrap();
    assert_eq!(fp.result, Err("no libpfm".to_owned()));
    assert_eq!(
        fp.needed_by.iter().map(|name| &**name).collect::<Vec<_>>(),
        [names::FP_SHARE, "fp_load"]
    );
}

/// One package of two modules, each of two cores below one L2 cache.
fn modules() -> Topology {
    use perch_core::{
        PuSet,
        topology::{Cache, Core, CoreKind, NumaNode, Package, Pu, PuState},
    };
    let set = |pus: &[u32]| pus.iter().copied().collect::<PuSet>();
    Topology {
        source: "test".into(),
        packages: vec![Package {
            os: 0,
            pus: set(&[0, 1, 2, 3]),
            model: String::new(),
        }],
        numa_nodes: vec![NumaNode {
            os: 0,
            pus: set(&[0, 1, 2, 3]),
            ..NumaNode::default()
        }],
        caches: [[0, 1], [2, 3]]
            .iter()
            .map(|pus| Cache {
                level: 2,
                size: 1 << 21,
                pus: set(pus),
            })
            .collect(),
        cores: (0..4)
            .map(|pu| Core {
                pus: set(&[pu]),
                package: 0,
                numa_node: 0,
                kind: 0,
            })
            .collect(),
        kinds: vec![CoreKind {
            name: "core".to_owned(),
            pus: set(&[0, 1, 2, 3]),
        }],
        pus: (0..4)
            .map(|pu| Pu {
                os: pu,
                core: pu as usize,
                state: PuState::Usable,
            })
            .collect(),
    }
}

#[test]
fn bulldozer_modules_share_their_floating_point_units() {
    let domains = |name, class| {
        let domains = profile(name).unit_domains(&modules());
        let pus = domains
            .of(class)
            .iter()
            .map(|domain| domain.pus.to_string());
        pus.collect::<Vec<_>>()
    };
    let each = ["0", "1", "2", "3"];
    assert_eq!(domains("bulldozer", UnitClass::Fp), ["0-1", "2-3"]);
    assert_eq!(domains("bulldozer", UnitClass::Integer), each);
    assert_eq!(domains("zen4", UnitClass::Fp), each);
    // Of a class of which the profile says nothing nothing is known.
    assert!(domains("bulldozer", UnitClass::Branch).is_empty());
    assert_eq!(
        profile("bulldozer")
            .unit_domains(&modules())
            .of(UnitClass::Fp),
        profile("bulldozer").fp_domains(&modules())
    );
}

#[test]
fn thresholds_are_by_metric_and_by_its_source() {
    let profile = profile("bulldozer");
    for source in [MetricSource::Counters, MetricSource::Sampling] {
        let thresholds = profile.thresholds(source);
        let fp = profile.fp_threshold(source);
        assert_eq!(thresholds.of(names::FP_SHARE), Some(fp));
        assert!(thresholds.reached(names::FP_SHARE, fp));
        assert!(!thresholds.reached(names::FP_SHARE, fp * 0.99));
        assert_eq!(thresholds.of(names::IPC), None);
        assert!(!thresholds.reached(names::IPC, f64::INFINITY));
    }
}

#[test]
fn counts_too_large_to_be_averaged_give_no_metric() {
    let profile = profile("alder-lake");
    let counts: Vec<Count> = profile
        .events
        .iter()
        .map(|event| Count {
            alias: event.choice.alias.clone(),
            value: 1e300,
            quality: CountQuality::Exact,
        })
        .collect();
    let (metrics, _) = profile.metrics(None, &counts, 1_000_000_000);
    assert!(metrics.iter().all(|(_, metric)| metric.value.is_finite()));
}

proptest! {
    /// Whatever is counted, metrics are finite, inside their range, and no surer than the counts.
    #[test]
    fn metrics_are_sound(
        name in prop::sample::select(Library::embedded().list().iter().map(|p| p.name.clone()).collect::<Vec<_>>()),
        values in prop::collection::vec((prop::num::f64::ANY, 0.0..1.0_f64, 0..4u8), 24),
        time in any::<u64>(),
        kind in prop::option::of("cpu_core|cpu_atom|x"),
    ) {
        let profile = profile(&name);
        let counts: Vec<Count> = profile.events.iter().zip(&values).map(|(event, (value, share, quality))| Count {
            alias: event.choice.alias.clone(),
            value: *value,
            quality: match quality {
                0 => CountQuality::Exact,
                1 => CountQuality::Scaled(*value),
                2 => CountQuality::Implausible("no".to_owned()),
                _ => CountQuality::Scaled(*share),
            },
        }).collect();
        let (metrics, _) = profile.metrics(kind.as_deref(), &counts, time);
        for (name, metric) in metrics.iter() {
            prop_assert!(metric.value.is_finite(), "{name} {metric:?}");
            prop_assert!((0.0..=1.0).contains(&metric.confidence), "{name} {metric:?}");
            if let Some((least, greatest)) = profile.metric(name).unwrap().range {
                prop_assert!((least..=greatest).contains(&metric.value), "{name} {metric:?}");
            }
        }
    }

    /// Doubling all counts over twice the time changes no ratio.
    #[test]
    fn ratios_do_not_depend_on_the_window(
        cycles in 1e8..5e9_f64, ipc in 0.05..4.0_f64, fp in 0.0..2.0_f64, seconds in 1..5u64,
    ) {
        let zen4 = profile("zen4");
        let at = |seconds: u64| {
            let cycles = cycles * seconds as f64;
            let counts = [count("cycles", cycles), count("instructions", cycles * ipc), count("fp_ops", cycles * fp)];
            zen4.metrics(None, &counts, seconds * SECOND).0
        };
        let (one, many) = (at(1), at(seconds));
        for name in [names::IPC, names::FP_SHARE] {
            let (a, b) = (one.value(name).unwrap(), many.value(name).unwrap());
            prop_assert!((a - b).abs() <= 1e-9 * a.abs().max(1.0), "{name} {a} {b}");
        }
    }
}
