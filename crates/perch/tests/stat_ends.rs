//! What `perch stat` tells of threads that execute another program, and of those that end, as root and as an ordinary user.

mod counting;

use counting::{Stat, number, said};
use perch_skip::skip;
use rustix::{
    thread::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
};
use serde_json::Value;
use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::PathBuf,
    process::Command,
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// Uses the thread's CPU time up to so many milliseconds.
fn burn(ms: i64) {
    loop {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        if now.tv_sec * 1000 + now.tv_nsec / 1_000_000 >= ms {
            return;
        }
    }
}

/// Not a test: what the tests count, chosen by a variable.
#[test]
#[ignore = "the program of the other tests"]
fn program() {
    match std::env::var("PERCH_TEST_PROGRAM").as_deref() {
        // A thread that is not the first one.
        Ok("execute") => {
            let execute = || {
                burn(300);
                let busy = "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done";
                panic!("{}", Command::new("sh").args(["-c", busy]).exec());
            };
            let _ = thread::spawn(execute).join();
        }
        Ok("two") => {
            let other = thread::spawn(|| burn(300));
            burn(300);
            other.join().unwrap();
        }
        Ok("move") => {
            for round in 0..40 {
                let mut pus = CpuSet::new();
                pus.set(round % 2);
                sched_setaffinity(None, &pus).unwrap();
                thread::sleep(Duration::from_millis(5));
                burn(2 * (round as i64 + 1));
            }
        }
        other => panic!("{other:?}"),
    }
}

/// A folder that all may use, with perch and this program.
struct Folder {
    folder: TempDir,
    perch: PathBuf,
    program: PathBuf,
}

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let (perch, program) = (folder.path().join("perch"), folder.path().join("program"));
        fs::copy(env!("CARGO_BIN_EXE_perch"), &perch).unwrap();
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        Self {
            folder,
            perch,
            program,
        }
    }

    /// Rows and totals.
    fn count(&self, program: &str, ordinary: bool, args: &[&str]) -> (Vec<Value>, Value) {
        let mut perch = Command::new(&self.perch);
        perch
            .args(["stat", "--json", "-o", "out.jsonl"])
            .args(args)
            .arg("--")
            .arg(&self.program)
            .args(["--ignored", "--exact", "program", "--test-threads", "1"])
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("PERCH_TEST_PROGRAM", program)
            .env("PERCH_STATE_DIR", self.folder.path().join("state"))
            .env("XDG_RUNTIME_DIR", self.folder.path());
        if ordinary {
            perch.uid(65534).gid(65534);
        }
        let _ = fs::remove_file(self.folder.path().join("out.jsonl"));
        let output = perch.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = fs::read_to_string(self.folder.path().join("out.jsonl")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut lines: Vec<Value> = lines.collect();
        let totals = lines.pop().unwrap();
        (lines, totals)
    }
}

/// Checks that rows tell of no more CPU time than there was, and that little is missing; gives how much each thread had.
fn checked(totals: &Value, most_missing: f64) -> Vec<f64> {
    let used = number(&totals["user_s"]) + number(&totals["system_s"]);
    let rows = totals["totals"].as_array().unwrap().iter();
    let times: Vec<f64> = rows.map(|row| number(&row["cpu_s"])).collect();
    let sum: f64 = times.iter().sum();
    // The two clocks differ by some milliseconds.
    assert!(sum <= 1.02 * used + 0.02, "{sum} of {used} s: {totals}");
    assert!(
        sum >= (1.0 - most_missing) * used,
        "{sum} of {used} s: {totals}"
    );
    let all = number(&totals["all"]["cpu_s"]);
    assert!(all <= 1.02 * used + 0.02 && all >= sum - 1e-6, "{totals}");
    times
}

/// The kernel gives a thread that executes another program the number, and the place in /proc, of its process's first thread.
#[test]
fn time_before_execve_of_another_than_the_first_thread_is_told_once() {
    let folder = Folder::new();
    for args in [
        &["-e", "task-clock,page-faults"][..],
        &["-e", "task-clock", "-i", "50ms"],
        &["-V", "run_delay", "-i", "50ms"],
    ] {
        let (rows, totals) = folder.count("execute", false, args);
        checked(&totals, 0.1);
        let sum: f64 = rows.iter().map(|row| number(&row["cpu_s"])).sum();
        let all = number(&totals["all"]["cpu_s"]);
        assert!(rows.is_empty() || sum <= all + 1e-6, "{sum} of {all}");
        // No row has more than there was time for.
        for row in &rows {
            let (cpu, interval) = (number(&row["cpu_s"]), number(&row["interval_s"]));
            assert!(cpu <= 1.02 * interval + 0.005, "{row}");
        }
        if args.contains(&"task-clock") {
            // Its events go on counting it.
            for row in totals["totals"].as_array().unwrap() {
                let cpu = number(&row["cpu_s"]);
                let counted = number(&row["counted_s"]);
                assert!(cpu < 0.1 || counted > 0.8 * cpu, "{totals}");
            }
        }
    }
}

/// The kernel reports no exits to an ordinary user: what nobody tells of one thread must not be given to another.
#[test]
fn threads_of_an_ordinary_user_have_their_own_times() {
    if !rustix::process::geteuid().is_root() {
        return skip!(Root, "another user's perch cannot be started");
    }
    let folder = Folder::new();
    for args in [
        &["-e", "task-clock"][..],
        &["-e", "page-faults", "-i", "100ms"],
        &["-V", "run_delay"],
    ] {
        let (_, totals) = folder.count("two", true, args);
        let times = checked(&totals, 0.1);
        let busy: Vec<f64> = times.into_iter().filter(|time| *time > 0.05).collect();
        assert_eq!(busy.len(), 2, "{args:?}: {totals}");
        assert!(
            busy.iter().all(|time| (0.24..0.36).contains(time)),
            "{args:?}: {totals}"
        );
        // How long the other one waited after it was last looked at nobody tells.
        if args.contains(&"run_delay") {
            let rows = totals["totals"].as_array().unwrap().iter();
            let partial = rows.filter(|row| row["metrics"]["run_delay"]["partial"] == true);
            assert!(partial.count() >= 1, "{totals}");
        }
    }
}

/// The kernel's own account of migrations is read in each interval, and once more at the end.
#[test]
fn migrations_are_those_of_their_interval() {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skip!(Pus, "there is one PU only");
    }
    let folder = Folder::new();
    let count = ["-e", "cpu-migrations", "-V", "cpu_migrations"];
    let (_, totals) = folder.count("move", false, &count);
    let event = number(&totals["all"]["counts"]["cpu-migrations"]["value"]);
    let account = number(&totals["all"]["metrics"]["cpu_migrations"]["value"]);
    let partial = totals["all"]["metrics"]["cpu_migrations"]["partial"] == true;
    assert!(event >= 35.0, "{totals}");
    // Those on the way to its execution are not counted by the event.
    assert!(partial || (account - event).abs() <= 3.0, "{totals}");

    let (rows, _) = folder.count("move", false, &[&count[..], &["-i", "50ms"]].concat());
    let of_first = |row: &&Value| row["id"] == row["pid"];
    let mut compared = 0;
    for row in rows.iter().filter(of_first) {
        let event = row["counts"]["cpu-migrations"]["value"].as_f64();
        let account = row["metrics"]["cpu_migrations"]["value"].as_f64();
        if let (Some(event), Some(account)) = (event, account) {
            assert!((event - account).abs() <= 3.0, "{row}");
            compared += 1;
        }
    }
    assert!(compared >= 2, "{rows:?}");
}

/// The kernel's work to start a program is its first thread's time, in which no event is on.
#[test]
fn a_program_that_goes_on_is_counted_from_its_beginning() {
    let stat = Stat::new();
    let output = stat.run(&["-e", "page-faults", "--for", "300ms", "--", "sleep", "5"]);
    let text = said(&output);
    assert!(!text.contains('>'), "{text}");
}

#[test]
fn results_that_cannot_be_written_are_an_error() {
    let stat = Stat::new();
    for form in ["--json", "--csv", "-k"] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut perch = stat.command(&["stat", form, "-e", "page-faults", "--", "true"]);
        assert_eq!(perch.stderr(full).status().unwrap().code(), Some(125));
    }
}
