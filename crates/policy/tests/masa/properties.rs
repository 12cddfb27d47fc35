//! Properties on random machines and threads.

use super::world::*;
use perch_policy::{Masa, masa::Variant};
use proptest::prelude::*;

/// Threads with loads of both metrics; some without.
fn any_world() -> impl Strategy<Value = World> {
    let level =
        || prop_oneof![1 => Just(None), 2 => Just(Some(0.0)), 5 => (0.0..120e6f64).prop_map(Some)];
    let loads = proptest::collection::vec((level(), level()), 24);
    (any_cores(), any_threads(), loads).prop_map(|(cores, threads, loads)| {
        let mut world = World::new(&cores, &threads);
        for (thread, (l2, fp)) in world.snapshot.threads.iter_mut().zip(loads) {
            if thread.unmanaged.is_some() && thread.allowed.len() == 1 {
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
                t.metrics, t.last_pu, t.bound, t.allowed, t.activity, t.unmanaged
            )
        })
        .collect();
    seen.sort();
    seen
}
