//! `perch restore` with hardly any file descriptors: it may fail, but it never says that all is well while threads are
//! still bound.

use perch_skip::skip;
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Tells its own number, and starts a child for each line that it reads.
const PROGRAM: &str = "echo $$; while read line; do sleep 1000 & echo $!; done";

const PATIENCE: Duration = Duration::from_secs(60);

/// A program that perch has bound, and perch was killed.
struct Scene {
    folder: tempfile::TempDir,
    default: String,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The program and its children.
    pids: Vec<i32>,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut perch = command(folder.path(), env!("CARGO_BIN_EXE_perch"))
            .args(["run", "-q", "--period", "100ms", "--policy", "fixed"])
            .args(["--pin", "*=0", "--", "sh", "-c", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = perch.stdin.take().unwrap();
        let output = BufReader::new(perch.stdout.take().unwrap());
        let mut scene = Self {
            folder,
            default: mask(std::process::id() as i32).unwrap(),
            input,
            output,
            pids: Vec::new(),
        };
        scene.hear();
        scene.wait_until_bound(&mut perch);
        // One child that the journal may name, and one that it cannot.
        scene.child();
        scene.wait_until_bound(&mut perch);
        perch.kill().unwrap();
        perch.wait().unwrap();
        scene.child();
        assert_eq!(scene.bound(), scene.pids);
        scene
    }

    fn hear(&mut self) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        self.pids.push(line.trim().parse().unwrap());
    }

    fn child(&mut self) {
        writeln!(self.input, "another").unwrap();
        self.hear();
    }

    fn wait_until_bound(&self, perch: &mut Child) {
        let begin = Instant::now();
        while self.bound() != self.pids {
            assert!(perch.try_wait().unwrap().is_none(), "perch has ended");
            assert!(begin.elapsed() < PATIENCE, "never bound");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Those that are not where the test itself may be.
    fn bound(&self) -> Vec<i32> {
        let pids = self.pids.iter().copied();
        pids.filter(|pid| mask(*pid).is_some_and(|mask| mask != self.default))
            .collect()
    }

    /// Restores with at most this many open files.
    fn restore(&self, files: u32) -> ExitStatus {
        let script = format!("ulimit -n {files}; exec \"$0\" restore");
        command(self.folder.path(), "sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_perch")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
    }

    fn journals(&self) -> usize {
        let state = std::fs::read_dir(self.folder.path().join("state"));
        let files = state.into_iter().flatten().flatten();
        files
            .filter(|file| file.path().extension().is_some_and(|e| e == "journal"))
            .count()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let pids = self.pids.iter().map(ToString::to_string);
        let _ = Command::new("kill").arg("-9").args(pids).status();
    }
}

fn command(folder: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env("PERCH_STATE_DIR", folder.join("state"))
        .env("XDG_CONFIG_HOME", folder.join("config"));
    command
}

/// The mask as the kernel lists it; `None` if the process has exited.
fn mask(pid: i32) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.map(|list| list.trim().to_owned())
}

#[test]
fn a_restore_without_descriptors_loses_no_mask() {
    if mask(std::process::id() as i32).is_some_and(|mask| mask == "0") {
        return skip!(Pus, "nobody can be bound on one PU");
    }
    let mut failed = 0;
    let mut worked = 0;
    for files in [3, 4, 5, 6, 7, 8, 10, 16] {
        let scene = Scene::new();
        let status = scene.restore(files);
        let bound = scene.bound();
        if status.success() || scene.journals() == 0 {
            worked += 1;
            assert!(
                bound.is_empty(),
                "with {files} files: {status}, {} journals, still bound: {bound:?} of {:?}",
                scene.journals(),
                scene.pids
            );
        } else {
            failed += 1;
        }
        // Whatever could not be done then is done with as many files as usual.
        assert!(scene.restore(1024).success());
        assert_eq!((scene.bound(), scene.journals()), (vec![], 0), "{files}");
    }
    // Else the limits were too low or too high to show anything.
    assert!(failed > 0 && worked > 0, "{failed} failed, {worked} worked");
}
