//! A session as a service drives it: commands, policies off the observing path, short intervals, subscribers.

use crate::common;
use crate::common::{
    Decide, Op, Scripted, bind, bindings, kernel, live, masks, options, set, steps,
};
use perch_core::{
    Machine, Observation, Outcome, Plan, Policy, PuSet, Reason, Snapshot, ThreadId, Unmanaged,
};
use perch_engine::{
    Acting, Cause, Command, CommandError, Deciding, Options, Period, Published, Session,
};
use std::{
    sync::{
        Arc, Barrier, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);

/// One observation, and what the session makes of it.
fn tick(session: &mut Session<Scripted>) -> Arc<Period> {
    session.machine().wait(SECOND).unwrap();
    let observation = session.machine().observe().unwrap();
    session.step(observation, false)
}

/// Binds every thread to one PU.
fn all_to(pu: u32) -> impl FnMut(&Snapshot) -> Plan + Send {
    move |snapshot| {
        let free = snapshot
            .threads
            .iter()
            .filter(|thread| thread.unmanaged.is_none());
        bindings(
            free.map(|thread| bind(thread.info.id, &pu.to_string()))
                .collect(),
        )
    }
}

#[test]
fn commands_are_carried_out_in_order_between_two_observations() {
    let (kernel, all) = kernel(2);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let machine = Scripted::new(&kernel, 2, steps(10));
    let mut session = Session::new(machine, options(Decide(all_to(1)), acting)).unwrap();
    session.set_clock(common::now);
    let handle = session.handle();
    let mask = || masks(&kernel)[&thread].clone();
    session.begin();
    tick(&mut session);
    assert_eq!(mask(), set("1"));

    let paused = handle.send(Command::Pause).unwrap();
    let other = handle.send(Command::SetPolicy(Box::new(Decide(all_to(2)))));
    assert_eq!(session.obey(), None);
    paused.wait().unwrap();
    other.unwrap().wait().unwrap();
    let period = tick(&mut session);
    assert!(period.decision.is_none() && period.moves.is_empty());
    assert_eq!(mask(), set("1"), "what is bound stays bound");

    let resumed = handle.send(Command::Resume).unwrap();
    session.obey();
    resumed.wait().unwrap();
    let period = tick(&mut session);
    assert_eq!(mask(), set("2"));
    let decision = period.decision.as_ref().unwrap();
    let counted = (decision.basis.period, decision.asked_in);
    assert_eq!(counted, (1, 2), "policies count how often they are asked");

    let stop = handle.send(Command::Stop).unwrap();
    assert_eq!(session.obey(), Some(Cause::Commanded));
    stop.wait().unwrap();
    let end = session.finish(Ok(Cause::Commanded)).unwrap();
    assert_eq!((end.restored.masks.restored, mask()), (1, all));
    drop(session);
    assert!(matches!(
        handle.send(Command::Pause),
        Err(CommandError::Ended)
    ));
}

#[test]
fn what_is_detached_has_its_masks_back_and_the_others_stay() {
    let (kernel, all) = kernel(2);
    let (stays, goes) = {
        let mut kernel = kernel.write().unwrap();
        let stays = kernel.spawn(None, &all, 0.5);
        (stays, kernel.spawn_in(1, None, &all, 0.5))
    };
    let (dir, acting) = live();
    let machine = Scripted::new(&kernel, 2, steps(10));
    let mut session = Session::new(machine, options(Decide(all_to(1)), acting)).unwrap();
    session.set_clock(common::now);
    let handle = session.handle();
    for thread in [stays, goes] {
        handle.send(Command::Attach(thread.tid)).unwrap();
    }
    session.obey();
    session.begin();
    tick(&mut session);
    let journals = || std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(journals(), 2, "a journal a target");

    let unknown = handle.send(Command::Detach(goes.tid + 1000)).unwrap();
    let detached = handle.send(Command::Detach(goes.tid)).unwrap();
    session.obey();
    assert!(matches!(unknown.wait(), Err(CommandError::Machine(_))));
    detached.wait().unwrap();
    assert_eq!(masks(&kernel)[&goes], all);
    assert_eq!(masks(&kernel)[&stays], set("1"));
    assert_eq!(journals(), 1);
    let period = tick(&mut session);
    assert!(period.snapshot.thread(goes).is_none());
    assert!(period.snapshot.thread(stays).is_some());

    // Attached again, it is placed again.
    let again = handle.send(Command::Attach(goes.tid)).unwrap();
    session.obey();
    again.wait().unwrap();
    tick(&mut session);
    assert_eq!(masks(&kernel)[&goes], set("1"));
    session.finish(Ok(Cause::Commanded)).unwrap();
    assert_eq!(masks(&kernel)[&goes], all);
    assert_eq!(journals(), 0);
}

/// In a session that drives itself, a command may come while it waits for the end of a period.
#[test]
fn what_is_detached_while_the_session_waits_is_not_bound_again() {
    let (kernel, all) = kernel(2);
    let goes = {
        let mut kernel = kernel.write().unwrap();
        kernel.spawn(None, &all, 0.5);
        kernel.spawn_in(1, None, &all, 0.5)
    };
    let (_dir, acting) = live();
    let handle = Arc::new(Mutex::new(None::<perch_engine::Handle>));
    let (detach, look) = (Arc::clone(&handle), Arc::clone(&kernel));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let mut bind = all_to(1);
    let policy = move |snapshot: &Snapshot| {
        sees.lock().unwrap().push(masks(&look)[&goes].clone());
        if snapshot.period == 1 {
            let handle = detach.lock().unwrap();
            handle
                .as_ref()
                .unwrap()
                .send(Command::Detach(goes.tid))
                .unwrap();
        }
        bind(snapshot)
    };
    let mut machine = Scripted::new(&kernel, 2, steps(6));
    // As on Linux, where they are read only if something has changed.
    machine.masks_until = 1;
    let mut session = Session::new(machine, options(Decide(policy), acting)).unwrap();
    session.set_clock(common::now);
    *handle.lock().unwrap() = Some(session.handle());
    session.attach(goes.tid).unwrap();
    session.run(&mut ()).unwrap();
    let (bound, all) = (set("1"), all);
    assert_eq!(
        seen.lock().unwrap()[..5],
        [all.clone(), bound, all.clone(), all.clone(), all]
    );
}

/// A session to which others attach for weeks keeps nothing of those that have ended.
#[test]
fn a_target_that_ends_by_itself_leaves_no_journal() {
    let (kernel, all) = kernel(2);
    let (stays, goes) = {
        let mut kernel = kernel.write().unwrap();
        let stays = kernel.spawn(None, &all, 0.5);
        (stays, kernel.spawn_in(1, None, &all, 0.5))
    };
    let (dir, acting) = live();
    let mut machine = Scripted::new(&kernel, 2, steps(20));
    machine.has_clock = false;
    let mut session = Session::new(machine, options(Decide(all_to(1)), acting)).unwrap();
    session.set_clock(common::now);
    for thread in [stays, goes] {
        session.attach(thread.tid).unwrap();
    }
    session.begin();
    tick(&mut session);
    let journals = || std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(journals(), 2, "a journal a target");
    let child = kernel.write().unwrap().fork(goes, true).unwrap();
    kernel.write().unwrap().end(goes);
    for _ in 0..6 {
        tick(&mut session);
    }
    assert_eq!(journals(), 2, "a process of it lives");
    assert_eq!(masks(&kernel)[&child], set("1"));
    kernel.write().unwrap().end(child);
    for _ in 0..6 {
        tick(&mut session);
    }
    assert_eq!(journals(), 1);
    assert!(session.machine().detached.contains(&1));
    assert_eq!(masks(&kernel)[&stays], set("1"));
    let end = session.finish(Ok(Cause::Commanded)).unwrap();
    assert_eq!((end.restored.masks.restored, journals()), (1, 0));
}

/// Of a machine that cannot observe what another policy needs.
#[test]
fn a_policy_that_the_machine_cannot_serve_changes_nothing() {
    struct Wants;
    impl Policy for Wants {
        fn name(&self) -> &'static str {
            "wants"
        }

        fn wants_irqs(&self) -> bool {
            true
        }

        fn wants_pu_loads(&self) -> bool {
            true
        }

        fn decide(&mut self, _: &Snapshot) -> Plan {
            Plan::default()
        }
    }
    let (kernel, all) = kernel(2);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let machine = Scripted::new(&kernel, 2, steps(10));
    let mut session = Session::new(machine, options(Decide(all_to(1)), acting)).unwrap();
    session.set_clock(common::now);
    session.begin();
    let answer = session
        .handle()
        .send(Command::SetPolicy(Box::new(Wants)))
        .unwrap();
    session.obey();
    assert!(matches!(answer.wait(), Err(CommandError::Machine(_))));
    assert!(!session.machine().watches_pus, "as before");
    tick(&mut session);
    assert_eq!(masks(&kernel)[&thread], set("1"));
    session.finish(Ok(Cause::Commanded)).unwrap();
}

#[test]
fn a_number_that_another_process_had_means_the_one_that_has_it_now() {
    let (kernel, all) = kernel(2);
    let first = kernel.write().unwrap().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let machine = Scripted::new(&kernel, 2, steps(10));
    let mut session = Session::new(machine, options(Decide(all_to(1)), acting)).unwrap();
    session.set_clock(common::now);
    let handle = session.handle();
    let pid = first.tid;
    handle.send(Command::Attach(pid)).unwrap();
    session.obey();
    session.begin();
    tick(&mut session);
    kernel.write().unwrap().end(first);
    tick(&mut session);

    let heir = kernel.write().unwrap().spawn_in(1, Some(pid), &all, 0.5);
    let attached = handle.send(Command::Attach(pid)).unwrap();
    session.obey();
    attached.wait().unwrap();
    tick(&mut session);
    assert_eq!(masks(&kernel)[&heir], set("1"));

    let detached = handle.send(Command::Detach(pid)).unwrap();
    session.obey();
    detached.wait().unwrap();
    assert_eq!(masks(&kernel)[&heir], all);
    let period = tick(&mut session);
    assert!(period.snapshot.thread(heir).is_none());
    session.finish(Ok(Cause::Commanded)).unwrap();
}

/// A policy that decides when it is told to.
struct Slow {
    begun: Sender<()>,
    go: Receiver<Plan>,
}

impl Policy for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn decide(&mut self, _: &Snapshot) -> Plan {
        self.begun.send(()).unwrap();
        self.go.recv().unwrap()
    }
}

#[test]
fn a_late_answer_is_checked_against_the_present() {
    let (kernel, all) = kernel(2);
    let threads: Vec<ThreadId> = {
        let mut kernel = kernel.write().unwrap();
        (0..3).map(|_| kernel.spawn(None, &all, 0.5)).collect()
    };
    let (_dir, acting) = live();
    let (begun, has_begun) = channel();
    let (decide, go) = channel();
    let options = Options {
        deciding: Deciding::Apart(Duration::ZERO),
        ..options(Slow { begun, go }, acting)
    };
    let mut session = Session::new(Scripted::new(&kernel, 2, steps(20)), options).unwrap();
    session.set_clock(common::now);
    session.begin();
    let asked = tick(&mut session);
    assert!(asked.decision.is_none(), "no thread waits for it");
    has_begun.recv().unwrap();

    // Meanwhile one thread ends, another is placed by its user.
    {
        let mut kernel = kernel.write().unwrap();
        kernel.end(threads[0]);
        kernel.taskset(threads[1], &set("3"));
    }
    let busy = tick(&mut session);
    assert!(
        busy.remarks
            .iter()
            .any(|remark| remark.text.contains("--period")),
        "{:?}",
        busy.remarks
    );
    let to = |thread| bind(thread, "0");
    decide
        .send(bindings(threads.iter().map(|id| to(*id)).collect()))
        .unwrap();
    // The answer comes when the policy's thread has run.
    let period = loop {
        let period = tick(&mut session);
        if period.decision.is_some() {
            break period;
        }
        std::thread::sleep(Duration::from_millis(1));
        session.machine().at = 3;
    };
    let decision = period.decision.as_ref().unwrap();
    assert_eq!(decision.basis.period, asked.snapshot.period);
    let moved: Vec<_> = period
        .moves
        .iter()
        .map(|made| (made.thread, made.outcome))
        .collect();
    assert_eq!(moved, [(threads[2], Outcome::Applied)]);
    assert!(
        !period
            .remarks
            .iter()
            .any(|remark| remark.text.contains("bug")),
        "{:?}",
        period.remarks
    );
    assert_eq!(masks(&kernel)[&threads[1]], set("3"));
    assert_eq!(
        period.snapshot.thread(threads[1]).unwrap().unmanaged,
        Some(Unmanaged::PlacedBefore)
    );
    drop(decide);
    // The policy panics now, since it has no script left; masks are restored all the same.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        for _ in 0..10_000 {
            tick(&mut session);
            std::thread::sleep(Duration::from_millis(1));
            session.machine().at = 3;
        }
    }));
    assert!(panicked.is_err());
    assert_eq!(masks(&kernel)[&threads[2]], all);
}

/// Policies count how often they are asked; what is known of a thread is the same, however long they took.
#[test]
fn after_a_late_answer_the_count_goes_on_and_what_is_known_is_of_now() {
    let (kernel, all) = kernel(2);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    let (begun, has_begun) = channel();
    let (decide, go) = channel();
    let options = Options {
        deciding: Deciding::Apart(Duration::ZERO),
        ..options(Slow { begun, go }, Acting::DryRun(None))
    };
    let mut machine = Scripted::new(&kernel, 2, steps(1_000));
    (machine.has_clock, machine.silent_from) = (false, 1);
    let mut session = Session::new(machine, options).unwrap();
    session.begin();
    let mut decided = Vec::new();
    let mut number = 0;
    // The policy is late by three periods each time.
    for turn in 0..4 {
        let asked = loop {
            let period = tick(&mut session);
            number += 1;
            if has_begun.try_recv().is_ok() {
                break period;
            }
            std::thread::yield_now();
        };
        assert_eq!(asked.snapshot.period + 1, number, "{turn}");
        for _ in 0..3 {
            tick(&mut session);
            number += 1;
        }
        decide.send(Plan::default()).unwrap();
        let answered = loop {
            let period = tick(&mut session);
            number += 1;
            if period.decision.is_some() {
                break period;
            }
            std::thread::yield_now();
        };
        let decision = answered.decision.clone().unwrap();
        assert!(decision.asked_in <= asked.snapshot.period);
        decided.push(decision);
        // The answer was taken in, and the policy asked again.
        session.machine().at = 1;
    }
    let counted: Vec<u64> = decided.iter().map(|it| it.basis.period).collect();
    assert_eq!(counted, [0, 1, 2, 3]);
    for decision in &decided {
        let known = |snapshot: &Snapshot| {
            let fp = snapshot.thread(thread)?.metrics.get("fp_share").copied();
            fp.map(|metric| metric.confidence)
        };
        // One value came in the first second; it fades with each.
        let expected = 0.8f64.powi(decision.asked_in as i32);
        let confidence = known(&decision.basis).unwrap_or(0.0);
        let expected = if expected < 0.045 { 0.0 } else { expected };
        assert!((confidence - expected).abs() < 1e-9, "{decision:?}");
    }
    drop(decide);
}

#[test]
fn a_quick_policy_off_the_path_decides_in_the_same_period() {
    let (kernel, all) = kernel(2);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let options = Options {
        deciding: Deciding::Apart(Duration::from_secs(60)),
        ..options(Decide(all_to(1)), acting)
    };
    let mut session = Session::new(Scripted::new(&kernel, 2, steps(3)), options).unwrap();
    session.set_clock(common::now);
    session.begin();
    let period = tick(&mut session);
    assert_eq!(period.moves.len(), 1);
    assert_eq!(masks(&kernel)[&thread], set("1"));
}

/// Observes ten times as often as it decides.
#[test]
fn a_policy_sees_all_observations_since_it_was_asked_last() {
    let (kernel, all) = kernel(2);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&seen);
    let policy = move |snapshot: &Snapshot| {
        asked.lock().unwrap().push(snapshot.clone());
        Plan::default()
    };
    let options = Options {
        period: Some(10 * SECOND),
        interval: Some(SECOND),
        ..options(Decide(policy), Acting::DryRun(None))
    };
    let mut machine = Scripted::new(&kernel, 2, steps(35));
    // A second an observation.
    machine.has_clock = false;
    let mut session = Session::new(machine, options).unwrap();
    session.begin();
    let periods: Vec<Arc<Period>> = (0..35).map(|_| tick(&mut session)).collect();
    let decided = periods.iter().filter(|period| period.decision.is_some());
    assert_eq!(decided.count(), 3);
    let seen = seen.lock().unwrap();
    let lengths: Vec<u64> = seen.iter().map(|snapshot| snapshot.interval).collect();
    assert_eq!(lengths, [10_000_000_000; 3]);
    for snapshot in seen.iter() {
        let state = snapshot.thread(thread).unwrap();
        let single = periods[5].snapshot.thread(thread).unwrap();
        assert!((state.activity - single.activity).abs() < 1e-9);
    }
    assert!(periods.iter().all(|p| p.snapshot.interval == 1_000_000_000));
}

/// A thread that says nothing more is forgotten by time, not by the number of observations.
#[test]
fn what_is_known_fades_with_time() {
    let fades = |interval: Duration| {
        let (kernel, all) = kernel(1);
        let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
        let mut machine = Scripted::new(&kernel, 1, steps(200));
        machine.has_clock = false;
        machine.silent_from = 1;
        let idle = Decide(|_: &Snapshot| Plan::default());
        let mut session = Session::new(machine, options(idle, Acting::DryRun(None))).unwrap();
        session.begin();
        let nanoseconds = interval.as_nanos() as u64;
        let mut seconds = 0.0;
        loop {
            session.machine().wait(SECOND).unwrap();
            let mut observation = session.machine().observe().unwrap();
            observation.interval = nanoseconds;
            let period = session.step(observation, false);
            let state = period.snapshot.thread(thread).unwrap();
            if state.metrics.is_empty() {
                return seconds;
            }
            seconds += interval.as_secs_f64();
        }
    };
    let (long, short) = (fades(SECOND), fades(SECOND / 10));
    assert!((long - short).abs() <= 1.0 && long > 10.0, "{long} {short}");
}

#[test]
fn a_subscriber_that_does_not_keep_up_is_told_what_it_missed() {
    let (kernel, all) = kernel(1);
    kernel.write().unwrap().spawn(None, &all, 0.5);
    let machine = Scripted::new(&kernel, 1, steps(8));
    let idle = Decide(|_: &Snapshot| Plan::default());
    let mut session = Session::new(machine, options(idle, Acting::DryRun(None))).unwrap();
    let (early, gone) = (session.subscribe(3), session.subscribe(3));
    drop(gone);
    session.begin();
    for _ in 0..5 {
        tick(&mut session);
    }
    let late = session.subscribe(100);
    let numbers = |from: &Receiver<Published>| {
        let told = from.try_iter().filter_map(|message| match message {
            Published::Period { period, missed } => Some((period.snapshot.period, missed)),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(numbers(&early), [(0, 0), (1, 0)]);
    tick(&mut session);
    session.finish(Ok(Cause::Commanded)).unwrap();
    assert_eq!(numbers(&early), [(5, 3)]);
    let told: Vec<Published> = late.iter().collect();
    assert!(
        matches!(
            told[..],
            [
                Published::Start(_),
                Published::Period { missed: 0, .. },
                Published::End(_)
            ]
        ),
        "{told:?}"
    );
}

/// Sessions may be moved to other threads.
#[test]
fn a_session_runs_on_another_thread_and_is_stopped_from_here() {
    let (kernel, all) = kernel(1);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let met = Arc::new(Barrier::new(2));
    let meet = Arc::clone(&met);
    let mut first = true;
    let policy = move |snapshot: &Snapshot| {
        if std::mem::take(&mut first) {
            meet.wait();
        }
        let bind = |id: ThreadId| perch_core::Binding {
            thread: id,
            pus: PuSet::single(0),
            reason: Reason::new("a test"),
        };
        bindings(snapshot.threads.iter().map(|t| bind(t.info.id)).collect())
    };
    let machine = Scripted::new(&kernel, 1, steps(1_000_000));
    let mut session = Session::new(machine, options(Decide(policy), acting)).unwrap();
    session.set_clock(common::now);
    let handle = session.handle();
    let runs = std::thread::spawn(move || session.run(&mut ()).unwrap());
    met.wait();
    handle.send(Command::Stop).unwrap().wait().unwrap();
    let end = runs.join().unwrap();
    assert_eq!(end.cause, Cause::Commanded);
    assert!(end.periods < 1_000_000);
    assert_eq!(masks(&kernel)[&thread], all);
}

/// All that a session asked the machine for is in the observation that it publishes.
#[test]
fn an_observation_holds_what_was_decided_from() {
    let (kernel, all) = kernel(2);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let mut steps = steps(6);
    // Another process sets the mask between perch's look and its deed.
    steps[1].race = vec![Op::Taskset {
        of: 0,
        mask: set("3"),
    }];
    let mut turn = 0;
    let policy = move |snapshot: &Snapshot| {
        turn += 1;
        all_to(turn % 2)(snapshot)
    };
    let machine = Scripted::new(&kernel, 2, steps);
    let mut session = Session::new(machine, options(Decide(policy), acting)).unwrap();
    session.set_clock(common::now);
    session.begin();
    let periods: Vec<Arc<Period>> = (0..4)
        .map(|_| {
            session.machine().wait(SECOND).unwrap();
            let mut observation: Observation = session.machine().observe().unwrap();
            // A machine that reads masks once only.
            for sample in &mut observation.threads {
                sample.mask = sample.mask.take().filter(|_| observation.at == 0);
            }
            session.step(observation, false)
        })
        .collect();
    let late: Vec<&[(ThreadId, PuSet)]> = periods
        .iter()
        .map(|period| &period.observation.read_late[..])
        .collect();
    assert_eq!(late[0], [(thread, all.clone())], "it was never read");
    assert_eq!(periods[1].moves[0].outcome, Outcome::ChangedByOthers);
    assert_eq!(late[1], []);
    assert_eq!(late[2], [(thread, set("3"))]);
    assert!(
        periods[2]
            .observation
            .allowed
            .contains(&(thread, all.clone())),
        "{:?}",
        periods[2].observation.allowed
    );
    assert!(periods[0].moves[0].span.is_some());
}
