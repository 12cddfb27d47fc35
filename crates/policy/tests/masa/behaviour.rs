//! What happens besides: threads that come back, fall idle or are not measured.

use super::world::*;
use perch_policy::masa::Variant;

#[test]
fn swaps_that_come_back_are_counted_and_wait_longer_each_time() {
    let mut world = world(2, 2, &[INT_A, INT_B, FP_A, FP_B]);
    let mut policy = paper(Variant::Perch);
    let mut remarks = Vec::new();
    for period in 0..40 {
        // The threads that share a package turn FP-heavy: swapping never helps.
        let places = pus(&world);
        for at in 0..4 {
            let heavy = package(places[at]) == package(places[0]);
            load(&mut world, at, if heavy { FP_A } else { INT_A });
        }
        let plan = step(&mut world, &mut policy);
        remarks.extend(plan.remarks);
        let (swaps, back) = policy.swaps();
        assert!(back < swaps.max(1) && swaps <= period + 1);
    }
    let (swaps, back) = policy.swaps();
    assert!(back >= 2, "{swaps} {back}");
    assert!(swaps < 20, "{swaps} swaps in 40 periods: no thread waited");
    assert!(
        remarks
            .iter()
            .any(|remark| remark.text.contains("brought a thread back"))
    );
}

#[test]
fn sampled_shares_are_enough_and_what_is_missing_is_said() {
    let mut world = World::regular(2, 1, 2, &[0.01, 0.02, 0.4, 0.5]);
    let mut policy = learning();
    let plan = world.step(&mut policy);
    assert_eq!(plan.bindings.len(), 2);
    assert_eq!(
        world.bound(|t| t.metrics.value("fp_share") > Some(0.1)),
        [1, 0]
    );
    let told = plan.remarks[0].text.clone();
    assert!(
        told.contains("caches (l2_load or memory_intensity)"),
        "{told}"
    );
    assert!(!told.contains("fp_share"), "{told}");
    let plan = World::new(
        &cores(2, 1, 2),
        &[Spec {
            share: None,
            ..Spec::busy(0.0)
        }],
    )
    .step(&mut learning());
    assert!(
        plan.remarks[0].text.contains("no load metric is measured"),
        "{plan:?}"
    );
}

#[test]
fn an_idle_pu_takes_a_thread_without_an_exchange() {
    // Two FP programs in package 0, none in package 1.
    let mut world = world(2, 2, &[FP_A, FP_B]);
    let mut policy = paper(Variant::Perch);
    let plan = step(&mut world, &mut policy);
    assert_eq!(plan.bindings.len(), 1);
    let places = pus(&world);
    assert_ne!(package(places[0]), package(places[1]));
    assert!(plan.bindings[0].reason.text.contains("to an unused PU"));
}

#[test]
fn threads_that_fall_idle_are_let_go_and_others_come_and_go() {
    let mut world = world(2, 2, &[INT_A, INT_B, FP_A, FP_B]);
    let mut policy = paper(Variant::Perch);
    let bound: Vec<_> = step(&mut world, &mut policy).bindings;
    let gone = bound[0].thread;
    world
        .snapshot
        .threads
        .iter_mut()
        .find(|t| t.info.id == bound[1].thread)
        .unwrap()
        .activity = 0.0;
    world
        .snapshot
        .threads
        .retain(|thread| thread.info.id != gone);
    let plan = step(&mut world, &mut policy);
    assert_eq!(plan.released[0].0, bound[1].thread);
    assert!(
        plan.bindings
            .iter()
            .all(|b| b.thread != gone && b.thread != bound[1].thread)
    );
}
