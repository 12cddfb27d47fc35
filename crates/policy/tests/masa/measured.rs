//! The load of a PU is what was measured there, if PUs were measured (the paper's CPU load, section 4).

use super::world::*;
use perch_core::{Metric, MetricName, MetricSource, Metrics, PuLoad};
use perch_policy::masa::Variant;

/// A PU that did `l2` L2 misses and `fp` FP operations in 5 seconds, in a part of the time.
fn pu(pu: u32, (l2, fp): (f64, f64), busy: f64, interrupts: f64) -> PuLoad {
    let mut metrics = Metrics::default();
    for (name, events) in [("l2_load", l2), ("fp_load", fp)] {
        let metric = Metric {
            // While it was busy.
            value: events / 5.0 / busy,
            confidence: 1.0,
            source: MetricSource::Counters,
        };
        metrics.set(MetricName::from(name), metric);
    }
    PuLoad {
        pu,
        busy,
        interrupts,
        metrics,
    }
}

/// Two programs with some L2 misses in package 0, two with few in package 1: together below the limit of 46.9 million.
const HEAVY: (f64, f64) = (15e6, 0.0);
const LIGHT: (f64, f64) = (1e6, 0.0);

#[test]
fn a_pu_that_serves_interrupts_counts_with_all_that_it_does() {
    for variant in [Variant::Paper, Variant::Perch] {
        // By its threads nothing is above a limit.
        let mut quiet = world(2, 2, &[HEAVY, HEAVY, LIGHT, LIGHT]);
        let mut policy = paper(variant);
        step(&mut quiet, &mut policy);
        assert_eq!(policy.swaps(), (0, 0));
        // PU 0 serves interrupts besides, which miss 20 million times: 50 million in package 0.
        let mut loud = world(2, 2, &[HEAVY, HEAVY, LIGHT, LIGHT]);
        loud.snapshot.pus = vec![
            pu(0, (35e6, 0.0), 1.0, 0.4),
            pu(1, HEAVY, 1.0, 0.0),
            pu(2, LIGHT, 1.0, 0.0),
            pu(3, LIGHT, 1.0, 0.0),
        ];
        let mut policy = paper(variant);
        let plan = step(&mut loud, &mut policy);
        assert_eq!(policy.swaps(), (1, 0), "{plan:?}");
        let places = pus(&loud);
        assert_ne!(package(places[0]), package(places[1]), "{places:?}");
        let before = plan.bindings[0].reason.numbers.iter();
        let mut before = before.filter(|(name, _)| &**name == "highest before");
        assert!((before.next().unwrap().1 * 5.0 - 50e6).abs() < 1.0);
    }
}

#[test]
fn a_pu_counts_by_what_it_does_in_the_time_in_which_it_is_busy() {
    // The same events in half of the time: twice the rate, the same load.
    let mut world = world(2, 2, &[HEAVY, HEAVY, LIGHT, LIGHT]);
    world.snapshot.pus = vec![pu(0, (35e6, 0.0), 0.5, 0.1), pu(2, LIGHT, 0.5, 0.0)];
    let mut policy = paper(Variant::Paper);
    let plan = step(&mut world, &mut policy);
    // PU 1 was not counted: its thread stands for it.
    let before = plan.bindings[0].reason.numbers.iter();
    let mut before = before.filter(|(name, _)| &**name == "highest before");
    assert!((before.next().unwrap().1 * 5.0 - 50e6).abs() < 1.0);
}

#[test]
fn a_pu_without_metrics_is_as_its_threads_are() {
    let mut plain = world(2, 2, &[INT_A, INT_B, FP_A, FP_B]);
    let mut looked_at = plain.clone();
    looked_at.snapshot.pus = (0..4)
        .map(|pu| PuLoad {
            pu,
            busy: 1.0,
            interrupts: 0.3,
            metrics: Metrics::default(),
        })
        .collect();
    let (mut a, mut b) = (paper(Variant::Paper), paper(Variant::Paper));
    step(&mut plain, &mut a);
    step(&mut looked_at, &mut b);
    assert_eq!(pus(&plain), pus(&looked_at));
    assert_eq!(a.swaps(), b.swaps());
}
