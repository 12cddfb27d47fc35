//! Who is followed of a process group: processes of this test's own.

use super::*;
use perch_core::Source;
use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    time::Instant,
};

/// A shell in a group; for each line that it reads it starts a process that loses its parent at once.
struct Shell {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    orphans: Vec<i32>,
}

impl Shell {
    /// In the group of this process, or in one of its own.
    fn new(group: i32) -> Self {
        let script = "while read x; do (sleep 600 > /dev/null & echo $!); done";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .process_group(group)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            output,
            orphans: Vec::new(),
        }
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Starts an orphan; `None` where orphans go to another process than init.
    fn orphan(&mut self) -> Option<i32> {
        writeln!(self.child.stdin.as_mut().unwrap(), "x").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let pid: i32 = line.trim().parse().unwrap();
        self.orphans.push(pid);
        let parent = || Reader::new().stat(pid, pid).map(|stat| stat.parent);
        let since = Instant::now();
        // The subshell that has started it ends by itself.
        while since.elapsed() < Duration::from_secs(60) {
            if parent() == Ok(1) {
                return Some(pid);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for pid in &self.orphans {
            let pid = rustix::process::Pid::from_raw(*pid).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn follows(tracker: &Tracker, pid: i32) -> bool {
    tracker.processes.contains_key(&pid)
}

/// Without the kernel's records, so that `/proc` alone tells.
fn attached(shell: &Shell) -> Tracker {
    let mut tracker = Tracker::new();
    assert!(tracker.follow_running(shell.pid(), 0));
    tracker.discover();
    tracker
}

fn look(tracker: &mut Tracker) {
    tracker.look_everywhere_next();
    tracker.discover();
}

#[test]
fn an_orphan_in_the_group_of_a_process_that_is_alone_in_it_is_followed() {
    let mut leader = Shell::new(0);
    let mut tracker = attached(&leader);
    let Some(orphan) = leader.orphan() else {
        return;
    };
    look(&mut tracker);
    assert!(follows(&tracker, orphan));
}

/// Only the record of its creation says from which thread it has its mask.
#[test]
fn an_orphan_whose_record_is_still_to_come_waits_for_it_once() {
    let mut leader = Shell::new(0);
    let mut tracker = attached(&leader);
    tracker.expect_records(true);
    tracker.sample(1_000_000);
    tracker.take_origins();
    let Some(orphan) = leader.orphan() else {
        return;
    };
    let origin = |tracker: &mut Tracker| {
        look(tracker);
        let threads = tracker.sample(1_000_000).threads;
        let mut origins = tracker.take_origins().into_iter();
        let sampled = threads.iter().any(|sample| sample.info.id.tid == orphan);
        let origin = origins.find(|origin| origin.thread.tid == orphan);
        (sampled, origin.map(|origin| origin.from))
    };
    assert_eq!(origin(&mut tracker), (false, None));
    assert!(follows(&tracker, orphan));
    tracker.forked(Created {
        pid: orphan,
        tid: orphan,
        by_pid: leader.pid(),
        by_tid: leader.pid(),
        at: 1,
    });
    let (sampled, from) = origin(&mut tracker);
    assert!(sampled);
    assert!(matches!(from, Some(Source::Thread(from)) if from.tid == leader.pid()));
}

#[test]
fn an_orphan_that_was_in_the_group_before_is_left_alone_and_told_of() {
    let mut leader = Shell::new(0);
    let Some(orphan) = leader.orphan() else {
        return;
    };
    let mut tracker = attached(&leader);
    look(&mut tracker);
    assert!(follows(&tracker, leader.pid()) && !follows(&tracker, orphan));
    let told = tracker.take_remarks();
    let told = told.iter().filter(|told| told.code == "unknown-descent");
    assert_eq!(told.count(), 1);
    // What comes later may be its child.
    let later = leader.orphan().unwrap();
    look(&mut tracker);
    assert!(!follows(&tracker, later));
}

#[test]
fn a_stranger_in_the_group_and_what_it_starts_are_left_alone() {
    let leader = Shell::new(0);
    let mut stranger = Shell::new(leader.pid());
    let mut tracker = attached(&leader);
    let Some(orphan) = stranger.orphan() else {
        return;
    };
    look(&mut tracker);
    assert!(follows(&tracker, leader.pid()));
    assert!(!follows(&tracker, stranger.pid()) && !follows(&tracker, orphan));
}

/// A zombie in the group is a child all the same.
#[test]
fn a_child_that_has_ended_is_no_stranger() {
    let mut leader = Shell::new(0);
    let mut tracker = attached(&leader);
    let child = Command::new("true").process_group(leader.pid()).spawn();
    let (mut child, own) = (child.unwrap(), std::process::id() as i32);
    let pid = child.id() as i32;
    while !Reader::new()
        .stat(pid, pid)
        .is_ok_and(|stat| stat.is_dead())
    {
        std::thread::sleep(Duration::from_millis(2));
    }
    // As if this process were followed, whose child it is.
    let start = crate::proc::start_of(own).unwrap();
    let process = Process {
        start,
        target: 0,
        name: "".into(),
        threads: 1,
        first_ended: false,
    };
    tracker.processes.insert(own, process);
    look(&mut tracker);
    tracker.processes.remove(&own);
    child.wait().unwrap();
    let Some(orphan) = leader.orphan() else {
        return;
    };
    look(&mut tracker);
    assert!(follows(&tracker, orphan));
}

/// A program's orphan has no parent any more, and its group tells whose it is; so does that of a daemon's.
#[test]
fn a_program_s_processes_are_told_from_those_of_the_operating_system() {
    let (mut program, mut daemon) = (Shell::new(0), Shell::new(0));
    let mut tracker = Tracker::new();
    assert!(tracker.follow_running(program.pid(), 0));
    tracker.follow_system(1);
    let before = (program.orphan(), daemon.orphan());
    let late = Command::new("sleep").arg("600").spawn();
    let mut late = late.unwrap();
    tracker.look_everywhere_next();
    tracker.discover();
    let target = |pid: i32| tracker.target_if_followed(pid);
    assert_eq!(target(program.pid()), Some(0));
    assert_eq!(target(daemon.pid()), Some(1));
    assert_eq!(target(late.id() as i32), Some(1));
    if let Some(orphan) = before.0 {
        assert_eq!(target(orphan), Some(0));
    }
    if let Some(orphan) = before.1 {
        assert_eq!(target(orphan), Some(1));
    }
    // Those that end while they are sampled are forgotten then.
    let targets: BTreeMap<i32, u32> = tracker
        .processes()
        .map(|(process, target)| (process.pid, target))
        .collect();
    let sampled = tracker.sample(1_000_000);
    for sample in &sampled.threads {
        let system = targets[&sample.info.pid] == 1;
        assert_eq!(system, !sample.info.work.is_program(), "{sample:?}");
        // Only threads of the kernel, which kthreadd starts, are kept where they are.
        let parent = Reader::new()
            .stat(sample.info.pid, sample.info.pid)
            .map(|stat| stat.parent);
        if sample.info.work == Work::SystemFixed
            && let Ok(parent) = parent
        {
            assert_eq!(parent, 2, "{sample:?}");
        }
    }
    assert!(!tracker.has_no_program());
    tracker.unfollow_system(1);
    let target = |pid: i32| tracker.target_if_followed(pid);
    assert_eq!(target(program.pid()), Some(0));
    assert_eq!(target(daemon.pid()), None);
    late.kill().unwrap();
    late.wait().unwrap();
}
