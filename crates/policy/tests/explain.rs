//! What users read.

use crate::support::*;
use perch_core::Plan;
use perch_policy::{WorkOver, WorkOverConfig, workover::Variant};

fn text(plan: &Plan) -> String {
    let lines = plan.bindings.iter().map(|binding| {
        let numbers: Vec<String> = (binding.reason.numbers.iter())
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        format!(
            "{} -> {}: {}\n    {}\n",
            binding.thread,
            binding.pus,
            binding.reason.text,
            numbers.join(", ")
        )
    });
    let released = plan
        .released
        .iter()
        .map(|(thread, reason)| format!("{thread} released: {}\n", reason.text));
    let remarks = plan.remarks.iter().map(|remark| format!("{remark}\n"));
    lines.chain(released).chain(remarks).collect()
}

/// Four FP threads that the kernel put on two of four cores, and four integer threads.
fn world() -> World {
    World::regular(1, 4, 2, &[0.41, 0.38, 0.44, 0.36, 0.0, 0.01, 0.02, 0.0])
}

#[test]
fn perch_explains_its_moves() {
    let (mut world, mut policy) = (world(), WorkOver::default());
    let first = text(&world.step(&mut policy));
    world.set_share(0, 0.01);
    world.set_share(5, 0.4);
    world.snapshot.threads[7].activity = 0.02;
    let changed = text(&world.step(&mut policy));
    insta::assert_snapshot!(format!(
        "{first}\nthread 1000 turns to integer work, 1005 to FP work, 1007 sleeps:\n{changed}"
    ));
}

#[test]
fn the_paper_explains_its_groups() {
    let mut policy = WorkOver::new(WorkOverConfig {
        variant: Variant::Paper,
        ..WorkOverConfig::default()
    });
    insta::assert_snapshot!(text(&world().step(&mut policy)));
}

#[test]
fn why_nothing_is_bound() {
    let say = |world: &mut World| text(&world.step(&mut WorkOver::default()));
    let mut unknown = World::regular(1, 4, 2, &[0.5; 8]);
    for thread in &mut unknown.snapshot.threads {
        thread.metrics = Default::default();
    }
    insta::assert_snapshot!(
        [
            say(&mut World::regular(1, 4, 1, &[0.5, 0.0, 0.5, 0.0])),
            say(&mut World::regular(1, 4, 2, &[0.5, 0.0])),
            say(&mut World::regular(1, 4, 2, &[0.0; 8])),
            say(&mut World::regular(1, 4, 2, &[0.5; 8])),
            say(&mut unknown),
        ]
        .concat()
    );
}
