//! `perch calibrate` as a user calls it.

use perch_policy::Calibration;
use perch_skip::skip;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

fn perch(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perch"));
    // No settings of the user who runs the tests.
    command
        .env_clear()
        .env("XDG_CONFIG_HOME", folder)
        .current_dir(folder)
        .args(arguments);
    command.output().unwrap()
}

fn told(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// The day in the first line is today's.
fn without_date(text: &str) -> String {
    let (first, rest) = text.split_once('\n').unwrap();
    let machine = first.rsplit_once(", ").unwrap().0;
    format!("{machine}, DAY\n{rest}")
}

#[test]
fn a_simulated_machine_has_a_table_that_fits_and_a_file_if_one_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let text = told(perch(
        folder.path(),
        &["calibrate", "-m", "intel-xeon-ht", "--quick"],
    ));
    assert!(
        names(folder.path()).is_empty(),
        "{:?}",
        names(folder.path())
    );
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    insta::assert_snapshot!(without_date(&text));
    let file = folder.path().join("new/xeon.toml");
    let path = file.to_str().unwrap();
    let json = told(perch(
        folder.path(),
        &[
            "calibrate",
            "-m",
            "intel-xeon-ht",
            "--quick",
            "-o",
            path,
            "--json",
        ],
    ));
    // Nothing but the file, readable by others.
    assert_eq!(names(file.parent().unwrap()), ["xeon.toml"]);
    let written = Calibration::read(&file).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["kernel"].as_array().unwrap().len(),
        written.kernels.len()
    );
    assert_eq!(json["metric"][0]["name"], written.metrics[0].name);
}

#[test]
fn masa_runs_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let machine = [
        "calibrate",
        "-m",
        "intel-xeon-ht",
        "--quick",
        "-o",
        "xeon.toml",
    ];
    told(perch(folder.path(), &machine));
    let settings = "[policies.masa]\nvariant = \"paper\"\ncalibration = \"xeon.toml\"\n";
    fs::write(folder.path().join("settings.toml"), settings).unwrap();
    let sim = [
        "sim",
        "-m",
        "intel-xeon-ht",
        "-w",
        "masa-int-fp",
        "-p",
        "masa",
        "-t",
        "20s",
        "--fidelity",
        "interval",
        "--config",
        "settings.toml",
        "--json",
    ];
    let result: Value = serde_json::from_str(&told(perch(folder.path(), &sim))).unwrap();
    let throughput = result["results"][0]["throughput"].as_f64().unwrap();
    assert!(throughput > 5.0, "{result}");
    // This machine is another one.
    let run = [
        "run",
        "--dry-run",
        "-p",
        "masa",
        "--config",
        "settings.toml",
        "--",
        "true",
    ];
    let output = perch(folder.path(), &run);
    let said = String::from_utf8(output.stderr).unwrap();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("is that of another machine (intel-xeon-ht (simulated);"),
        "{said}"
    );
}

#[test]
fn mistakes_are_told_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let output = perch(
        folder.path(),
        &["calibrate", "-m", "smt2-zenn", "-o", "x.toml"],
    );
    assert_eq!(output.status.code(), Some(125));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("did you mean"), "{errors}");
    fs::write(folder.path().join("file"), "").unwrap();
    let output = perch(folder.path(), &["calibrate", "-o", "file/x.toml"]);
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(names(folder.path()), ["file"]);
}

/// Of one PU the kernels' own metrics are all there is to see: that each does what it claims.
#[test]
fn kernels_do_here_what_they_claim() {
    let folder = tempfile::tempdir().unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    let first = list.trim().split([',', '-']).next().unwrap();
    let output = perch(
        folder.path(),
        &[
            "calibrate",
            "--quick",
            "--pus",
            first,
            "-o",
            "here.toml",
            "--json",
        ],
    );
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        // Neither counters nor sampling are permitted here, and perch says so.
        assert!(
            errors.contains("no load metric could be measured") || errors.contains("perf_event"),
            "{errors}"
        );
        assert!(!folder.path().join("here.toml").exists());
        return skip!(Perf, "{errors}");
    }
    let calibration = Calibration::read(&folder.path().join("here.toml")).unwrap();
    assert!(calibration.couplings.is_empty());
    assert!(
        calibration
            .notes
            .iter()
            .any(|note| note.contains("one PU only")),
        "{:?}",
        calibration.notes
    );
    let value = |kernel: &str, metric: &str| {
        let kernel = calibration
            .kernels
            .iter()
            .find(|one| one.name == kernel)
            .unwrap();
        kernel.metrics.get(metric).copied()
    };
    // Where others are at work a kernel may not have been seen at all.
    let is = |kernel: &str, metric: &str, holds: &dyn Fn(f64) -> bool| {
        let value = value(kernel, metric);
        assert!(value.is_none_or(holds), "{kernel}: {metric} = {value:?}");
    };
    is("fp", "fp_share", &|share| share > 0.7);
    is("integer", "fp_share", &|share| share < 0.05);
    is("integer", "load_share", &|share| share < 0.1);
    is("branch", "branch_share", &|share| share > 0.15);
    is("l1", "load_share", &|share| share > 0.35);
    is("l1", "store_share", &|share| share > 0.03);
    is("l2", "load_share", &|share| share > 0.08);
    is("memory", "load_share", &|share| share > 0.3);
    is("tlb", "load_share", &|share| share > 0.1);
    is("memory", "fp_share", &|share| share < 0.05);
}

/// Takes a part of every PU's time and of the caches now and then until it is dropped.
struct Disturbance {
    over: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Disturbance {
    fn new() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let work = |over: &AtomicBool, number: usize| {
            let mut memory = vec![1u8; 16 << 20];
            while !over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(7 + 4 * number as u64) {
                    memory
                        .iter_mut()
                        .step_by(64)
                        .for_each(|byte| *byte = byte.wrapping_add(3));
                }
                std::thread::sleep(Duration::from_millis(23));
            }
        };
        let pus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..pus).map(|number| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || work(&over, number))
        });
        Self {
            threads: threads.collect(),
            over,
        }
    }
}

impl Drop for Disturbance {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Two calibrations agree within what each states, whatever else this machine does; and nothing is blamed or used that
/// is not significant.
#[test]
fn two_calibrations_agree_with_and_without_a_disturbance() {
    let folder = tempfile::tempdir().unwrap();
    let mut calibrations = Vec::new();
    for name in ["quiet.toml", "disturbed.toml"] {
        let disturbance = (name == "disturbed.toml").then(Disturbance::new);
        let arguments = ["calibrate", "--kernels", "fp,l2", "-o", name];
        let output = perch(folder.path(), &arguments);
        drop(disturbance);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            assert!(
                errors.contains("no load metric could be measured")
                    || errors.contains("perf_event"),
                "{errors}"
            );
            return skip!(Perf, "{errors}");
        }
        let text = String::from_utf8(output.stdout).unwrap();
        let calibration = Calibration::read(&folder.path().join(name)).unwrap();
        let pus = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(calibration.couplings.is_empty(), pus == 1);
        // Each level was visited more than once, so that its cost has an interval.
        assert_eq!(calibration.transfers.is_empty(), pus == 1);
        let mut transfers = calibration.transfers.iter();
        assert!(transfers.all(|of| of.low.zip(of.high).is_some()));
        for coupling in &calibration.couplings {
            let significant = coupling.low.is_some_and(|low| low > 1.0);
            if coupling.is_significant() {
                assert!(significant, "{coupling:?}");
            } else {
                assert_eq!(coupling.known(), 1.0);
            }
        }
        for kernel in &calibration.kernels {
            let mut couplings = calibration.couplings.iter();
            let suffers = couplings.any(|one| one.kernel == kernel.name && one.is_significant());
            let row = text
                .lines()
                .find(|line| line.starts_with(&kernel.name))
                .unwrap();
            assert!(suffers || row.trim_end().ends_with('-'), "{text}");
        }
        calibrations.push(calibration);
    }
    let (quiet, disturbed) = (&calibrations[0], &calibrations[1]);
    assert_eq!(quiet.couplings.len(), disturbed.couplings.len());
    for (one, other) in quiet.couplings.iter().zip(&disturbed.couplings) {
        assert_eq!((&one.kernel, &one.beside), (&other.kernel, &other.beside));
        assert!(one.agrees(other), "{one:?} {other:?}");
    }
}

/// What /proc tells of a process, if it is still there.
fn told_by_proc(pid: i32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

/// The processes whose parent it is.
fn children(pid: i32) -> Vec<i32> {
    let all = fs::read_dir("/proc").unwrap();
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let parent = |child: &i32| {
        let status = told_by_proc(*child, "status");
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        line.is_some_and(|parent| parent.trim() == pid.to_string())
    };
    pids.filter(parent).collect()
}

/// The names of its threads.
fn threads(pid: i32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(name).collect()
}

/// Starts a calibration, stops it as Ctrl-C and `kill` do once it has come so far, and sees what is left.
fn stopped(signal: Signal, far_enough: impl Fn(i32) -> bool) {
    let folder = tempfile::tempdir().unwrap();
    let old = "# an older calibration\n";
    fs::write(folder.path().join("here.toml"), old).unwrap();
    // Who runs tests in the background ignores SIGINT, and so would perch.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT,TERM", env!("CARGO_BIN_EXE_perch")])
        .args(["calibrate", "--quick", "-o", "here.toml"])
        .current_dir(folder.path())
        .env("XDG_CONFIG_HOME", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut perch = command.spawn().unwrap();
    let pid = perch.id() as i32;
    while !far_enough(pid) {
        assert!(perch.try_wait().unwrap().is_none(), "it has ended already");
        std::thread::sleep(Duration::from_millis(5));
    }
    let kernels = children(pid);
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    let output = perch.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(128 + signal.as_raw()),
        "{errors}"
    );
    assert!(errors.contains("nothing was written"), "{errors}");
    assert!(output.stdout.is_empty(), "no table of half of it");
    assert_eq!(names(folder.path()), ["here.toml"]);
    let left = fs::read_to_string(folder.path().join("here.toml")).unwrap();
    assert_eq!(left, old);
    for kernel in kernels {
        // It dies with perch, and somebody reaps it.
        while told_by_proc(kernel, "cmdline").contains("kernel") {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn stopped_while_kernels_run_alone_it_leaves_nothing() {
    stopped(Signal::INT, |pid| {
        children(pid)
            .iter()
            .any(|child| told_by_proc(*child, "cmdline").contains("kernel"))
    });
}

#[test]
fn stopped_while_kernels_run_beside_each_other_it_leaves_nothing() {
    stopped(Signal::TERM, |pid| {
        threads(pid).iter().any(|name| name.starts_with("kernel-"))
    });
}
