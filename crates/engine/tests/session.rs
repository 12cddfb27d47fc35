//! The loop on a machine in memory.

use crate::common;
use crate::common::{
    Decide, Op, Scripted, bind, bindings, kernel, live, masks, now, options, run, session, set,
    steps,
};
use perch_core::{
    MetricSource, Outcome, Plan, PuSet, Snapshot, ThreadId, UnitClass, Unmanaged, metric::names,
};
use perch_engine::{Acting, Journal, Period, Session, SessionSink};
use std::sync::{Arc, RwLock};

fn threshold(snapshot: &Snapshot) -> Option<f64> {
    snapshot.thresholds.of(names::FP_SHARE)
}

#[test]
fn a_plan_that_stays_the_same_writes_nothing() {
    let (kernel, all) = kernel(4);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    let (dir, acting) = live();
    let watched = dir.path().to_owned();
    let writes = Arc::new(RwLock::new(Vec::new()));
    let seen_writes = Arc::clone(&writes);
    let changes = Arc::clone(&kernel);
    let policy = move |_: &Snapshot| {
        let journal = std::fs::read_dir(&watched).unwrap().next();
        let length = journal.map(|entry| entry.unwrap().metadata().unwrap().len());
        seen_writes
            .write()
            .unwrap()
            .push((length, changes.read().unwrap().killer.changes));
        bindings(vec![bind(thread, "3")])
    };
    let (seen, end) = run(&mut session(&kernel, steps(5), policy, acting, false));
    let writes = writes.read().unwrap();
    assert_eq!(writes[0], (None, 0));
    assert!(writes[1].0.is_some());
    assert!(
        writes[1..].iter().all(|write| *write == writes[1]),
        "{writes:?}"
    );
    assert_eq!(writes[1].1, 1);
    let moves: Vec<usize> = seen.moves.iter().map(Vec::len).collect();
    assert_eq!(moves, [1, 0, 0, 0, 0, 0]);
    assert_eq!(
        seen.snapshots[1].last_outcomes,
        [(thread, Outcome::Applied)]
    );
    assert_eq!(seen.snapshots[1].threads[0].bound, Some(set("3")));
    assert_eq!(end.restored.masks.restored, 1);
    assert_eq!(masks(&kernel)[&thread], all);
}

#[test]
fn a_policy_that_binds_nothing_makes_no_journal() {
    let (kernel, all) = kernel(2);
    kernel.write().unwrap().spawn(None, &all, 0.5);
    kernel.write().unwrap().spawn(None, &set("1"), 0.5);
    let (dir, acting) = live();
    let watched = dir.path().to_owned();
    let policy = move |_: &Snapshot| {
        assert_eq!(std::fs::read_dir(&watched).unwrap().count(), 0);
        Plan::default()
    };
    run(&mut session(&kernel, steps(3), policy, acting, false));
    assert_eq!(kernel.read().unwrap().killer.changes, 0);
}

#[test]
fn invalid_bindings_are_dropped_and_named() {
    let (kernel, all) = kernel(2);
    let good = kernel.write().unwrap().spawn(None, &all, 0.5);
    let other = kernel.write().unwrap().spawn(None, &all, 0.5);
    let placed = kernel.write().unwrap().spawn(None, &set("1,2"), 0.5);
    let unknown = ThreadId { tid: 1, start: 1 };
    let (_dir, acting) = live();
    let policy = move |_: &Snapshot| {
        bindings(vec![
            bind(good, "2"),
            bind(good, "3"),
            bind(other, ""),
            bind(other, "0,17"),
            bind(placed, "1"),
            bind(unknown, "1"),
        ])
    };
    let (seen, _) = run(&mut session(&kernel, steps(3), policy, acting, false));
    assert_eq!(
        kernel.read().unwrap().killer.changes,
        2,
        "one to bind, one to restore"
    );
    assert_eq!(seen.plans[0].as_ref().unwrap().bindings, [bind(good, "2")]);
    insta::assert_snapshot!(seen.remarks.join("\n"), @r"
    a bug in policy test: it bound a thread twice; the binding was not made
    a bug in policy test: it bound a thread to no PU; the binding was not made
    a bug in policy test: it bound a thread to a PU that is not allowed; the binding was not made
    a bug in policy test: it bound a thread that must be left alone; the binding was not made
    a bug in policy test: it bound a thread that is not there; the binding was not made
    ");
}

#[test]
fn threads_that_others_placed_are_left_alone_unless_taken_over() {
    for take_over in [false, true] {
        let (kernel, all) = kernel(2);
        let placed = kernel.write().unwrap().spawn(None, &set("1,2"), 0.5);
        kernel.write().unwrap().spawn(None, &all, 0.5);
        let (_dir, acting) = live();
        let policy = move |snapshot: &Snapshot| {
            let thread = snapshot.thread(placed).unwrap();
            match thread.unmanaged {
                Some(_) => Plan::default(),
                None => bindings(vec![bind(placed, "2")]),
            }
        };
        let (seen, _) = run(&mut session(&kernel, steps(3), policy, acting, take_over));
        let thread = seen.snapshots[1].thread(placed).unwrap();
        if take_over {
            assert_eq!(thread.bound, Some(set("2")));
            assert_eq!(thread.allowed, set("1,2"));
        } else {
            assert_eq!(thread.unmanaged, Some(Unmanaged::PlacedBefore));
        }
        assert_eq!(masks(&kernel)[&placed], set("1,2"));
    }
}

#[test]
fn a_mask_that_others_change_is_theirs_for_good() {
    let (kernel, all) = kernel(4);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let policy = move |snapshot: &Snapshot| match snapshot.threads[0].unmanaged {
        Some(_) => Plan::default(),
        None => bindings(vec![bind(thread, "3")]),
    };
    let mut script = steps(4);
    script[1].before.push(Op::Taskset {
        of: 0,
        mask: set("0,2"),
    });
    let (seen, _) = run(&mut session(&kernel, script, policy, acting, false));
    let unmanaged: Vec<_> = seen
        .snapshots
        .iter()
        .map(|s| s.threads[0].unmanaged)
        .collect();
    assert_eq!(unmanaged[0], None);
    assert!(
        unmanaged[1..]
            .iter()
            .all(|h| *h == Some(Unmanaged::ChangedByOthers))
    );
    assert_eq!(masks(&kernel)[&thread], set("0,2"));
}

#[test]
fn a_change_between_look_and_deed_is_noticed() {
    let (kernel, all) = kernel(4);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let policy = move |snapshot: &Snapshot| match snapshot.threads[0].unmanaged {
        Some(_) => Plan::default(),
        None => bindings(vec![bind(thread, "3")]),
    };
    let mut script = steps(3);
    script[0].race.push(Op::Taskset {
        of: 0,
        mask: set("0,2"),
    });
    let (seen, _) = run(&mut session(&kernel, script, policy, acting, false));
    assert_eq!(seen.moves[0][0].outcome, Outcome::ChangedByOthers);
    assert!(seen.snapshots[1].threads[0].unmanaged.is_some());
    assert_eq!(masks(&kernel)[&thread], set("0,2"));
}

#[test]
fn children_of_bound_threads_are_perchs_own() {
    let (kernel, all) = kernel(4);
    let parent = kernel.write().unwrap().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let policy = move |_: &Snapshot| bindings(vec![bind(parent, "3")]);
    let mut script = steps(4);
    script[1].before.push(Op::Fork {
        of: 0,
        own_process: true,
    });
    let (seen, _) = run(&mut session(&kernel, script, policy, acting, false));
    let child = &seen.snapshots[1].threads[1];
    assert_eq!(
        (child.bound.clone(), child.unmanaged),
        (Some(set("3")), None)
    );
    assert_eq!(child.allowed, all);
    // It was not in the plan: it is released.
    assert_eq!(seen.moves[1][0].thread, child.info.id);
    assert_eq!(seen.snapshots[2].threads[1].bound, None);
}

#[test]
fn a_mask_that_a_foreign_thread_has_too_proves_nothing() {
    let (kernel, all) = kernel(4);
    let ours = kernel.write().unwrap().spawn(None, &all, 0.5);
    let theirs = kernel.write().unwrap().spawn(None, &set("3"), 0.5);
    let (_dir, acting) = live();
    let policy = move |_: &Snapshot| bindings(vec![bind(ours, "3")]);
    let mut script = steps(3);
    script[1].before.push(Op::Fork {
        of: 1,
        own_process: true,
    });
    let (seen, _) = run(&mut session(&kernel, script, policy, acting, false));
    let child = &seen.snapshots[1].threads[2];
    assert_eq!(child.unmanaged, Some(Unmanaged::PlacedBefore));
    assert_eq!(masks(&kernel)[&theirs], set("3"));
    assert_eq!(masks(&kernel)[&child.info.id], set("3"));
}

#[test]
fn a_dry_run_changes_nothing_but_follows_the_plan() {
    let (kernel, all) = kernel(1);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    let placed = kernel.write().unwrap().spawn(None, &set("1"), 0.5);
    let what_if = Arc::new(common::topology(4, &set("0-7")));
    let policy = move |snapshot: &Snapshot| {
        assert!(
            snapshot
                .threads
                .iter()
                .all(|thread| thread.allowed == set("0-7"))
        );
        bindings(vec![bind(thread, "6"), bind(placed, "7")])
    };
    let mut session = session(
        &kernel,
        steps(3),
        policy,
        Acting::DryRun(Some(what_if)),
        false,
    );
    assert_eq!(session.mark(), None);
    let (seen, _) = run(&mut session);
    assert_eq!(kernel.read().unwrap().killer.changes, 0);
    assert_eq!(
        seen.moves.iter().map(Vec::len).collect::<Vec<_>>(),
        [2, 0, 0, 0]
    );
    assert_eq!(seen.moves[0][0].outcome, Outcome::NotApplied);
    assert_eq!(
        seen.snapshots[1].thread(thread).unwrap().bound,
        Some(set("6"))
    );
    assert_eq!(seen.snapshots[1].units.of(UnitClass::Fp).len(), 4);
}

#[test]
fn the_threshold_is_that_of_the_source() {
    let (kernel, all) = kernel(1);
    kernel.write().unwrap().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let (seen, _) = run(&mut session(
        &kernel,
        steps(1),
        |_| Plan::default(),
        acting,
        false,
    ));
    assert_eq!(threshold(&seen.snapshots[0]), Some(0.05));
    let share = seen.snapshots[0].threads[0]
        .metrics
        .get(names::FP_SHARE)
        .unwrap();
    assert_eq!(share.source, MetricSource::Sampling);
}

#[test]
fn without_a_journal_nothing_is_changed() {
    let (kernel, all) = kernel(4);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    let (dir, acting) = live();
    std::fs::remove_dir(dir.path()).unwrap();
    let policy = move |_: &Snapshot| bindings(vec![bind(thread, "3")]);
    let (seen, _) = run(&mut session(&kernel, steps(3), policy, acting, false));
    assert_eq!(kernel.read().unwrap().killer.changes, 0);
    assert_eq!(seen.moves[0][0].outcome, Outcome::NotApplied);
    assert!(seen.remarks[0].contains("without a journal nothing is changed"));
    assert_eq!(seen.remarks.len(), 1, "said once");
}

#[test]
fn a_process_is_journaled_when_it_is_first_seen() {
    let (kernel, all) = kernel(4);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    let (dir, acting) = live();
    let policy = move |_: &Snapshot| bindings(vec![bind(thread, "3")]);
    // Bound in the first period; another process comes in the second, and nothing more is changed.
    let mut script = steps(4);
    script[1].before.push(Op::Fork {
        of: 0,
        own_process: true,
    });
    let mut session = session(&kernel, script, policy, acting, false);
    let mut journaled = Journaled {
        dir: dir.path().to_owned(),
        processes: Vec::new(),
    };
    session.run(&mut journaled).unwrap();
    assert_eq!(journaled.processes[..3], [1, 2, 2]);
}

#[test]
fn a_process_that_came_and_went_unseen_is_not_journaled() {
    let (kernel, all) = kernel(4);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    let (dir, acting) = live();
    let policy = move |_: &Snapshot| bindings(vec![bind(thread, "3")]);
    // Two processes come in the second period, and one of them goes; only what that did is known.
    let mut script = steps(4);
    let fork = || Op::Fork {
        of: 0,
        own_process: true,
    };
    script[1].before.extend([fork(), fork(), Op::End { of: 2 }]);
    let mut machine = Scripted::new(&kernel, 2, script);
    (machine.report_ended, machine.masks_until) = (true, 1);
    let mut session = Session::new(machine, options(Decide(policy), acting)).unwrap();
    session.set_clock(now);
    let mut journaled = Journaled {
        dir: dir.path().to_owned(),
        processes: Vec::new(),
    };
    session.run(&mut journaled).unwrap();
    assert_eq!(journaled.processes[..3], [1, 2, 2]);
}

/// How many processes the journal names at each period's end.
struct Journaled {
    dir: std::path::PathBuf,
    processes: Vec<usize>,
}

impl SessionSink for Journaled {
    fn period(&mut self, _: &Period) {
        let file = std::fs::read_dir(&self.dir).unwrap().next().unwrap();
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let journal = Journal::parse(&bytes).unwrap();
        self.processes.push(journal.processes().count());
    }
}

#[test]
fn a_metric_without_a_new_value_is_believed_less_and_less() {
    let (kernel, all) = kernel(1);
    kernel.write().unwrap().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let mut session = session(&kernel, steps(30), |_| Plan::default(), acting, false);
    session.machine().silent_from = 1;
    let (seen, _) = run(&mut session);
    let confidences: Vec<f64> = seen
        .snapshots
        .iter()
        .map_while(|snapshot| snapshot.threads[0].metrics.get(names::FP_SHARE))
        .map(|metric| metric.confidence)
        .collect();
    assert_eq!(confidences[0], 1.0);
    assert!(
        confidences.windows(2).all(|pair| pair[1] < pair[0]),
        "{confidences:?}"
    );
    assert!(
        (5..20).contains(&confidences.len()),
        "forgotten at last: {confidences:?}"
    );
    // An amount of a window says nothing about the next one.
    let samples = |period: usize| {
        seen.snapshots[period].threads[0]
            .metrics
            .value(names::SAMPLES)
    };
    assert_eq!((samples(0), samples(1)), (Some(20.0), None));
}

#[test]
fn what_is_wrong_with_counts_is_said_once() {
    let (kernel, all) = kernel(1);
    for _ in 0..3 {
        kernel.write().unwrap().spawn(None, &all, 0.5);
    }
    let (_dir, acting) = live();
    let mut session = session(&kernel, steps(3), |_| Plan::default(), acting, false);
    session.machine().counts = true;
    let (seen, _) = run(&mut session);
    assert_eq!(seen.remarks.len(), 1, "{:?}", seen.remarks);
    assert!(seen.remarks[0].contains("395 instructions"));
    // What was counted wins over what a module says, and the threshold follows.
    let share = seen.snapshots[0].threads[0]
        .metrics
        .get(names::FP_SHARE)
        .unwrap();
    assert_eq!((share.value, share.source), (0.75, MetricSource::Counters));
    assert_eq!(threshold(&seen.snapshots[0]), Some(0.5));
}

#[test]
fn a_child_born_before_another_process_places_its_creator_is_perchs() {
    let (kernel, all) = kernel(4);
    let parent = kernel.write().unwrap().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let policy = move |snapshot: &Snapshot| {
        let pus = if snapshot.period < 2 { "5" } else { "6" };
        let free = snapshot
            .thread(parent)
            .is_some_and(|thread| thread.unmanaged.is_none());
        bindings(free.then(|| bind(parent, pus)).into_iter().collect())
    };
    let mut script = steps(6);
    script[2].race.push(Op::Fork {
        of: 0,
        own_process: false,
    });
    script[3].before.push(Op::Taskset {
        of: 0,
        mask: set("0,2"),
    });
    run(&mut session(&kernel, script, policy, acting, false));
    let masks: Vec<PuSet> = masks(&kernel).into_values().collect();
    assert_eq!(masks, [set("0,2"), all]);
}
