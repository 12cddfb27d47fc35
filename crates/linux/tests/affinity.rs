//! Masks of real threads.

mod common;

use common::{Gate, alone, machine, period, shell};
use perch_core::{
    Affinity, Machine, MaskChange, MaskError, Observation, Outcome, ProcessId, PuSet, Targets,
    ThreadId,
};
use perch_linux::{affinity::LinuxAffinity, proc::start_of};
use perch_skip::skip;
use std::{
    collections::BTreeSet,
    process::{Child, Command},
};

/// A process that is killed in the end.
struct Sleeper(Child);

impl Sleeper {
    fn new(script: &str, session: &str) -> Self {
        let child = Command::new("sh")
            .args(["-c", script])
            .env(perch_core::machine::SESSION_VARIABLE, session)
            .spawn()
            .unwrap();
        Self(child)
    }

    fn id(&self) -> ThreadId {
        let tid = self.0.id() as i32;
        ThreadId {
            tid,
            start: start_of(tid).unwrap(),
        }
    }

    fn process(&self) -> ProcessId {
        ProcessId {
            pid: self.id().tid,
            start: self.id().start,
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn change(thread: ThreadId, expect: &PuSet, set: &PuSet) -> MaskChange {
    MaskChange {
        thread,
        process: thread.tid,
        expect: expect.clone(),
        set: set.clone(),
        to_default: false,
    }
}

#[test]
fn set_and_restored() {
    let _alone = alone();
    let sleeper = Sleeper::new("sleep 30", "");
    let id = sleeper.id();
    let mut affinity = LinuxAffinity::new();
    let default = affinity.mask(id).unwrap();
    let one = PuSet::single(default.first().unwrap());
    assert_eq!(
        affinity.change(&change(id, &default, &one)),
        Outcome::Applied
    );
    assert_eq!(affinity.mask(id).unwrap(), one);
    // It is found although it is not in that process.
    let back = MaskChange {
        process: 1,
        to_default: true,
        ..change(id, &one, &default)
    };
    assert_eq!(affinity.change(&back), Outcome::Applied);
    assert_eq!(affinity.mask(id).unwrap(), default);
}

#[test]
fn a_mask_that_another_process_set_is_left_alone() {
    let _alone = alone();
    let sleeper = Sleeper::new("sleep 30", "");
    let id = sleeper.id();
    let mut affinity = LinuxAffinity::new();
    let default = affinity.mask(id).unwrap();
    let pus: Vec<PuSet> = default.iter().map(PuSet::single).collect();
    let [first, second, ..] = &pus[..] else {
        return skip!(Pus, "no other mask exists on one PU");
    };
    affinity.change(&change(id, &default, first));
    let status = Command::new("taskset")
        .args(["-pc", &second.to_string(), &id.tid.to_string()])
        .output()
        .unwrap();
    assert!(status.status.success());
    assert_eq!(
        affinity.change(&change(id, first, &default)),
        Outcome::ChangedByOthers
    );
    assert_eq!(affinity.mask(id).unwrap(), *second);
}

#[test]
fn only_what_was_the_whole_of_its_cpu_set_is_made_that_again() {
    let _alone = alone();
    let sleeper = Sleeper::new("sleep 30", "");
    let id = sleeper.id();
    let mut affinity = LinuxAffinity::new();
    let default = affinity.mask(id).unwrap();
    let narrow = PuSet::single(default.last().unwrap());
    assert_eq!(
        affinity.change(&change(id, &default, &narrow)),
        Outcome::Applied
    );
    assert_eq!(affinity.mask(id).unwrap(), narrow);
    // Whatever the CPU set was when it was whole.
    let whole = MaskChange {
        to_default: true,
        ..change(id, &narrow, &narrow)
    };
    assert_eq!(affinity.change(&whole), Outcome::Applied);
    assert_eq!(affinity.mask(id).unwrap(), default);
}

#[test]
fn impossible_changes_are_named() {
    let _alone = alone();
    let sleeper = Sleeper::new("sleep 30", "");
    let id = sleeper.id();
    let mut affinity = LinuxAffinity::new();
    let default = affinity.mask(id).unwrap();
    let nowhere = PuSet::single(4000);
    assert_eq!(
        affinity.change(&change(id, &default, &nowhere)),
        Outcome::NoUsablePu
    );
    // The same number, another thread.
    let stranger = ThreadId {
        start: id.start + 1,
        ..id
    };
    assert_eq!(
        affinity.change(&change(stranger, &default, &default)),
        Outcome::Gone
    );
    assert_eq!(affinity.mask(stranger), Err(MaskError::Gone));
    drop(sleeper);
    assert_eq!(
        affinity.change(&change(id, &default, &default)),
        Outcome::Gone
    );
}

#[test]
fn per_cpu_kernel_threads_are_not_permitted() {
    // Found by its name: the first CPU's stopper, where /proc shows kernel threads at all.
    let stopper = perch_linux::proc::process_numbers()
        .into_iter()
        .find(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|c| c.trim() == "migration/0")
        });
    let Some(tid) = stopper else {
        return skip!(KernelThreads, "there is no migration/0 in /proc");
    };
    let id = ThreadId {
        tid,
        start: start_of(tid).unwrap(),
    };
    let mut affinity = LinuxAffinity::new();
    let mask = affinity.mask(id).unwrap();
    assert_eq!(
        affinity.change(&change(id, &mask, &mask)),
        Outcome::NotPermitted
    );
}

#[test]
fn relatives_are_children_and_marked_processes_wherever_they_went() {
    let _alone = alone();
    let session = format!("descendants-{}", std::process::id());
    // A child, and a daemon that leaves its family.
    let sleeper = Sleeper::new("sleep 30 & (setsid sleep 29 &) ; wait", &session);
    let affinity = LinuxAffinity::new();
    let descendants = |session: &str, processes: &[ProcessId]| {
        affinity
            .descendants(session, processes, &|_| false)
            .unwrap()
    };
    let names = |descendants: &[perch_core::affinity::Descendant]| -> BTreeSet<String> {
        let comm =
            |tid| std::fs::read_to_string(format!("/proc/{tid}/cmdline")).unwrap_or_default();
        descendants
            .iter()
            .map(|r| comm(r.thread.tid).replace('\0', " "))
            .collect()
    };
    let wait_for = |count: usize, session: &str, known: &[ProcessId]| {
        for _ in 0..200 {
            let found = descendants(session, known);
            let ready = names(&found)
                .iter()
                .filter(|n| n.starts_with("sleep"))
                .count();
            if found.len() >= count && ready + 1 >= count {
                return found;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        descendants(session, known)
    };
    let marked = wait_for(3, &session, &[]);
    let seen = names(&marked);
    assert!(
        seen.contains("sleep 30 ") && seen.contains("sleep 29 "),
        "{seen:?}"
    );
    assert!(marked.iter().all(|r| !r.mask.is_empty()));
    // By descent alone the daemon is not known.
    let by_descent = names(&descendants("", &[sleeper.process()]));
    assert!(
        by_descent.contains("sleep 30 ") && !by_descent.contains("sleep 29 "),
        "{by_descent:?}"
    );
    // A stranger that has the number now has no family here.
    let stranger = ProcessId {
        start: sleeper.process().start - 1,
        ..sleeper.process()
    };
    assert!(descendants("", &[stranger]).is_empty());
    for relative in &marked {
        let pid = rustix::process::Pid::from_raw(relative.process.pid).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

#[test]
fn children_of_a_bound_thread_are_seen_with_its_mask() {
    let _alone = alone();
    let mut machine = machine();
    let (first, second) = (Gate::new(), Gate::new());
    let script = format!(
        "read x < {}; (read x < {}) & wait",
        first.path(),
        second.path()
    );
    let pid = machine.launch(&shell(&script)).unwrap();
    let (_, bound) = period(&mut machine);
    let default = machine.default_mask();
    let one = PuSet::single(machine.topology().usable().last().unwrap());
    assert_eq!(bound.threads.len(), 1);
    let outcome = machine
        .affinity()
        .change(&change(bound.threads[0].info.id, &default, &one));
    assert_eq!(outcome, Outcome::Applied);
    first.open();
    let born = |o: &Observation| o.threads.iter().find(|s| s.info.pid != pid).cloned();
    let seen = common::period_until(&mut machine, |o| born(o).is_some());
    assert_eq!(born(&seen).unwrap().mask, Some(one));
    second.open();
    common::until_end(&mut machine);
}
