//! What the tests of the live machine share.
#![allow(dead_code)]

use perch_core::{Launch, Machine, Observation, ThreadSample, Wake};
use perch_linux::LinuxMachine;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    process::Command,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

/// Machines reap children and read the process-wide environment: one at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Held while a test uses a machine.
pub fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub fn machine() -> LinuxMachine {
    LinuxMachine::builder().build().unwrap()
}

pub fn launch(command: &[&str]) -> Launch {
    Launch {
        command: command.iter().map(OsString::from).collect(),
        environment: Vec::new(),
    }
}

pub fn shell(script: &str) -> Launch {
    launch(&["sh", "-c", script])
}

/// This test program again, playing a role (see [`role`]).
pub fn actor(role: &str) -> Launch {
    let mut launch = Launch {
        command: vec![std::env::current_exe().unwrap().into_os_string()],
        environment: vec![("PERCH_TEST_ROLE".into(), role.into())],
    };
    launch
        .command
        .extend(["actor_role", "--exact", "--quiet"].map(OsString::from));
    launch
}

/// The role that this process was started for.
pub fn role() -> Option<String> {
    std::env::var("PERCH_TEST_ROLE").ok()
}

/// Something that programs of a test wait for: `read x < PATH` in a shell.
pub struct Gate(tempfile::TempDir);

impl Gate {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let status = Command::new("mkfifo")
            .arg(directory.path().join("gate"))
            .status();
        assert!(status.unwrap().success());
        Self(directory)
    }

    pub fn path(&self) -> String {
        self.0.path().join("gate").display().to_string()
    }

    /// Lets one waiting program go on; waits until it is there.
    pub fn open(&self) {
        std::fs::File::options()
            .write(true)
            .open(self.path())
            .unwrap();
    }

    /// Lets one program go on as soon as it is there.
    pub fn open_later(&self) -> std::thread::JoinHandle<()> {
        let path = self.path();
        std::thread::spawn(move || drop(std::fs::File::options().write(true).open(path).unwrap()))
    }
}

/// Periods until one is as wanted; that one.
pub fn period_until(
    machine: &mut LinuxMachine,
    wanted: impl Fn(&Observation) -> bool,
) -> Observation {
    for _ in 0..600 {
        let (wake, observation) = period(machine);
        if wanted(&observation) {
            return observation;
        }
        assert_eq!(wake, Wake::Period, "{observation:?}");
    }
    panic!("never as wanted");
}

/// One period.
pub fn period(machine: &mut LinuxMachine) -> (Wake, Observation) {
    let wake = machine.wait(Duration::from_millis(100)).unwrap();
    (wake, machine.observe().unwrap())
}

/// Everything until the program ends: the observations and its wait status.
pub fn until_end(machine: &mut LinuxMachine) -> (Vec<Observation>, Option<i32>) {
    let mut seen = Vec::new();
    loop {
        let (wake, observation) = period(machine);
        seen.push(observation);
        match wake {
            Wake::Ended(status) => return (seen, status),
            Wake::Period => assert!(seen.len() < 600, "the program does not end"),
            Wake::Stop(signal) => panic!("signal {signal}"),
        }
    }
}

/// Samples by thread number.
pub fn by_tid(observations: &[Observation]) -> BTreeMap<i32, Vec<&ThreadSample>> {
    let mut threads = BTreeMap::<_, Vec<_>>::new();
    for sample in observations.iter().flat_map(|o| &o.threads) {
        threads.entry(sample.info.id.tid).or_default().push(sample);
    }
    threads
}

/// CPU time in nanoseconds of all children that this process has waited for, and of theirs.
pub fn of_children() -> u64 {
    // SAFETY: a zeroed rusage is valid, and the kernel fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage), 0);
        usage
    };
    let time =
        |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    time(usage.ru_utime) + time(usage.ru_stime)
}
