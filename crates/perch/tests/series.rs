//! What `perch stat` makes of series besides text: pictures, traces, Parquet, and what the program took.

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::{Command, Output},
};
use tempfile::TempDir;

struct Stat {
    folder: TempDir,
}

/// Its workload has a thread with two phases: a simulated one, so that numbers are the same everywhere.
const PAGE: &str = include_str!("../../../docs/notebook.md");

impl Stat {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (_, rest) = PAGE.split_once("```toml\n").unwrap();
        let (workload, _) = rest.split_once("```").unwrap();
        fs::write(folder.path().join("my-phases.toml"), workload).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut perch = Command::new(env!("CARGO_BIN_EXE_perch"));
        perch
            .arg("stat")
            .args(args)
            .current_dir(self.folder.path())
            .env("PERCH_STATE_DIR", self.folder.path());
        perch
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// A run that succeeds; what it printed.
    fn told(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Two phases with two sets in rotation.
    fn phases(&self, more: &str) -> String {
        self.told(&words(&format!("{PHASES} {more}")))
    }
}

/// Arguments without spaces in them.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

const PHASES: &str = "--sim smt2-zen -w my-phases.toml --fidelity interval --for 6s -i 100ms -e BRANCHES -e L2_MISSES";
const MIXED: [&str; 10] = [
    "--sim",
    "smt2-zen",
    "-w",
    "mixed",
    "--fidelity",
    "interval",
    "--for",
    "2s",
    "-i",
    "100ms",
];
const BUSY: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";

fn rows(text: &str) -> (Vec<Value>, Value) {
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut lines: Vec<Value> = lines.collect();
    let totals = lines.pop().unwrap();
    (lines, totals)
}

/// What is written in a picture.
fn texts(svg: &str) -> Vec<&str> {
    let parts = svg.split("<text ").skip(1);
    let inner = parts.filter_map(|part| part.split_once('>')?.1.split_once("</text>"));
    inner.map(|(text, _)| text.trim()).collect()
}

#[test]
fn a_picture_has_a_chart_for_each_column_and_a_name_for_each_line() {
    let stat = Stat::new();
    stat.told(&[&MIXED[..], &["--plot", "a.svg"]].concat());
    stat.told(&[&MIXED[..], &["--plot", "b.html"]].concat());
    let svg = stat.read("a.svg");
    let texts = texts(&svg);
    assert!(
        texts.contains(&"mixed on a simulated smt2-zen"),
        "{texts:?}"
    );
    for chart in [
        "instructions per second",
        "ipc (instructions / cycle)",
        "CPU time (% of the interval)",
    ] {
        assert!(texts.contains(&chart), "{chart}: {texts:?}");
    }
    // Eight threads: six have names in each chart, which is said of the others.
    let names = texts.iter().filter(|text| {
        let words: Vec<&str> = text.split(' ').collect();
        matches!(words[..], [name, tid] if name.contains('-') && tid.parse::<u32>().is_ok())
    });
    assert!(names.count() >= 6 * 20, "{texts:?}");
    assert!(texts.contains(&"grey: 2 more threads"), "{texts:?}");
    assert!(
        texts.contains(&"0 s") && texts.contains(&"2 s"),
        "{texts:?}"
    );
    let page = stat.read("b.html");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains(svg.trim_end()));
    assert!(!page.contains("<script") && !page.contains("src="));
}

#[test]
fn phases_and_dropped_rounds_are_in_the_picture() {
    let stat = Stat::new();
    let told = stat.phases("--json --plot a.svg");
    let (rows, totals) = rows(&told);
    let broken = totals["broken_rounds"].as_u64().unwrap();
    let phases = rows
        .iter()
        .filter_map(|row| row["phase"].as_u64())
        .max()
        .unwrap();
    assert!(broken > 0 && phases > 1, "{totals}");
    let svg = stat.read("a.svg");
    let texts = texts(&svg);
    assert!(texts.contains(&"phases"), "{texts:?}");
    // The last one: short ones before have no room for a number.
    let last = (phases + 1).to_string();
    assert!(texts.contains(&last.as_str()), "{texts:?}");
    // Shaded in each chart and in the row of phases.
    let charts = texts
        .iter()
        .filter(|text| text.ends_with(" per second"))
        .count();
    // Several rectangles in a row are one path.
    let paths = svg.lines().filter(|line| line.contains("#FCE2D6"));
    let shaded: usize = paths.map(|path| path.matches('z').count()).sum();
    assert!(shaded as u64 >= broken * charts as u64, "{shaded}");
}

#[test]
fn a_live_program_and_a_recording_are_drawn() {
    let stat = Stat::new();
    let args = [
        "-i",
        "50ms",
        "-e",
        "page-faults",
        "--plot",
        "live.svg",
        "--",
        "sh",
        "-c",
        BUSY,
    ];
    assert!(stat.run(&args).status.success());
    let svg = stat.read("live.svg");
    let texts = texts(&svg);
    assert!(texts.contains(&"page-faults per second"), "{texts:?}");
    assert!(
        texts.iter().any(|text| text.starts_with("sh ")),
        "{texts:?}"
    );
    let mut perch = Command::new(env!("CARGO_BIN_EXE_perch"));
    let args = [
        "run",
        "-q",
        "--policy",
        "observe",
        "--period",
        "100ms",
        "--log",
        "run.jsonl",
    ];
    let perch = perch.args(args).args(["--", "sh", "-c", BUSY]);
    let perch = perch.current_dir(stat.folder.path());
    let status = perch.env("PERCH_STATE_DIR", stat.folder.path()).status();
    assert!(status.unwrap().success());
    stat.told(&[
        "--from",
        "run.jsonl",
        "-i",
        "100ms",
        "--plot",
        "recorded.svg",
    ]);
    assert!(stat.read("recorded.svg").contains("CPU time"));
}

#[test]
fn what_cannot_be_drawn_is_an_error_that_says_why() {
    let stat = Stat::new();
    let why = |args: &[&str]| {
        let output = stat.run(&[args, &["--", "true"]].concat());
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(why(&["--plot", "a.svg"]).contains("-i 100ms"));
    assert!(why(&["--timeline", "a.json"]).contains("-i 100ms"));
    assert!(why(&["-i", "1s", "--plot", "a.png"]).contains(".svg"));
    assert!(why(&["-i", "1s", "--timeline", "a.svg"]).contains("--plot"));
    assert!(why(&["-i", "1s", "--plot", "a.svg", "-o", "a.svg"]).contains("writes to that file"));
    assert!(why(&["-o", "a.parquet", "--csv"]).contains("leave --csv and --json out"));
    assert!(why(&["-i", "1s", "--plot", "a.svg", "--repeat", "2"]).contains("--repeat"));
    let output = stat.run(&["-i", "50ms", "--plot", "/dev/full", "--", "true"]);
    assert!(!output.status.success());
    fs::write(stat.path("run.jsonl"), "{}").unwrap();
    let output = stat.run(&["--from", "run.jsonl", "-i", "1s", "-o", "run.jsonl"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("what is read"));
    assert_eq!(stat.read("run.jsonl"), "{}");
}

#[test]
fn a_trace_has_a_counter_for_each_column_and_slices_for_phases() {
    let stat = Stat::new();
    let (rows, totals) = rows(&stat.phases("--json --timeline a.json"));
    let trace: Value = serde_json::from_str(&stat.read("a.json")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |ph: &'static str| events.iter().filter(move |event| event["ph"] == ph);
    let tid = rows[0]["id"].as_u64().unwrap();
    assert!(of("M").any(|event| event["args"]["name"] == format!("main {tid}")));
    let counters: BTreeSet<&str> = of("C").filter_map(|event| event["name"].as_str()).collect();
    for column in ["instructions", "BRANCHES", "L2_MISSES", "CPU time"] {
        let name = format!("main {tid} {column}");
        assert!(counters.contains(name.as_str()), "{name}: {counters:?}");
    }
    // Each counter is what the rows say, from the beginning of the interval on, or 0 at the end.
    let mut known: BTreeMap<u64, f64> = BTreeMap::new();
    for row in &rows {
        let interval = row["interval_s"].as_f64().unwrap();
        let from = row["time_s"].as_f64().unwrap() - interval;
        if let Some(count) = row["counts"]["BRANCHES"]["value"].as_f64() {
            known.insert((from * 1e6).round() as u64, count / interval);
        }
    }
    let mut checked = 0;
    let branches = format!("main {tid} BRANCHES");
    for event in of("C").filter(|event| event["name"] == branches.as_str()) {
        let at = event["ts"].as_f64().unwrap().round() as u64;
        let value = event["args"]["1/s"].as_f64().unwrap();
        if let Some(known) = known.get(&at) {
            assert!((value / known - 1.0).abs() < 1e-6, "{value} {known}");
            checked += 1;
        }
    }
    assert!(checked > 10, "{checked}");
    let phases = rows
        .iter()
        .filter_map(|row| row["phase"].as_u64())
        .max()
        .unwrap();
    assert_eq!(of("i").count() as u64, phases);
    let dropped = of("X")
        .filter(|event| event["name"] == "round dropped")
        .count();
    assert_eq!(dropped as u64, totals["broken_rounds"].as_u64().unwrap());
    let named = |phase: u64| of("X").filter(move |event| event["name"] == format!("phase {phase}"));
    assert!((1..=phases + 1).all(|phase| named(phase).count() == 1));
}

#[test]
fn a_trace_of_a_live_program_can_be_read() {
    let stat = Stat::new();
    let args = [
        "-i",
        "50ms",
        "-e",
        "page-faults",
        "--timeline",
        "a.json",
        "--",
        "sh",
        "-c",
        BUSY,
    ];
    assert!(stat.run(&args).status.success());
    let trace: Value = serde_json::from_str(&stat.read("a.json")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(
        events.iter().any(|event| event["name"] == "measured"),
        "{trace:#}"
    );
    // Every counter ends at 0: nothing seems to go on after the thread.
    let mut last: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "C") {
        let (_, value) = event["args"].as_object().unwrap().iter().next().unwrap();
        let at = event["ts"].as_f64().unwrap();
        let entry = last.entry(event["name"].as_str().unwrap()).or_default();
        if at >= entry.0 {
            *entry = (at, value.as_f64().unwrap());
        }
    }
    assert!(
        last.len() >= 2 && last.values().all(|(_, value)| *value == 0.0),
        "{last:?}"
    );
}

#[test]
fn parquet_has_what_csv_has() {
    let stat = Stat::new();
    let metric = ["-m", "rate[1/s]=instructions/cpu_seconds"];
    let args = [&MIXED[..], &metric].concat();
    let csv = stat.told(&[&args[..], &["--csv"]].concat());
    stat.told(&[&args[..], &["-o", "a.parquet"]].concat());
    let bytes = fs::read(stat.path("a.parquet")).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    // Metrics are kept to the last bit, and counts to the last event.
    let back = stat.told(&["--from", "a.parquet", "--csv"]);
    let (csv, back): (Vec<&str>, Vec<&str>) = (csv.lines().collect(), back.lines().collect());
    assert!(csv.len() > 100, "{}", csv.len());
    assert_eq!(csv, back);
    // And again to Parquet, to a picture and to a trace.
    stat.told(&[
        "--from",
        "a.parquet",
        "-o",
        "b.parquet",
        "--plot",
        "b.svg",
        "--timeline",
        "b.json",
    ]);
    assert_eq!(
        stat.told(&["--from", "b.parquet", "--csv"])
            .lines()
            .collect::<Vec<_>>(),
        back
    );
    assert!(stat.read("b.svg").contains("rate per second"));
    // The totals of rows are in the metadata.
    let file = fs::File::open(stat.path("a.parquet")).unwrap();
    let file = SerializedFileReader::new(file).unwrap();
    let mut pairs = file
        .metadata()
        .file_metadata()
        .key_value_metadata()
        .unwrap()
        .iter();
    let totals = pairs.find(|pair| pair.key == "perch.totals").unwrap();
    let totals: Value = serde_json::from_str(totals.value.as_deref().unwrap()).unwrap();
    let json = stat.told(&[&args[..], &["--json"]].concat());
    let expected: Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    assert!(totals["all"]["counts"].is_object(), "{totals:#}");
    assert_eq!(totals["all"], expected["all"]);
    let refused = stat.run(&["--from", "a.parquet", "--by", "process"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--by"));
}

#[test]
fn phases_come_back_from_parquet() {
    let stat = Stat::new();
    stat.phases("-o a.parquet --plot a.svg");
    stat.told(&["--from", "a.parquet", "--plot", "b.svg"]);
    let shapes = |name: &str| {
        let svg = stat.read(name);
        let lines = svg.lines().filter(|line| line.starts_with("<path"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(shapes("a.svg").iter().any(|line| line.contains("#FCE2D6")));
    assert_eq!(shapes("a.svg"), shapes("b.svg"));
    // What cannot change the rows any more is refused.
    for flags in ["-i 1s", "-n 3", "--for 1s", "--phases average", "--by all"] {
        let args = words("--from a.parquet");
        let output = stat.run(&[args, words(flags)].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        let flag = flags.split(' ').next().unwrap();
        assert_eq!(output.status.code(), Some(125), "{flags}");
        assert!(errors.contains(&format!("leave {flag} out")), "{errors}");
    }
}

#[test]
fn a_parquet_file_is_complete_however_counting_ends() {
    let stat = Stat::new();
    let whole = |name: &str| {
        let told = stat.told(&["--from", name, "--csv"]);
        told.lines().count()
    };
    // The program dies of a signal.
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; kill -9 $$";
    let args = words("-i 50ms -e page-faults -o died.parquet -- sh -c");
    let output = stat.run(&[&args[..], &[script]].concat());
    assert_eq!(output.status.code(), Some(137));
    assert!(whole("died.parquet") >= 2);
    // The user stops perch.
    for signal in ["INT", "TERM"] {
        let mut target = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let pid = target.id().to_string();
        let files = "--plot s.svg --timeline s.json -o s.parquet";
        let args = format!("-i 20ms -e page-faults -p {pid} {files}");
        let mut perch = stat.command(&words(&args)).spawn().unwrap();
        // The trace is written as intervals end, so that it tells when perch has rows.
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let trace = || fs::read_to_string(stat.path("s.json")).unwrap_or_default();
        while !trace().contains("\"ph\":\"C\"") {
            assert!(std::time::Instant::now() < limit);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let perch_pid = perch.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", signal, &perch_pid])
            .status();
        assert!(sent.unwrap().success());
        perch.wait().unwrap();
        target.kill().unwrap();
        target.wait().unwrap();
        assert!(whole("s.parquet") >= 2, "{signal}");
        assert!(stat.read("s.svg").ends_with("</svg>\n"));
        fs::remove_file(stat.path("s.parquet")).unwrap();
        fs::remove_file(stat.path("s.svg")).unwrap();
        let _: Value = serde_json::from_str(&trace()).unwrap();
        fs::remove_file(stat.path("s.json")).unwrap();
    }
    // No end was written: that is said.
    let bytes = fs::read(stat.path("died.parquet")).unwrap();
    fs::write(stat.path("cut.parquet"), &bytes[..bytes.len() - 20]).unwrap();
    let output = stat.run(&["--from", "cut.parquet"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no complete Parquet file"));
}

#[test]
fn damaged_parquet_files_are_refused() {
    let stat = Stat::new();
    stat.told(&[&MIXED[..], &["-o", "a.parquet"]].concat());
    let whole = fs::read(stat.path("a.parquet")).unwrap();
    for at in (4..whole.len()).step_by(whole.len() / 60 + 1) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(stat.path("b.parquet"), bytes).unwrap();
        // A changed value is not noticed, as there is no check value; but there is an end, and no panic.
        let output = stat.run(&["--from", "b.parquet", "--csv"]);
        let code = output.status.code();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            matches!(code, Some(0 | 125)),
            "byte {at}: {code:?} {errors}"
        );
        assert!(!errors.contains("panicked"), "byte {at}: {errors}");
    }
}

#[test]
fn the_program_s_own_times_are_told() {
    let stat = Stat::new();
    let script = format!("{BUSY}; sleep 0.3");
    let output = stat.run(&["--json", "-o", "a.json", "--", "sh", "-c", &script]);
    assert!(output.status.success());
    let (_, totals) = rows(&stat.read("a.json"));
    let time = |name: &str| totals[name].as_f64().unwrap();
    let (elapsed, user, system) = (time("elapsed_s"), time("user_s"), time("system_s"));
    assert!(elapsed >= 0.3 && user > 0.0, "{totals}");
    // The same CPU time by another clock: that of the scheduler.
    let cpu = totals["all"]["cpu_s"].as_f64().unwrap();
    assert!(
        (user + system - cpu).abs() < 0.1 * cpu + 0.05,
        "{user} {system} {cpu}"
    );
    assert!(user + system <= elapsed + 0.05, "{totals}");
    let output = stat.run(&["-r", "2", "--", "sh", "-c", BUSY]);
    let text = String::from_utf8_lossy(&output.stderr);
    for line in [
        "s elapsed, ",
        "elapsed time (s)",
        "user time (s)",
        "system time (s)",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // Of processes that perch did not start, nothing is known.
    let mut child = Command::new("sleep").arg("0.3").spawn().unwrap();
    let pid = child.id().to_string();
    let told = stat.told(&["--json", "-p", &pid]);
    child.wait().unwrap();
    assert!(rows(&told).1["user_s"].is_null());
}
