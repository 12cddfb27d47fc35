//! When rows of `perch stat` end, and how text tells times.

mod counting;

use counting::{Stat, number, said};
use perch_skip::skip;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
};

/// When each row ends, and the totals.
fn ends(stat: &Stat, args: &[&str]) -> (Vec<f64>, Value) {
    let (rows, totals) = stat.json(args);
    let mut ends: Vec<f64> = rows.iter().map(|row| number(&row["time_s"])).collect();
    ends.dedup();
    (ends, totals)
}

/// What `perch stat` says on standard error.
fn said_by(stat: &Stat, args: &[&str]) -> String {
    let output = stat.run(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    said(&output)
}

/// What a command that succeeds prints.
fn printed(stat: &Stat, args: &[&str]) -> String {
    let output = stat.command(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
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
    let (ends, totals) = ends(&stat, &args);
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
    let (ends, totals) = ends(
        &stat,
        &["-e", "task-clock", "-i", "100ms", "--", "sleep", "0.4"],
    );
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
    let said = said_by(
        &stat,
        &["-e", "context-switches", "-a", "--", "sleep", "0.2"],
    );
    assert!(
        said.contains("perch stat: this machine, while sleep 0.2 runs"),
        "{said}"
    );
    let said = said_by(&stat, &["-e", "page-faults", "--", "sleep", "0.2"]);
    assert!(said.contains("perch stat: sleep 0.2\n"), "{said}");
}

#[test]
fn notes_fit_a_terminal() {
    let said = said_by(&Stat::new(), &["--", "true"]);
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
    printed(&stat, &[&sim[..], &more].concat());
    let text = printed(
        &stat,
        &["stat", "--from", "run.jsonl", "-i", "1s", "--by", "all"],
    );
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
    let (ends, _) = ends(
        &stat,
        &["--from", "changed.jsonl", "-i", "1s", "--by", "all"],
    );
    assert_eq!(ends.len(), 3, "{ends:?}");
    let text = printed(
        &stat,
        &["stat", "--from", "changed.jsonl", "-i", "1s", "--by", "all"],
    );
    assert!(!text.contains("instructions"), "{text}");
    let csv = printed(
        &stat,
        &["stat", "--from", "changed.jsonl", "-i", "1s", "--csv"],
    );
    assert!(
        csv.lines().next().unwrap().contains("instructions"),
        "{csv}"
    );
}

/// Two processes wake each other through pipes.
const PING_PONG: &str = "pipe A, B; pipe C, D; \
    if (fork == 0) { sysread(A, $x, 1), syswrite(D, $x) for 1..30000; exit } \
    syswrite(B, $x = 1), sysread(C, $x, 1) for 1..30000; wait";

/// A part of each context switch is the thread's time, though no event is on in it: nothing is missing for that.
#[test]
fn a_thread_that_switches_often_is_counted_whenever_it_runs() {
    let stat = Stat::new();
    let args = ["-i", "50ms", "-e", "page-faults", "--", "perl", "-e"];
    let (rows, _) = stat.json(&[&args[..], &[PING_PONG]].concat());
    let mut of_threads: BTreeMap<i64, Vec<(f64, f64)>> = BTreeMap::new();
    for row in &rows {
        if row["event"] == "tick" {
            let times = (number(&row["cpu_s"]), number(&row["counted_s"]));
            let tid = row["id"].as_i64().unwrap();
            of_threads.entry(tid).or_default().push(times);
        }
    }
    let mut checked = 0;
    for rows in of_threads.values() {
        // At first perch has to find it. Where counters were read late, a row has some of what the next one lacks.
        let (mut ran, mut covered) = (0.0, 0.0);
        for (at, (cpu, counted)) in rows.iter().enumerate() {
            covered += counted;
            ran += if at < 2 { counted.min(*cpu) } else { *cpu };
            if at >= 2 {
                assert!(covered >= 0.999 * ran, "{rows:?}");
                checked += 1;
            }
        }
    }
    assert!(checked >= 2, "{rows:?}");
}

/// The kernel reports no exits to an ordinary user, and nobody waits for the child: its events tell how long it ran.
#[test]
fn the_last_moments_of_a_thread_are_known_without_exit_records() {
    if !rustix::process::geteuid().is_root() {
        return skip!(Root, "another user's perch cannot be started");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let perch = folder.path().join("perch");
    fs::copy(env!("CARGO_BIN_EXE_perch"), &perch).unwrap();
    let program = "$SIG{CHLD} = 'IGNORE'; $child = fork; \
        if ($child == 0) { 1 while (times)[0] < 1; exit } \
        sleep 1 while kill 0, $child";
    let output = Command::new(&perch)
        .args([
            "stat",
            "--json",
            "-i",
            "60s",
            "-e",
            "page-faults",
            "-o",
            "out.jsonl",
        ])
        .args(["--", "perl", "-e", program])
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("PERCH_STATE_DIR", folder.path().join("state"))
        .env("XDG_RUNTIME_DIR", folder.path())
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(folder.path().join("out.jsonl")).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let of_threads = rows.filter(|row: &Value| row["id"].is_i64());
    let longest = of_threads.map(|row| number(&row["cpu_s"]));
    // All but its first moments, when perch has not found it yet.
    assert!(longest.fold(0.0, f64::max) > 0.6, "{text}");
}
