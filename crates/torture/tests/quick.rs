//! The short form against the perch of this workspace; and the harness against perches that are broken on purpose.

use perch_skip::skip;
use serde_json::Value;
use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread::sleep,
    time::Duration,
};

/// Two at once would take each other's time.
static ALONE: Mutex<()> = Mutex::new(());

/// The right to run; `None` without root's rights.
fn turn() -> Option<MutexGuard<'static, ()>> {
    let root = nix::unistd::geteuid().is_root();
    root.then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn torture(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_perch-torture"))
        .arg("--perch")
        .arg(perch_testbed::perch_binary().unwrap())
        .args(["--quick", "--json", "--seed", "1"])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn attacks(output: &Output) -> serde_json::Map<String, Value> {
    let said = String::from_utf8_lossy(&output.stderr);
    let all: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    all["attacks"].as_object().unwrap().clone()
}

#[test]
fn perch_keeps_its_promises() {
    let Some(_turn) = turn() else {
        return skip!(Root, "the torture needs root");
    };
    let output = torture(&[]);
    let said = String::from_utf8_lossy(&output.stderr);
    // What was skipped is to be seen.
    eprintln!("{said}");
    assert!(output.status.success(), "{said}");
    let attacks = attacks(&output);
    assert_eq!(attacks.len(), 17, "{attacks:?}");
    for (name, tally) in attacks {
        match tally["skipped"].as_str() {
            Some(why) => skip!(Cgroup, "{name}: {why}"),
            None => assert!(tally["checked"].as_u64() > Some(0), "{name}: {tally}"),
        }
    }
}

/// What an attack finds in a perch that does something else instead of some of its work.
fn found(instead: &str, attack: &str, percent: &str) -> Value {
    let mut script = tempfile::NamedTempFile::new().unwrap();
    writeln!(script, "{instead}\nexec \"$PERCH_REAL\" \"$@\"").unwrap();
    let script = script.path().to_str().unwrap();
    let args = ["--instead", script, "--only", attack, "--percent", percent];
    let output = torture(&args);
    assert_eq!(output.status.code(), Some(1));
    attacks(&output)[attack]["faults"].clone()
}

#[test]
fn a_restore_that_does_nothing_is_found() {
    let Some(_turn) = turn() else {
        return skip!(Root, "the torture needs root");
    };
    let faults = found(r#"[ "$1" = restore ] && exit 0"#, "kills", "40");
    for kind in ["mask not restored", "journal left"] {
        assert!(faults[kind]["count"].as_u64() > Some(0), "{kind}: {faults}");
    }
    let faults = found(r#"[ "$1" = restore ] && exit 0"#, "weights", "40");
    for kind in ["nice value not restored", "journal left"] {
        assert!(faults[kind]["count"].as_u64() > Some(0), "{kind}: {faults}");
    }
}

#[test]
fn a_restore_that_removes_journals_and_resets_all_threads_is_found() {
    let Some(_turn) = turn() else {
        return skip!(Root, "the torture needs root");
    };
    let instead = r#"if [ "$1" = restore ]; then
    rm -f "$PERCH_STATE_DIR"/*.journal
    for tid in $(grep -ls '^Name:.own$' /proc/[0-9]*/task/*/status); do
        tid=${tid%/status}
        # Not those of another torture.
        [ "$(readlink "$tid/ns/mnt")" = "$(readlink /proc/self/ns/mnt)" ] || continue
        taskset -p ff "${tid##*/}" >/dev/null
        renice -n 0 -p "${tid##*/}" >/dev/null
    done
    exit 0
fi"#;
    let kills = found(instead, "kills", "40");
    assert!(
        kills["own mask overwritten"]["count"].as_u64() > Some(0),
        "{kills}"
    );
    let weights = found(instead, "weights", "40");
    assert!(
        weights["own nice value overwritten"]["count"].as_u64() > Some(0),
        "{weights}"
    );
    let journals = found(instead, "journals", "5");
    let lost = "journal removed as a success, threads still bound";
    assert!(journals[lost]["count"].as_u64() > Some(0), "{journals}");
}

/// cpusets of a run with this supervisor.
fn cpusets(supervisor: u32) -> usize {
    let name = format!("perch-torture-{supervisor}-");
    ["/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"]
        .iter()
        .filter_map(|root| fs::read_dir(root).ok())
        .flatten()
        .filter(|entry| {
            let entry = entry.as_ref().unwrap();
            entry.file_name().to_string_lossy().starts_with(&name)
        })
        .count()
}

/// Processes that have this one's number as their supervisor in their environment.
fn processes(supervisor: u32) -> usize {
    let mark = format!("PERCH_TORTURE_SUPERVISOR={supervisor}\0");
    let marked = |path: &Path| {
        fs::read(path.join("environ")).is_ok_and(|bytes| {
            bytes
                .windows(mark.len())
                .any(|found| found == mark.as_bytes())
        })
    };
    fs::read_dir("/proc")
        .unwrap()
        .filter(|entry| marked(&entry.as_ref().unwrap().path()))
        .count()
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let Some(_turn) = turn() else {
        return skip!(Root, "the torture needs root");
    };
    let perch = perch_testbed::perch_binary().unwrap();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_perch-torture"))
            .arg("--perch")
            .arg(&perch)
            .args(["--only", "cpusets"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut tries = 0;
        // Where there are no cpusets the run ends by itself.
        while cpusets(run.id()) == 0 && run.try_wait().unwrap().is_none() && tries < 1_000 {
            sleep(Duration::from_millis(10));
            tries += 1;
        }
        // SAFETY: it is not reaped yet.
        unsafe { libc::kill(run.id() as i32, signal) };
        let status = run.wait().unwrap();
        if tries > 0 {
            assert_eq!(status.code(), Some(130));
        }
        assert_eq!((cpusets(run.id()), processes(run.id())), (0, 0));
    }
}
