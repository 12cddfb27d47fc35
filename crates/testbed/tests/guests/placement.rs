//! Over some seeds on several machines, floating-point and integer threads that start in random order under random
//! names end evenly mixed on the cores, and again when they change roles, and stay so.
//!
//! Chance alone gets 4 and 4 threads right on 4 cores of 2 PUs in 16 of 70 runs.

use crate::{
    boot::{self, SURVEY},
    story::{guest, tell},
};
use perch_skip::skip;
use perch_testbed::{Topology, vm_tests_skipped};

/// How many seeds each machine is tried with; one each if this says nothing.
const SEEDS: &str = "PERCH_PLACEMENT_SEEDS";

/// Starts the workload under perch with these options, looks when it has settled, deals the roles anew, and looks again.
pub fn script(options: &str, mix: &str, seeds: usize) -> String {
    let per_seed = format!(
        r#"
    begin "{mix} seed $seed"
    perch run {options} --log $LOG --output /tmp/report -- $LOAD --seed $seed --threads {mix} >$LINES 2>/tmp/said &
    perch=$!
    listen
    settle started 8
    order shuffle
    settle shuffled 10
    order end
    ended $perch perch
    finish
"#
    );
    format!("seed=0; while [ $((seed += 1)) -le {seeds} ]; do {per_seed} done\n")
}

fn check(topology: Topology, mixes: &[&str]) {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let seeds: usize = std::env::var(SEEDS).map_or(1, |text| text.parse().unwrap());
    let scripts: String = mixes.iter().map(|mix| script("", mix, seeds)).collect();
    let runs = tell(&guest(topology), &format!("{SURVEY}\n{scripts}"));
    let (survey, runs) = runs.split_first().unwrap();
    boot::assert_is(topology, survey);
    assert_eq!(runs.len(), mixes.len() * seeds);
    let mut wrong = Vec::new();
    for run in runs {
        for (label, roles) in [
            ("started", run.first_roles()),
            ("shuffled", run.last_roles()),
        ] {
            assert_eq!(roles.len(), 8, "{}: {:?}", run.name, run.lines);
            for what in run.misplaced(topology, label, &roles) {
                wrong.push(format!("{}, {label}: {what}", run.name));
            }
        }
        assert_ne!(
            run.first_roles(),
            run.last_roles(),
            "{}: nobody changed roles",
            run.name
        );
        assert_eq!(run.ended["perch"], 0, "{}", run.name);
    }
    assert!(
        wrong.is_empty(),
        "{} of what was looked at is wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn one_of_each_per_core_of_two_pus() {
    check(Topology::Smt2, &["fp:4,int:4"]);
}

#[test]
#[ignore = "takes minutes: make guests"]
fn one_of_each_per_core_of_four_pus() {
    check(Topology::Smt4x4, &["fp:4,int:4"]);
}

#[test]
#[ignore = "takes minutes: make guests"]
fn one_of_each_per_core_of_two_nodes() {
    check(Topology::Numa2, &["fp:4,int:4"]);
}

#[test]
#[ignore = "takes minutes: make guests"]
fn full_cores_of_four_pus_hold_as_many_of_each() {
    check(Topology::Smt4, &["fp:4,int:4", "fp:2,int:6"]);
}
