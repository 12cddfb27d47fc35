//! What perch prints and writes: it says when it cannot, an error names the variable that it is about, recordings hold each
//! period once, and traces keep to the rules of their format.

use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// No settings of the user who runs the tests.
    fn clean(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("XDG_CONFIG_HOME", self.0.path())
            .env("PERCH_STATE_DIR", self.file("state"))
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    fn perch(&self, arguments: &[&str]) -> Command {
        let mut command = self.clean(env!("CARGO_BIN_EXE_perch"));
        command.args(arguments);
        command
    }

    /// Runs perch by a shell, with what is behind the arguments.
    fn shell(&self, arguments: &str, behind: &str) -> Output {
        let line = format!("\"$0\" {arguments} {behind}");
        self.clean("sh")
            .args(["-c", &line, env!("CARGO_BIN_EXE_perch")])
            .output()
            .unwrap()
    }

    fn told(&self, arguments: &[&str]) -> String {
        let output = self.perch(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const SIM: [&str; 9] = [
    "sim",
    "-m",
    "smt2-zen",
    "-w",
    "mixed",
    "-t",
    "5s",
    "--fidelity",
    "interval",
];

#[test]
fn an_error_about_a_variable_names_it() {
    let folder = Folder::new();
    let run = ["run", "--", "true"];
    for (variable, value, arguments, wanted) in [
        (
            "PERCH_POLICY",
            "wrokover",
            &run[..],
            "PERCH_POLICY=wrokover: no policy `wrokover`; did you mean `workover`?",
        ),
        ("PERCH_POLICY", "fixed", &run[..], "PERCH_POLICY=fixed: "),
        ("PERCH_PROFILE", "zne4", &run[..], "PERCH_PROFILE=zne4: "),
        ("PERCH_PUS", "4000", &run[..], "PERCH_PUS=4000: "),
        (
            "PERCH_CONFIG",
            "/no/such.toml",
            &run[..],
            "PERCH_CONFIG=/no/such.toml: ",
        ),
        ("PERCH_STATE_DIR", "state", &run[..], "PERCH_STATE_DIR"),
        ("PERCH_PERIOD", "soon", &run[..], "'PERCH_PERIOD'"),
        ("PERCH_PERIOD", "soon", &["config"], "'PERCH_PERIOD'"),
        ("PERCH_COUNTERS", "pmv", &run[..], "'PERCH_COUNTERS'"),
        (
            "PERCH_SAMPLING_RATE",
            "0",
            &run[..],
            "'PERCH_SAMPLING_RATE'",
        ),
        ("PERCH_TAKE_OVER", "maybe", &run[..], "'PERCH_TAKE_OVER'"),
    ] {
        let output = folder.perch(arguments).env(variable, value).output();
        let output = output.unwrap();
        assert!(!output.status.success(), "{variable}");
        assert!(
            said(&output).contains(wanted),
            "{variable}: {}",
            said(&output)
        );
    }
    // Set to nothing is not set.
    for variable in ["PERCH_POLICY", "PERCH_PERIOD", "PERCH_CONFIG", "PERCH_PUS"] {
        let output = folder.perch(&run).env(variable, "").output().unwrap();
        assert!(output.status.success(), "{variable}: {}", said(&output));
    }
    // A flag hides the variable.
    let arguments = ["run", "--policy", "cpy", "--period", "soon", "--", "true"];
    let output = folder.perch(&arguments).env("PERCH_PERIOD", "1s").output();
    let told = said(&output.unwrap());
    assert!(told.contains("'--period <TIME>'"), "{told}");
    let arguments = ["run", "--policy", "cpy", "--", "true"];
    let output = folder.perch(&arguments).env("PERCH_POLICY", "cpi").output();
    let told = said(&output.unwrap());
    assert!(
        told.contains("no policy `cpy`") && !told.contains("PERCH"),
        "{told}"
    );
}

#[test]
fn what_cannot_be_printed_is_an_error() {
    let folder = Folder::new();
    let sim = SIM.join(" ");
    folder.told(&[&SIM[..], &["--log", "run.jsonl"]].concat());
    for arguments in [
        "topology --no-load",
        "topology --json",
        "topology --topology pu:2 --svg",
        "events",
        "events --json",
        "policies",
        "policies --json",
        "profiles",
        "modules",
        "config",
        "stat --for 50ms",
        "stat --for 50ms --json",
        "stat --for 50ms --csv",
        &sim,
        &format!("{sim} --json"),
        "replay run.jsonl",
        "replay run.jsonl --json",
        "lab list",
        "completions bash",
    ] {
        let full = folder.shell(arguments, "> /dev/full");
        assert_eq!(
            full.status.code(),
            Some(125),
            "{arguments}: {}",
            said(&full)
        );
        let why = "standard output: cannot be written: No space left on device";
        assert!(said(&full).contains(why), "{arguments}: {}", said(&full));
        let closed = folder.shell(arguments, ">&-");
        assert_eq!(
            closed.status.code(),
            Some(125),
            "{arguments}: {}",
            said(&closed)
        );
        assert!(
            said(&closed).contains("standard output is closed"),
            "{arguments}"
        );
        // A reader that has seen enough (`head`) is none: it ends perch quietly.
        let piped = folder.shell(arguments, "2> said | true; cat said >&2");
        assert!(
            !said(&piped).contains("standard output"),
            "{arguments}: {}",
            said(&piped)
        );
    }
    // Nothing is printed there.
    let output = folder.shell("run -q -- true", ">&-");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn a_period_that_is_recorded_twice_is_told() {
    let folder = Folder::new();
    folder.told(&[&SIM[..], &["--log", "run.jsonl"]].concat());
    let text = fs::read_to_string(folder.file("run.jsonl")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.insert(3, lines[2]);
    fs::write(folder.file("twice.jsonl"), lines.join("\n") + "\n").unwrap();
    lines.remove(3);
    lines.swap(2, 3);
    fs::write(folder.file("swapped.jsonl"), lines.join("\n") + "\n").unwrap();
    for (file, wanted) in [
        ("twice.jsonl", "twice.jsonl:4: period 1 again"),
        ("swapped.jsonl", "swapped.jsonl:4: period 1 after period 2"),
    ] {
        let output = folder.perch(&["replay", file]).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}", said(&output));
        assert!(said(&output).contains(wanted), "{}", said(&output));
        // The page is made without that line, and says so as well.
        let report = ["report", file, "--html", "out.html"];
        let output = folder.perch(&report).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let told = "Left out: 1 line of the recording out of order. The first is line 4";
        assert!(said(&output).contains(told), "{}", said(&output));
    }
}

/// The rules of the Trace Event Format, as far as Perfetto holds files to them.
fn check_trace(text: &str) -> BTreeMap<String, usize> {
    let trace: Value = serde_json::from_str(text).unwrap();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    // By thread: the ends of the slices around the next event, and the begun ones of `B`.
    let mut open: BTreeMap<(u64, u64), Vec<f64>> = BTreeMap::new();
    let mut begun: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    let mut last: BTreeMap<(u64, u64, String), f64> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let number = |name: &str| {
            let value = event[name].as_f64().filter(|value| *value >= 0.0);
            value.unwrap_or_else(|| panic!("no {name}: {event}"))
        };
        let thread = (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        );
        let name = event["name"].as_str().unwrap();
        assert!(!name.chars().any(char::is_control), "{event}");
        let ph = event["ph"].as_str().unwrap();
        *kinds.entry(ph.to_owned()).or_default() += 1;
        if ph == "M" {
            let known = ["process_name", "thread_name"].contains(&name);
            let sorts = ["process_sort_index", "thread_sort_index"].contains(&name);
            assert!(
                known && event["args"]["name"].is_string() || sorts,
                "{event}"
            );
            continue;
        }
        let at = number("ts");
        let track = match ph {
            "C" => name.to_owned(),
            "X" | "B" | "E" => "slices".to_owned(),
            _ => "instants".to_owned(),
        };
        let before = last.insert((thread.0, thread.1, track), at);
        assert!(before.is_none_or(|before| before <= at), "back to {event}");
        match ph {
            "X" => {
                let end = at + number("dur");
                let around = open.entry(thread).or_default();
                // A thousandth of a nanosecond: times are sums of floating-point numbers.
                const NOTHING: f64 = 1e-6;
                around.retain(|end| *end > at + NOTHING);
                let inside = around.last().is_none_or(|last| end <= last + NOTHING);
                assert!(inside, "neither in nor behind the slice before: {event}");
                around.push(end);
            }
            "B" => *begun.entry(thread).or_default() += 1,
            "E" => {
                let begun = begun.entry(thread).or_default();
                *begun = begun.checked_sub(1).expect("an end without a beginning");
            }
            "i" => assert!(["t", "p", "g"].contains(&event["s"].as_str().unwrap_or("t"))),
            "C" => {
                let values = event["args"].as_object().unwrap();
                assert!(
                    !values.is_empty() && values.values().all(Value::is_number),
                    "{event}"
                );
            }
            other => panic!("an unknown type {other}: {event}"),
        }
    }
    assert!(begun.values().all(|left| *left == 0), "{begun:?}");
    kinds
}

#[test]
fn traces_keep_to_the_rules_of_their_format() {
    let folder = Folder::new();
    let traced = [
        "-p",
        "workover",
        "--log",
        "run.jsonl",
        "--timeline",
        "a.json",
    ];
    folder.told(&[&SIM[..], &traced].concat());
    // A name that the format must escape, as of a thread of a real program.
    let text = fs::read_to_string(folder.file("run.jsonl")).unwrap();
    let odd = text.replace("\"fp-1\"", "\"fp \\\"\\\\\\n<é>\"");
    assert_ne!(odd, text);
    fs::write(folder.file("odd.jsonl"), odd).unwrap();
    folder.told(&["replay", "odd.jsonl", "--timeline", "b.json"]);
    let stat = [
        "stat", "--sim", "smt2-zen", "-w", "mixed", "-i", "100ms", "--for", "2s",
    ];
    folder.told(&[&stat[..], &["--timeline", "c.json"]].concat());
    let run = ["run", "-q", "--timeline", "d.json", "--period", "100ms"];
    let script = [
        "--",
        "sh",
        "-c",
        "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done",
    ];
    let output = folder
        .perch(&[&run[..], &script].concat())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    for (file, kinds) in [
        ("a.json", &["X", "M", "C"][..]),
        ("b.json", &["X", "M", "C"]),
        ("c.json", &["M", "C"]),
        ("d.json", &["X", "M"]),
    ] {
        let found = check_trace(&fs::read_to_string(folder.file(file)).unwrap());
        assert!(
            kinds.iter().all(|kind| found.contains_key(*kind)),
            "{file}: {found:?}"
        );
    }
}

/// The rules find what they are for.
#[test]
fn traces_that_break_the_rules_are_found() {
    let slice = |ts: f64, dur: f64| {
        format!(r#"{{"name":"a","ph":"X","pid":1,"tid":1,"ts":{ts},"dur":{dur}}}"#)
    };
    let event = |rest: &str| format!(r#"{{"name":"a","pid":1,"tid":1,"ts":1,{rest}}}"#);
    let broken = |events: &[String]| {
        let text = format!("{{\"traceEvents\":[{}]}}", events.join(","));
        std::panic::catch_unwind(|| check_trace(&text)).is_err()
    };
    assert!(!broken(&[
        slice(0.0, 4.0),
        slice(1.0, 2.0),
        slice(5.0, 1.0)
    ]));
    assert!(broken(&[slice(0.0, 4.0), slice(2.0, 3.0)]));
    assert!(broken(&[slice(3.0, 1.0), slice(2.0, 1.0)]));
    assert!(broken(&[event(r#""ph":"B""#)]));
    assert!(broken(&[event(r#""ph":"E""#)]));
    assert!(broken(&[event(r#""ph":"C","args":{"a":"1"}"#)]));
    assert!(!broken(&[event(r#""ph":"C","args":{"a":1}"#)]));
}
