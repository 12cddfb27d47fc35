//! perch on 64-bit Arm, whose PMU QEMU emulates: it counts the instructions that are executed, and a cycle for each.

use crate::{
    placement,
    stat::{Told, assert_near, count},
    story::{self, tell},
};
use perch_skip::skip;
use perch_testbed::{Architecture, Guest, Topology, programs_for_aarch64, vm_tests_skipped};
use std::time::Duration;

/// Rounds of `guest-spin`, of two instructions each.
const ROUNDS: u64 = 250_000_000;
const INSTRUCTIONS: f64 = 2.0 * ROUNDS as f64;

/// Instructions, and cycles, in a second of a PU's time: that goes on by a nanosecond for each.
const RATE: f64 = 1e9;

fn script() -> String {
    format!(
        r#"
emit() {{
    sed "s/^/$1 /" "$2"
}}
perch events --json | grep -m 1 '"of"' | sed 's/^/events /'
perch stat --json -o /tmp/one -e instructions,cycles -- guest-spin {ROUNDS}
emit one /tmp/one
perch stat --json -o /tmp/every -e instructions:every=20M -- guest-spin {ROUNDS}
emit every /tmp/every
guest-spin 1000000000000 &
spin=$!
perch stat --json -o /tmp/two -n 20 -i 100ms -e r8 -e r11 -p $spin
emit two /tmp/two
kill $spin
exit 0
"#
    )
}

#[test]
#[ignore = "builds perch for another processor: make guests"]
fn counts_are_those_of_the_instructions_executed() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let programs = programs_for_aarch64().unwrap();
    let output = Guest::new(Topology::Flat2)
        .architecture(Architecture::Aarch64)
        .program(programs.join("perch"))
        .program(programs.join("guest-spin"))
        .limit(Duration::from_secs(1800))
        .run(&script())
        .and_then(perch_testbed::Output::ok)
        .unwrap();
    eprintln!("{}\n{}", output.stdout, output.stderr);
    let told = Told::of(&output.stdout);
    let events = ["instructions", "cycles"];

    let (_, totals) = told.series("one");
    for event in events {
        assert_near(count(&totals["all"], event), INSTRUCTIONS, 0.01, event);
    }

    assert!(
        told.line("events").contains("cortex-a76"),
        "{:?}",
        told.line("events")
    );

    // One record for every 20 million of them. When the emulator interrupts it is later, by up to a tick.
    let (rows, totals) = told.series("every");
    let all = count(&totals["all"], "instructions");
    assert_near(all, INSTRUCTIONS, 0.01, "all windows");
    let windows: f64 = rows.iter().map(|row| count(row, "instructions")).sum();
    assert!(windows <= all && all - windows < 30e6, "{windows} of {all}");
    assert_near(rows.len() as f64, all / 20e6, 0.1, "records");

    // In rotation.
    let (_, totals) = told.series("two");
    for (event, raw) in events.into_iter().zip(["r8", "r11"]) {
        let all = &totals["all"]["counts"][raw];
        let share = all["share"].as_f64().unwrap();
        assert!((0.3..0.7).contains(&share), "{event}: {share}");
        // What was counted is scaled to all the time in which a set was on.
        let time = totals["all"]["counted_s"].as_f64().unwrap();
        let rate = all["value"].as_f64().unwrap() / time;
        assert_near(rate, RATE, 0.01, event);
    }
}

/// Instructions are sampled, decoded and judged as on x86-64.
#[test]
#[ignore = "builds perch for another processor: make guests"]
fn one_of_each_per_core_by_sampling() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let programs = programs_for_aarch64().unwrap();
    let guest = story::guest_of(Topology::Smt2, &programs).architecture(Architecture::Aarch64);
    let script = placement::script("--counters sampling", "fp:4,int:4", 1);
    let runs = tell(&guest, &script);
    let [run] = &runs[..] else {
        panic!("{runs:?}");
    };
    assert_eq!(run.ended["perch"], 0);
    run.assert_placed(Topology::Smt2, "started", &run.first_roles());
    run.assert_placed(Topology::Smt2, "shuffled", &run.last_roles());
}
