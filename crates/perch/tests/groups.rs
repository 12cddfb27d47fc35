//! Control groups: their processes are followed whenever they come.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output},
    thread::sleep,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A control group with processes that wait for their files.
struct Group {
    folder: TempDir,
    group: PathBuf,
}

impl Group {
    /// `None` where none can be made.
    fn new(name: &str) -> Option<Self> {
        Some(Self {
            folder: tempfile::tempdir().unwrap(),
            group: cgroup(name)?,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A process that is in the group, until there is a file of this name.
    fn process(&self, name: &str) -> Child {
        let script = "while [ ! -e $0 ]; do sleep 0.05; done";
        let join = format!(
            "echo $$ >{}/cgroup.procs; exec sh -c '{script}' {}",
            self.group.display(),
            self.path(name).display()
        );
        let child = Command::new("sh").args(["-c", &join]).spawn().unwrap();
        // perch refuses a group without a process, and the shell takes a moment to join.
        let pid = child.id().to_string();
        let members = self.group.join("cgroup.procs");
        until(|| {
            let members = fs::read_to_string(&members).unwrap();
            members.lines().any(|member| member == pid)
        });
        child
    }

    fn perch(&self, args: &[&str]) -> Command {
        let mut perch = Command::new(env!("CARGO_BIN_EXE_perch"));
        perch
            .args(args)
            .env("PERCH_STATE_DIR", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env_remove("PERCH_POLICY");
        perch
    }

    /// Ends the processes and removes the group.
    fn end(self, processes: [(&str, Child); 2]) {
        for (name, mut process) in processes {
            fs::write(self.path(name), "").unwrap();
            process.wait().unwrap();
        }
        fs::remove_dir(self.group).unwrap();
    }
}

fn until(what: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < limit);
        sleep(Duration::from_millis(50));
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn processes_are_counted_whenever_they_come() {
    let Some(group) = Group::new("stat") else {
        return perch_skip::skip!(Cgroup, "no control group can be made");
    };
    let first = group.process("go");
    let file = group.path("rows.jsonl");
    let args = "stat --json -i 100ms -e page-faults --by process -o";
    let args: Vec<&str> = args.split(' ').collect();
    let mut perch = group
        .perch(&args)
        .arg(&file)
        .arg("--cgroup")
        .arg(&group.group)
        .spawn()
        .unwrap();
    let has = |pid: u32| {
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.contains(&format!("\"pid\":{pid}"))
    };
    until(|| has(first.id()));
    let second = group.process("late");
    until(|| has(second.id()));
    let output = group.perch(&["stat", "--cgroup", "no/such/group"]).output();
    let output = output.unwrap();
    assert!(
        said(&output).contains("no control group"),
        "{}",
        said(&output)
    );
    group.end([("go", first), ("late", second)]);
    assert!(perch.wait().unwrap().success());
}

/// The PUs on which a process may run, as `/proc` lists them.
fn mask(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}

#[test]
fn processes_are_placed_whenever_they_come_and_get_their_masks_back() {
    let Some(group) = Group::new("attach") else {
        return perch_skip::skip!(Cgroup, "no control group can be made");
    };
    let before = mask(std::process::id());
    let one = before.split([',', '-']).next().unwrap().to_owned();
    if one == before {
        return perch_skip::skip!(Pus, "there is one PU only");
    }
    let first = group.process("go");
    let pin = format!("sh={one}");
    let mut perch = group
        .perch(&[
            "attach", "-q", "--period", "200ms", "--pin", &pin, "--cgroup",
        ])
        .arg(&group.group)
        .spawn()
        .unwrap();
    until(|| mask(first.id()) == one);
    let second = group.process("late");
    until(|| mask(second.id()) == one);
    let pid = rustix::process::Pid::from_child(&perch);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    perch.wait().unwrap();
    assert_eq!(
        (mask(first.id()), mask(second.id())),
        (before.clone(), before)
    );
    group.end([("go", first), ("late", second)]);
}

/// A control group of this test's own, in whichever hierarchy allows one.
fn cgroup(name: &str) -> Option<PathBuf> {
    let name = format!("perch-test-{name}-{}", std::process::id());
    let mounts = [
        "/sys/fs/cgroup",
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup/cpuacct",
    ];
    let groups = mounts.map(|mount| Path::new(mount).join(&name));
    groups.into_iter().find(|group| {
        fs::create_dir(group).is_ok()
            && (group.join("cgroup.procs").exists() || fs::remove_dir(group).is_err())
    })
}
