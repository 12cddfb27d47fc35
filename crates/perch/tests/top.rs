//! `perch top` on a real pseudo-terminal, whose screen a terminal emulator keeps; and as lines of JSON.

mod terminal;

use perch_skip::skip;
use rustix::process::Signal;
use serde_json::Value;
use std::{
    io::Write,
    process::{Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use terminal::{LIMIT, Terminal, perch};

/// Threads of this process: one that runs and one that sleeps.
struct Threads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |name: &str, work: fn()| {
            let stop = Arc::clone(&stop);
            let run = move || {
                while !stop.load(Ordering::Relaxed) {
                    work();
                }
            };
            let named = std::thread::Builder::new().name(name.into());
            named.spawn(run).unwrap()
        };
        let spin = || {
            for _ in 0..100_000 {
                std::hint::spin_loop();
            }
        };
        let sleep = || std::thread::sleep(Duration::from_millis(50));
        let threads = vec![start("top-spins", spin), start("top-sleeps", sleep)];
        Self { stop, threads }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// One at a time, or the threads of one test are among those of another.
static ONE: Mutex<()> = Mutex::new(());

fn own_pid() -> String {
    std::process::id().to_string()
}

#[test]
fn it_shows_sorts_filters_resizes_helps_and_quits() {
    let _one = ONE.lock();
    let _threads = Threads::start();
    let mut top = Terminal::top(&["-i", "200ms", "-p", &own_pid()]);
    top.wait_for_text("top-spins");
    top.wait_for_text("top-sleeps");
    // The last one: units name threads too.
    let line = |text: &str, part: &str| {
        let lines: Vec<&str> = text.lines().collect();
        lines.iter().rposition(|line| line.contains(part))
    };
    // The one that runs comes first.
    top.wait_for("order by CPU", |text| {
        line(text, "top-spins") < line(text, "top-sleeps")
    });
    top.keys("n");
    top.wait_for("order by name", |text| {
        text.contains("by NAME") && line(text, "top-sleeps") < line(text, "top-spins")
    });
    top.keys("/TOP-SP");
    top.wait_for("filter", |text| {
        text.contains("filter: TOP-SP_") && !text.contains("top-sleeps")
    });
    top.keys("\r");
    top.wait_for_text("filter \"TOP-SP\"");
    // The only row that is left: its thread.
    top.keys("\r\r");
    top.wait_for_text("context switches");
    top.keys("?");
    top.wait_for_text("keys (Esc closes this)");
    top.keys("\x1b");
    top.wait_for_text("context switches");
    // Twice a click of the mouse, on the machine.
    top.keys("2");
    // The thread's own view may name PU 0 too, and where it is clicked on is not there yet.
    top.wait_for_text("package 0");
    top.keys("\x1b[<0;3;5M\x1b[<0;3;5m\x1b[<0;3;5M");
    top.wait_for_text("Esc back");
    top.resize(60, 20);
    top.wait_for("60 columns", |text| text.contains(" 1  2  3  ? help"));
    // crossterm may hold a key that comes with a resize until the next one.
    top.keys("q");
    std::thread::sleep(Duration::from_secs(1));
    top.keys("q");
    assert_eq!(top.wait_for_end().code(), Some(0), "{}", top.said());
    top.assert_given_back();
    assert_eq!(top.said(), "");
}

#[test]
fn a_signal_ends_lines_of_json_with_its_exit_code() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 0), (Signal::HUP, 129)] {
        let mut top = Command::new(env!("CARGO_BIN_EXE_perch"))
            .args(["top", "--json", "-i", "100ms", "-p", &own_pid()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(top.stdout.take().unwrap());
        let mut line = String::new();
        // Once it prints, it catches signals.
        std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
        let pid = rustix::process::Pid::from_child(&top);
        rustix::process::kill_process(pid, signal).unwrap();
        assert_eq!(top.wait().unwrap().code(), Some(code), "{signal:?}");
    }
}

#[test]
fn a_signal_a_lost_terminal_and_a_panic_give_the_terminal_back() {
    let _one = ONE.lock();
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 0), (Signal::HUP, 129)] {
        let mut top = Terminal::top(&["-p", &own_pid()]);
        top.wait_for_text("1 threads");
        top.signal(signal);
        assert_eq!(
            top.wait_for_end().code(),
            Some(code),
            "{signal:?} {}",
            top.said()
        );
        top.assert_given_back();
    }
    // Other sources than this machine.
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/version-1.jsonl");
    let mut top = Terminal::top(&["--from", data]);
    top.wait_for_text("1 threads");
    top.signal(Signal::TERM);
    assert_eq!(top.wait_for_end().code(), Some(143), "{}", top.said());
    top.assert_given_back();

    let mut top = Terminal::top(&["-p", &own_pid()]);
    top.wait_for_text("1 threads");
    (top.master, top.slave) = (None, None);
    // The thread that reads has a copy of the other side until there is no more to read, so the kernel says nothing.
    top.signal(Signal::HUP);
    top.wait_for_end();

    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "panics_if_it_is_told", "--nocapture"]);
    let mut panics = Terminal::start(&command, &[("PERCH_TEST_PANICS", "1")]);
    assert!(!panics.wait_for_end().success());
    assert!(panics.said().contains("told so"), "{}", panics.said());
    panics.assert_given_back();
}

/// Not a test of its own: what the one above starts.
#[test]
fn panics_if_it_is_told() {
    if std::env::var_os("PERCH_TEST_PANICS").is_some() {
        let _taken = perch_top::terminal::Taken::take(true).unwrap();
        panic!("told so");
    }
}

#[test]
fn without_colours_none_are_sent() {
    let _one = ONE.lock();
    let _threads = Threads::start();
    let terminals = [
        ("1", "xterm-256color", false),
        ("", "xterm-256color", true),
        ("", "linux", true),
        // It has none.
        ("", "vt100", false),
        // What is not known has them.
        ("", "no-such-terminal", true),
    ];
    for (value, term, expected) in terminals {
        let mut command = perch();
        command.args(["top", "-p", &own_pid()]);
        let mut top = Terminal::start(&command, &[("NO_COLOR", value), ("TERM", term)]);
        top.wait_for_text("top-spins");
        top.wait_for_text("by CPU%");
        let screen = top.screen.lock().unwrap();
        let cells = (0..24).flat_map(|row| (0..80).map(move |column| (row, column)));
        let colored = cells
            .filter_map(|(row, column)| screen.screen().cell(row, column))
            .any(|cell| {
                cell.fgcolor() != vt100::Color::Default || cell.bgcolor() != vt100::Color::Default
            });
        assert_eq!(colored, expected, "NO_COLOR={value} TERM={term}");
    }
}

#[test]
fn a_program_is_shown_and_its_output_kept() {
    let _one = ONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("output");
    let script = "echo hello; read line || echo no input; sleep 1; exit 3";
    let mut top = Terminal::top(&[
        "-i",
        "100ms",
        "-o",
        file.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        script,
    ]);
    top.wait_for_text("the program has ended");
    top.keys("q");
    assert_eq!(top.wait_for_end().code(), Some(3), "{}", top.said());
    top.assert_given_back();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "hello\nno input\n");

    // When there is nothing left to watch, signals still end it, with the program's exit code.
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut top = Terminal::top(&["-i", "100ms", "--", "sh", "-c", "exit 3"]);
        top.wait_for_text("the program has ended");
        top.signal(signal);
        let ended = top.wait_for_end().code();
        assert_eq!(ended, Some(3), "{signal:?} {}", top.said());
        top.assert_given_back();
    }

    // Quitting ends it.
    let mut top = Terminal::top(&["--", "sleep", "1000"]);
    top.wait_for_text("sleep");
    let children = format!("/proc/{0}/task/{0}/children", top.child.id());
    let pid = std::fs::read_to_string(children).unwrap();
    let pid: i32 = pid.trim().parse().unwrap();
    top.keys("q");
    assert_eq!(top.wait_for_end().code(), Some(0), "{}", top.said());
    let start = Instant::now();
    while std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n") {
        assert!(start.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(20));
    }

    let mut top = Terminal::top(&["--", "/no/such/program"]);
    assert_eq!(top.wait_for_end().code(), Some(127));
    assert!(top.said().contains("/no/such/program"), "{}", top.said());
    top.assert_given_back();
}

#[test]
fn a_recording_goes_back_and_forth() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/version-1.jsonl");
    let mut top = Terminal::top(&["--from", data]);
    top.wait_for_text("policy fixed");
    // All of it is read.
    top.wait_for_text(" of 14");
    // Stopped at the first moment, one later, the last one.
    top.keys("g");
    top.keys("\x1b[C");
    top.wait_for_text("stopped, 2 of ");
    top.keys("\x1b[D");
    top.wait_for_text("stopped, 1 of ");
    top.keys("3G");
    top.wait_for_text("moves up to now");
    top.wait_for_text("→ 0");
    top.keys("q");
    assert_eq!(top.wait_for_end().code(), Some(0), "{}", top.said());
    top.assert_given_back();
}

/// A recording that is being written is followed to its end.
#[test]
fn a_recording_that_grows_is_followed() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/version-1.jsonl");
    let whole = std::fs::read_to_string(data).unwrap();
    let (begin, rest) = whole.split_at(whole.len() / 2);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grows.jsonl");
    std::fs::write(&file, begin).unwrap();
    let mut top = Terminal::top(&["--follow", "--from", file.to_str().unwrap()]);
    top.wait_for_text("policy fixed");
    assert!(!top.text().contains("this is the end"));
    let mut growing = std::fs::OpenOptions::new()
        .append(true)
        .open(&file)
        .unwrap();
    growing.write_all(rest.as_bytes()).unwrap();
    top.wait_for_text("this is the end");
    top.keys("q");
    assert_eq!(top.wait_for_end().code(), Some(0), "{}", top.said());
}

#[test]
fn a_simulation_shows_the_moves_of_its_policy() {
    let mut top = Terminal::top(&[
        "--sim", "smt2-zen", "-w", "fp-int-8", "--policy", "workover", "-t", "20s",
    ]);
    top.wait_for_text("policy workover");
    top.keys("3");
    let start = Instant::now();
    while !top.text().contains("moves up to now") {
        assert!(start.elapsed() < LIMIT, "{}", top.text());
        top.keys("G");
        std::thread::sleep(Duration::from_millis(100));
    }
    top.keys("q");
    assert_eq!(top.wait_for_end().code(), Some(0), "{}", top.said());
    top.assert_given_back();
    // The session's own folder is gone.
    let left = std::fs::read_dir(top.folder.path()).unwrap().count();
    assert_eq!(left, 1, "only what was said on standard error");
}

/// An `ssh` that runs the command here.
fn pretended_ssh(script: &str) -> (TempDir, String) {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let ssh = folder.path().join("ssh");
    std::fs::write(&ssh, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", folder.path().display());
    (folder, path)
}

#[test]
fn another_machine_is_shown_through_ssh() {
    let _one = ONE.lock();
    let _threads = Threads::start();
    // -T -- HOST COMMAND
    let (_folder, path) = pretended_ssh(r#"[ "$1 $2 $3" = "-T -- me@node" ] && exec sh -c "$4""#);
    let mut command = perch();
    command.args(["top", "--host", "me@node", "-i", "200ms", "-p", &own_pid()]);
    command.args(["--remote-perch", env!("CARGO_BIN_EXE_perch")]);
    let mut top = Terminal::start(&command, &[("PATH", &path)]);
    top.wait_for_text("me@node");
    top.wait_for_text("top-spins");
    top.keys("q");
    assert_eq!(top.wait_for_end().code(), Some(0), "{}", top.said());
    top.assert_given_back();

    let (_folder, path) = pretended_ssh("echo \"ssh: \x1b[2J no route to host\" >&2; exit 255");
    let mut command = perch();
    command.args(["top", "--host", "node"]);
    let mut top = Terminal::start(&command, &[("PATH", &path)]);
    assert_eq!(top.wait_for_end().code(), Some(125));
    let said = top.said();
    assert!(
        said.contains("no route to host") && !said.contains("\x1b[2J"),
        "{said}"
    );
    top.assert_given_back();
}

fn run(args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = perch();
    command.arg("top").args(args).stdin(Stdio::null());
    command.env("PERCH_STATE_DIR", folder.path());
    command.output().unwrap()
}

fn snapshots(args: &[&str]) -> Vec<Value> {
    let output = run(&[&["--json"], args].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn json_has_a_snapshot_a_line() {
    let _one = ONE.lock();
    let _threads = Threads::start();
    let lines = snapshots(&["-i", "200ms", "-n", "3", "-p", &own_pid()]);
    assert_eq!(lines.len(), 3);
    assert!(lines[0]["topology"]["pus"].is_array() && lines[1]["topology"].is_null());
    let names = |line: &Value| -> Vec<String> {
        let threads = line["threads"].as_array().unwrap().iter();
        threads
            .map(|of| of["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert!(
        names(&lines[0]).contains(&"top-sleeps".to_owned()),
        "{:?}",
        names(&lines[0])
    );
    // perch can read it: the moments rise.
    assert!(lines[1]["at"].as_u64() > lines[0]["at"].as_u64());

    // Of the whole machine, perch itself left out: this process is there.
    let lines = snapshots(&["-n", "1"]);
    assert!(
        names(&lines[0]).contains(&"top-spins".to_owned()),
        "{:?}",
        names(&lines[0])
    );

    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/version-1.jsonl");
    let moves = |lines: &[Value]| -> usize {
        let moves = lines.iter().filter_map(|line| line["moves"].as_array());
        moves.map(Vec::len).sum()
    };
    assert!(moves(&snapshots(&["--from", data])) > 0);
    let lines = snapshots(&[
        "--sim", "smt2-zen", "-w", "fp-int-8", "--policy", "workover", "-t", "10s",
    ]);
    assert!(moves(&lines) > 0);
    assert!(
        lines
            .iter()
            .any(|line| line["threads"][0]["metrics"]["ipc"].is_number())
    );
}

#[test]
fn an_ordinary_user_sees_all_threads() {
    if !rustix::process::geteuid().is_root() {
        return skip!(Root, "another user's perch is started");
    }
    let _one = ONE.lock();
    let _threads = Threads::start();
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("perch");
    std::fs::copy(env!("CARGO_BIN_EXE_perch"), &own).unwrap();
    for path in [folder.path(), &own] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    let output = command
        .arg(&own)
        .args(["top", "--json", "-n", "1"])
        .env_remove("HOME")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("top-spins"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn mistakes_are_told() {
    for (args, told) in [
        (&["--sim", "smt2-zen"][..], "--workload"),
        (&["--follow"], "--from"),
        (&["--from", "/no/such/file", "--json"], "/no/such/file"),
        (&["--host=-x"], "--host"),
        (
            &[
                "--sim", "smt2-zen", "-w", "fp-int-8", "--policy", "best", "--json",
            ],
            "perch sim -p best",
        ),
        (
            &[
                "--sim", "smt2-zen", "-w", "fp-int-8", "--policy", "wrkover", "--json",
            ],
            "workover",
        ),
        (&["-n", "3"], "--json"),
    ] {
        let output = run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(told),
            "{args:?}: {said}"
        );
    }
}
