//! What WorkOver's policy promises, in both variants.

use crate::support::*;
use perch_core::Policy;
use perch_policy::{
    WorkOver, WorkOverConfig,
    workover::Variant::{self, Paper, Perch},
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn policy(variant: Variant) -> WorkOver {
    WorkOver::new(WorkOverConfig {
        variant,
        ..WorkOverConfig::default()
    })
}

fn any_variant() -> impl Strategy<Value = Variant> {
    prop_oneof![Just(Paper), Just(Perch)]
}

/// Shares of `count` FP-heavy and `count` integer threads in any order.
fn mixed(count: usize) -> impl Strategy<Value = Vec<f64>> {
    let heavy = proptest::collection::vec(0.1..0.9f64, count);
    let light = proptest::collection::vec(0.0..0.02f64, count);
    (heavy, light)
        .prop_map(|(heavy, light)| [heavy, light].concat())
        .prop_shuffle()
}

/// Runs until two plans in a row are the same; how many periods that took.
fn settle(world: &mut World, policy: &mut dyn Policy) -> usize {
    let mut last = places(&world.step(policy));
    for period in 1..100 {
        let next = places(&world.step(policy));
        if next == last {
            return period;
        }
        last = next;
    }
    panic!("no end of changes");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_can_be_applied(
        variant in any_variant(),
        cores in any_cores(),
        threads in any_threads(),
        changes in proptest::collection::vec((0..24usize, any_share(), 0.0..1.0f64), 0..20),
    ) {
        let (mut world, mut policy) = (World::new(&cores, &threads), policy(variant));
        world.step(&mut policy);
        for (thread, share, activity) in changes {
            if thread < world.snapshot.threads.len() {
                world.set_share(thread, share);
                world.snapshot.threads[thread].activity = activity;
            }
            world.step(&mut policy);
        }
    }

    #[test]
    fn the_same_observations_settle_for_good(variant in any_variant(), cores in any_cores(), threads in any_threads()) {
        let (mut world, mut policy) = (World::new(&cores, &threads), policy(variant));
        settle(&mut world, &mut policy);
        let settled = policy.decide(&world.snapshot);
        for _ in 0..5 {
            let plan = world.step(&mut policy);
            prop_assert_eq!(places(&plan), places(&settled));
            prop_assert!(plan.released.is_empty());
        }
    }

    #[test]
    fn a_plan_in_force_is_planned_again(variant in any_variant(), shares in proptest::collection::vec(any_share(), 0..20)) {
        let mut world = World::regular(2, 2, 2, &shares);
        let mut policy = policy(variant);
        let plan = world.step(&mut policy);
        prop_assert_eq!(places(&world.step(&mut policy)), places(&plan));
    }

    #[test]
    fn noise_below_the_margin_moves_no_thread_for_long(
        shares in proptest::collection::vec(any_share(), 4..14),
        noise in proptest::collection::vec(-0.04..0.04f64, 14 * 20),
    ) {
        let mut world = World::regular(1, 4, 2, &shares);
        let mut policy = policy(Perch);
        let mut changes = Vec::new();
        let mut last = None;
        for period in 0..20 {
            for (at, share) in shares.iter().enumerate() {
                let noise = noise[period * 14 + at] * share.max(THRESHOLD);
                world.set_share(at, (share + noise).max(0.0));
            }
            let plan = places(&world.step(&mut policy));
            if last.as_ref() != Some(&plan) {
                changes.push(period);
            }
            last = Some(plan);
        }
        // What is far from every cut is placed at once; what is near to one may be seen on its other side a few times.
        prop_assert!(changes.len() <= 4, "changed in periods {changes:?}");
    }

    #[test]
    fn as_many_fp_threads_as_domains_get_one_each(
        variant in any_variant(),
        (smt, shares) in (2..5usize).prop_flat_map(|smt| (Just(smt), mixed(4))),
        last in proptest::collection::vec(0..16usize, 8),
    ) {
        let mut world = World::regular(1, 4, smt, &shares);
        for (thread, last) in world.snapshot.threads.iter_mut().zip(last) {
            thread.last_pu = Some((last % (4 * smt)) as u32);
        }
        let mut policy = policy(variant);
        world.step(&mut policy);
        prop_assert_eq!(world.fp_bound(), vec![1; 4]);
        prop_assert_eq!(world.bound(|_| true), vec![2; 4]);
    }

    #[test]
    fn phase_changes_are_followed_within_two_periods(
        variant in any_variant(),
        before in mixed(4),
        after in mixed(4),
    ) {
        let mut world = World::regular(1, 4, 2, &before);
        let mut policy = policy(variant);
        for _ in 0..5 {
            world.step(&mut policy);
        }
        for (thread, share) in after.iter().enumerate() {
            world.set_share(thread, *share);
        }
        world.step(&mut policy);
        world.step(&mut policy);
        prop_assert_eq!(world.fp_bound(), vec![1; 4]);
    }

    #[test]
    fn two_threads_that_swap_their_roles_move_and_no_other(shares in mixed(4), pick in 0..4usize) {
        let mut world = World::regular(1, 4, 2, &shares);
        let mut policy = policy(Perch);
        let before = places(&world.step(&mut policy));
        let heavy = (0..8).filter(|at| shares[*at] >= THRESHOLD).nth(pick).unwrap();
        let core = |at: usize| before[&id(at)] / 2;
        let light = (0..8).find(|at| shares[*at] < THRESHOLD && core(*at) != core(heavy)).unwrap();
        world.set_share(heavy, shares[light]);
        world.set_share(light, shares[heavy]);
        world.step(&mut policy);
        let after = places(&world.step(&mut policy));
        prop_assert_eq!(world.fp_bound(), vec![1; 4]);
        prop_assert_eq!(after.iter().filter(|(id, pu)| before[id] != **pu).count(), 2);
    }

    #[test]
    fn few_samples_are_enough_to_follow_an_exchange_of_roles(samples in 10..60u32, order in Just([0, 1, 2, 3, 4, 5, 6, 7]).prop_shuffle()) {
        let mut world = World::regular(1, 4, 2, &[0.0; 8]);
        let mut policy = policy(Perch);
        let assign = |world: &mut World, heavy: &[usize]| {
            for at in 0..8 {
                world.set_sampled(at, if heavy.contains(&at) { 0.3 } else { 0.0 }, samples);
            }
        };
        assign(&mut world, &order[..4]);
        world.step(&mut policy);
        // Three of four exchange their roles.
        assign(&mut world, &order[3..7]);
        for _ in 0..2 {
            let plan = world.step(&mut policy);
            prop_assert!(!plan.bindings.is_empty(), "{:?}", plan.remarks);
        }
        prop_assert_eq!(world.fp_bound(), vec![1; 4]);
    }

    #[test]
    fn fewer_busy_threads_than_domains_are_left_alone(
        variant in any_variant(),
        shares in proptest::collection::vec(any_share(), 8),
        busy in 0..4usize,
    ) {
        let mut world = World::regular(1, 4, 2, &shares);
        let mut policy = policy(variant);
        world.step(&mut policy);
        for thread in &mut world.snapshot.threads[busy..] {
            thread.activity = 0.01;
        }
        let plan = world.step(&mut policy);
        prop_assert!(plan.bindings.is_empty());
        let why = if busy == 0 { "no thread is busy" } else { "for 4 domains" };
        prop_assert!(plan.remarks[0].text.contains(why), "{:?}", plan.remarks);
    }

    #[test]
    fn never_worse_than_doing_nothing(
        cores in any_cores(),
        threads in proptest::collection::vec((any_share(), any::<u32>()), 20),
        order in Just((0..20usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let mut world = World::new(&cores, &[]);
        let usable: Vec<u32> = world.snapshot.topology.usable().iter().collect();
        // Every thread is bound, each to its own PU among those that it may use.
        let specs: Vec<Spec> = (order.iter().filter_map(|at| usable.get(*at)).zip(&threads))
            .map(|(pu, (share, allowed))| Spec {
                last_pu: *pu as usize,
                bound: true,
                allowed: Some((0..20).map(|at| at == *pu || allowed % 3 == 0 || allowed >> at & 1 == 1).collect()),
                ..Spec::busy(*share)
            })
            .collect();
        world = World::new(&cores, &specs);
        let before = world.fp_bound();
        let plan = world.step(&mut policy(Perch));
        prop_assert!(plan.bindings.is_empty() || plan.bindings.len() == specs.len());
        prop_assert!(pairs(&world.fp_bound()) <= pairs(&before));
    }

    #[test]
    fn as_many_pairs_as_any_even_spread_has(
        shares in proptest::collection::vec(any_share(), 4..9),
        last in proptest::collection::vec(0..8usize, 9),
    ) {
        let mut world = World::regular(1, 4, 2, &shares);
        for (thread, last) in world.snapshot.threads.iter_mut().zip(last) {
            thread.last_pu = Some(last as u32);
        }
        let plan = world.step(&mut policy(Perch));
        let heavy = shares.iter().filter(|share| **share >= THRESHOLD).count();
        if !plan.bindings.is_empty() && shares.len() <= 8 {
            let even: Vec<usize> = (0..4).map(|domain| (heavy + domain) / 4).collect();
            prop_assert_eq!(pairs(&world.fp_bound()), pairs(&even));
        }
    }

    /// Renumbering the threads renumbers the plan: what each kind of thread (FP share, activity, last PU) gets is the
    /// same. Threads that are alike in all of these may stand for each other.
    #[test]
    fn thread_numbers_do_not_matter(
        variant in any_variant(),
        shares in proptest::collection::vec(any_share(), 0..16),
        order in Just((0..16usize).collect::<Vec<_>>()).prop_shuffle(),
        periods in 1..4usize,
    ) {
        let gets = |shares: &[(usize, f64)]| {
            let threads: Vec<Spec> = shares.iter().map(|(at, share)| Spec { last_pu: at * 5, ..Spec::busy(*share) }).collect();
            let mut world = World::new(&cores(2, 2, 2), &threads);
            let mut policy = policy(variant);
            let mut plan = BTreeMap::new();
            let origin: Vec<_> = world.snapshot.threads.iter().map(|t| t.last_pu).collect();
            for _ in 0..periods {
                plan = places(&world.step(&mut policy));
            }
            let mut gets: Vec<_> = (plan.iter())
                .map(|(thread, pu)| {
                    let at = (thread.tid - 1000) as usize;
                    (shares[at].1.to_bits(), origin[at], *pu)
                })
                .collect();
            gets.sort();
            gets
        };
        let given: Vec<(usize, f64)> = shares.iter().copied().enumerate().collect();
        let mut permuted = given.clone();
        permuted.sort_by_key(|(at, _)| order[*at]);
        prop_assert_eq!(gets(&given), gets(&permuted));
    }
}

#[test]
fn an_even_spread_that_is_there_by_luck_is_bound_in_place() {
    let mut world = World::regular(1, 4, 2, &[0.5, 0.0, 0.0, 0.6, 0.4, 0.0, 0.0, 0.7]);
    let plan = world.step(&mut policy(Perch));
    assert!(
        places(&plan)
            .iter()
            .all(|(thread, pu)| thread.tid == 1000 + *pu as i32)
    );
    assert!(
        plan.bindings[0]
            .reason
            .text
            .ends_with("bound where it runs")
    );
}

#[test]
fn where_nothing_is_shared_nothing_is_bound() {
    for variant in [Paper, Perch] {
        let plan = World::regular(1, 4, 1, &[0.5, 0.0, 0.5, 0.0, 0.5]).step(&mut policy(variant));
        assert!(plan.bindings.is_empty());
        assert!(plan.remarks[0].text.contains("share"), "{:?}", plan.remarks);
    }
}

#[test]
fn where_nothing_is_to_be_gained_nothing_is_bound() {
    for (share, kind) in [(0.01, "FP-light"), (0.5, "FP-heavy")] {
        let plan = World::regular(1, 4, 2, &[share; 8]).step(&mut policy(Perch));
        assert!(plan.bindings.is_empty());
        assert!(plan.remarks[0].text.contains(kind), "{:?}", plan.remarks);
        let plan = World::regular(1, 4, 2, &[share; 8]).step(&mut policy(Paper));
        assert_eq!(plan.bindings.len(), 8);
    }
}

#[test]
fn heavy_threads_are_spread_over_nodes_only_to_get_a_domain_of_their_own() {
    // Node 0 is PUs 0 to 3, node 1 is PUs 4 to 7; two cores of two PUs each.
    let crossing = |shares: &[f64; 8]| {
        let mut world = World::regular(2, 2, 2, shares);
        let plan = world.step(&mut policy(Perch));
        assert!(!plan.bindings.is_empty(), "{:?}", plan.remarks);
        let places = places(&plan);
        (0..8)
            .filter(|at| (places[&id(*at)] < 4) != (*at < 4))
            .count()
    };
    assert_eq!(crossing(&[0.5, 0.5, 0.0, 0.0, 0.5, 0.5, 0.0, 0.0]), 0);
    assert_eq!(crossing(&[0.5, 0.5, 0.5, 0.0, 0.5, 0.0, 0.0, 0.0]), 2);
    assert_eq!(crossing(&[0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0]), 4);
}

#[test]
fn a_thread_that_comes_back_gets_the_pu_that_it_used_most() {
    for variant in [Paper, Perch] {
        let mut world = World::regular(1, 4, 2, &[0.5, 0.0, 0.0, 0.6, 0.4, 0.0, 0.0, 0.7]);
        let mut policy = policy(variant);
        let before = (0..5)
            .map(|_| places(&world.step(&mut policy)))
            .last()
            .unwrap();
        world.snapshot.threads[3].activity = 0.0;
        let without = world.step(&mut policy);
        assert!(!places(&without).contains_key(&id(3)));
        world.snapshot.threads[3].last_pu = Some(0);
        world.step(&mut policy);
        world.snapshot.threads[3].activity = 0.9;
        assert_eq!(
            places(&world.step(&mut policy))[&id(3)],
            before[&id(3)],
            "{variant:?}"
        );
    }
}

#[test]
fn idle_threads_are_let_go_with_a_reason() {
    let mut world = World::regular(1, 4, 2, &[0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0]);
    let mut policy = policy(Perch);
    world.step(&mut policy);
    world.snapshot.threads[6].activity = 0.03;
    let plan = world.step(&mut policy);
    assert_eq!(plan.released.len(), 1);
    assert_eq!(plan.released[0].0, id(6));
    assert_eq!(
        plan.released[0].1.text,
        "idle: runnable for 3 % of the period"
    );
}

#[test]
fn a_bound_thread_stays_while_nothing_is_known_of_it() {
    let mut world = World::regular(1, 4, 2, &[0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0]);
    let mut policy = policy(Perch);
    let before = places(&world.step(&mut policy));
    for at in [1, 5] {
        world.snapshot.threads[at].metrics = Default::default();
    }
    assert_eq!(places(&world.step(&mut policy)), before);
}

#[test]
fn threads_placed_by_others_count_where_they_are() {
    // The user pinned an FP thread to PU 0: ours go to the three other cores first.
    let mut world = World::regular(1, 4, 2, &[0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0]);
    let foreign = &mut world.snapshot.threads[0];
    foreign.unmanaged = Some(perch_core::Unmanaged::PlacedBefore);
    foreign.allowed = perch_core::PuSet::single(0);
    world.step(&mut policy(Perch));
    assert_eq!(world.fp_bound(), [0, 1, 1, 1]);
}
