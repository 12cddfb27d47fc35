//! What the policy `sos` promises.

use crate::support::{Spec, World, any_cores, any_threads, cores, id};
use perch_core::{
    Binding, Metric, MetricName, MetricSource, Plan, Policy, PuSet, Snapshot, ThreadId,
    metric::names,
};
use perch_policy::{
    Sos, SosConfig,
    sos::{Candidates, Score},
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn config(candidates: Candidates) -> SosConfig {
    SosConfig {
        candidates,
        samples: 6,
        steady_periods: 5,
        width: 1.0,
        ..SosConfig::default()
    }
}

fn any_candidates() -> impl Strategy<Value = Candidates> {
    prop_oneof![Just(Candidates::Random), Just(Candidates::Cpi)]
}

fn set_ipc(snapshot: &mut Snapshot, thread: usize, value: f64) {
    let metric = Metric {
        value,
        confidence: 1.0,
        source: MetricSource::Simulation,
    };
    let metrics = &mut snapshot.threads[thread].metrics;
    metrics.set(MetricName::from(names::IPC), metric);
}

fn world(per_node: usize, smt: usize, threads: usize) -> World {
    let threads: Vec<Spec> = (0..threads)
        .map(|at| Spec {
            last_pu: at,
            ..Spec::busy(0.0)
        })
        .collect();
    World::new(&cores(1, per_node, smt), &threads)
}

fn core(thread: usize, snapshot: &Snapshot) -> usize {
    let thread = &snapshot.threads[thread];
    let bound = thread.bound.as_ref().and_then(PuSet::first);
    let pu = bound.or(thread.last_pu).unwrap();
    snapshot.topology.pu(pu).unwrap().core
}

/// Cores that issue one instruction a cycle, in proportion to what their threads ask for; what they deliver together.
fn respond(world: &mut World, demands: &[f64]) -> f64 {
    let snapshot = &mut world.snapshot;
    let cores: Vec<usize> = (0..demands.len()).map(|at| core(at, snapshot)).collect();
    let mut sums = vec![0.0; snapshot.topology.cores.len()];
    for (core, demand) in cores.iter().zip(demands) {
        sums[*core] += demand;
    }
    for (at, demand) in demands.iter().enumerate() {
        set_ipc(snapshot, at, demand / f64::max(sums[cores[at]], 1.0));
    }
    sums.iter().map(|sum| sum.min(1.0)).sum()
}

fn places(plan: &Plan) -> BTreeMap<ThreadId, PuSet> {
    let bindings = plan.bindings.iter();
    bindings.map(|b| (b.thread, b.pus.clone())).collect()
}

fn step(world: &mut World, policy: &mut Sos) -> Plan {
    let plan = policy.decide(&world.snapshot);
    let bound = places(&plan);
    for thread in &mut world.snapshot.threads {
        thread.bound = bound.get(&thread.info.id).cloned();
        if let Some(pus) = &thread.bound {
            thread.last_pu = pus.first();
        }
    }
    world.snapshot.period += 1;
    plan
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_can_be_applied(
        candidates in any_candidates(),
        cores in any_cores(),
        threads in any_threads(),
        ipcs in proptest::collection::vec(prop_oneof![0.0..3.0f64, Just(f64::NAN), Just(f64::INFINITY)], 24 * 4),
    ) {
        let mut world = World::new(&cores, &threads);
        let mut policy = Sos::new(SosConfig { tries: 20, ..config(candidates) });
        for ipcs in ipcs.chunks(24) {
            for (at, ipc) in ipcs.iter().take(threads.len()).enumerate() {
                set_ipc(&mut world.snapshot, at, *ipc);
            }
            let plan = policy.decide(&world.snapshot);
            let (mut seen, mut pus) = (BTreeSet::new(), PuSet::new());
            let may_use = |pus: PuSet, binding: &Binding| {
                pus.or(&world.snapshot.thread(binding.thread).unwrap().allowed)
            };
            // Usable PUs that no thread may use are of no help: threads that are all confined to two PUs share them.
            let room = plan.bindings.iter().fold(PuSet::new(), may_use);
            for binding in &plan.bindings {
                let thread = world.snapshot.thread(binding.thread).unwrap();
                prop_assert!(thread.unmanaged.is_none() && seen.insert(binding.thread));
                prop_assert!(!binding.pus.is_empty() && binding.pus.is_subset(&thread.allowed));
                if threads.len() <= room.len() {
                    prop_assert!(binding.pus.is_disjoint(&pus), "{binding:?}");
                    pus = pus.or(&binding.pus);
                }
            }
            step(&mut world, &mut policy);
        }
    }

    #[test]
    fn the_same_seed_and_snapshots_give_the_same_plans(
        candidates in any_candidates(),
        seed in any::<u32>(),
        demands in proptest::collection::vec(0.05..1.0f64, 4..20),
    ) {
        let run = || {
            let mut world = world(4, 2, demands.len());
            let mut policy = Sos::new(SosConfig { seed, ..config(candidates) });
            let plans: Vec<Plan> = (0..20).map(|_| {
                respond(&mut world, &demands);
                step(&mut world, &mut policy)
            }).collect();
            plans
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn the_best_of_the_sampled_schedules_is_kept(
        candidates in any_candidates(),
        seed in any::<u32>(),
        demands in proptest::collection::vec(0.05..1.0f64, 8),
    ) {
        let mut world = world(4, 2, 8);
        let mut policy = Sos::new(SosConfig { seed, ..config(candidates) });
        let mut tried = Vec::new();
        loop {
            respond(&mut world, &demands);
            let plan = step(&mut world, &mut policy);
            let delivered = respond(&mut world, &demands);
            if plan.bindings[0].reason.text.starts_with("tries") {
                tried.push(delivered);
                prop_assert!(tried.len() <= 6);
                continue;
            }
            let best = tried.iter().copied().fold(0.0, f64::max);
            prop_assert!((delivered - best).abs() < 1e-9, "{delivered} of {tried:?}");
            let steady = places(&plan);
            for _ in 1..5 {
                prop_assert_eq!(&places(&step(&mut world, &mut policy)), &steady);
            }
            let next = step(&mut world, &mut policy);
            prop_assert!(next.bindings[0].reason.text.starts_with("tries schedule 1"));
            break;
        }
    }

    #[test]
    fn schedules_fill_all_cores_alike(threads in 4..40usize, seed in any::<u32>()) {
        let mut world = world(4, 2, threads);
        let mut policy = Sos::new(SosConfig { seed, ..config(Candidates::Random) });
        for _ in 0..8 {
            respond(&mut world, &vec![0.5; threads]);
            let plan = step(&mut world, &mut policy);
            prop_assert_eq!(plan.bindings.len(), threads);
            let mut counts = [0usize; 4];
            for at in 0..threads {
                counts[core(at, &world.snapshot)] += 1;
            }
            let most = counts.iter().max().unwrap();
            prop_assert!(counts.iter().all(|n| n + 1 >= *most), "{counts:?}");
        }
    }
}

#[test]
fn the_cpi_model_cuts_the_space_down_to_good_schedules() {
    // Table 1's threads, whose demand was seen alone before.
    let demands: Vec<f64> = [1.0, 6.0, 11.0, 16.0]
        .into_iter()
        .flat_map(|cpi| [1.0 / cpi; 4])
        .collect();
    let worst = |candidates| {
        let mut world = world(4, 4, 16);
        for (at, demand) in demands.iter().enumerate() {
            set_ipc(&mut world.snapshot, at, *demand);
        }
        let mut policy = Sos::new(config(candidates));
        let tried = (0..6).map(|_| {
            step(&mut world, &mut policy);
            respond(&mut world, &demands)
        });
        tried.fold(f64::INFINITY, f64::min)
    };
    // Every core has a thread of CPI 1 (4.0), or a sampled schedule would be worse than the model allows.
    assert!(worst(Candidates::Cpi) >= 0.95 * 4.0 - 1e-9);
    assert!(worst(Candidates::Random) < 0.95 * 4.0);
}

#[test]
fn a_thread_that_comes_or_goes_begins_a_new_search() {
    let demands = [0.5; 8];
    let mut world = world(4, 2, 8);
    let mut policy = Sos::new(config(Candidates::Random));
    for _ in 0..8 {
        respond(&mut world, &demands);
        step(&mut world, &mut policy);
    }
    let text = |plan: &Plan| plan.bindings[0].reason.text.clone();
    let steady = step(&mut world, &mut policy);
    assert!(
        text(&steady).contains("was the best of 6"),
        "{}",
        text(&steady)
    );
    world.snapshot.threads[3].activity = 0.0;
    let plan = step(&mut world, &mut policy);
    assert!(
        text(&plan).starts_with("tries schedule 1"),
        "{}",
        text(&plan)
    );
    assert_eq!(plan.released[0].0, id(3));
}

#[test]
fn speedup_weighs_a_slow_thread_as_much_as_a_fast_one() {
    // Two cores of two; one fast thread and three slow ones that lose most when two of them share.
    let judge = |score| {
        let mut world = world(2, 2, 4);
        let mut policy = Sos::new(SosConfig {
            score,
            samples: 3,
            ..config(Candidates::Random)
        });
        for (at, ipc) in [2.0, 0.2, 0.2, 0.2].into_iter().enumerate() {
            set_ipc(&mut world.snapshot, at, ipc);
        }
        let mut partner = None;
        for _ in 0..4 {
            step(&mut world, &mut policy);
            let with = (1..4).find(|at| core(*at, &world.snapshot) == core(0, &world.snapshot));
            // The fast thread loses a little beside thread 1; beside the others these lose nearly all.
            let lost = if with == Some(1) {
                (1.7, 1.0)
            } else {
                (2.0, 0.1)
            };
            for at in 0..4 {
                let ipc = match at {
                    0 => lost.0,
                    _ if Some(at) == with => 0.2 * lost.1,
                    _ => 0.2,
                };
                set_ipc(&mut world.snapshot, at, ipc);
            }
            partner = with;
        }
        partner
    };
    assert_eq!(judge(Score::Speedup), Some(1));
    assert_ne!(judge(Score::Throughput), Some(1));
}

#[test]
fn threads_that_can_only_be_on_two_pus_share_them() {
    // A core of three PUs. Where threads 1 and 2 may be, no third fits, though the core's second PU is idle.
    let on = |allowed: [bool; 3]| Spec {
        allowed: Some(allowed.to_vec()),
        ..Spec::busy(0.0)
    };
    let fixed = Spec {
        unmanaged: true,
        ..on([false, false, true])
    };
    let threads = [on([true, false, true]), fixed, on([false, false, true])];
    let mut world = World::new(&cores(1, 1, 3), &threads);
    for at in 0..3 {
        set_ipc(&mut world.snapshot, at, 1.0);
    }
    let plan = step(&mut world, &mut Sos::new(config(Candidates::Random)));
    for at in [0, 2] {
        assert_eq!(places(&plan)[&id(at)], world.snapshot.threads[at].allowed);
    }
}

#[test]
fn nothing_is_bound_where_nothing_can_be_judged() {
    let mut world = world(4, 2, 8);
    let plan = step(&mut world, &mut Sos::default());
    assert!(plan.bindings.is_empty());
    assert!(
        plan.remarks[0].text.contains("not known"),
        "{:?}",
        plan.remarks
    );
}
