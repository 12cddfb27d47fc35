//! CPU weights by nice values: in effect, and back again whatever happens to perch.

use perch_skip::skip;
use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread::sleep,
    time::{Duration, Instant},
};

/// A user other than root.
const NOBODY: u32 = 65534;

/// Two programs that spin until they are killed, `light` and `heavy`, the first of which also starts what the file `more`
/// names, once it is there.
struct Run {
    folder: tempfile::TempDir,
}

const SPIN: &str = "while :; do :; done";

impl Run {
    fn prepare() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        for name in ["light", "heavy"] {
            fs::copy("/bin/sh", folder.path().join(name)).unwrap();
        }
        // Another user may not be allowed to enter the folder in which perch was built.
        fs::copy(
            env!("CARGO_BIN_EXE_perch"),
            folder.path().join("perch-copy"),
        )
        .unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path("perch-copy"));
        command
            .args(arguments)
            .env("PERCH_STATE_DIR", self.path("state"))
            .env("XDG_CONFIG_HOME", self.folder.path())
            .env("PERCH_PERIOD", "100ms")
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.path("stderr")).unwrap());
        command
    }

    fn perch(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped());
        command.output().unwrap()
    }

    fn said(&self) -> String {
        fs::read_to_string(self.path("stderr")).unwrap()
    }

    /// A program that spins, and starts another one of its kind when there is a file `more`.
    fn start(&self, name: &str) -> Spinner {
        let script = format!(
            "until [ -e more ]; do :; done; ./{name} -c '{SPIN}' & echo $! >new.$$; mv new.$$ child.$$; {SPIN}"
        );
        let mut command = Command::new(self.path(name));
        command
            .args(["-c", &script])
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .process_group(0);
        // The tests may run niced.
        // SAFETY: one system call between fork and exec.
        unsafe {
            command.pre_exec(|| match libc::setpriority(libc::PRIO_PROCESS, 0, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        Spinner(command.spawn().unwrap())
    }

    /// What a program has started, once there is a file `more`.
    fn child(&self, of: &Spinner) -> i32 {
        let file = self.path(&format!("child.{}", of.pid()));
        wait_for("a child", || file.exists());
        let child = fs::read_to_string(file).unwrap();
        child.trim().parse().unwrap()
    }
}

/// A program that is killed in the end, with what it has started.
struct Spinner(Child);

impl Spinner {
    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        kill(-self.pid(), libc::SIGKILL);
        let _ = self.0.wait();
    }
}

/// Fields 14 and 15 (time on PUs in ticks) and 19 (nice value) of `/proc/PID/stat`, proc(5).
fn stat(pid: i32) -> (u64, i32) {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<u64>().unwrap();
    (ticks(11) + ticks(12), fields[16].parse().unwrap())
}

fn nice(pid: i32) -> i32 {
    stat(pid).1
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(20));
    }
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: sends a signal to a process that this test has started.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

fn root() -> bool {
    // SAFETY: asks who the caller is.
    unsafe { libc::geteuid() == 0 }
}

/// Two perch cannot place threads on the same PUs.
fn one() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_light_program_gets_its_share_and_has_its_weight_back() {
    if !root() {
        return skip!(Root, "nice values cannot be lowered again");
    }
    let _one = one();
    let run = Run::prepare();
    let (light, heavy) = (run.start("light"), run.start("heavy"));
    let pids = [light.pid(), heavy.pid()].map(|pid| pid.to_string());
    let log = run.path("run.jsonl");
    let mut perch = run
        .command(&[
            "attach",
            "--pin",
            "*=0",
            "--weight",
            "light*=10",
            "--explain",
            "--log",
        ])
        .arg(&log)
        .args(&pids)
        .spawn()
        .unwrap();
    wait_for("the weight", || nice(light.pid()) == 10);
    assert_eq!(nice(heavy.pid()), 0);
    // Both want the one PU, and the kernel shares it out by 1024 and 110.
    let before = [light.pid(), heavy.pid()].map(|pid| stat(pid).0);
    wait_for("time on the PU", || stat(heavy.pid()).0 >= before[1] + 300);
    let after = [light.pid(), heavy.pid()].map(|pid| stat(pid).0);
    let [light_ticks, heavy_ticks] = [0, 1].map(|at| (after[at] - before[at]) as f64);
    let ratio = heavy_ticks / light_ticks.max(1.0);
    assert!(
        (4.0..25.0).contains(&ratio),
        "{heavy_ticks} to {light_ticks} ticks"
    );
    // What it starts is as light, and goes back with it.
    fs::write(run.path("more"), "").unwrap();
    let child = run.child(&light);
    assert_eq!(nice(child), 10);
    sleep(Duration::from_millis(500));
    kill(perch.id() as i32, libc::SIGTERM);
    perch.wait().unwrap();
    let nices = [light.pid(), heavy.pid(), child].map(nice);
    assert_eq!(nices, [0, 0, 0], "{}", run.said());
    assert!(
        run.said().contains("weight 10: rule 'light*=10'"),
        "{}",
        run.said()
    );
    assert!(run.said().contains("CPU weight 10: "), "{}", run.said());
    // The recording leads to the same plans.
    let again = run.path("again.jsonl");
    let replayed = run.perch(&[
        "replay",
        log.to_str().unwrap(),
        "--log",
        again.to_str().unwrap(),
    ]);
    assert!(replayed.status.success(), "{}", run.said());
    let plans = |path: &PathBuf| -> Vec<serde_json::Value> {
        let text = fs::read_to_string(path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let periods = lines.filter(|line: &serde_json::Value| line["record"] == "period");
        let mut plans: Vec<_> = periods
            .map(|period| period["plan"]["actions"].clone())
            .filter(serde_json::Value::is_array)
            .collect();
        // On a busy machine the answer for one period may come in the next.
        plans.dedup();
        plans
    };
    let recorded = plans(&log);
    assert!(!recorded.is_empty());
    assert_eq!(recorded, plans(&again));
}

#[test]
fn after_a_kill_restore_gives_weights_back_but_none_that_others_set() {
    if !root() {
        return skip!(Root, "nice values cannot be lowered again");
    }
    let _one = one();
    let run = Run::prepare();
    let (light, other) = (run.start("light"), run.start("light"));
    let pids = [light.pid(), other.pid()].map(|pid| pid.to_string());
    let mut perch = run
        .command(&["attach", "--weight", "light*=10", "-q"])
        .args(&pids)
        .spawn()
        .unwrap();
    wait_for("the weights", || {
        nice(light.pid()) == 10 && nice(other.pid()) == 10
    });
    perch.kill().unwrap();
    perch.wait().unwrap();
    // One is born after the kill, one is given another value.
    fs::write(run.path("more"), "").unwrap();
    let child = run.child(&light);
    assert_eq!(nice(child), 10);
    // SAFETY: sets the nice value of a process that this test has started.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, other.pid() as u32, 7) };
    assert_eq!([light.pid(), other.pid()].map(nice), [10, 7]);
    let restored = run.perch(&["restore"]);
    let told = String::from_utf8(restored.stdout).unwrap();
    assert!(restored.status.success(), "{told}");
    assert_eq!([light.pid(), other.pid()].map(nice), [0, 7], "{told}");
    assert!(told.contains("CPU weights restored"), "{told}");
    assert_eq!(nice(child), 0, "{told}");
}

#[test]
fn what_could_not_be_undone_is_not_done() {
    if !root() {
        return skip!(Root, "other users' processes cannot be started");
    }
    let _one = one();
    let run = Run::prepare();
    let state = run.path("state");
    fs::create_dir(&state).unwrap();
    std::os::unix::fs::chown(&state, Some(NOBODY), None).unwrap();
    fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).unwrap();
    let mut command = run.command(&["run", "--weight", "light=10", "--explain", "--"]);
    command.arg(run.path("light"));
    command.args(["-c", "sleep 1; cut -d' ' -f19 /proc/self/stat >nice"]);
    let ran = command.uid(NOBODY).gid(NOBODY).status().unwrap();
    assert!(ran.success(), "{}", run.said());
    assert!(run.said().contains("RLIMIT_NICE"), "{}", run.said());
    let own = nice(std::process::id() as i32).to_string();
    assert_eq!(fs::read_to_string(run.path("nice")).unwrap().trim(), own);
}
