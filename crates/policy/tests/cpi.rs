//! What the policy `cpi` promises, in both variants, on any threads.

use crate::{
    cpi_machine::{Machine, apply, check, places, policy, set},
    support::{World, any_cores, any_threads},
};
use perch_core::{Policy, PuSet, metric::names};
use perch_policy::{
    Cpi, CpiConfig,
    cpi::Variant::{self, Paper, Perch},
};
use proptest::prelude::*;

fn any_variant() -> impl Strategy<Value = Variant> {
    prop_oneof![Just(Paper), Just(Perch)]
}

/// The least possible largest sum of `demands` over `cores` cores with `room` contexts each.
fn optimum(demands: &[f64], sums: &mut [(f64, usize)], room: usize) -> f64 {
    let Some((first, rest)) = demands.split_first() else {
        return sums.iter().map(|(sum, _)| *sum).fold(0.0, f64::max);
    };
    let mut best = f64::INFINITY;
    for core in 0..sums.len() {
        if sums[core].1 == room {
            continue;
        }
        let before = sums[core];
        sums[core] = (before.0 + first, before.1 + 1);
        best = best.min(optimum(rest, sums, room));
        sums[core] = before;
    }
    best
}

fn any_demand() -> impl Strategy<Value = f64> {
    prop_oneof![3 => 0.05..1.0f64, 1 => Just(1.0), 1 => Just(0.0625), 1 => Just(0.25)]
}

fn odd_metric() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.0..4.0f64,
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(-1.0),
        1 => Just(1e300),
        1 => Just(1e-300),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_can_be_applied_whatever_was_measured(
        variant in any_variant(),
        width in prop_oneof![Just(0.0), 0.5..4.0f64],
        cores in any_cores(),
        threads in any_threads(),
        metrics in proptest::collection::vec((0..24usize, 0..6usize, odd_metric()), 0..80),
    ) {
        let names = [names::IPC, names::IPC, names::LOAD_SHARE, names::BRANCH_SHARE, names::MEMORY_INTENSITY, names::DELAY_LATENCY];
        let mut world = World::new(&cores, &threads);
        let mut policy = Cpi::new(CpiConfig { variant, width, ..CpiConfig::default() });
        for metrics in metrics.chunks(20) {
            for (thread, name, value) in metrics {
                if *thread < threads.len() {
                    set(&mut world.snapshot, *thread, names[*name], *value);
                }
            }
            let plan = policy.decide(&world.snapshot);
            check(&world.snapshot, &plan);
            apply(&mut world.snapshot, &plan);
        }
    }

    #[test]
    fn the_paper_balances_as_well_as_lpt(
        (smt, demands) in (2..4usize).prop_flat_map(|smt| (Just(smt), proptest::collection::vec(any_demand(), 3..=3 * smt))),
        homes in Just((0..9usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        // No thread disturbs another here: what is measured is what is asked for.
        let homes: Vec<usize> = homes.into_iter().map(|pu| pu % (3 * smt)).collect();
        let mut machine = Machine::new(3, smt, &demands, &homes);
        for (at, demand) in demands.iter().enumerate() {
            set(&mut machine.world.snapshot, at, names::IPC, *demand);
        }
        machine.step(&mut policy(Paper));
        let worst = machine.members().iter().map(|m| machine.sum(m)).fold(0.0, f64::max);
        let best = optimum(&demands, &mut [(0.0, 0); 3], smt);
        prop_assert!(worst <= 4.0 / 3.0 * best + 1e-9, "{worst} > 4/3 of {best}");
    }

    #[test]
    fn steady_input_moves_no_thread_after_the_first_plan(
        variant in any_variant(),
        demands in proptest::collection::vec(any_demand(), 4..30),
        homes in proptest::collection::vec(0..8usize, 30),
    ) {
        let mut machine = Machine::new(4, 2, &demands, &homes);
        // With `perch` the first plan comes from what contended threads were measured to do; the second one may mend it.
        let mut policy = policy(variant);
        for _ in 0..if variant == Paper { 1 } else { 25 } {
            machine.step(&mut policy);
            if variant == Perch {
                machine.respond();
            }
        }
        let settled = places(&policy.decide(machine.snapshot()));
        for _ in 0..5 {
            prop_assert_eq!(&places(&machine.step(&mut policy)), &settled);
        }
    }

    #[test]
    fn thread_numbers_do_not_change_the_balance(
        variant in any_variant(),
        demands in proptest::collection::vec(any_demand(), 16),
        order in Just((0..16usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let balance = |order: &[usize]| {
            let demands: Vec<f64> = order.iter().map(|at| demands[*at]).collect();
            let mut machine = Machine::new(4, 4, &demands, order);
            machine.step(&mut policy(variant));
            machine.balance()
        };
        prop_assert_eq!(balance(&(0..16).collect::<Vec<_>>()), balance(&order));
    }

    #[test]
    fn where_demand_is_known_no_plan_delivers_less_than_the_present_one(
        demands in proptest::collection::vec(any_demand(), 4..17),
        homes in Just((0..16usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        // The mix gives the demand, whichever threads co-run: the policy's model and ours know the same.
        let mut machine = Machine::new(4, 4, &demands, &homes);
        for (at, demand) in demands.iter().enumerate() {
            let thread = &mut machine.world.snapshot.threads[at];
            thread.metrics = Default::default();
            thread.bound = thread.last_pu.map(PuSet::single);
            set(&mut machine.world.snapshot, at, names::DELAY_LATENCY, 1.0 / demand - 1.0);
        }
        let mut policy = policy(Perch);
        for _ in 0..3 {
            let before = machine.throughput();
            let plan = machine.step(&mut policy);
            prop_assert!(machine.throughput() >= before - 1e-9);
            prop_assert!(plan.bindings.is_empty() || plan.bindings.len() == demands.len());
        }
    }

    #[test]
    fn more_threads_than_pus_queue_evenly(
        variant in any_variant(),
        demands in proptest::collection::vec(any_demand(), 100),
    ) {
        // The paper's own case: a hundred threads on 16 contexts.
        let homes: Vec<usize> = (0..100).map(|at| at * 4 / 25).collect();
        let mut machine = Machine::new(4, 4, &demands, &homes);
        let before = machine.members().iter().map(|m| machine.sum(m) / 25.0 * 4.0).map(|d| d.min(1.0)).sum::<f64>();
        let plan = machine.step(&mut policy(variant));
        if variant == Paper {
            prop_assert_eq!(plan.bindings.len(), 100);
        }
        if !plan.bindings.is_empty() {
            for members in machine.members() {
                prop_assert_eq!(members.len(), 25);
            }
            prop_assert!(plan.bindings.iter().all(|b| b.pus.len() == 4));
            let after = machine.members().iter().map(|m| machine.sum(m) / 25.0 * 4.0).map(|d| d.min(1.0)).sum::<f64>();
            prop_assert!(variant == Perch || after >= before - 0.15, "{after} < {before}");
        }
    }
}
