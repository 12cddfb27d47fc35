//! `perch modules`, and programs as modules in `perch stat`: the shipped example, and ones that misbehave.

use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tempfile::TempDir;

fn perch(folder: &TempDir, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_perch"))
        .args(args)
        .env("PERCH_STATE_DIR", folder.path())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn example() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("examples/modules/interrupts.py");
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

fn has_python() -> bool {
    Command::new("python3").arg("--version").output().is_ok()
}

/// A module in the language of the shell.
fn script(folder: &TempDir, text: &str) -> String {
    let path: PathBuf = folder.path().join("module.sh");
    fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

const HELLO: &str = r#"read -r line; echo '{"protocol":1,"name":"mine","metrics":[{"name":"answer","unit":"x","scope":"machine","kind":"ratio"}]}'"#;

/// The program, counted for about two seconds.
fn stat(folder: &TempDir, module: &str) -> Output {
    let args = [
        "stat",
        "--json",
        "-i",
        "100ms",
        "--module",
        module,
        "-V",
        "answer",
        "--",
        "sh",
        "-c",
        "i=0; while [ $i -lt 20 ]; do sleep 0.1; i=$((i+1)); done; exit 3",
    ];
    perch(folder, &args)
}

fn rows(output: &Output) -> Vec<Value> {
    let text = said(output);
    let lines = text.lines();
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

#[test]
fn all_are_listed_and_say_whether_they_work_here() {
    let folder = tempfile::tempdir().unwrap();
    let output = perch(&folder, &["modules", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let modules: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = modules
        .iter()
        .map(|module| module["name"].as_str().unwrap())
        .collect();
    let expected = [
        "counters",
        "software",
        "sampling",
        "accounting",
        "energy",
        "cache",
        "core-types",
    ];
    assert_eq!(names, expected);
    for module in &modules {
        assert!(module["how"].as_str().unwrap().len() > 5, "{module}");
        assert!(!module["needs"].as_array().unwrap().is_empty(), "{module}");
    }
    let text = String::from_utf8(perch(&folder, &["modules"]).stdout).unwrap();
    for name in expected {
        assert!(text.contains(name), "{text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn one_is_explained_by_its_name_or_that_of_a_metric() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["energy", "energy_dram"] {
        let output = perch(&folder, &["modules", name]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.starts_with("energy: ") && text.contains("energy_dram"),
            "{text}"
        );
        assert!(
            text.contains("works here: ") || text.contains("does not work here: "),
            "{text}"
        );
        assert!(text.contains("needs permission: "), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
    let output = perch(&folder, &["modules", "enrgy"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        said(&output).contains("did you mean `energy`"),
        "{}",
        said(&output)
    );
    // What does not work here fails with --check only.
    let told = perch(&folder, &["modules", "--json", "energy", "cache"]);
    let told: Vec<Value> = serde_json::from_slice(&told.stdout).unwrap();
    let all_work = told.iter().all(|module| module["works"] == true);
    let code = perch(&folder, &["modules", "--check", "energy", "cache"])
        .status
        .code();
    assert_eq!(code, Some(i32::from(!all_work)));
}

#[test]
fn a_metric_that_is_not_there_is_an_error_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let why = |args: &[&str]| {
        let output = perch(&folder, &[&["stat"], args, &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        said(&output)
    };
    let text = why(&["-V", "energy_pgk"]);
    assert!(text.contains("energy_pkg"), "{text}");
    let text = why(&["--by", "pu", "-V", "fp_share"]);
    assert!(text.contains("not of PUs"), "{text}");
    let text = why(&["--module", "./no-such-module", "-V", "x"]);
    assert!(text.contains("no-such-module"), "{text}");
    let told = perch(&folder, &["modules", "--json", "cache"]);
    let told: Vec<Value> = serde_json::from_slice(&told.stdout).unwrap();
    if told[0]["works"] == false {
        let text = why(&["-V", "llc_occupancy"]);
        assert!(
            text.contains("module cache: ") && text.contains("resctrl"),
            "{text}"
        );
    }
}

#[test]
fn the_example_counts_interrupts() {
    if !has_python() {
        return perch_skip::skip!(Tool, "python3 is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let module = example();
    let output = perch(&folder, &["modules", "--module", &module, "interrupts"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("works here") && text.contains("interrupt_ticks"),
        "{text}"
    );
    let file = folder.path().join("out.jsonl");
    let args = [
        "stat",
        "--json",
        "-o",
        file.to_str().unwrap(),
        "-i",
        "100ms",
        "-n",
        "10",
        "--module",
        &module,
        "-V",
        "interrupts",
        "-m",
        "rate[1/s]=interrupts/seconds",
    ];
    let output = perch(&folder, &args);
    assert!(output.status.success(), "{}", said(&output));
    let text = fs::read_to_string(file).unwrap();
    let totals: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let metrics = &totals["all"]["metrics"];
    assert!(
        metrics["interrupts"]["value"].as_f64() > Some(0.0),
        "{text}"
    );
    assert!(metrics["interrupts"]["of"].is_null(), "{text}");
    assert!(metrics["rate"]["value"].as_f64() > Some(0.0), "{text}");
    // In the rows of a program it is marked as the whole machine's.
    let args = [
        "stat",
        "--module",
        &module,
        "-V",
        "interrupts",
        "--",
        "sleep",
        "1",
    ];
    let text = said(&perch(&folder, &args));
    assert!(
        text.contains('^') && text.contains("of the whole machine"),
        "{text}"
    );
}

/// A module's answers: one value that it has declared, and one that it has not.
const ANSWERS: &str = r#"
while read -r line; do
    seq=${line#*\"seq\":}; seq=${seq%%,*}
    echo "{\"seq\":$seq,\"values\":[{\"name\":\"answer\",\"value\":42},{\"name\":\"other\",\"value\":1}]}"
done"#;

/// Also where a first look comes before the first interval.
#[test]
fn what_is_wrong_with_answers_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let module = script(&folder, &format!("{HELLO}{ANSWERS}"));
    let args = ["stat", "-a", "-i", "100ms", "-n", "3", "--module", &module];
    let output = perch(&folder, &[&args[..], &["-V", "answer"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = said(&output);
    let words: Vec<&str> = text.split_whitespace().collect();
    let words = words.join(" ");
    assert_eq!(words.matches("it has no metric other").count(), 1, "{text}");
}

/// The answers may be right, but metrics that are made of the event are not there.
#[test]
fn a_module_whose_event_cannot_be_counted_works_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let with_event = |event: &str| {
        let hello = HELLO.replace(
            r#""metrics""#,
            &format!(r#""events":["{event}"],"metrics""#),
        );
        script(&folder, &format!("{hello}{ANSWERS}"))
    };
    let told = |module: &str, args: &[&str]| {
        let output = perch(
            &folder,
            &[&["modules", "--module", module, "mine"], args].concat(),
        );
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text)
    };
    let module = with_event("no_such_event");
    let (code, text) = told(&module, &["--check"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("\nworks here in part: "), "{text}");
    assert!(
        text.contains("\nmissing: ") && text.contains("`no_such_event`"),
        "{text}"
    );
    let (_, text) = told(&module, &["--json"]);
    assert_eq!(
        serde_json::from_str::<Value>(&text).unwrap()[0]["missing"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let listed = perch(&folder, &["modules", "--module", &module]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let row = listed.lines().find(|line| line.starts_with("mine "));
    assert!(row.is_some_and(|row| row.contains(" in part ")), "{listed}");
    let (code, text) = told(&with_event("page-faults"), &["--check"]);
    match text.contains("\nmissing: ") {
        false => assert_eq!(code, Some(0), "{text}"),
        true => perch_skip::skip!(Perf, "no perf events here"),
    }
}

#[test]
fn one_that_answers_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let output = stat(&folder, &script(&folder, &format!("{HELLO}{ANSWERS}")));
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let rows = rows(&output);
    let answer = &rows.last().unwrap()["all"]["metrics"]["answer"];
    assert_eq!(
        (&answer["value"], &answer["unit"]),
        (&42.0.into(), &"x".into())
    );
    let text = said(&output);
    assert_eq!(text.matches("it has no metric other").count(), 1, "{text}");
}

/// Totals add up PUs: one that is not there would be in them only.
#[test]
fn values_of_pus_that_are_not_there_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let hello = HELLO.replace(r#""machine","kind":"ratio""#, r#""pu","kind":"amount""#);
    assert_ne!(hello, HELLO);
    let answer = r#"
while read -r line; do
    seq=${line#*\"seq\":}; seq=${seq%%,*}
    echo "{\"seq\":$seq,\"values\":[{\"name\":\"answer\",\"pu\":0,\"value\":1},{\"name\":\"answer\",\"pu\":4999,\"value\":50}]}"
done"#;
    let module = script(&folder, &format!("{hello}{answer}"));
    let args = ["stat", "--json", "-a", "-i", "100ms", "-n", "2", "--module"];
    let output = perch(&folder, &[&args[..], &[&module, "-V", "answer"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(
        said(&output).contains("there is no PU 4999"),
        "{}",
        said(&output)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let totals: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let all = totals["all"]["metrics"]["answer"]["value"].as_f64();
    assert!(all.is_some_and(|all| all < 50.0), "{text}");
}

#[test]
fn one_that_dies_or_hangs_is_reported_and_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    for (text, told) in [
        (
            "read -r line; echo 'no luck \x1b[2J' >&2; exit 4",
            "exit status: 4",
        ),
        ("while read -r line; do :; done", "did not answer 5 times"),
        ("exec sleep 1000", "did not answer 5 times"),
        (
            "while read -r line; do echo nonsense; done",
            "no list of values",
        ),
        (
            "head -c 3000000 /dev/zero; exec sleep 1000",
            "a line of more than",
        ),
    ] {
        let output = stat(&folder, &script(&folder, &format!("{HELLO}\n{text}")));
        // The program goes on.
        assert_eq!(output.status.code(), Some(3), "{text}: {}", said(&output));
        let text = said(&output);
        assert_eq!(text.matches("is not asked any more").count(), 1, "{text}");
        // Notes are wrapped.
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains(told), "{told}: {text}");
        assert!(!text.contains('\x1b'), "{text}");
        let rows = rows(&output);
        let all = &rows.last().unwrap()["all"];
        assert!(all["cpu_s"].as_f64() > Some(0.0), "{text}");
        assert!(all["metrics"].as_object().unwrap().is_empty(), "{text}");
    }
}

#[test]
fn one_that_is_none_is_an_error_before_the_program_starts() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    for (text, told) in [
        ("exit 0", "has ended"),
        ("echo hello", "no answer to hello"),
        (
            r#"read -r line; echo '{"protocol":7,"name":"x","metrics":[]}'"#,
            "version 7",
        ),
    ] {
        let module = script(&folder, text);
        let done = done.to_str().unwrap();
        let args = ["stat", "--module", &module, "-V", "x", "--", "touch", done];
        let output = perch(&folder, &args);
        assert_eq!(output.status.code(), Some(125), "{text}");
        assert!(said(&output).contains(told), "{told}: {}", said(&output));
    }
    assert!(!done.exists());
}

#[test]
fn it_ends_with_perch() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    // It ignores the end of its input and SIGTERM.
    let text = format!(
        "echo $$ >{}; trap '' TERM; {HELLO}\nwhile :; do sleep 1; done",
        pid.display()
    );
    let output = stat(&folder, &script(&folder, &text));
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let pid: i32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn the_code_on_the_page_is_that_of_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let (page, program) = (
        read("docs/modules.md"),
        read("examples/module-memory/src/main.rs"),
    );
    let blocks: Vec<&str> = page.split("```rust\n").skip(1).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        let code = block.split("```").next().unwrap();
        assert!(
            program.contains(code.trim_end()),
            "not in the program:\n{code}"
        );
    }
}

/// Events of threads come before the question of their interval, which is not lost for that.
#[test]
fn a_module_that_wants_to_know_of_threads_is_asked_in_each_interval() {
    let folder = tempfile::tempdir().unwrap();
    for wants in ["starts", "exits", "migrations", "switches"] {
        let hello = HELLO.replace(r#""metrics""#, &format!(r#""wants":["{wants}"],"metrics""#));
        let text = format!(
            r#"{hello}
n=0; while read -r line; do case $line in
*'"seq"'*) n=$((n+1)); echo "{{\"seq\":$n,\"values\":[{{\"name\":\"answer\",\"value\":1}}]}}" ;;
esac; done"#
        );
        let module = script(&folder, &text);
        let args = [
            "stat", "--json", "-i", "300ms", "--module", &module, "-V", "answer",
        ];
        let program = "for i in 1 2 3 4 5 6; do /bin/true; sleep 0.2; done";
        let output = perch(&folder, &[&args[..], &["--", "sh", "-c", program]].concat());
        let rows = rows(&output);
        let answers = |row: &Value| row["metrics"]["answer"]["value"].is_number();
        let ticks: Vec<&Value> = rows.iter().filter(|row| row["event"] == "tick").collect();
        assert!(ticks.len() > 2, "{wants}: {}", said(&output));
        assert!(ticks.iter().all(|row| answers(row)), "{wants}: {rows:?}");
    }
}
