//! What `perch stat` marks, what it says of runs that fail, and what it refuses.

mod counting;

use counting::{Stat, number, said};
use perch_skip::skip;
use serde_json::Value;
use std::{
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::ExitStatus,
    thread,
    time::Duration,
};

/// Touches some memory, in a process that perch starts and in one that it has to find.
const FAULTS: &str = "$x = 'x' x 10_000_000; if (fork == 0) { $y = 'y' x 10_000_000; exit } wait";

/// The row of the first thread begins with its program, as `all` does.
#[test]
fn no_row_has_more_than_all() {
    let stat = Stat::new();
    for _ in 0..3 {
        let (_, totals) = stat.json(&["-e", "page-faults", "--", "/bin/true"]);
        let row = &totals["totals"][0]["counts"]["page-faults"]["value"];
        let all = &totals["all"]["counts"]["page-faults"]["value"];
        assert!(number(row) > 0.0 && number(row) <= number(all), "{totals}");
    }
}

#[test]
fn metrics_have_the_marks_of_their_counts() {
    let stat = Stat::new();
    let metrics = [
        "-m",
        "half=page-faults/2",
        "-m",
        "same=page-faults/page-faults",
    ];
    // Sets in rotation: each was counted for half of the time.
    let program = ["--", "perl", "-e", "1 for 1..2e7"];
    let sets = [
        "-e",
        "page-faults",
        "-e",
        "context-switches",
        "--phases",
        "off",
    ];
    let (_, totals) = stat.json(&[&sets[..], &metrics, &program].concat());
    let half = &totals["totals"][0]["metrics"]["half"];
    let count = &totals["totals"][0]["counts"]["page-faults"];
    assert_eq!(half["scaled"], true, "{totals}");
    assert!((2.0 * number(&half["value"]) / number(&count["value"]) - 1.0).abs() < 1e-9);
    // Both sets had their turns without an interval.
    let other = &totals["totals"][0]["counts"]["context-switches"];
    assert!(
        number(&count["share"]) > 0.1 && number(&other["share"]) > 0.1,
        "{totals}"
    );
    let text = said(&stat.run(&[&sets[..], &metrics, &program].concat()));
    let all = &text[text.find("\nall").unwrap()..];
    assert!(
        all.contains("page-faults=~") && all.contains("half=~"),
        "{text}"
    );

    // The second process runs before it is found, and for a moment only.
    let one = ["--by", "process", "-e", "page-faults"];
    let program = ["--", "perl", "-e", FAULTS];
    let (_, totals) = stat.json(&[&one[..], &metrics, &program].concat());
    for row in totals["totals"].as_array().unwrap() {
        let count = &row["counts"]["page-faults"]["value"];
        let (Some(half), Some(count)) = (row["metrics"]["half"]["value"].as_f64(), count.as_f64())
        else {
            continue;
        };
        assert!((2.0 * half - count).abs() < 1e-6 * count, "{row}");
        let partial = number(&row["counted_s"]) < 0.98 * number(&row["cpu_s"]);
        assert_eq!(row["metrics"]["half"]["partial"] == true, partial, "{row}");
        assert!(row["metrics"]["same"]["partial"].is_null(), "{row}");
    }
}

/// In CSV and Parquet, marks have columns of their own.
#[test]
fn files_have_the_marks_of_metrics() {
    let stat = Stat::new();
    let program = ["--", "perl", "-e", "1 for 1..2e7"];
    let sets = ["-e", "page-faults", "-e", "minor-faults"];
    let metrics = ["-m", "half=page-faults/2", "-m", "speed=1/cpu_seconds"];
    let write = |form: &[&str]| {
        let output = stat.run(&[form, &sets, &metrics, &program].concat());
        assert!(output.status.success(), "{}", said(&output));
    };
    let marks = |file: &str| {
        let text = std::fs::read_to_string(stat.path(file)).unwrap();
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let header = lines.next().unwrap();
        let at = |name| header.iter().position(|column| *column == name).unwrap();
        let (half, speed) = (at("mark_half"), at("mark_speed"));
        let told: Vec<_> = lines.map(|row| [row[half], row[speed]].join(",")).collect();
        told
    };
    write(&["--csv", "-o", "out.csv"]);
    // The row of the thread, and that of all.
    assert_eq!(marks("out.csv"), ["~,", "~,"]);
    write(&["-o", "out.parquet"]);
    let again = ["stat", "--from", "out.parquet", "--csv", "-o", "again.csv"];
    assert!(stat.command(&again).status().unwrap().success());
    assert_eq!(marks("again.csv"), ["~,"]);
}

#[test]
fn runs_that_fail_are_named_and_decide_the_exit_code() {
    let stat = Stat::new();
    // The second run exits with 9, the third one kills itself.
    let program = "n=$(cat n 2>/dev/null || echo 1); echo $((n+1)) > n; \
        case $n in 2) exit 9;; 3) kill -KILL $$;; esac";
    let args = ["-r", "4", "-e", "page-faults", "-m", "half=page-faults/2"];
    let program = ["--", "sh", "-c", program];
    let (lines, spread, output) = stat.any_json(&[&args[..], &program].concat());
    assert_eq!(output.status.code(), Some(9), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains("run 2 exited with status 9"), "{text}");
    assert!(text.contains("run 3 was killed by SIGKILL"), "{text}");
    // Metrics have a spread as counts do.
    let runs = lines.iter().filter(|line| line["all"].is_object());
    let runs: Vec<&Value> = runs.collect();
    assert_eq!(runs.len(), 4);
    let halves = runs
        .iter()
        .map(|run| number(&run["all"]["metrics"]["half"]["value"]));
    let mean = halves.sum::<f64>() / 4.0;
    assert!((number(&spread["spread"]["half"]["mean"]) - mean).abs() < 1e-6 * mean);

    // A single program that is killed is named too; what one returns is its own affair.
    let output = stat.run(&["-e", "page-faults", "--", "sh", "-c", "kill -SEGV $$"]);
    assert_eq!(output.status.code(), Some(139));
    assert!(
        said(&output).contains("the program was killed by SIGSEGV"),
        "{}",
        said(&output)
    );
    let output = stat.run(&["-e", "page-faults", "--", "false"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!said(&output).contains("exited with"), "{}", said(&output));
}

/// Ctrl-C goes to perch and to the program at once. The program may end first, and may succeed nevertheless.
#[test]
fn no_further_run_starts_after_ctrl_c() {
    let stat = Stat::new();
    let told = |status: ExitStatus| status.code().or(status.signal().map(|signal| 128 + signal));
    let interrupt = |program: &str, when: &dyn Fn(&Path)| {
        let mut perch = stat.command(&["stat", "-r", "40", "-e", "page-faults", "-o", "out"]);
        perch.args(["--", "sh", "-c", program]).process_group(0);
        let mut perch = perch.spawn().unwrap();
        let runs = stat.path("runs");
        when(&runs);
        // SAFETY: the group is perch's, which has not been waited for.
        unsafe { libc::kill(-(perch.id() as i32), libc::SIGINT) };
        let status = perch.wait().unwrap();
        let lines = std::fs::read_to_string(&runs).unwrap_or_default();
        assert!(lines.lines().count() < 40, "{status}");
        let _ = std::fs::remove_file(&runs);
        assert_eq!(told(status), Some(130), "{status}");
    };
    for delay in [120, 170, 230, 310] {
        interrupt("echo >> runs; sleep 0.1", &|_| {
            thread::sleep(Duration::from_millis(delay));
        });
    }
    interrupt(
        "trap 'exit 0' INT; echo >> runs; while :; do sleep 0.01; done",
        &|runs| {
            while !runs.exists() {
                thread::sleep(Duration::from_millis(5));
            }
        },
    );
}

#[test]
fn what_rows_cannot_show_is_refused() {
    let stat = Stat::new();
    let why = |args: &[&str]| {
        let output = stat.run(args);
        assert_eq!(output.status.code(), Some(125), "{args:?}: {output:?}");
        said(&output)
    };
    let program = ["--", "true"];
    let with = |args: &[&'static str]| [args, &program].concat();
    for (args, part) in [
        (
            vec!["--by", "process", "--for", "10ms"],
            "--by process: threads are counted of",
        ),
        (vec!["--by", "all", "--for", "10ms"], "--by pu, core"),
        (
            vec!["-V", "run_delay", "--by", "pu", "--for", "10ms"],
            "known of threads",
        ),
        (
            vec!["-m", "w=switches/seconds", "-a", "--for", "10ms"],
            "`switches`",
        ),
        (with(&["-n", "3"]), "-n needs a series"),
        (
            with(&["--complete-rounds", "-i", "50ms"]),
            "give -e more than once",
        ),
        (
            with(&["-m", "a=page-faults", "-m", "a=2*page-faults"]),
            "`a`",
        ),
        (with(&["-V", "run_delay,run_delay"]), "`run_delay`"),
        (
            with(&["-V", "run_delay", "-m", "run_delay=switches"]),
            "`run_delay`",
        ),
        (
            with(&["-e", "page-faults,,task-clock"]),
            "between two commas",
        ),
        (with(&["-e", "page-faults:every"]), "not a number of events"),
        (with(&["-m", "y=page-fautls/2"]), "`page`"),
        (
            with(&["-m", "seconds=page-faults"]),
            "`seconds` cannot name a metric",
        ),
        (
            "--sim smt2-zen -w mixed -e instructions:every=1M"
                .split(' ')
                .collect(),
            "leave it out",
        ),
        (
            with(&["-m", "y=page-faults-context"]),
            "a `-` between names is a minus",
        ),
    ] {
        let text = why(&args).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(part), "{args:?}: {text}");
    }
    // A name that -e gives is known.
    let named = [
        "-e",
        "mine=page-faults",
        "-m",
        "y=mine/2+minor-faults",
        "--",
        "true",
    ];
    assert!(stat.run(&named).status.success());
}

#[test]
fn a_recording_without_pus_has_no_rows_of_them() {
    let stat = Stat::new();
    let sim = "sim -m smt2-zen -w fp-int-8 -p observe -t 200ms --fidelity interval --log run.jsonl";
    let sim: Vec<&str> = sim.split(' ').collect();
    assert!(stat.command(&sim).output().unwrap().status.success());
    let recorded = std::fs::read_to_string(stat.path("run.jsonl")).unwrap();
    let without = recorded.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if line["record"] == "period" {
            line["observation"]["pus"] = Value::Array(Vec::new());
        }
        line.to_string() + "\n"
    });
    std::fs::write(stat.path("without.jsonl"), without.collect::<String>()).unwrap();
    let output = stat.run(&["--from", "without.jsonl", "--by", "pu"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(
        said(&output).contains("tells nothing of PUs"),
        "{}",
        said(&output)
    );
}

#[test]
fn phases_without_counters_are_said_to_be_off() {
    if perch_linux::perf::probe().pmu_usable {
        return skip!(Pmu, "the processor has hardware counters");
    }
    let stat = Stat::new();
    let sets = ["-e", "page-faults", "-e", "context-switches", "--", "true"];
    let text = said(&stat.run(&sets));
    assert!(text.contains("changes of phase are not detected"), "{text}");
    let off = said(&stat.run(&[&["--phases", "off"], &sets[..]].concat()));
    assert!(!off.contains("changes of phase"), "{off}");
}

#[test]
fn rows_are_of_what_by_says() {
    let stat = Stat::new();
    let program = ["--", "perl", "-e", FAULTS];
    let count = ["-e", "page-faults", "--by"];
    for (by, rows) in [("thread", 2), ("process", 2), ("command", 1), ("all", 1)] {
        let (_, totals) = stat.json(&[&count[..], &[by], &program].concat());
        let entities = totals["totals"].as_array().unwrap();
        assert_eq!(entities.len(), rows, "{by}: {totals}");
        let name = if by == "all" { "all threads" } else { "perl" };
        assert!(entities.iter().all(|row| row["name"] == name), "{totals}");
        // Only rows of one thread or process have its number.
        assert!(entities.iter().all(|row| row["id"].is_i64() == (rows == 2)));
        let all = number(&totals["all"]["counts"]["page-faults"]["value"]);
        let counts = entities.iter();
        let counts = counts.filter_map(|row| row["counts"]["page-faults"]["value"].as_f64());
        assert!(counts.sum::<f64>() <= all, "{totals}");
    }
}

#[test]
fn rows_of_pus_are_the_parts_of_the_machine() {
    let stat = Stat::new();
    let count = ["-e", "context-switches", "--for", "200ms", "--by"];
    let output = stat.run(&[&count[..], &["machine"]].concat());
    if !output.status.success() {
        return skip!(SystemWidePerf, "{}", said(&output));
    }
    let topology = stat.command(&["topology", "--json"]).output().unwrap();
    let topology: Value = serde_json::from_slice(&topology.stdout).unwrap();
    let parts = |name: &str| topology[name].as_array().unwrap().len();
    for (by, rows) in [
        ("pu", parts("pus")),
        ("core", parts("cores")),
        ("package", parts("packages")),
        ("node", parts("numa_nodes")),
        ("machine", 1),
    ] {
        let (_, totals) = stat.json(&[&count[..], &[by]].concat());
        let entities = totals["totals"].as_array().unwrap();
        assert_eq!(entities.len(), rows, "{by}: {totals}");
        let threads = entities.iter().map(|row| number(&row["threads"]));
        let pus = threads.sum::<f64>().round() as usize;
        assert_eq!(pus, parts("pus"), "{by}: {totals}");
    }
}

/// Most page faults are at a thread's beginning: those that are in no row may have taken next to no time.
#[test]
fn counts_that_are_in_no_row_are_said() {
    let stat = Stat::new();
    let said_of = |program: &[&str]| {
        let output = stat.run(&[&["-e", "page-faults", "--"], program].concat());
        let words = said(&output);
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = said_of(&["sh", "-c", "for i in 1 2 3 4 5 6; do /bin/true; done"]);
    assert!(
        text.contains(" % of page-faults are in `all`, but in no row"),
        "{text}"
    );
    let text = said_of(&["true"]);
    assert!(
        text.contains("page-faults") && !text.contains("in no row"),
        "{text}"
    );
}
