//! Recordings replay identically, whatever the policy: a replay is recorded, and that recording is replayed again.

use perch_policy::Calibration;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Names the settings of the test.
const CONFIG: [&str; 2] = ["--config", "settings.toml"];

struct Folder(tempfile::TempDir);

impl Folder {
    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn perch(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perch"));
        // No settings of the user who runs the tests.
        command
            .env_clear()
            .env("XDG_CONFIG_HOME", self.0.path())
            .current_dir(self.0.path())
            .args(arguments);
        command.output().unwrap()
    }

    fn told(&self, arguments: &[&str]) -> String {
        let output = self.perch(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Plays a simulated machine, live as far as the policy knows, and records it.
    fn record(&self, machine: &str, workload: &str, policy: &str) -> String {
        let log = format!("{policy}.jsonl");
        let sim = ["sim", "-m", machine, "-w", workload, "-p", policy];
        let more = ["-t", "20s", "--fidelity", "interval", "--log", &log];
        let with = if self.file("settings.toml").exists() {
            &CONFIG[..]
        } else {
            &[]
        };
        self.told(&[&sim[..], &more[..], with].concat());
        log
    }
}

fn periods(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().skip(1).map(str::to_owned).collect()
}

fn header(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap();
    serde_json::from_str(text.lines().next().unwrap()).unwrap()
}

/// How often a policy asked for something.
fn bindings(periods: &[String]) -> usize {
    let bindings = |line: &String| -> usize {
        let period: Value = serde_json::from_str(line).unwrap();
        period["plan"]["bindings"].as_array().map_or(0, Vec::len)
    };
    periods.iter().map(bindings).sum()
}

/// A calibration of the machine in which one thread is more than any resource bears, so that `masa` has something to do.
fn calibration(folder: &Folder, machine: &str) {
    folder.told(&["calibrate", "-m", machine, "--quick", "-o", "own.toml"]);
    let mut own = Calibration::read(&folder.file("own.toml")).unwrap();
    own.metrics.iter_mut().for_each(|metric| metric.limit = 1.0);
    fs::write(folder.file("own.toml"), own.to_toml().unwrap()).unwrap();
    let settings = "[policies.masa]\ncalibration = \"own.toml\"\n[policies.symbiosis]\ncalibration = \"own.toml\"\n";
    fs::write(folder.file("settings.toml"), settings).unwrap();
}

/// Loads of PUs (masa), shared memory (symbiosis) and a calibration are in the recordings.
#[test]
fn each_policy_replays_each_recording_identically() {
    let folder = Folder(tempfile::tempdir().unwrap());
    // Another machine's, which is measured more quickly; what matters is that it is in force again.
    calibration(&folder, "ibm-power7-smt2");
    let policies = [
        ("masa", "producer-consumer", "\"pus\":["),
        ("workover", "fp-int-8", "fp_share"),
        ("symbiosis", "producer-consumer", "\"sharing\":["),
    ];
    for (policy, workload, seen) in policies {
        let log = folder.record("amd-bulldozer", workload, policy);
        let recorded = periods(&folder.file(&log));
        let all = recorded.concat();
        assert!(all.contains(seen), "{policy}: no {seen}");
        assert!(bindings(&recorded) > 0, "{policy} bound nothing");
        for (asked, ..) in policies {
            let again = asked == policy;
            // A policy again finds its options and its calibration in the recording.
            let (kept, moved) = (folder.file("own.toml"), folder.file("elsewhere.toml"));
            let with = if again { &[][..] } else { &CONFIG[..] };
            if again {
                fs::rename(&kept, &moved).unwrap();
            }
            let [first, second] = [1, 2].map(|turn| format!("{policy}-{asked}-{turn}.jsonl"));
            let replay = |log: &str, into: &str| {
                let flags = ["replay", log, "--policy", asked, "--log", into, "--json"];
                let report = folder.told(&[&flags[..], with].concat());
                let mut report: Value = serde_json::from_str(&report).unwrap();
                // Each replay adds that it is one.
                report["counting"] = Value::Null;
                report
            };
            let reports = [replay(&log, &first), replay(&first, &second)];
            let plans = [&first, &second].map(|file| periods(&folder.file(file)));
            if again {
                fs::rename(&moved, &kept).unwrap();
                assert!(
                    bindings(&plans[0]) > 0,
                    "{policy} bound nothing in the replay"
                );
            }
            assert_eq!(reports[0], reports[1], "{policy}, {asked}");
            assert_eq!(plans[0], plans[1], "{policy}, {asked}");
        }
    }
}

#[test]
fn what_was_in_force_is_in_force_again() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let settings = "[policies.masa]\nvariant = \"paper\"\nimbalance = 0.5\n";
    fs::write(folder.file("settings.toml"), settings).unwrap();
    let sim = [
        "sim",
        "-m",
        "intel-xeon-ht",
        "-w",
        "masa-int-fp",
        "-t",
        "20s",
    ];
    let more = ["-p", "masa", "--fidelity", "interval", "--log", "run.jsonl"];
    folder.told(&[&sim[..], &more[..], &CONFIG[..]].concat());
    folder.told(&["replay", "run.jsonl", "--log", "again.jsonl"]);
    let again = header(&folder.file("again.jsonl"));
    let options = &again["configuration"]["policies.masa"];
    assert_eq!(options["variant"], "paper");
    assert_eq!(options["imbalance"], 0.5);
    let recorded = header(&folder.file("run.jsonl"));
    assert!(
        recorded["calibration"]
            .as_str()
            .unwrap()
            .contains("[[metric]]")
    );
    assert_eq!(again["calibration"], recorded["calibration"]);
}

/// What a run saw is in its recording, rules from a file included.
#[test]
fn a_replay_draws_the_timeline_that_the_run_drew() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let run = [
        "run",
        "-q",
        "--pin-file",
        "rules",
        "--period",
        "100ms",
        "--log",
        "run.jsonl",
    ];
    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let program = ["--timeline", "run.json", "--", "/bin/sh", "-c", busy];
    let both = || {
        fs::write(folder.file("rules"), "# all\nsh*=0\n").unwrap();
        folder.told(&[&run[..], &program].concat());
        fs::remove_file(folder.file("rules")).unwrap();
        folder.told(&["replay", "run.jsonl", "--timeline", "again.json"]);
        ["run.json", "again.json"].map(|name| -> Value {
            serde_json::from_str(&fs::read_to_string(folder.file(name)).unwrap()).unwrap()
        })
    };
    let moved = |drawn: &Value| {
        let mut events = drawn["traceEvents"].as_array().unwrap().iter();
        events
            .find(|event| event["ph"] == "i")
            .and_then(|event| event["ts"].as_f64())
    };
    // On a busy machine a policy may answer after the observation that it was asked about; a replay always waits for it.
    let in_time = |[first, again]: &[Value; 2]| {
        let times = moved(first).zip(moved(again));
        times.is_some_and(|(first, again)| first <= again)
    };
    let [first, again] = (0..20).map(|_| both()).find(in_time).unwrap();
    let events = first["traceEvents"].as_array().unwrap();
    let of = |ph: &str| events.iter().filter(|event| event["ph"] == ph).count();
    assert!(of("X") > 0 && of("C") > 0, "{first}");
    let moves = events.iter().filter(|event| event["ph"] == "i");
    let moves: Vec<&str> = moves.map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(moves, ["→ PU 0: rule 'sh*=0'"]);
    assert_eq!(first, again);
    folder.told(&["replay", "run.jsonl", "--timeline", "run.svg"]);
    let picture = fs::read_to_string(folder.file("run.svg")).unwrap();
    assert!(
        picture.starts_with("<svg ") && picture.contains("PU 0"),
        "{picture}"
    );
}

#[test]
fn a_timeline_that_cannot_be_written_is_told_before_the_program_runs() {
    let folder = Folder(tempfile::tempdir().unwrap());
    for file in ["nowhere/t.json", "nowhere/t.svg"] {
        let program = ["/bin/sh", "-c", "echo > ran"];
        let run = ["run", "-q", "--timeline", file, "--"];
        let output = folder.perch(&[&run[..], &program].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{errors}");
        assert!(
            errors.contains("--timeline") && errors.contains(file),
            "{errors}"
        );
        assert!(!folder.file("ran").exists());
    }
}

/// The same of a recording that was kept from an earlier perch.
#[test]
fn a_recording_of_a_recording_has_its_timeline() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/version-1.jsonl");
    let kept = kept.to_str().unwrap();
    folder.told(&[
        "replay",
        kept,
        "--log",
        "again.jsonl",
        "--timeline",
        "1.json",
    ]);
    folder.told(&["replay", "again.jsonl", "--timeline", "2.json"]);
    let read = |name: &str| fs::read_to_string(folder.file(name)).unwrap();
    assert_eq!(read("1.json"), read("2.json"));
    let trace: Value = serde_json::from_str(&read("1.json")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let recorded = fs::read_to_string(kept).unwrap();
    let moves = |line: &str| -> usize {
        let record: Value = serde_json::from_str(line).unwrap();
        record["moves"].as_array().map_or(0, Vec::len)
    };
    let moves: usize = recorded.lines().map(moves).sum();
    assert!(moves > 0);
    assert_eq!(
        events.iter().filter(|event| event["ph"] == "i").count(),
        moves
    );
}

#[test]
fn a_recording_is_not_written_over_by_its_replay() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let log = folder.record("intel-xeon-ht", "masa-int-fp", "workover");
    let before = fs::read(folder.file(&log)).unwrap();
    let same = format!("./{log}");
    let output = folder.perch(&["replay", &log, "--log", &same]);
    assert_eq!(output.status.code(), Some(125));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("another file"), "{errors}");
    let output = folder.perch(&["replay", &log, "--timeline", &log]);
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(fs::read(folder.file(&log)).unwrap(), before);
}

/// A recording of a live session that an earlier perch made replays to the plans that it made then.
#[test]
fn a_recording_of_version_1_replays() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/version-1.jsonl");
    let again = ["replay", kept.to_str().unwrap(), "--log", "again.jsonl"];
    assert_eq!(folder.told(&[&again[..], &["--quiet"]].concat()), "");
    assert_eq!(header(&kept)["version"], 1);
    assert_eq!(header(&folder.file("again.jsonl"))["version"], 2);
    let plans = |file: &Path| -> Vec<Value> {
        let periods = periods(file).into_iter();
        let periods = periods.map(|line| serde_json::from_str::<Value>(&line).unwrap());
        let asked = periods.filter(|line| line["record"] == "period");
        asked.map(|line| line["plan"]["bindings"].clone()).collect()
    };
    let (then, now) = (plans(&kept), plans(&folder.file("again.jsonl")));
    assert!(
        then.iter()
            .any(|bindings| !bindings.is_null() && bindings != &Value::Array(vec![]))
    );
    assert_eq!(now, then);
}

#[test]
fn a_recording_without_periods_is_named() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let log = folder.record("core2-quad", "fp-int-8", "observe");
    let text = fs::read_to_string(folder.file(&log)).unwrap();
    let header = text.lines().next().unwrap();
    fs::write(folder.file("header.jsonl"), format!("{header}\n")).unwrap();
    for command in [
        &["replay"][..],
        &["stat", "--from"],
        &["top", "--json", "--from"],
    ] {
        for (file, without) in [("header.jsonl", true), (&*log, false)] {
            let output = folder.perch(&[command, &[file]].concat());
            let errors = String::from_utf8(output.stderr).unwrap();
            let errors = errors.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(output.status.success(), "{command:?}: {errors}");
            let said = errors.contains("it holds no period");
            assert_eq!(said, without, "{command:?} {file}: {errors}");
        }
    }
}
