//! When rows of `perch stat` end, and how text tells times.

use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};
use tempfile::TempDir;

struct Stat {
    folder: TempDir,
}

impl Stat {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut perch = Command::new(env!("CARGO_BIN_EXE_perch"));
        perch
            .args(args)
            .current_dir(self.folder.path())
            .env("PERCH_STATE_DIR", self.folder.path());
        let output = perch.output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        output
    }

    /// What is said on standard error, as text.
    fn said(&self, args: &[&str]) -> String {
        String::from_utf8(self.run(args).stderr).unwrap()
    }

    fn printed(&self, args: &[&str]) -> String {
        String::from_utf8(self.run(args).stdout).unwrap()
    }

    /// When each row ends, and the totals.
    fn rows(&self, args: &[&str]) -> (Vec<f64>, Value) {
        let args = [&["stat", "--json", "-o", "out.jsonl"], args].concat();
        self.run(&args);
        let text = fs::read_to_string(self.path("out.jsonl")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut lines: Vec<Value> = lines.collect();
        let totals = lines.pop().unwrap();
        let mut ends: Vec<f64> = lines.iter().map(|row| number(&row["time_s"])).collect();
        ends.dedup();
        (ends, totals)
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// Is busy for longer than any of these tests count.
const BUSY: [&str; 4] = ["--", "timeout", "20", "yes"];

#[test]
fn a_time_limit_makes_no_row_of_some_milliseconds() {
    let stat = Stat::new();
    let mut child = Command::new("sh")
        .args(["-c", "while :; do :; done"])
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let args = ["-e", "task-clock", "-i", "200ms", "--for", "1s", "-p", &pid];
    let (ends, totals) = stat.rows(&args);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(ends.len(), 5, "{ends:?}");
    // Totals have the time of the rows.
    let took = number(&totals["wall_s"]);
    assert!((took - ends[4]).abs() < 1e-3, "{took} {ends:?}");
}

#[test]
fn the_totals_of_a_program_have_the_time_of_its_rows() {
    let stat = Stat::new();
    let (ends, totals) = stat.rows(&["-e", "task-clock", "-i", "100ms", "--", "sleep", "0.4"]);
    let took = number(&totals["wall_s"]);
    // The program sleeps in its last interval, which may have no row.
    assert!(
        ends.iter().all(|end| *end <= took + 1e-3),
        "{took} {ends:?}"
    );
    // Nothing before the program is counted.
    let elapsed = number(&totals["elapsed_s"]);
    assert!(took - elapsed < 0.1 && took >= elapsed - 0.01, "{totals}");
}

#[test]
fn text_tells_clocks_as_times_and_csv_nanoseconds() {
    let stat = Stat::new();
    let events = ["stat", "-e", "task-clock,page-faults", "--for", "300ms"];
    let text = stat_of_killed(&stat, &events);
    let row = text.lines().find(|line| line.starts_with("all")).unwrap();
    assert!(row.contains(" ms") || row.contains(" s"), "{text}");
    let text = stat_of_killed(&stat, &[&events[..], &["--csv"]].concat());
    let header: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    let at = header
        .iter()
        .position(|name| *name == "task-clock")
        .unwrap();
    let counted: Vec<f64> = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split(',').nth(at)?.parse().ok())
        .collect();
    assert!(counted.iter().any(|count| *count > 1e6), "{text}");
}

/// What is said while a program is counted that the time limit ends.
fn stat_of_killed(stat: &Stat, args: &[&str]) -> String {
    let perch = Command::new(env!("CARGO_BIN_EXE_perch"))
        .args([args, &["-o", "out"], &BUSY[..]].concat())
        .current_dir(stat.folder.path())
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(perch.code(), Some(143));
    fs::read_to_string(stat.path("out")).unwrap()
}

#[test]
fn counts_of_pus_are_those_of_the_machine_while_a_program_runs() {
    let stat = Stat::new();
    let said = stat.said(&["stat", "-e", "context-switches", "-a", "--", "sleep", "0.2"]);
    assert!(
        said.contains("perch stat: this machine, while sleep 0.2 runs"),
        "{said}"
    );
    let said = stat.said(&["stat", "-e", "page-faults", "--", "sleep", "0.2"]);
    assert!(said.contains("perch stat: sleep 0.2\n"), "{said}");
}

#[test]
fn notes_fit_a_terminal() {
    let said = Stat::new().said(&["stat", "--", "true"]);
    for line in said.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn a_recording_has_rows_as_long_as_asked_and_columns_of_what_was_counted() {
    let stat = Stat::new();
    let sim = ["sim", "-m", "smt2-zen", "-w", "fp-int-8", "-p", "observe"];
    let more = "-t 3s --period 100ms --fidelity interval --log run.jsonl";
    let more: Vec<&str> = more.split(' ').collect();
    stat.run(&[&sim[..], &more].concat());
    let text = stat.printed(&["stat", "--from", "run.jsonl", "-i", "1s", "--by", "all"]);
    assert!(text.contains("instructions"), "{text}");
    // Periods that are a little shorter and longer, and without counts, as on most virtual machines.
    let recorded = fs::read_to_string(stat.path("run.jsonl")).unwrap();
    let (mut at, mut periods) = (0u64, 0);
    let changed = recorded.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if line["record"] == "period" {
            periods += 1;
            let interval: u64 = if periods % 2 == 0 {
                97_000_000
            } else {
                102_000_000
            };
            at += interval;
            let observation = &mut line["observation"];
            observation["at"] = at.into();
            observation["interval"] = interval.into();
            for thread in observation["threads"].as_array_mut().unwrap() {
                thread["interval"] = interval.into();
                thread.as_object_mut().unwrap().remove("counts");
            }
        }
        line.to_string() + "\n"
    });
    let changed: String = changed.collect();
    fs::write(stat.path("changed.jsonl"), changed).unwrap();
    let (ends, _) = stat.rows(&["--from", "changed.jsonl", "-i", "1s", "--by", "all"]);
    assert_eq!(ends.len(), 3, "{ends:?}");
    let text = stat.printed(&["stat", "--from", "changed.jsonl", "-i", "1s", "--by", "all"]);
    assert!(!text.contains("instructions"), "{text}");
    let csv = stat.printed(&["stat", "--from", "changed.jsonl", "-i", "1s", "--csv"]);
    assert!(
        csv.lines().next().unwrap().contains("instructions"),
        "{csv}"
    );
}
