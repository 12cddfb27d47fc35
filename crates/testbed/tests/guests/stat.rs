//! What `perch stat` counts by a PMU, against the kernel's own perf on the same run, and what it says of numbers that are
//! not what they seem.

use std::{collections::BTreeMap, path::Path};

use crate::profile::FIXED;
use perch_skip::skip;
use perch_testbed::{Guest, Topology, load::Line, perch_binary, vm_tests_skipped};
use serde_json::Value;

const SCRIPT: &str = include_str!("../../../../testbed/guest/stat.sh");

/// A processor of which only the limits and the two fixed events are known.
fn profile() -> String {
    format!(
        r#"name = "any"
title = "any processor"
[[match]]
any = true
[[unit]]
class = "fp"
count = 1
share = "core"
source = "an example"
[[set]]
name = "core"
events = ["cycles", "instructions"]
{FIXED}"#
    )
}

/// What the script printed, by name.
struct Told(BTreeMap<String, Vec<String>>);

impl Told {
    fn of(stdout: &str) -> Self {
        let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, line) in stdout.lines().filter_map(|line| line.split_once(' ')) {
            told.entry(name.into()).or_default().push(line.into());
        }
        Self(told)
    }

    fn json(&self, name: &str) -> Vec<Value> {
        self.0[name]
            .iter()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line}")))
            .collect()
    }

    /// The rows of a run, and its totals.
    fn series(&self, name: &str) -> (Vec<Value>, Value) {
        let mut lines = self.json(name);
        let totals = lines.pop().unwrap();
        assert!(totals["totals"].is_array(), "{totals}");
        (lines, totals)
    }

    /// What perf counted of the whole program, by event.
    fn perf(&self, name: &str) -> BTreeMap<String, f64> {
        let fields = self.0[name]
            .iter()
            .map(|line| line.split(',').collect::<Vec<_>>());
        let counts = fields.filter(|fields| fields.len() > 3 && !fields[0].starts_with('#'));
        let counts = counts.map(|fields| (fields[2].to_owned(), fields[0].parse().unwrap()));
        counts.collect()
    }
}

fn count(of: &Value, event: &str) -> f64 {
    of["counts"][event]["value"]
        .as_f64()
        .unwrap_or_else(|| panic!("{event} was not counted: {of}"))
}

/// Instructions per cycle.
fn ipc(of: &Value) -> f64 {
    count(of, "instructions") / count(of, "cycles")
}

/// Asserts that a number is another one, up to a part of it.
fn assert_near(found: f64, wanted: f64, part: f64, what: &str) {
    assert!(
        (found / wanted - 1.0).abs() <= part,
        "{what}: {found:.0} instead of {wanted:.0}"
    );
}

/// Both names of the events: perch's, and perf's.
const EVENTS: [(&str, &str); 4] = [
    ("instructions", "instructions"),
    ("cycles", "cycles"),
    ("wibble", "cpu/wibble/"),
    ("branch-instructions", "branch-instructions"),
];

#[test]
fn counts_are_those_of_perf_and_doubtful_ones_are_marked() {
    if vm_tests_skipped() {
        return skip!(Vm, "PERCH_SKIP_VM=1");
    }
    let output = Guest::new(Topology::Smt2)
        .fake_pmu()
        .program(perch_binary().unwrap())
        .program(Path::new(env!("CARGO_BIN_EXE_guest-load")))
        .program("/usr/bin/perf")
        .text("/root/any.toml", profile())
        .limit(std::time::Duration::from_secs(1200))
        .run(SCRIPT)
        .and_then(perch_testbed::Output::ok)
        .unwrap();
    eprintln!("{}", output.stderr);
    let told = Told::of(&output.stdout);
    one_set_is_exact(&told);
    rotation_is_within_one_percent(&told);
    short_lived_processes_are_counted(&told);
    changes_of_phase_break_rounds(&told);
    a_pu_goes_offline(&told);
    lies_are_doubted(&told);
}

fn one_set_is_exact(told: &Told) {
    let (_, totals) = told.series("one");
    let perf = told.perf("one-perf");
    for (event, of_perf) in EVENTS {
        let all = count(&totals["all"], event);
        assert_near(all, perf[of_perf], 0.001, event);
        assert_eq!(totals["all"]["counts"][event]["share"], 1.0, "{totals}");
    }
    let threads = totals["totals"].as_array().unwrap();
    for line in told.json("one-lines") {
        let line: Line = serde_json::from_value(line).unwrap();
        let thread = threads.iter().find(|row| row["id"] == line.tid).unwrap();
        let fp = matches!(line.role, perch_testbed::load::Role::Fp);
        assert_near(ipc(thread), if fp { 0.75 } else { 1.5 }, 1e-4, &line.name);
    }
}

fn rotation_is_within_one_percent(told: &Told) {
    let (rows, totals) = told.series("two");
    let perf = told.perf("two-perf");
    for (event, of_perf) in EVENTS {
        let all = &totals["all"];
        assert_near(count(all, event), perf[of_perf], 0.01, event);
        let share = all["counts"][event]["share"].as_f64().unwrap();
        assert!((0.3..0.7).contains(&share), "{event}: {share} in {all}");
    }
    // Each row has one set's events, and says which.
    for row in rows.iter().filter(|row| !row["set"].is_null()) {
        let first = row["set"] == 1;
        assert_eq!(row["counts"]["cycles"].is_object(), first, "{row}");
        assert_eq!(row["counts"]["wibble"].is_object(), !first, "{row}");
    }
}

fn short_lived_processes_are_counted(told: &Told) {
    let (_, totals) = told.series("short");
    let perf = told.perf("short-perf");
    for (event, of_perf) in EVENTS {
        assert!(perf[of_perf] > 0.0, "{perf:?}");
        assert_near(count(&totals["all"], event), perf[of_perf], 0.001, event);
    }
}

fn changes_of_phase_break_rounds(told: &Told) {
    assert_eq!(told.0["phases-status"], ["0"]);
    let (rows, totals) = told.series("phases");
    assert!(totals["broken_rounds"].as_u64().unwrap() <= 4, "{totals}");
    for line in told.json("phases-lines") {
        let line: Line = serde_json::from_value(line).unwrap();
        let of_thread = rows
            .iter()
            .filter(|row| row["id"] == line.tid && !row["set"].is_null());
        let mut rounds: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
        for row in of_thread {
            let round = rounds.entry(row["round"].as_u64().unwrap()).or_default();
            round.push(row);
        }
        let mut phases = Vec::new();
        for (round, rows) in &rounds {
            assert_eq!(rows.len(), 2, "round {round} is not whole: {rows:?}");
            assert_ne!(rows[0]["set"], rows[1]["set"], "{rows:?}");
            assert_near(ipc(rows[0]), ipc(rows[1]), 0.01, "a round in two phases");
            phases.push(rows[0]["phase"].as_u64().unwrap());
        }
        assert_near(
            ipc(rounds.last_key_value().unwrap().1[0]),
            0.25,
            0.01,
            "after",
        );
        // One change; the interval in which it happened may be taken for a phase of its own.
        let last = *phases.last().unwrap();
        assert!(phases[0] == 0 && (1..=2).contains(&last), "{phases:?}");
    }
}

fn a_pu_goes_offline(told: &Told) {
    assert_eq!(told.0["offline-status"], ["0"]);
    let (rows, _) = told.series("offline");
    assert!(rows.len() >= 60);
    for row in &rows {
        let Some(cycles) = row["counts"]["cycles"]["value"].as_f64() else {
            continue;
        };
        let interval = row["interval_s"].as_f64().unwrap();
        // Either thread has 2 GHz.
        assert!(cycles <= 2.1e9 * interval, "{row}");
        if cycles > 1e6 {
            assert!((0.7..1.6).contains(&ipc(row)), "{row}");
        }
    }
    let of_three: Vec<&Value> = rows.iter().filter(|row| row["id"] == 3).collect();
    let ran = |row: &&Value| row["counts"]["cycles"]["value"].as_f64().is_some();
    assert!(
        of_three.iter().any(ran) && !of_three.iter().all(ran) || of_three.len() < rows.len() / 8
    );
}

fn lies_are_doubted(told: &Told) {
    let (rows, totals) = told.series("lied");
    for event in ["instructions", "cycles"] {
        for row in rows.iter().filter(|row| row["cpu_s"].as_f64() > Some(0.1)) {
            let value = &row["counts"][event];
            assert!(value["value"].is_null(), "{event} believed: {row}");
        }
        let all = &totals["all"]["counts"][event];
        assert!(all["value"].is_null(), "{event} believed: {totals}");
    }
}
