//! The threads of the operating system: placed if the policy asks for them, restored when it no longer does, replayed.

use crate::common;
use crate::common::{
    Scripted, bind, bindings, kernel, live, masks, options, recorded, replay, set, steps,
};
use perch_core::{Machine, Plan, Policy, Snapshot};
use perch_engine::{Acting, Cause, Command, Session};
use std::time::Duration;

/// Binds the operating system's threads to PU 0 and all others to PU 1.
struct Apart;

impl Policy for Apart {
    fn name(&self) -> &'static str {
        "test"
    }

    fn wants_system(&self) -> bool {
        true
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        let place = |thread: &perch_core::ThreadState| {
            let pu = if thread.info.work.is_program() {
                "1"
            } else {
                "0"
            };
            bind(thread.info.id, pu)
        };
        bindings(snapshot.threads.iter().map(place).collect())
    }
}

fn tick(session: &mut Session<Scripted>) -> usize {
    session.obey();
    session.machine().wait(Duration::from_secs(1)).unwrap();
    let observation = session.machine().observe().unwrap();
    session.step(observation, false).snapshot.threads.len()
}

#[test]
fn the_operating_system_s_threads_have_their_masks_back_when_no_policy_asks_for_them() {
    let (kernel, all) = kernel(2);
    let (program, daemon) = {
        let mut kernel = kernel.write().unwrap();
        let program = kernel.spawn(None, &all, 0.5);
        (program, kernel.spawn_in(1, None, &all, 0.5))
    };
    let (dir, acting) = live();
    let machine = Scripted::new(&kernel, 2, steps(10));
    let mut session = Session::new(machine, options(Apart, acting)).unwrap();
    session.set_clock(common::now);
    session.begin();
    let now = || {
        (
            masks(&kernel)[&program].clone(),
            masks(&kernel)[&daemon].clone(),
        )
    };
    let journals = || std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(tick(&mut session), 2);
    assert_eq!((now(), journals()), ((set("1"), set("0")), 2));
    // The next policy does not look at them at all.
    let other = common::Decide(|snapshot: &Snapshot| {
        bindings(
            snapshot
                .threads
                .iter()
                .map(|of| bind(of.info.id, "2"))
                .collect(),
        )
    });
    let handle = session.handle();
    handle.send(Command::SetPolicy(Box::new(other))).unwrap();
    assert_eq!(tick(&mut session), 1, "not followed any more");
    assert_eq!(
        (now(), journals()),
        ((set("2"), all.clone()), 1),
        "restored at once"
    );
    // And again.
    handle.send(Command::SetPolicy(Box::new(Apart))).unwrap();
    assert_eq!(tick(&mut session), 2);
    assert_eq!(now(), (set("1"), set("0")));
    session.finish(Ok(Cause::Commanded)).unwrap();
    assert_eq!((now(), journals()), ((all.clone(), all), 0));
}

/// A dry run tells what it would do, however short the program is.
#[test]
fn a_dry_run_decides_once_at_least() {
    let (kernel, all) = kernel(2);
    kernel.write().unwrap().spawn(None, &all, 0.5);
    kernel.write().unwrap().spawn_in(1, None, &all, 0.5);
    let machine = Scripted::new(&kernel, 2, steps(10));
    let mut session = Session::new(machine, options(Apart, Acting::DryRun(None))).unwrap();
    session.begin();
    let mut last = || {
        session.machine().wait(Duration::from_millis(1)).unwrap();
        let observation = session.machine().observe().unwrap();
        session.step(observation, true).moves.len()
    };
    assert_eq!((last(), last()), (2, 0));
    assert!(masks(&kernel).values().all(|mask| *mask == all));
}

#[test]
fn a_system_that_keeps_starting_processes_is_not_looked_at_again_and_again() {
    let (kernel, all) = kernel(2);
    let daemon = {
        let mut kernel = kernel.write().unwrap();
        kernel.spawn(None, &all, 0.5);
        kernel.spawn_in(1, None, &all, 0.5)
    };
    let (dir, acting) = live();
    let mut machine = Scripted::new(&kernel, 2, steps(10));
    // Whenever perch asks which processes there are, it has started another one.
    machine.forks = Some(daemon);
    let mut session = Session::new(machine, options(Apart, acting)).unwrap();
    session.set_clock(common::now);
    session.begin();
    tick(&mut session);
    assert_eq!(masks(&kernel)[&daemon], set("0"));
    let before = kernel.read().unwrap().tasks.len();
    session.finish(Ok(Cause::Commanded)).unwrap();
    let asked = kernel.read().unwrap().tasks.len() - before;
    assert!(asked <= 3, "asked {asked} times");
    assert!(masks(&kernel).values().all(|mask| *mask == all));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_recording_of_them_replays() {
    let (kernel, all) = kernel(2);
    kernel.write().unwrap().spawn(None, &all, 0.5);
    kernel.write().unwrap().spawn_in(1, None, &all, 0.5);
    let machine = Scripted::new(&kernel, 2, steps(4));
    let mut session = Session::new(machine, options(Apart, Acting::DryRun(None))).unwrap();
    session.set_clock(common::now);
    let (recording, first) = recorded(&mut session);
    assert!(first.moves.concat().len() == 2, "{:?}", first.moves);
    let (_, again) = replay(&recording, Apart);
    assert_eq!(first.plans, again.plans);
    assert_eq!(first.moves, again.moves);
}
