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
pub struct Told(BTreeMap<String, Vec<String>>);

impl Told {
    pub fn of(stdout: &str) -> Self {
        let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, line) in stdout.lines().filter_map(|line| line.split_once(' ')) {
            told.entry(name.into()).or_default().push(line.into());
        }
        Self(told)
    }

    /// The first line of a name.
    pub fn line(&self, name: &str) -> &str {
        &self.0[name][0]
    }

    pub fn json(&self, name: &str) -> Vec<Value> {
        self.0[name]
            .iter()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line}")))
            .collect()
    }

    /// The rows of a run, and its totals.
    pub fn series(&self, name: &str) -> (Vec<Value>, Value) {
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

pub fn count(of: &Value, event: &str) -> f64 {
    of["counts"][event]["value"]
        .as_f64()
        .unwrap_or_else(|| panic!("{event} was not counted: {of}"))
}

/// Instructions per cycle.
fn ipc(of: &Value) -> f64 {
    count(of, "instructions") / count(of, "cycles")
}

/// Asserts that a number is another one, up to a part of it.
pub fn assert_near(found: f64, wanted: f64, part: f64, what: &str) {
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
        .limit(std::time::Duration::from_secs(1800))
        .run(SCRIPT)
        .and_then(perch_testbed::Output::ok)
        .unwrap();
    eprintln!("{}", output.stderr);
    let told = Told::of(&output.stdout);
    one_set_is_exact(&told);
    rotation_is_within_one_percent(&told);
    short_lived_processes_are_counted(&told);
    lies_are_doubted(&told);
    counters_that_others_take_are_marked(&told);
    a_pu_that_goes_offline_leaves_no_wrong_number(&told);
}

fn one_set_is_exact(told: &Told) {
    let (_, totals) = told.series("one");
    let perf = told.perf("one-perf");
    let threads = totals["totals"].as_array().unwrap();
    for (event, of_perf) in EVENTS {
        let all = count(&totals["all"], event);
        let own = threads.iter().find(|row| row["name"] == "perf");
        assert_near(all - count(own.unwrap(), event), perf[of_perf], 0.01, event);
        let share = &totals["all"]["counts"][event]["share"];
        assert_eq!(share, 1.0, "{event}: nothing is scaled");
    }
    for line in told.json("one-lines") {
        let line: Line = serde_json::from_value(line).unwrap();
        let thread = threads.iter().find(|row| row["id"] == line.tid).unwrap();
        let fp = matches!(line.role, perch_testbed::load::Role::Fp);
        assert_near(ipc(thread), if fp { 0.75 } else { 1.5 }, 1e-4, &line.name);
    }
}

/// Of threads that do the same all the time.
fn rotation_is_within_one_percent(told: &Told) {
    let (rows, totals) = told.series("two");
    let threads = totals["totals"].as_array().unwrap();
    for line in told.json("two-lines") {
        let line: Line = serde_json::from_value(line).unwrap();
        let thread = threads.iter().find(|row| row["id"] == line.tid).unwrap();
        let fp = matches!(line.role, perch_testbed::load::Role::Fp);
        let (event, of_instructions) = match fp {
            true => ("wibble", 7.0 / 15.0),
            false => ("branch-instructions", 4.0 / 30.0),
        };
        let ratio = count(thread, event) / count(thread, "instructions");
        assert_near(1e6 * ratio, 1e6 * of_instructions, 0.01, event);
        let share = thread["counts"][event]["share"].as_f64().unwrap();
        assert!((0.3..0.7).contains(&share), "{event}: {share} in {thread}");
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
    // perf itself is no part of what it counts. How long it takes depends on the host.
    let threads = totals["totals"].as_array().unwrap();
    let own = threads.iter().find(|row| row["name"] == "perf").unwrap();
    for (event, of_perf) in EVENTS {
        assert!(perf[of_perf] > 0.0, "{perf:?}");
        let others = count(&totals["all"], event) - count(own, event);
        assert_near(others, perf[of_perf], 0.01, event);
    }
}

fn lies_are_doubted(told: &Told) {
    let (rows, totals) = told.series("lied");
    for event in ["instructions", "cycles"] {
        // Of a few milliseconds, nothing can be said.
        let judged = |row: &&Value| row["counted_s"].as_f64() > Some(0.1);
        for row in rows.iter().filter(judged) {
            let value = &row["counts"][event];
            assert!(value["value"].is_null(), "{event} believed: {row}");
        }
        let all = &totals["all"]["counts"][event];
        assert!(all["value"].is_null(), "{event} believed: {totals}");
    }
}

/// The rates of the threads, which do the same all the time.
const CYCLES: f64 = 2e9;
const INT_IPC: f64 = 1.5;

/// Without counters, nothing is said of an interval; with them for a part of it, the count is scaled, and marked so.
fn counters_that_others_take_are_marked(told: &Told) {
    let (rows, totals) = told.series("taken");
    assert!(told.perf("taken-perf")["instructions:D"] > 0.0);
    let counted = |row: &&Value| row["counts"]["cycles"].is_object();
    let without = rows.iter().filter(|row| !counted(row)).count();
    assert!(without >= 3, "{without} of {} rows", rows.len());
    for row in rows.iter().filter(counted) {
        assert_near(1e6 * ipc(row), 1e6 * INT_IPC, 0.01, "IPC");
        let time = row["counted_s"].as_f64().unwrap();
        assert_near(count(row, "cycles"), CYCLES * time, 0.02, "cycles");
    }
    let all = &totals["all"];
    let number = |value: &Value| value.as_f64().unwrap();
    let share = number(&all["counts"]["cycles"]["share"]) * number(&all["counted_s"]);
    let share = share / number(&all["cpu_s"]);
    assert!((0.05..0.99).contains(&share), "{share}");
    assert_near(1e6 * ipc(all), 1e6 * INT_IPC, 0.01, "IPC");
}

fn a_pu_that_goes_offline_leaves_no_wrong_number(told: &Told) {
    let (rows, totals) = told.series("offline");
    let lines = told.0["offline-lines"].iter();
    let lines: Vec<usize> = lines.map(|line| line.parse().unwrap()).collect();
    let [gone, back] = lines[..] else {
        panic!("{lines:?}");
    };
    let counted = |row: &&Value| row["counts"]["cycles"].is_object();
    let number = |value: &Value| value.as_f64().unwrap();
    let mut ticks: Vec<f64> = rows.iter().map(|row| number(&row["time_s"])).collect();
    ticks.dedup();
    ticks.insert(0, 0.0);
    for row in rows.iter().filter(counted) {
        assert_near(1e6 * ipc(row), 1e6 * INT_IPC, 0.01, "IPC");
        // Counters are read after the clock, but before the clock is read again: however long the guest has to wait in
        // between, the count is of no more than this time.
        let time = number(&row["time_s"]);
        let at = ticks.iter().position(|tick| *tick == time).unwrap();
        // Behind the last reading no clock is read.
        if let Some(next) = ticks.get(at + 1) {
            let most = CYCLES * (next - ticks[at - 1]);
            assert!(count(row, "cycles") <= most, "{most} {row}");
        }
    }
    let pairs = ticks.windows(2).map(|pair| pair[1] - pair[0]);
    let longest = pairs.fold(0.0, f64::max);
    let of_it = |rows: &[Value]| {
        let rows = rows.iter().filter(|row| row["id"] == 3);
        rows.filter(counted).count()
    };
    // The interval in which it went is its last one.
    assert!(of_it(&rows[..gone]) >= 3 && of_it(&rows[gone..back]) <= 1);
    assert!(of_it(&rows[back..]) >= 3);
    let threads = totals["totals"].as_array().unwrap();
    for pu in threads {
        let most = CYCLES * (number(&pu["observed_s"]) + longest);
        assert!(count(pu, "cycles") <= most, "{most} {pu}");
        assert_near(1e6 * ipc(pu), 1e6 * INT_IPC, 0.01, "IPC");
    }
}
