//! Files that are named on the command line: what cannot be written is said before a program starts, what is full does
//! not cost its exit code, and nothing that is no file makes perch hang.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

fn perch(folder: &Path, args: &[&str]) -> Output {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    without_locks(folder, args)
}

/// All of these at once: each waits for the writer of a FIFO and ends before it places anything.
fn at_once<'a>(folder: &Path, each: &[&'a [&'a str]]) -> Vec<(&'a [&'a str], Output)> {
    std::thread::scope(|scope| {
        let start = |args: &'a [&'a str]| scope.spawn(move || (args, without_locks(folder, args)));
        let started: Vec<_> = each.iter().map(|args| start(args)).collect();
        let ended = started.into_iter().map(|each| each.join().unwrap());
        ended.collect()
    })
}

fn without_locks(folder: &Path, args: &[&str]) -> Output {
    // Ended with status 124 if it hangs.
    Command::new("timeout")
        .args(["20", env!("CARGO_BIN_EXE_perch")])
        .args(args)
        .env("PERCH_STATE_DIR", folder.join("state"))
        .env("XDG_CONFIG_HOME", folder)
        .env_remove("PERCH_CONFIG")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn fifo(folder: &Path) -> PathBuf {
    let path = folder.join("fifo");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    path
}

#[test]
fn what_cannot_be_written_is_said_before_the_program_starts() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("started");
    let mark = mark.to_str().unwrap();
    let fifo = fifo(folder.path());
    for place in ["/nonexistent/x", "/tmp", fifo.to_str().unwrap()] {
        for args in [
            ["run", "-o", place, "--", "touch", mark],
            ["run", "--log", place, "--", "touch", mark],
            ["compare", "-o", place, "--", "touch", mark],
        ] {
            let output = perch(folder.path(), &args);
            assert_eq!(output.status.code(), Some(125), "{args:?}: {output:?}");
            assert!(said(&output).contains(place), "{}", said(&output));
            assert!(!Path::new(mark).exists(), "{args:?}");
        }
    }
    // These take minutes, or would replace an existing file. calibrate creates missing directories.
    let start = Instant::now();
    for args in [
        ["calibrate", "-o", "/dev/full"],
        ["calibrate", "-o", "/dev/full/x"],
        ["calibrate", "-o", "/tmp"],
        ["lab", "report", "--output=/nonexistent/x"],
    ] {
        let output = perch(folder.path(), &args);
        assert_eq!(output.status.code(), Some(125), "{args:?}: {output:?}");
        // Of a file's folder it may be the folder that is named.
        let place = args[2].trim_start_matches("--output=");
        let place = place.trim_end_matches("/x");
        assert!(said(&output).contains(place), "{}", said(&output));
    }
    assert!(start.elapsed() < Duration::from_secs(100));
    assert!(fs::metadata("/dev/full").is_ok_and(|meta| !meta.is_file()));
}

#[test]
fn a_full_disk_does_not_cost_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    for flag in ["-o", "--log"] {
        let args = ["run", flag, "/dev/full", "--", "sh", "-c", "exit 42"];
        let output = perch(folder.path(), &args);
        assert_eq!(output.status.code(), Some(42), "{output:?}");
        assert!(said(&output).contains("/dev/full"), "{}", said(&output));
        // But a program that succeeded does not hide it.
        let output = perch(folder.path(), &["run", flag, "/dev/full", "--", "true"]);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
    }
}

#[test]
fn what_is_no_file_is_refused_and_nothing_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(folder.path());
    for (place, why) in [
        (fifo.to_str().unwrap(), "FIFO"),
        ("/dev/zero", "device"),
        ("/tmp", "directory"),
    ] {
        let each = [
            &["run", "--config", place, "--", "true"][..],
            &["run", "--pin-file", place, "--", "true"],
            &["config", "--config", place],
            &["replay", place],
            &["report", place, "--html", "/dev/null"],
            &["profiles", "check", place],
        ];
        for (args, output) in at_once(folder.path(), &each) {
            assert_eq!(output.status.code(), Some(125), "{args:?}: {output:?}");
            assert!(said(&output).contains(why), "{args:?}: {}", said(&output));
        }
    }
    // hwloc would read a device to its end, which does not come.
    let output = Command::new("timeout")
        .args(["20", env!("CARGO_BIN_EXE_perch"), "topology"])
        .env("HWLOC_XMLFILE", "/dev/zero")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(said(&output).contains("HWLOC_XMLFILE"), "{output:?}");
    // Files that are known by their ending.
    for name in ["x.toml", "x.xml"] {
        fs::rename(folder.path().join("fifo"), folder.path().join(name)).unwrap();
        let place = folder.path().join(name);
        let place = place.to_str().unwrap();
        let each = [
            &["sim", "-m", place][..],
            &["sim", "-w", place],
            &["lab", "run", place],
            &["topology", "--topology", place],
            &["run", "--profile", place, "true"],
        ];
        for (args, output) in at_once(folder.path(), &each) {
            assert_ne!(output.status.code(), Some(124), "{args:?} hangs");
            assert_ne!(output.status.code(), Some(0), "{args:?}");
        }
        fs::rename(place, folder.path().join("fifo")).unwrap();
    }
    // A program that is a FIFO with the x bit.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&fifo, mode).unwrap();
    let output = perch(folder.path(), &["run", "--", fifo.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(126), "{output:?}");
}

#[test]
fn pipes_work_where_somebody_writes() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let log = log.to_str().unwrap();
    let made = perch(folder.path(), &["run", "-q", "--log", log, "--", "true"]);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    let perch_file = env!("CARGO_BIN_EXE_perch");
    let script = format!(
        "cat {log} | {perch_file} replay /dev/stdin && {perch_file} replay <(sleep 0.5; cat {log}) && \
         {perch_file} config --config <(echo 'period = \"3s\"') | grep -q 3s && \
         {perch_file} run -q --config /dev/null -- true"
    );
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("PERCH_STATE_DIR", folder.path().join("state"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_description_of_too_many_pus_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let output = perch(folder.path(), &["topology", "--topology", "pu:99999"]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(said(&output).contains("4096"), "{}", said(&output));
    assert!(start.elapsed() < Duration::from_secs(60));
}
