//! How long a decision takes: first (all threads are placed), steady (nothing changes), and after a change of roles.

#[path = "../tests/support/mod.rs"]
mod support;

use divan::{Bencher, black_box};
use perch_core::{Metric, MetricName, MetricSource, Policy, metric::names};
use perch_policy::{
    Calibration, Cpi, CpiConfig, Masa, MasaConfig, Symbiosis, SymbiosisConfig, WorkOver,
    WorkOverConfig, workover::Variant,
};
use support::World;

fn main() {
    divan::main();
}

/// Threads, nodes, cores a node, PUs a core.
const SIZES: [(usize, u32, usize, usize); 5] = [
    (10, 1, 4, 2),
    (100, 2, 16, 2),
    (1_000, 4, 64, 4),
    (1_000, 1, 512, 2),
    (10_000, 4, 128, 2),
];

/// Half of the threads are FP-heavy, in no order.
fn world((threads, nodes, cores, smt): (usize, u32, usize, usize), turn: usize) -> World {
    let share = |at: usize| match (at * 7919 + turn) % 8 {
        kind if kind < 4 => 0.3 + (at % 97) as f64 * 0.003,
        _ => (at % 89) as f64 * 0.0001,
    };
    let shares: Vec<f64> = (0..threads).map(share).collect();
    World::regular(nodes, cores, smt, &shares)
}

fn policy(variant: Variant) -> WorkOver {
    WorkOver::new(WorkOverConfig {
        variant,
        ..WorkOverConfig::default()
    })
}

#[divan::bench(args = SIZES)]
fn first(bencher: Bencher<'_, '_>, size: (usize, u32, usize, usize)) {
    let world = world(size, 0);
    bencher
        .with_inputs(|| policy(Variant::Perch))
        .bench_values(|mut policy| policy.decide(black_box(&world.snapshot)));
}

#[divan::bench(args = SIZES)]
fn steady(bencher: Bencher<'_, '_>, size: (usize, u32, usize, usize)) {
    let (mut world, mut policy) = (world(size, 0), policy(Variant::Perch));
    for _ in 0..3 {
        world.step(&mut policy);
    }
    bencher.bench_local(|| policy.decide(black_box(&world.snapshot)));
}

#[divan::bench(args = SIZES)]
fn roles_change(bencher: Bencher<'_, '_>, size: (usize, u32, usize, usize)) {
    bencher
        .with_inputs(|| {
            let (mut before, mut policy) = (world(size, 0), policy(Variant::Perch));
            before.step(&mut policy);
            let after = world(size, 3);
            for at in 0..size.0 {
                before.set_share(at, after.share(at).unwrap_or(0.0));
            }
            (before, policy)
        })
        .bench_values(|(world, mut policy)| policy.decide(black_box(&world.snapshot)));
}

#[divan::bench(args = SIZES)]
fn paper(bencher: Bencher<'_, '_>, size: (usize, u32, usize, usize)) {
    let (mut world, mut policy) = (world(size, 0), policy(Variant::Paper));
    world.step(&mut policy);
    bencher.bench_local(|| policy.decide(black_box(&world.snapshot)));
}

/// Threads of all demands, ten times as many as are needed to fill the machine; for the last sizes threads double while
/// the machine stays.
const CPI_SIZES: [(usize, u32, usize, usize); 6] = [
    (100, 2, 16, 2),
    (1_000, 1, 512, 2),
    (2_500, 4, 128, 2),
    (5_000, 4, 128, 2),
    (10_000, 4, 128, 2),
    (20_000, 4, 128, 2),
];

fn cpi_world(size: (usize, u32, usize, usize), turn: usize) -> World {
    let mut world = world(size, 0);
    for (at, thread) in world.snapshot.threads.iter_mut().enumerate() {
        let metric = Metric {
            value: 1.0 / (1.0 + ((at * 7919 + turn) % 191) as f64 * 0.1),
            confidence: 1.0,
            source: MetricSource::Counters,
        };
        thread.metrics.set(MetricName::from(names::IPC), metric);
    }
    world
}

#[divan::bench(args = CPI_SIZES)]
fn cpi_first(bencher: Bencher<'_, '_>, size: (usize, u32, usize, usize)) {
    let world = cpi_world(size, 0);
    bencher
        .with_inputs(|| Cpi::new(CpiConfig::default()))
        .bench_values(|mut policy| policy.decide(black_box(&world.snapshot)));
}

#[divan::bench(args = CPI_SIZES)]
fn cpi_steady(bencher: Bencher<'_, '_>, size: (usize, u32, usize, usize)) {
    let world = cpi_world(size, 0);
    let mut policy = Cpi::new(CpiConfig::default());
    policy.decide(&world.snapshot);
    bencher.bench_local(|| policy.decide(black_box(&world.snapshot)));
}

/// All demanding threads are on one half of the cores: every thread is bound, with a reason.
#[divan::bench(args = CPI_BINDS_SIZES)]
fn cpi_binds(bencher: Bencher<'_, '_>, size: (usize, u32, usize, usize)) {
    let mut world = world(size, 0);
    let half = world.snapshot.topology.pus.len() as u32 / 2;
    for (at, thread) in world.snapshot.threads.iter_mut().enumerate() {
        let many = thread.last_pu.is_some_and(|pu| pu < half);
        let metric = Metric {
            value: if many { 0.4 } else { 0.05 } + (at * 7919 % 191) as f64 * 0.0003,
            confidence: 1.0,
            source: MetricSource::Counters,
        };
        thread.metrics.set(MetricName::from(names::IPC), metric);
    }
    let config = CpiConfig {
        width: 0.5,
        ..CpiConfig::default()
    };
    let plan = Cpi::new(config.clone()).decide(&world.snapshot);
    assert_eq!(plan.bindings.len(), size.0, "{:?}", plan.remarks);
    bencher
        .with_inputs(|| Cpi::new(config.clone()))
        .bench_values(|mut policy| policy.decide(black_box(&world.snapshot)));
}

/// Enough threads to fill a machine, and ten times as many.
const CPI_BINDS_SIZES: [(usize, u32, usize, usize); 4] = [
    (10, 1, 4, 2),
    (100, 2, 16, 2),
    (1_000, 4, 128, 2),
    (10_000, 4, 128, 2),
];

/// From 10 to 10,000 threads on 1,024 PUs; the first ones pair by pair, the others by classes.
const GROWING: [(usize, u32, usize, usize); 6] = [
    (10, 4, 128, 2),
    (64, 4, 128, 2),
    (256, 4, 128, 2),
    (1_000, 4, 128, 2),
    (3_000, 4, 128, 2),
    (10_000, 4, 128, 2),
];

const CALIBRATION: &str = include_str!("../tests/data/calibration.toml");

fn calibrated_world(size: (usize, u32, usize, usize)) -> World {
    let mut world = cpi_world(size, 0);
    for thread in &mut world.snapshot.threads {
        for (name, value) in [
            (names::LOAD_SHARE, 0.1),
            (names::STORE_SHARE, 0.0),
            (names::BRANCH_SHARE, 0.1),
        ] {
            let metric = Metric {
                value,
                confidence: 1.0,
                source: MetricSource::Counters,
            };
            thread.metrics.set(MetricName::from(name), metric);
        }
    }
    world
}

/// The decision in which it searches.
#[divan::bench(args = GROWING)]
fn symbiosis_search(bencher: Bencher<'_, '_>, size: (usize, u32, usize, usize)) {
    let calibration = Calibration::parse(CALIBRATION, "made up").expect("a calibration");
    let mut world = calibrated_world(size);
    let mut begun = || {
        let mut policy =
            Symbiosis::with_calibration(SymbiosisConfig::default(), calibration.clone())
                .expect("a policy");
        for period in 0..2 {
            world.snapshot.period = period;
            policy.decide(&world.snapshot);
        }
        world.snapshot.period = 2;
        (world.clone(), policy)
    };
    bencher
        .with_inputs(&mut begun)
        .bench_local_values(|(world, mut policy)| policy.decide(black_box(&world.snapshot)));
}

/// A decision while it rests.
#[divan::bench(args = GROWING)]
fn symbiosis_steady(bencher: Bencher<'_, '_>, size: (usize, u32, usize, usize)) {
    let calibration = Calibration::parse(CALIBRATION, "made up").expect("a calibration");
    let mut policy =
        Symbiosis::with_calibration(SymbiosisConfig::default(), calibration).expect("a policy");
    let world = calibrated_world(size);
    policy.decide(&world.snapshot);
    bencher.bench_local(|| policy.decide(black_box(&world.snapshot)));
}

#[divan::bench(args = GROWING)]
fn masa(bencher: Bencher<'_, '_>, size: (usize, u32, usize, usize)) {
    let calibration = Calibration::parse(CALIBRATION, "made up").expect("a calibration");
    let mut policy = Masa::with_calibration(MasaConfig::default(), &calibration).expect("a policy");
    let world = calibrated_world(size);
    policy.decide(&world.snapshot);
    bencher.bench_local(|| policy.decide(black_box(&world.snapshot)));
}
