//! Worlds of threads with load metrics, and the paper's numbers.

pub use crate::support::{Spec, World, any_cores, any_threads, cores, id};
use perch_core::{Metric, MetricName, MetricSource, Plan, Policy, ThreadState};
use perch_policy::{
    Calibration, Masa, MasaConfig,
    masa::{BUILT_IN, Variant},
};
use std::collections::BTreeMap;

/// Table 6: what one program alone does in 5 seconds, as limits in events per second.
pub const PAPER: &str = r#"
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
pub const INT_A: (f64, f64) = (4_604_056.0, 61.0);
pub const INT_B: (f64, f64) = (5_219_503.0, 105.0);
pub const FP_A: (f64, f64) = (1_434_903.0, 62_467_839.0);
pub const FP_B: (f64, f64) = (1_355_739.0, 60_287_239.0);
pub const L2C_A: (f64, f64) = (39_424_290.0, 55_080.0);
pub const L2C_B: (f64, f64) = (34_522_937.0, 81_583.0);

pub fn paper(variant: Variant) -> Masa {
    let config = MasaConfig {
        variant,
        ..MasaConfig::default()
    };
    let calibration = Calibration::parse(PAPER, "paper.toml").unwrap();
    Masa::with_calibration(config, &calibration).unwrap()
}

/// Limits that are learned.
pub fn learned() -> MasaConfig {
    MasaConfig {
        calibration: BUILT_IN.to_owned(),
        ..MasaConfig::default()
    }
}

pub fn learning() -> Masa {
    Masa::new(learned()).unwrap()
}

pub fn set(thread: &mut ThreadState, name: &str, value: f64) {
    let metric = Metric {
        value,
        confidence: 1.0,
        source: MetricSource::Counters,
    };
    thread.metrics.set(MetricName::from(name), metric);
}

/// Threads on PUs 0, 1, …, busy all the time, with these events of 5 seconds.
pub fn world(packages: u32, smt: usize, loads: &[(f64, f64)]) -> World {
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

pub fn load(world: &mut World, at: usize, (l2, fp): (f64, f64)) {
    let thread = &mut world.snapshot.threads[at];
    set(thread, "l2_load", l2 / 5.0);
    set(thread, "fp_load", fp / 5.0);
}

/// One period, without the rule that no two are bound to one PU.
pub fn step(world: &mut World, policy: &mut Masa) -> Plan {
    let plan = policy.decide(&world.snapshot);
    let usable = world.snapshot.topology.usable();
    for binding in &plan.bindings {
        let thread = world.snapshot.thread(binding.thread).unwrap();
        assert!(thread.unmanaged.is_none() && !binding.pus.is_empty());
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

pub fn pus(world: &World) -> Vec<u32> {
    let threads = world.snapshot.threads.iter();
    threads.map(|thread| thread.last_pu.unwrap()).collect()
}

pub fn package(pu: u32) -> u32 {
    pu / 2
}
