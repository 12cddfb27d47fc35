//! What the policy `cpi` does: the paper's table 1, and when nothing is to be done.

use crate::{
    cpi_machine::{Machine, places, policy, set},
    support::id,
};
use perch_core::{Metric, MetricName, MetricSource, PuSet, metric::names};
use perch_policy::cpi::Variant::{Paper, Perch};
use std::collections::BTreeMap;

/// Table 1: four threads each with CPI 1, 6, 11, 16.
const TABLE_1: [f64; 16] = [
    1.0, 1.0, 1.0, 1.0, 6.0, 6.0, 6.0, 6.0, 11.0, 11.0, 11.0, 11.0, 16.0, 16.0, 16.0, 16.0,
];

/// A schedule of table 1: on which PU each thread is, four PUs a core.
fn table_1(schedule: [[usize; 4]; 4]) -> Machine {
    let demands: Vec<f64> = schedule
        .iter()
        .flatten()
        .map(|cpi| 1.0 / *cpi as f64)
        .collect();
    Machine::new(4, 4, &demands, &(0..16).collect::<Vec<_>>())
}

const A: [[usize; 4]; 4] = [[1, 6, 11, 16]; 4];
const C: [[usize; 4]; 4] = [[1, 1, 6, 6], [1, 1, 6, 6], [11; 4], [16; 4]];
const D: [[usize; 4]; 4] = [[1; 4], [6; 4], [11; 4], [16; 4]];

#[test]
fn table_1_from_its_single_threaded_cpi_is_schedule_a() {
    let (a, c, d) = (table_1(A), table_1(C), table_1(D));
    // The paper's own model: 1.75 and 1.53 times (simulated there: twice and 1.5 times).
    assert!((a.throughput() / d.throughput() - 1.75).abs() < 0.01);
    assert!((a.throughput() / c.throughput() - 1.53).abs() < 0.01);
    for (variant, homes) in [(Paper, &d), (Perch, &d), (Perch, &c)] {
        let demands = &homes.demands;
        let mut machine = Machine::new(4, 4, demands, &(0..16).collect::<Vec<_>>());
        for (at, demand) in demands.iter().enumerate() {
            set(&mut machine.world.snapshot, at, names::IPC, *demand);
        }
        if variant == Perch {
            for (at, demand) in demands.iter().enumerate() {
                machine.world.snapshot.threads[at].metrics = Default::default();
                set(
                    &mut machine.world.snapshot,
                    at,
                    names::DELAY_LATENCY,
                    1.0 / demand - 1.0,
                );
            }
        }
        machine.step(&mut policy(variant));
        assert!(
            (machine.throughput() - a.throughput()).abs() < 1e-9,
            "{variant:?}"
        );
        if variant == Paper {
            assert_eq!(machine.balance(), a.balance());
        }
    }
    let sum: f64 = TABLE_1.iter().map(|cpi| 1.0 / cpi).sum();
    assert!((a.demands.iter().sum::<f64>() - sum).abs() < 1e-9);
}

#[test]
fn table_1_is_found_from_measured_cpi_too() {
    // On (d)'s first core four threads get a quarter each: measured alone, that is no demand worth moving for.
    for start in [C, D] {
        let mut machine = table_1(start);
        let mut policy = policy(Perch);
        for _ in 0..12 {
            machine.step(&mut policy);
            machine.respond();
        }
        let best = table_1(A).throughput();
        assert!(
            machine.throughput() > 0.97 * best,
            "{} of {best}",
            machine.throughput()
        );
    }
}

#[test]
fn a_change_of_demand_moves_few() {
    let mut machine = table_1(C);
    let mut policy = policy(Perch);
    for _ in 0..8 {
        machine.step(&mut policy);
        machine.respond();
    }
    let before = places(&machine.step(&mut policy));
    // A thread of CPI 1 and one of CPI 16 change their roles.
    let low = machine.demands.iter().position(|d| *d == 1.0).unwrap();
    let high = machine.demands.iter().position(|d| *d == 0.0625).unwrap();
    machine.demands.swap(low, high);
    let mut last = BTreeMap::new();
    for _ in 0..8 {
        machine.respond();
        last = places(&machine.step(&mut policy));
    }
    let moved = last.iter().filter(|(id, pus)| before[id] != **pus).count();
    assert!(moved <= 4, "{moved} moved");
    assert!(machine.throughput() > 0.97 * table_1(A).throughput());
}

#[test]
fn unknown_demand_binds_nothing_and_says_so() {
    for variant in [Paper, Perch] {
        let mut machine = table_1(D);
        for thread in &mut machine.world.snapshot.threads {
            thread.metrics = Default::default();
        }
        let plan = machine.step(&mut policy(variant));
        assert!(plan.bindings.is_empty());
        assert!(plan.remarks[0].text.contains("known"), "{:?}", plan.remarks);
    }
}

#[test]
fn a_bound_thread_stays_while_nothing_is_known_of_it() {
    let mut machine = table_1(C);
    let mut policy = policy(Perch);
    for _ in 0..8 {
        machine.step(&mut policy);
        machine.respond();
    }
    let before = places(&machine.step(&mut policy));
    assert_eq!(before.len(), 16);
    for at in [0, 5, 15] {
        machine.world.snapshot.threads[at].metrics = Default::default();
    }
    assert_eq!(places(&machine.step(&mut policy)), before);
    for thread in &mut machine.world.snapshot.threads {
        thread.metrics = Default::default();
    }
    assert_eq!(places(&machine.step(&mut policy)), before);
}

#[test]
fn fewer_threads_than_cores_and_lone_pus_are_left_alone() {
    for variant in [Paper, Perch] {
        let few = Machine::new(4, 4, &[1.0; 3], &[0, 1, 2]).step(&mut policy(variant));
        assert!(few.bindings.is_empty() && few.remarks[0].text.contains("for 4 cores"));
        let alone = Machine::new(4, 1, &[1.0; 4], &[0, 1, 2, 3]).step(&mut policy(variant));
        assert!(alone.bindings.is_empty() && alone.remarks[0].text.contains("share"));
    }
}

#[test]
fn where_no_core_can_be_full_nothing_is_bound() {
    let plan = Machine::new(4, 2, &[0.1; 8], &[0, 1, 2, 3, 4, 5, 6, 7]).step(&mut policy(Perch));
    assert!(plan.bindings.is_empty());
    assert!(
        plan.remarks[0].text.contains("no placement is better"),
        "{:?}",
        plan.remarks
    );
}

#[test]
fn idle_threads_are_let_go_with_a_reason() {
    let mut machine = table_1(D);
    let mut policy = policy(Paper);
    machine.step(&mut policy);
    machine.world.snapshot.threads[6].activity = 0.03;
    let plan = machine.step(&mut policy);
    assert_eq!(plan.released.len(), 1);
    assert_eq!(plan.released[0].0, id(6));
    assert_eq!(
        plan.released[0].1.text,
        "idle: runnable for 3 % of the period"
    );
}

#[test]
fn threads_placed_by_others_count_where_they_are() {
    // The user pinned a thread of CPI 1 to core 0; of ours each of the other cores gets one, core 0 none.
    let mut machine = table_1(D);
    let foreign = &mut machine.world.snapshot.threads[0];
    foreign.unmanaged = Some(perch_core::Unmanaged::PlacedBefore);
    foreign.allowed = PuSet::single(0);
    let mut policy = policy(Perch);
    for _ in 0..12 {
        machine.step(&mut policy);
        machine.respond();
    }
    for members in machine.members() {
        let ones = members.iter().filter(|at| machine.demands[**at] == 1.0);
        assert_eq!(ones.count(), 1);
    }
}

#[test]
fn the_mix_stands_in_for_cycles_that_cannot_be_counted() {
    let mut machine = table_1(D);
    for (at, thread) in machine.world.snapshot.threads.iter_mut().enumerate() {
        thread.metrics = Default::default();
        // The first four only compute; the others load all the time.
        let loads = if at < 4 { 0.0 } else { 1.0 };
        for (name, value) in [(names::LOAD_SHARE, loads), (names::BRANCH_SHARE, 0.0)] {
            set_sampled(thread, name, value);
        }
    }
    let plan = machine.step(&mut policy(Perch));
    let first = plan.bindings[0].reason.numbers.clone();
    assert_eq!((&*first[0].0, first[0].1), ("demand", 1.0));
    // A load that hits takes a cycle and delays by four (section 4).
    let last = &plan.bindings[15].reason.numbers;
    assert!((last[0].1 - 0.2).abs() < 1e-9);
    assert!(last[2].1 < 0.9, "{last:?}");
    for members in machine.members() {
        assert_eq!(members.iter().filter(|at| **at < 4).count(), 1);
    }
}

fn set_sampled(thread: &mut perch_core::ThreadState, name: &str, value: f64) {
    let metric = Metric {
        value,
        confidence: 0.9,
        source: MetricSource::Sampling,
    };
    thread.metrics.set(MetricName::from(name), metric);
}
