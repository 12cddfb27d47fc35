//! A CPU set that shrinks and grows under perch. Needs permission to make control groups.

use perch_core::{Affinity, Machine, MaskChange, Outcome, PuSet, ThreadId, topology::PuState};
use perch_linux::{
    LinuxMachine,
    affinity::{LinuxAffinity, cpuset::process_group_text},
    proc::start_of,
};
use perch_skip::skip;
use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, id},
    sync::atomic::{AtomicBool, Ordering},
    thread::scope,
};

/// A control group of its own, removed in the end.
struct Group {
    home: PathBuf,
    path: PathBuf,
}

impl Group {
    fn new(name: &str) -> Option<Self> {
        let candidates = [(1, "/sys/fs/cgroup/cpuset"), (2, "/sys/fs/cgroup")];
        candidates.into_iter().find_map(|(version, home)| {
            let home = PathBuf::from(home);
            let path = home.join(format!("perch-test-{name}-{}", id()));
            // Whether groups below the root may have CPU sets is not ours to change.
            let controlled = match version {
                1 => home.join("cpuset.mems").exists(),
                _ => fs::read_to_string(home.join("cgroup.subtree_control"))
                    .is_ok_and(|on| on.split_whitespace().any(|name| name == "cpuset")),
            };
            if !controlled {
                return None;
            }
            fs::create_dir(&path).ok()?;
            let group = Self { home, path };
            if version == 1 {
                fs::write(group.path.join("cpuset.mems"), "0").ok()?;
            }
            Some(group)
        })
    }

    fn allow(&self, pus: &PuSet) {
        fs::write(self.path.join("cpuset.cpus"), pus.to_string()).unwrap();
    }

    fn take(&self, pid: u32) {
        fs::write(self.path.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

/// Killed in the end, also by a panic.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.home.join("cgroup.procs"), id().to_string());
        let _ = fs::remove_dir(&self.path);
    }
}

#[test]
fn a_cpu_set_that_shrinks_is_noticed_and_told() {
    let mut machine = LinuxMachine::builder().build().unwrap();
    let all = machine.topology().usable();
    let (Some(first), Some(last)) = (all.first(), all.last()) else {
        panic!("no usable PU");
    };
    if first == last {
        return skip!(Pus, "a cpuset of one PU cannot shrink");
    }
    let Some(group) = Group::new("shrinks") else {
        return skip!(Cgroup, "no cpuset group can be made below this one");
    };
    assert!(machine.observe().unwrap().topology.is_none());
    group.allow(&all);
    group.take(id());
    // Another group, the same PUs: nothing changed.
    assert!(machine.observe().unwrap().topology.is_none());
    group.allow(&PuSet::single(first));
    let shrunk = machine.observe().unwrap();
    assert!(shrunk.topology.is_some());
    assert!(
        shrunk
            .remarks
            .iter()
            .any(|r| r.text.contains("left the CPU set")),
        "{:?}",
        shrunk.remarks
    );
    let topology = machine.topology();
    assert_eq!(topology.usable(), PuSet::single(first));
    assert_eq!(topology.online(), all);
    assert_eq!(topology.pu(last).unwrap().state, PuState::Disallowed);
    assert!(machine.observe().unwrap().topology.is_none());
    drop(group);
    let grown = machine.observe().unwrap();
    assert!(
        grown.topology.is_some()
            && grown
                .remarks
                .iter()
                .any(|r| r.text.contains("joined the CPU set"))
    );
    assert_eq!(machine.topology().usable(), all);
}

#[test]
fn a_cpu_set_that_changes_at_the_same_moment_does_not_keep_a_mask_from_being_set() {
    let all = LinuxMachine::builder().build().unwrap().topology().usable();
    let halves = match (all.first(), all.last()) {
        (Some(first), Some(last)) if first != last => [first, last].map(PuSet::single),
        _ => return skip!(Pus, "a cpuset of one PU cannot change"),
    };
    let Some(group) = Group::new("flips") else {
        return skip!(Cgroup, "no cpuset group can be made below this one");
    };
    group.allow(&all);
    let sleeper = Sleeper(Command::new("sleep").arg("600").spawn().unwrap());
    let tid = sleeper.0.id() as i32;
    group.take(sleeper.0.id());
    let thread = ThreadId {
        tid,
        start: start_of(tid).unwrap(),
    };
    let mut affinity = LinuxAffinity::new();
    let set = |affinity: &mut LinuxAffinity, set: &PuSet, to_default: bool| {
        affinity.change(&MaskChange {
            thread,
            process: 0,
            expect: affinity.mask(thread).unwrap(),
            set: set.clone(),
            to_default,
        })
    };
    let done = AtomicBool::new(false);
    scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                halves.iter().for_each(|half| group.allow(half));
            }
        });
        for _ in 0..2_000 {
            set(&mut affinity, &halves[0], false);
            loop {
                match set(&mut affinity, &all, true) {
                    Outcome::Applied => break,
                    Outcome::ChangedByOthers => {}
                    outcome => {
                        done.store(true, Ordering::Relaxed);
                        panic!("{outcome:?}");
                    }
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    for allowed in [&halves[1], &all] {
        group.allow(allowed);
        assert_eq!(affinity.mask(thread).unwrap(), *allowed);
    }
}

#[test]
fn the_group_of_a_process_is_known_after_its_first_thread_has_exited() {
    let Some(group) = Group::new("leader") else {
        return skip!(Cgroup, "no cpuset group can be made below this one");
    };
    let pus = LinuxMachine::builder().build().unwrap().topology().usable();
    group.allow(&pus);
    // SYS_exit ends the calling thread only.
    let script = "import ctypes, sys, threading, time; threading.Thread(target=time.sleep, args=(600,)).start(); \
                  sys.stdin.readline(); ctypes.CDLL(None).syscall(int(sys.argv[1]), 0)";
    let exit = libc::SYS_exit.to_string();
    let program = Command::new("python3")
        .args(["-c", script, &exit])
        .stdin(std::process::Stdio::piped())
        .spawn();
    let Ok(program) = program else {
        return skip!(Tool, "no python3: `apt-get install python3`");
    };
    let mut program = Sleeper(program);
    let pid = program.0.id();
    group.take(pid);
    let name = group.path.file_name().unwrap().to_str().unwrap().to_owned();
    let shown = || process_group_text(pid as i32).unwrap_or_default();
    assert!(shown().contains(&name), "{}", shown());
    drop(program.0.stdin.take());
    let is_zombie = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('Z')
    };
    while !is_zombie() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(shown().contains(&name), "{}", shown());
    drop(program);
}
