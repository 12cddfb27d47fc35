//! `perch compare` as a user runs it.

use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{Mutex, PoisonError},
};

/// No start-up runs before the first round, so that a test is short.
const SHORT: [&str; 4] = ["--prepare", "true", "--warm-up", "0"];

struct Perch {
    folder: tempfile::TempDir,
}

impl Perch {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// One at a time: while one perch places threads another one refuses to compare.
    fn compare(&self, args: &[&str]) -> Output {
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        Command::new(env!("CARGO_BIN_EXE_perch"))
            .arg("compare")
            .args(args)
            .env("PERCH_STATE_DIR", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env_remove("PERCH_POLICY")
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.compare(&[&["--json"], args].concat());
        assert_eq!(code(&output), 0, "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("perch was killed by a signal")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn start_up_is_no_result() {
    let perch = Perch::new();
    let compare = || {
        let args = ["-N", "6", "-p", "workover", "--", "sleep", "0.05"];
        perch.json(&args)
    };
    let mut found = compare();
    // Of six pairs one in 64 seems slower by chance alone; twice is no chance.
    if found["comparisons"][0]["verdict"] == "slower" {
        found = compare();
    }
    let compared = &found["comparisons"][0];
    assert_ne!(compared["verdict"], "slower", "{compared:#}");
    assert_eq!(compared["pairs"], 6);
    assert_eq!(compared["placed"], false);
    let sentence = compared["sentence"].as_str().unwrap();
    assert!(
        sentence.contains("nothing was bound in any run"),
        "{sentence}"
    );
    let with = &found["sides"][1];
    assert!(with["startup_s"]["low"].as_f64().unwrap() > 0.0, "{with:#}");
    assert!(with["startup_pairs"].as_u64().unwrap() >= 12, "{with:#}");
    // perch's own time is apart from the program's, which sleeps.
    let own = with["perch_cpu_s"]["median"].as_f64().unwrap();
    let user = with["user_s"]["median"].as_f64().unwrap();
    assert!(own > 0.002 && user < own, "{with:#}");
    assert_eq!(found["sides"][0]["perch_cpu_s"], Value::Null);
}

#[test]
fn the_program_s_times_are_its_own_under_perch_too() {
    let perch = Perch::new();
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let args = [
        "-N",
        "2",
        "--warm-up",
        "0",
        "-p",
        "workover",
        "--",
        "sh",
        "-c",
        script,
    ];
    let found = perch.json(&args);
    let user = |side: usize| found["sides"][side]["user_s"]["median"].as_f64().unwrap();
    let (without, with) = (user(0), user(1));
    // Seconds of a processor that is not the program's alone differ, but not so.
    assert!(without > 0.01 && with > without / 5.0, "{found:#}");
}

#[test]
fn what_a_policy_binds_is_counted_and_policies_are_compared_with_each_other() {
    let perch = Perch::new();
    let log = perch.path("log");
    let script = "sleep 0.4; cat /proc/self/status | grep Cpus_allowed_list >>\"$0\"";
    let args = [
        &SHORT[..],
        &["-N", "2", "-p", "fixed", "--against", "observe"],
        &["--pin", "*=pu:0", "--period", "100ms", "--"],
        &["sh", "-c", script, log.to_str().unwrap()],
    ];
    let found = perch.json(&args.concat());
    let names = [&found["sides"][0]["name"], &found["sides"][1]["name"]];
    assert_eq!(names, ["observe", "fixed"]);
    assert_eq!(found["sides"][0]["changes"], 0, "{found:#}");
    assert!(
        found["sides"][1]["changes"].as_u64() >= Some(2),
        "{found:#}"
    );
    assert_eq!(found["comparisons"][0]["placed"], true);
    assert_eq!(found["comparisons"][0]["verdict"], "too-few");
    let log = fs::read_to_string(log).unwrap();
    let bound = log.lines().filter(|line| line.ends_with("\t0"));
    assert!(bound.count() >= 2, "{log}");
    assert_eq!(log.lines().count(), 4, "{log}");
}

#[test]
fn runs_alternate_between_the_commands_of_the_user() {
    let perch = Perch::new();
    let args = "--prepare 'echo >>prepared' --cleanup 'echo >>cleaned' --warm-up 1 -N 2 -p observe --csv -o runs -- \
                true";
    let args: Vec<String> = shell_words(args);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = perch.compare(&args);
    assert_eq!(code(&output), 0, "{}", said(&output));
    assert!(output.stdout.is_empty());
    let runs = fs::read_to_string(perch.path("runs")).unwrap();
    let sides: Vec<Vec<&str>> = runs
        .lines()
        .skip(1)
        .map(|line| line.split(',').take(3).collect())
        .collect();
    let expected = [
        ["1", "without perch", "start-up"],
        ["1", "observe", "start-up"],
        ["1", "without perch", "program"],
        ["1", "observe", "program"],
        ["2", "observe", "start-up"],
        ["2", "without perch", "start-up"],
        ["2", "observe", "program"],
        ["2", "without perch", "program"],
    ];
    assert_eq!(sides, expected);
    // The warm-up too.
    assert_eq!(lines(&perch.path("prepared")), 9);
    assert_eq!(lines(&perch.path("cleaned")), 9);

    let args = ["--cleanup", "echo full >&2; exit 4", "--", "true"];
    let output = perch.compare(&args);
    assert_eq!(code(&output), 125);
    let said = said(&output);
    assert!(
        said.contains("--cleanup") && said.contains("full"),
        "{said}"
    );
}

/// Words with single quotes, as a shell splits them.
fn shell_words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        })
        .collect()
}

#[test]
fn a_program_that_fails_ends_it_with_its_status_unless_that_is_allowed() {
    let perch = Perch::new();
    let args = [&SHORT[..], &["-N", "1", "-p", "observe"]].concat();
    let fails = ["--", "sh", "-c", "exit 42"];
    let output = perch.compare(&[&args[..], &fails].concat());
    assert_eq!(code(&output), 42);
    assert!(
        said(&output).contains("--ignore-failure"),
        "{}",
        said(&output)
    );
    // Under perch alone.
    let only_there = ["--against", "fixed", "--pin", "x=pu:0"];
    let output = perch.compare(&[&args[..], &only_there, &fails].concat());
    assert_eq!(code(&output), 42, "{}", said(&output));
    let found = perch.json(&[&args[..], &["--ignore-failure"], &fails].concat());
    assert_eq!(found["sides"][0]["failures"], 1);
    assert_eq!(found["sides"][1]["failures"], 1);
    let killed = ["--", "sh", "-c", "kill -9 $$"];
    assert_eq!(code(&perch.compare(&[&args[..], &killed].concat())), 137);
    let missing = ["--", "perch-no-such-program"];
    assert_eq!(code(&perch.compare(&[&args[..], &missing].concat())), 127);
    assert_eq!(
        code(&perch.compare(&[&args[..], &only_there, &missing].concat())),
        127
    );
}

#[test]
fn what_means_nothing_here_is_refused() {
    let perch = Perch::new();
    for flag in [
        "--dry-run",
        "-n",
        "--live",
        "-l",
        "--explain",
        "-q",
        "--quiet",
        "--log=x",
        "--topology=pu:2",
        "--csv --json",
    ] {
        let flags: Vec<&str> = flag.split(' ').collect();
        let output = perch.compare(&[&flags[..], &["--", "touch", "mark"]].concat());
        assert_eq!(code(&output), 2, "{flag}");
        let name = flag.split(['=', ' ']).next().unwrap();
        assert!(said(&output).contains(name), "{}", said(&output));
    }
    for (args, what) in [
        (&["-p", "masa"][..], "calibrat"),
        (&["-p", "cpy"][..], "cpi"),
        (&["-p", "cpi", "--against", "cpi"][..], "with itself"),
        (&["-p", "cpi", "--pin", "*=pu:0"][..], "fixed"),
    ] {
        let output = perch.compare(&[args, &["--", "touch", "mark"]].concat());
        assert_eq!(code(&output), 125, "{args:?}");
        assert!(said(&output).contains(what), "{}", said(&output));
    }
    assert!(!perch.path("mark").exists());
}

/// A program whose run of this number waits until a signal ends it; returns perch as it waits there.
fn waiting(perch: &Perch, run: usize, args: &[&str]) -> std::process::Child {
    use std::os::unix::process::CommandExt;
    let script = format!("echo >> runs; [ $(wc -l < runs) -lt {run} ] || exec sleep 1000");
    let child = Command::new(env!("CARGO_BIN_EXE_perch"))
        .args(["compare", "-N", "9", "-p", "observe"])
        .args(SHORT)
        .args(args)
        .args(["--", "sh", "-c", &script])
        .env("PERCH_STATE_DIR", perch.path("state"))
        .env("XDG_CONFIG_HOME", perch.path("config"))
        .env_remove("PERCH_POLICY")
        .current_dir(perch.folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let due = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while lines(&perch.path("runs")) < run {
        assert!(std::time::Instant::now() < due, "run {run} has not begun");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child
}

fn interrupted(child: std::process::Child, group: bool) -> Output {
    let pid = child.id() as i32;
    // SAFETY: sends a signal to a child, or to its process group, that is not reaped.
    let sent = unsafe { libc::kill(if group { -pid } else { pid }, libc::SIGINT) };
    assert_eq!(sent, 0);
    child.wait_with_output().unwrap()
}

/// Whether the signal comes from a terminal, to the whole group, or from a process, to perch alone.
#[test]
fn what_was_measured_until_an_interrupt_is_compared() {
    for group in [false, true] {
        let perch = Perch::new();
        // Two runs of the program a round: the eighth is in the fourth.
        let cleanup = ["--cleanup", "echo >> cleaned"];
        let output = interrupted(waiting(&perch, 8, &cleanup), group);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(code(&output), 130, "{text}{}", said(&output));
        assert!(text.contains("3 runs of each"), "{text}");
        let note = "stopped by SIGINT: 3 of 9 rounds are complete";
        assert!(text.contains(&format!("note: {note}")), "{text}");
        assert!(said(&output).contains(note), "{}", said(&output));
        // Also behind the run that was stopped: four rounds of two starts and two runs.
        assert_eq!(lines(&perch.path("cleaned")), 16);
    }
}

#[test]
fn an_interrupted_comparison_is_valid_json_and_one_of_nothing_says_so() {
    let perch = Perch::new();
    let output = interrupted(waiting(&perch, 3, &["--json"]), false);
    assert_eq!(code(&output), 130, "{}", said(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["stopped_by"], "SIGINT");
    assert_eq!(found["rounds"], 1);
    assert!(said(&output).contains("1 of 9 rounds is complete"));

    let perch = Perch::new();
    let output = interrupted(waiting(&perch, 1, &["--json"]), true);
    assert_eq!(code(&output), 130, "{}", said(&output));
    assert!(output.stdout.is_empty());
    assert!(
        said(&output).contains("nothing can be compared"),
        "{}",
        said(&output)
    );
}
