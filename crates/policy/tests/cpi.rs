//! What the policy `cpi` promises, in both variants.

mod support;

use perch_core::{
    Metric, MetricName, MetricSource, Plan, Policy, PuSet, Snapshot, ThreadId, metric::names,
};
use perch_policy::{
    Cpi, CpiConfig,
    cpi::Variant::{self, Paper, Perch},
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use support::{Spec, World, any_cores, any_threads, cores, id};

fn policy(variant: Variant) -> Cpi {
    Cpi::new(CpiConfig {
        variant,
        width: 1.0,
        ..CpiConfig::default()
    })
}

fn any_variant() -> impl Strategy<Value = Variant> {
    prop_oneof![Just(Paper), Just(Perch)]
}

fn set(snapshot: &mut Snapshot, thread: usize, name: &str, value: f64) {
    let metric = Metric {
        value,
        confidence: 1.0,
        source: MetricSource::Counters,
    };
    snapshot.threads[thread]
        .metrics
        .set(MetricName::from(name), metric);
}

/// Busy threads, one on each PU in turn, that ask for so many instructions a cycle alone.
struct Machine {
    world: World,
    demands: Vec<f64>,
}

impl Machine {
    fn new(per_node: usize, smt: usize, demands: &[f64], homes: &[usize]) -> Self {
        let threads: Vec<Spec> = (0..demands.len())
            .map(|at| Spec {
                last_pu: homes[at],
                activity: 1.0,
                ..Spec::busy(0.0)
            })
            .collect();
        let mut machine = Self {
            world: World::new(&cores(1, per_node, smt), &threads),
            demands: demands.to_vec(),
        };
        machine.respond();
        machine
    }

    fn snapshot(&self) -> &Snapshot {
        &self.world.snapshot
    }

    /// The threads on each core, by where they are bound or else were last.
    fn members(&self) -> Vec<Vec<usize>> {
        let topology = &self.snapshot().topology;
        let mut members = vec![Vec::new(); topology.cores.len()];
        for (at, thread) in self.snapshot().threads.iter().enumerate() {
            let bound = thread.bound.as_ref().and_then(PuSet::first);
            let pu = bound.or(thread.last_pu).unwrap();
            members[topology.pu(pu).unwrap().core].push(at);
        }
        members
    }

    /// Each core issues one instruction a cycle and shares it fairly: nobody gets more than he asks for, and nobody
    /// less than another one who asks for as much.
    fn respond(&mut self) {
        for members in self.members() {
            let mut left = 1.0;
            let mut by_demand = members.clone();
            by_demand.sort_by(|a, b| self.demands[*a].total_cmp(&self.demands[*b]));
            for (nth, thread) in by_demand.iter().enumerate() {
                let share: f64 = left / (members.len() - nth) as f64;
                let got = share.min(self.demands[*thread]);
                left -= got;
                set(&mut self.world.snapshot, *thread, names::IPC, got);
            }
        }
    }

    /// What all cores deliver by the paper's model.
    fn throughput(&self) -> f64 {
        let sums = self.members().into_iter();
        sums.map(|members| self.sum(&members).min(1.0)).sum()
    }

    fn sum(&self, members: &[usize]) -> f64 {
        members.iter().map(|at| self.demands[*at]).sum()
    }

    /// The demands on each core, sorted.
    fn balance(&self) -> Vec<Vec<u64>> {
        let demands = |members: Vec<usize>| {
            let mut demands: Vec<u64> = members
                .iter()
                .map(|at| self.demands[*at].to_bits())
                .collect();
            demands.sort_unstable();
            demands
        };
        let mut balance: Vec<_> = self.members().into_iter().map(demands).collect();
        balance.sort_unstable();
        balance
    }

    fn step(&mut self, policy: &mut dyn Policy) -> Plan {
        let plan = policy.decide(self.snapshot());
        check(self.snapshot(), &plan);
        apply(&mut self.world.snapshot, &plan);
        plan
    }
}

fn apply(snapshot: &mut Snapshot, plan: &Plan) {
    let bound = places(plan);
    for thread in &mut snapshot.threads {
        thread.bound = bound.get(&thread.info.id).cloned();
        if let Some(pus) = &thread.bound
            && !pus.contains(thread.last_pu.unwrap())
        {
            thread.last_pu = pus.first();
        }
    }
    snapshot.period += 1;
}

fn places(plan: &Plan) -> BTreeMap<ThreadId, PuSet> {
    let bindings = plan.bindings.iter();
    bindings.map(|b| (b.thread, b.pus.clone())).collect()
}

/// A plan binds live threads that are ours to usable, allowed PUs of one core, once each; at most one a PU unless
/// threads are more than PUs, and then whole cores' PUs.
fn check(snapshot: &Snapshot, plan: &Plan) {
    let usable = snapshot.topology.usable();
    let mut seen = std::collections::BTreeSet::new();
    let mut single = PuSet::new();
    for binding in &plan.bindings {
        let thread = snapshot.thread(binding.thread).expect("a live thread");
        assert!(thread.hands_off.is_none(), "{binding:?} is not ours");
        assert!(seen.insert(binding.thread), "{binding:?} twice");
        assert!(!binding.pus.is_empty(), "{binding:?}");
        assert!(binding.pus.is_subset(&usable), "{binding:?} is not usable");
        assert!(binding.pus.is_subset(&thread.allowed), "{binding:?}");
        let core = snapshot.topology.core_of(binding.pus.first().unwrap());
        assert!(binding.pus.is_subset(&core.unwrap().pus), "{binding:?}");
        assert!(!binding.reason.numbers.is_empty());
        if snapshot.threads.len() <= usable.len() {
            assert!(binding.pus.is_disjoint(&single), "{binding:?}: two on a PU");
            single = single.or(&binding.pus);
        }
    }
    for (released, _) in &plan.released {
        assert!(snapshot.thread(*released).unwrap().bound.is_some());
        assert!(!seen.contains(released));
    }
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
        // Nobody disturbs another here: what is measured is what is asked for.
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
    fn steady_input_moves_nobody_after_the_first_plan(
        variant in any_variant(),
        demands in proptest::collection::vec(any_demand(), 4..30),
        homes in proptest::collection::vec(0..8usize, 30),
    ) {
        let mut machine = Machine::new(4, 2, &demands, &homes);
        // With `perch` the first plan comes from what contended threads were measured to do; the second one may mend it.
        let mut policy = policy(variant);
        for _ in 0..if variant == Paper { 1 } else { 12 } {
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
        // The mix tells the demand whoever runs beside: the policy's model and ours know the same.
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
    let mut machine = table_1(A);
    let mut policy = policy(Perch);
    machine = {
        let mut from_c = table_1(C);
        for _ in 0..8 {
            from_c.step(&mut policy);
            from_c.respond();
        }
        machine.world = from_c.world;
        machine.demands = from_c.demands;
        machine
    };
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
        assert!(plan.remarks[0].contains("known"), "{:?}", plan.remarks);
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
        assert!(few.bindings.is_empty() && few.remarks[0].contains("for 4 cores"));
        let alone = Machine::new(4, 1, &[1.0; 4], &[0, 1, 2, 3]).step(&mut policy(variant));
        assert!(alone.bindings.is_empty() && alone.remarks[0].contains("share"));
    }
}

#[test]
fn where_no_core_can_be_full_nothing_is_bound() {
    let plan = Machine::new(4, 2, &[0.1; 8], &[0, 1, 2, 3, 4, 5, 6, 7]).step(&mut policy(Perch));
    assert!(plan.bindings.is_empty());
    assert!(
        plan.remarks[0].contains("no placement is better"),
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
    // Somebody pinned a thread of CPI 1 to core 0; of ours each of the other cores gets one, core 0 none.
    let mut machine = table_1(D);
    let foreign = &mut machine.world.snapshot.threads[0];
    foreign.hands_off = Some(perch_core::HandsOff::PlacedBefore);
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
