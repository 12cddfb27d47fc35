//! perch under a low limit of open files: it keeps some free, nothing fails, and every mask is restored.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

const TASKS: usize = 300;
const NOBODY: u32 = 65534;

/// Not a test: the program that perch watches, with the requested number of threads or processes.
#[test]
#[ignore = "the program of the other tests"]
fn program() {
    let work = || {
        let mut x = 1_u64;
        loop {
            for _ in 0..20_000 {
                x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
            thread::sleep(Duration::from_millis(100));
        }
    };
    if std::env::var("TEST_PROCESSES").is_ok() {
        let own = std::env::current_exe().unwrap();
        let mut children: Vec<Other> = (0..TASKS)
            .map(|_| {
                let mut command = Command::new(&own);
                command.args(["--ignored", "--exact", "program", "--nocapture"]);
                command.env_remove("TEST_PROCESSES").env("TEST_ALONE", "1");
                Other(command.stdout(Stdio::piped()).spawn().unwrap())
            })
            .collect();
        for child in &mut children {
            let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
            assert!(lines.any(|line| line.unwrap().ends_with("works")));
        }
        println!("ready");
        // Until the other end is closed.
        let _ = std::io::stdin().lines().count();
        drop(children);
        return;
    }
    if std::env::var("TEST_ALONE").is_ok() {
        // Its parent may be killed.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .unwrap();
        // All of its threads are there.
        println!("works");
        work();
    }
    for _ in 0..TASKS {
        thread::spawn(work);
    }
    println!("ready");
    let _ = std::io::stdin().lines().count();
    std::process::exit(0);
}

/// A process that is killed when the test is over, whatever its outcome.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tasks(pid: u32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let names = entries.into_iter().flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The masks of all threads of a process and its children.
fn masks(pid: u32) -> BTreeMap<i32, String> {
    let children = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let number: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
            (parent == pid.to_string()).then_some(number)
        });
    let all = children.chain([pid]).flat_map(tasks);
    all.filter_map(|tid| {
        let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
        let line = status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed_list:"))?;
        Some((tid, line.split_whitespace().last()?.to_owned()))
    })
    .collect()
}

/// One perch at a time: a second one would only observe.
static ONE: Mutex<()> = Mutex::new(());

struct Case {
    limit: usize,
    processes: bool,
    ordinary_user: bool,
}

/// Binds everything to PU 0 for a while under that limit. Returns most descriptors that perch was seen to have, and its
/// report.
fn bound_and_restored(case: &Case) -> (usize, serde_json::Value) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    };
    open(folder.path());
    let runtime = folder.path().join("runtime");
    let (perch, program) = (folder.path().join("perch"), folder.path().join("program"));
    for (from, to) in [
        (Path::new(env!("CARGO_BIN_EXE_perch")), &perch),
        (&std::env::current_exe().unwrap(), &program),
    ] {
        fs::copy(from, to).unwrap();
        open(to);
    }
    let user = |command: &mut Command| {
        if case.ordinary_user {
            command.uid(NOBODY).gid(NOBODY);
        }
    };
    fs::create_dir(&runtime).unwrap();
    open(&runtime);
    let mut command = Command::new(&program);
    command
        .args(["--ignored", "--exact", "program", "--nocapture"])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if case.processes {
        command.env("TEST_PROCESSES", "1");
    }
    user(&mut command);
    let mut program = Other(command.spawn().unwrap());
    let mut lines = BufReader::new(program.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("ready")));
    let pid = program.0.id();
    let before = masks(pid);
    assert!(before.len() > TASKS, "{} tasks", before.len());
    let all = before[&(pid as i32)].clone();

    let report = folder.path().join("report.json");
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n \"$LIMIT\" && exec \"$@\"", "sh"])
        .arg(&perch)
        .args(["attach", "--period", "250ms", "--policy", "fixed"])
        .args(["--pin", "*=pu:0", "--json", "-o"])
        .arg(&report)
        .arg(pid.to_string())
        .env("LIMIT", case.limit.to_string())
        .env("PERCH_STATE_DIR", folder.path().join("state"))
        .env("XDG_RUNTIME_DIR", &runtime)
        .env("XDG_CONFIG_HOME", folder.path().join("config"))
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(fs::File::create(folder.path().join("told")).unwrap());
    user(&mut command);
    let mut perch = Other(command.spawn().unwrap());
    let told = || fs::read_to_string(folder.path().join("told")).unwrap();
    let (start, mut most, mut all_bound) = (Instant::now(), 0, None);
    // Some periods more, in which samples are taken.
    while all_bound.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(1500)) {
        let open = fs::read_dir(format!("/proc/{}/fd", perch.0.id())).map_or(0, Iterator::count);
        most = most.max(open);
        let bound = masks(pid).values().filter(|mask| **mask == "0").count();
        if bound >= TASKS && all_bound.is_none() {
            all_bound = Some(Instant::now());
        }
        assert!(perch.0.try_wait().unwrap().is_none(), "{}", told());
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{bound} bound: {}",
            told()
        );
        thread::sleep(Duration::from_millis(20));
    }
    let perch_pid = rustix::process::Pid::from_child(&perch.0);
    rustix::process::kill_process(perch_pid, rustix::process::Signal::TERM).unwrap();
    let ended = perch.0.wait().unwrap();
    let after = masks(pid);
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    let wrong: Vec<_> = after.iter().filter(|(_, mask)| **mask != all).collect();
    assert!(wrong.is_empty(), "{ended}: {wrong:?}, {}", told());
    assert_eq!(after.len(), before.len());
    (most, report)
}

/// At least a quarter of the limit stays free, and nobody is left alone or fails for want of descriptors.
fn check(case: &Case) {
    let (most, report) = bound_and_restored(case);
    let limit = case.limit;
    println!("{most} of {limit} descriptors");
    assert!(most <= limit / 4 * 3, "{most} of {limit}: {report:#}");
    let moves = &report["moves"];
    assert!(
        moves["bound"].as_u64().unwrap() >= TASKS as u64,
        "{moves:#}"
    );
    let remarks = report["remarks"].to_string();
    for failure in ["Too many open files", "os error 24", "fails", "cannot be"] {
        assert!(!remarks.contains(failure), "{remarks}");
    }
}

#[test]
fn three_hundred_threads_under_low_limits() {
    for limit in [64, 128, 256] {
        check(&Case {
            limit,
            processes: false,
            ordinary_user: false,
        });
    }
}

#[test]
fn three_hundred_processes_under_low_limits() {
    for limit in [64, 256] {
        check(&Case {
            limit,
            processes: true,
            ordinary_user: false,
        });
    }
}

#[test]
fn an_ordinary_user_s_threads_under_low_limits() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: the other test has done it already");
        return;
    }
    for limit in [64, 128, 256] {
        check(&Case {
            limit,
            processes: false,
            ordinary_user: true,
        });
    }
}
