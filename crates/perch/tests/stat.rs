//! `perch stat` on real programs. There are no hardware counters on small virtual machines, so most of it counts software
//! events; crates/testbed counts hardware events in virtual machines.

mod counting;

use counting::{Stat, number, said};
use serde_json::Value;
use std::process::Command;

/// Runs for a third of a second of CPU time or so.
const BUSY: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";

#[test]
fn a_program_is_counted_with_all_its_short_lived_children() {
    let stat = Stat::new();
    let told = stat.path("told");
    // The shell's own faults and those of children that it has waited for: fields 10 to 13 of stat (proc(5)).
    let script = format!(
        "i=0; while [ $i -lt 40 ]; do /bin/true; i=$((i+1)); done; read -r line </proc/$$/stat; echo \"$line\" >{}",
        told.display()
    );
    let (_, totals) = stat.json(&["-e", "page-faults", "--", "sh", "-c", &script]);
    let counted = number(&totals["all"]["counts"]["page-faults"]["value"]);
    assert_eq!(
        number(&totals["all"]["counts"]["page-faults"]["share"]),
        1.0,
        "{totals:#}"
    );
    let told = std::fs::read_to_string(told).unwrap();
    let fields: Vec<f64> = told
        .rsplit(") ")
        .next()
        .unwrap()
        .split(' ')
        .filter_map(|field| field.parse().ok())
        .collect();
    // Behind the name and the state, which is no number, field 4 is the first.
    let faults: f64 = fields[6..10].iter().sum();
    assert!(faults > 1000.0, "{told}");
    assert!(
        counted > 0.9 * faults && counted < 1.1 * faults + 200.0,
        "{counted} of {faults}"
    );
}

#[test]
fn rows_add_up_to_totals() {
    let stat = Stat::new();
    let args = [
        "-i",
        "50ms",
        "-V",
        "run_delay,context_switches",
        "--",
        "sh",
        "-c",
        BUSY,
    ];
    let (rows, totals) = stat.json(&args);
    assert!(rows.len() >= 3, "{rows:?}");
    let sum: f64 = rows.iter().map(|row| number(&row["cpu_s"])).sum();
    let of_threads: f64 = totals["totals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|total| number(&total["cpu_s"]))
        .sum();
    assert!((sum - of_threads).abs() < 1e-6, "{sum} {of_threads}");
    assert!(
        rows.windows(2)
            .all(|pair| number(&pair[0]["time_s"]) <= number(&pair[1]["time_s"]))
    );
    assert!(
        totals["all"]["metrics"]["run_delay"]["value"].is_number(),
        "{totals:#}"
    );
}

#[test]
fn sets_are_counted_one_after_the_other_and_say_so() {
    let stat = Stat::new();
    let args = [
        "-e",
        "page-faults",
        "-e",
        "context-switches,cpu-migrations",
        "-i",
        "50ms",
        "--",
        "sh",
        "-c",
        BUSY,
    ];
    let (rows, totals) = stat.json(&args);
    let sets: Vec<u64> = rows.iter().filter_map(|row| row["set"].as_u64()).collect();
    assert!(sets.contains(&1) && sets.contains(&2), "{rows:?}");
    for row in &rows {
        let counts = row["counts"].as_object().unwrap();
        match row["set"].as_u64() {
            Some(1) => assert!(!counts.contains_key("context-switches"), "{row}"),
            Some(2) => assert!(!counts.contains_key("page-faults"), "{row}"),
            _ => assert!(counts.is_empty(), "{row}"),
        }
    }
    let share = |event: &str| number(&totals["all"]["counts"][event]["share"]);
    assert!(
        share("page-faults") < 1.0 && share("context-switches") < 1.0,
        "{totals:#}"
    );
    let both = share("page-faults") + share("context-switches");
    assert!((both - 1.0).abs() < 0.05, "{both}");
}

#[test]
fn csv_has_a_header_and_as_many_fields_in_each_line() {
    let stat = Stat::new();
    let file = stat.path("out.csv");
    let args = [
        "--csv",
        "-o",
        file.to_str().unwrap(),
        "-i",
        "50ms",
        "-m",
        "faults[1/s]=page_faults/cpu_seconds",
        "--",
        "sh",
        "-c",
        BUSY,
    ];
    let output = stat.run(&args);
    assert!(output.status.success(), "{}", said(&output));
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert!(header.ends_with(&["faults", "mark_faults"]), "{header:?}");
    assert!(
        header.contains(&"page_faults") && header.contains(&"share_page_faults"),
        "{header:?}"
    );
    let rows: Vec<&str> = lines.collect();
    assert!(
        rows.len() >= 3
            && rows
                .iter()
                .all(|row| row.split(',').count() == header.len()),
        "{text}"
    );
}

/// Totals without rows of intervals: those of each thread, and then `all`.
#[test]
fn csv_has_what_all_did() {
    let stat = Stat::new();
    let told = |form: &str, args: &[&str]| {
        let program = ["--", "sh", "-c", "sleep 0.1 & sh -c 'exit 0'; wait"];
        let output = stat.run(&[&[form, "-e", "page-faults"], args, &program[..]].concat());
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    for args in [&[][..], &["--by", "process"], &["--by", "all"]] {
        let text = told("--csv", args);
        let mut rows = csv::Reader::from_reader(text.as_bytes());
        let header = rows.headers().unwrap().clone();
        let at = |name: &str| header.iter().position(|title| title == name).unwrap();
        let rows: Vec<csv::StringRecord> = rows.records().map(Result::unwrap).collect();
        let (last, others) = rows.split_last().unwrap();
        assert_eq!(
            (&last[at("event")], &last[at("name")]),
            ("all", "all"),
            "{text}"
        );
        assert!(
            others.iter().all(|row| &row[at("event")] == "total"),
            "{text}"
        );
        let seconds = |row: &csv::StringRecord| row[at("cpu_s")].parse::<f64>().unwrap();
        let of_rows: f64 = others.iter().map(seconds).sum();
        assert!(
            seconds(last) > 0.0 && seconds(last) > of_rows - 1e-9,
            "{text}"
        );
    }
}

#[test]
fn the_exit_code_is_the_programs() {
    let stat = Stat::new();
    let code = |args: &[&str]| stat.run(args).status.code();
    assert_eq!(code(&["--", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["--", "sh", "-c", "kill -9 $$"]), Some(137));
    assert_eq!(code(&["--", "no-such-program-as-this"]), Some(127));
    assert_eq!(
        code(&["--for", "200ms", "--", "sleep", "60"]),
        Some(128 + 15)
    );
    assert_eq!(
        code(&["-n", "2", "-i", "50ms", "--", "sleep", "60"]),
        Some(128 + 15)
    );
}

#[test]
fn what_cannot_be_counted_is_an_error_that_says_why() {
    let stat = Stat::new();
    let why = |args: &[&str]| {
        let output = stat.run(&[args, &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        said(&output)
    };
    let text = why(&["-e", "no-such-event"]);
    assert!(
        text.contains("perch: no event is called `no-such-event`"),
        "{text}"
    );
    let text = why(&["-e", "page-fautls"]);
    assert!(
        text.ends_with("perch: no event is called `page-fautls`; did you mean `page-faults`?\n"),
        "{text}"
    );
    let text = why(&["-m", "x=nosuch/nobody"]);
    assert!(
        ["`nosuch`", "`nobody`"]
            .iter()
            .all(|name| text.contains(&format!("is called {name}; "))),
        "{text}"
    );
    let text = why(&["-e", "no_subsystem:no_event"]);
    assert!(
        text.contains("nothing can be counted: event `no_sub"),
        "{text}"
    );
    assert!(!text.contains("no-event"), "{text}");
    assert!(why(&["-e", ""]).contains("names no event"));
    assert!(why(&["-e", "pmc0=0xc0,umask1=1"]).contains("no pmc1 before"));
    assert!(why(&["-m", "x=(y"]).contains("column 3: `(` without `)`"));
    assert!(why(&["-m", "no_such_metric"]).contains("no such metric"));
    let text = why(&["-V", "fp_shares"]);
    assert!(text.contains("did you mean `fp_share`"), "{text}");
    let text = why(&["-e", "page-faults", "--phases", "average"]);
    assert!(text.contains("give -e more than once"), "{text}");
    let text = said(&stat.run(&["--repeat", "2"]));
    assert!(text.contains("--repeat"), "{text}");
}

#[test]
fn a_full_disk_does_not_end_the_program() {
    let stat = Stat::new();
    let done = stat.path("done");
    let script = format!("sleep 0.4; echo yes >{}; exit 3", done.display());
    let output = stat.run(&["-i", "100ms", "-o", "/dev/full", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(done.exists());
    assert_eq!(
        said(&output).matches("cannot be written").count(),
        1,
        "{}",
        said(&output)
    );
    // A program that succeeded does not hide it.
    let output = stat.run(&["-o", "/dev/full", "--", "true"]);
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
}

#[test]
fn tables_fit_80_columns() {
    let stat = Stat::new();
    let many = "page-faults,minor-faults,major-faults,context-switches,cpu-migrations,task-clock,cpu-clock";
    for events in ["page-faults", many] {
        let output = stat.run(&[
            "-e", events, "-i", "100ms", "-r", "2", "--", "sh", "-c", BUSY,
        ]);
        let text = said(&output);
        assert!(
            text.contains("page-faults") && text.contains("2 runs"),
            "{text}"
        );
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn running_processes_are_counted_until_they_end() {
    let stat = Stat::new();
    let mut child = Command::new("sh")
        .args(["-c", "sleep 0.3; exec sleep 0.3"])
        .spawn()
        .unwrap();
    let (rows, totals) = stat.json(&[
        "-e",
        "context-switches",
        "-i",
        "100ms",
        "-p",
        &child.id().to_string(),
    ]);
    child.wait().unwrap();
    assert!(!rows.is_empty(), "{totals}");
    assert!(
        totals["command"]
            .as_str()
            .unwrap()
            .contains(&child.id().to_string())
    );
}

#[test]
fn a_process_that_sleeps_has_done_nothing() {
    let stat = Stat::new();
    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    // Until it sleeps, and goes on sleeping.
    let read = |name: &str| {
        let path = format!("/proc/{}/{name}", sleeper.id());
        std::fs::read_to_string(path).unwrap()
    };
    let mut ran = String::new();
    while !read("stat").contains("(sleep) S") || read("schedstat") != ran {
        ran = read("schedstat");
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    let pid = sleeper.id().to_string();
    let output = stat.run(&["-e", "page-faults", "--for", "200ms", "-p", &pid]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    let row = table.lines().find(|line| line.contains("sleep  ")).unwrap();
    assert!(row.ends_with("  0"), "{table}");
}

#[test]
fn what_runs_already_is_counted_from_the_first_interval_on() {
    let stat = Stat::new();
    let mut child = Command::new("sh")
        .args(["-c", "while :; do :; done"])
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let (rows, totals) = stat.json(&["-e", "task-clock", "-i", "300ms", "-n", "2", "-p", &pid]);
    child.kill().unwrap();
    child.wait().unwrap();
    let counted = |row: &Value| number(&row["counted_s"]) / number(&row["cpu_s"]);
    // A row without CPU time can have been counted for none of it.
    for row in rows.iter().filter(|row| number(&row["cpu_s"]) > 0.05) {
        assert!(counted(row) > 0.9, "{row}");
    }
    assert!(counted(&totals["all"]) > 0.9, "{totals}");
}

#[test]
fn a_simulation_ends_by_its_own_clock() {
    let stat = Stat::new();
    let (rows, totals) = stat.json(&[
        "--sim",
        "smt2-zen",
        "-w",
        "mixed",
        "--fidelity",
        "interval",
        "-e",
        "BRANCHES",
        "--by",
        "all",
        "-i",
        "100ms",
        "--for",
        "450ms",
    ]);
    assert_eq!(rows.len(), 5, "{rows:?}");
    assert_eq!(number(&rows[4]["interval_s"]), 0.05);
    assert_eq!(number(&totals["wall_s"]), 0.45);
}

#[test]
fn several_runs_are_told_apart_and_summed_up() {
    let stat = Stat::new();
    let repeated = ["-e", "page-faults", "-r", "3"];
    let program = ["--", "sh", "-c", BUSY];
    let args = [&repeated[..], &["-i", "100ms"], &program].concat();
    let (lines, spread) = stat.json(&args);
    let runs: Vec<f64> = lines.iter().map(|line| number(&line["run"])).collect();
    assert!(runs.is_sorted(), "{runs:?}");
    assert_eq!((runs.first(), runs.last()), (Some(&1.0), Some(&3.0)));
    assert_eq!(number(&spread["runs"]), 3.0);
    let faults = &spread["spread"]["page-faults"];
    let of_runs: Vec<f64> = lines
        .iter()
        .filter(|line| line["all"].is_object())
        .map(|line| number(&line["all"]["counts"]["page-faults"]["value"]))
        .collect();
    assert_eq!(of_runs.len(), 3);
    let mean = of_runs.iter().sum::<f64>() / 3.0;
    assert!(
        (number(&faults["mean"]) - mean).abs() < 1e-6 * mean,
        "{faults}"
    );
    let csv = stat.run(&[&args[..4], &["--csv", "-i", "100ms"], &program].concat());
    assert_eq!(csv.status.code(), Some(125));
    assert!(said(&csv).contains("use --json"), "{}", said(&csv));
}

#[test]
fn the_flags_of_perf_for_parts_of_the_machine_are_known() {
    let stat = Stat::new();
    for (flags, by) in [
        (&["-a"][..], "machine"),
        (&["-a", "--per-core"], "core"),
        (&["--per-socket"], "package"),
        (&["--per-node"], "node"),
    ] {
        let sim = [
            "--sim",
            "cmt-4x4",
            "-w",
            "mixed",
            "--fidelity",
            "interval",
            "--for",
            "20ms",
            "-i",
            "10ms",
        ];
        let (rows, _) = stat.json(&[&sim[..], flags].concat());
        let (same, _) = stat.json(&[&sim[..], &["--by", by]].concat());
        assert_eq!(rows, same, "{flags:?}");
        assert!(!rows.is_empty());
    }
    let both = said(&stat.run(&["--per-core", "--by", "node"]));
    assert!(both.contains("cannot be used with"), "{both}");
}

#[test]
fn the_whole_machine_by_pu() {
    let stat = Stat::new();
    let (rows, _) = stat.json(&[
        "-e",
        "context-switches",
        "--by",
        "pu",
        "-i",
        "100ms",
        "-n",
        "3",
    ]);
    let pus: std::collections::BTreeSet<u64> =
        rows.iter().filter_map(|row| row["id"].as_u64()).collect();
    assert!(!pus.is_empty(), "{rows:?}");
    assert!(
        rows.iter()
            .any(|row| row["counts"]["context-switches"]["value"].is_number()),
        "{rows:?}"
    );
}

#[test]
fn a_recording_gives_the_same_series() {
    let stat = Stat::new();
    let log = stat.path("run.jsonl");
    let mut perch = Command::new(env!("CARGO_BIN_EXE_perch"));
    perch
        .args([
            "run", "-q", "--policy", "observe", "--period", "100ms", "--log",
        ])
        .arg(&log);
    perch
        .args(["--", "sh", "-c", BUSY])
        .env("PERCH_STATE_DIR", stat.folder.path());
    assert!(perch.status().unwrap().success());
    let (rows, totals) = stat.json(&["--from", log.to_str().unwrap(), "-i", "100ms"]);
    assert!(rows.len() >= 2, "{rows:?}");
    assert!(number(&totals["all"]["cpu_s"]) > 0.0, "{totals}");
    // A longer interval adds periods up.
    let (longer, _) = stat.json(&["--from", log.to_str().unwrap(), "-i", "200ms"]);
    assert!(longer.len() < rows.len(), "{longer:?}");
    let cpu = |rows: &[Value]| -> f64 { rows.iter().map(|row| number(&row["cpu_s"])).sum() };
    assert!((cpu(&longer) - cpu(&rows)).abs() < 1e-6);
}

#[test]
fn each_record_of_an_event_is_a_window_of_so_many() {
    let stat = Stat::new();
    // Each fork leaves pages to the shell that it must copy before it writes to them.
    let script = "i=0; while [ $i -lt 600 ]; do (:); i=$((i+1)); done";
    let events = "page-faults:every=40,minor-faults,task-clock";
    let (rows, totals) = stat.json(&["-e", events, "--", "sh", "-c", script]);
    assert!(rows.len() > 20, "{}", rows.len());
    let mut apart = Vec::new();
    let mut sums = (0.0, 0.0);
    for window in &rows {
        assert_eq!(window["event"], "window");
        let counts = &window["counts"];
        assert_eq!(number(&counts["page-faults"]["value"]), 40.0, "{window}");
        // The kernel may count the last fault for another event just after it has made the record.
        let minor = number(&counts["minor-faults"]["value"]);
        assert!((39.0..=41.0).contains(&minor), "{window}");
        // Its own CPU time, by two clocks of the kernel.
        let clock = number(&counts["task-clock"]["value"]) / 1e9;
        let cpu = number(&window["cpu_s"]);
        if (clock - cpu).abs() > 0.01 * cpu + 1e-4 {
            apart.push(window);
        }
        sums = (sums.0 + clock, sums.1 + cpu);
        assert!(cpu <= number(&window["interval_s"]) + 1e-4, "{window}");
    }
    // Where an interrupt comes between, only one of the clocks may stand still.
    assert!(apart.len() * 10 <= rows.len(), "{apart:?}");
    assert!((sums.0 - sums.1).abs() <= 0.01 * sums.1, "{sums:?}");
    let all = number(&totals["all"]["counts"]["page-faults"]["value"]);
    assert!(all >= 40.0 * rows.len() as f64, "{all}");
}

#[test]
fn what_does_not_go_with_records_of_an_event_is_refused() {
    let stat = Stat::new();
    for (args, why) in [
        (
            &["-e", "page-faults:every=10", "-i", "1s"][..],
            "leave -i out",
        ),
        (
            &["-e", "page-faults:every=10", "--by", "process"],
            "leave --by out",
        ),
        (
            &["-e", "page-faults:every=10", "-e", "cpu-clock"],
            "only one -e",
        ),
        (
            &["-e", "page-faults:every=10,cpu-clock:every=5"],
            "only one event",
        ),
        (&["-e", "page-faults:every=none"], "not a number"),
    ] {
        let output = stat.run(&[args, &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert!(said(&output).contains(why), "{args:?}: {}", said(&output));
    }
}

#[test]
fn a_simulated_machine_s_series_is_the_same_as_its_recording_s() {
    let stat = Stat::new();
    let log = stat.path("sim.jsonl");
    let machine = ["smt2-zen", "fp-int-8"];
    let mut perch = Command::new(env!("CARGO_BIN_EXE_perch"));
    let sim = perch
        .args([
            "sim", "-m", machine[0], "-w", machine[1], "-t", "2s", "--period", "500ms",
        ])
        .args(["--fidelity", "interval", "--seed", "3", "--log"])
        .arg(&log)
        .output()
        .unwrap();
    assert!(sim.status.success(), "{}", said(&sim));
    let live = [
        "-i",
        "500ms",
        "--for",
        "2s",
        "--fidelity",
        "interval",
        "--seed",
        "3",
    ];
    let (rows, totals) = stat.json(&[&["--sim", machine[0], "-w", machine[1]], &live[..]].concat());
    let (recorded, _) = stat.json(&["--from", log.to_str().unwrap(), "-i", "500ms"]);
    assert_eq!(rows.len(), recorded.len());
    for (row, recorded) in rows.iter().zip(&recorded) {
        for same in ["time_s", "name", "cpu_s", "counts"] {
            if same == "counts" {
                for event in ["cycles", "instructions"] {
                    assert_eq!(row[same][event], recorded[same][event], "{event}");
                }
            } else {
                assert_eq!(row[same], recorded[same], "{same}");
            }
        }
    }
    assert!(number(&totals["all"]["counts"]["instructions"]["value"]) > 0.0);
}

#[test]
fn all_threads_have_one_row() {
    let children = "for i in 1 2 3 4 5 6; do /bin/true; done";
    let output = Stat::new().run(&[
        "--by",
        "all",
        "-e",
        "page-faults",
        "--",
        "sh",
        "-c",
        children,
    ]);
    let text = said(&output);
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("all"))
        .collect();
    assert!(rows.len() == 1 && rows[0].starts_with("all  "), "{text}");
    // Its count has no mark of a lower bound, since it is that of the whole program.
    assert!(
        !text.contains('>') && !text.contains(" 0 threads"),
        "{text}"
    );
}
