//! The loop on a machine in memory.

mod common;

use common::{Decide, Heard, Kernel, Knob, Op, Scripted, Step, TestProcessor, masks, now, set};
use perch_core::{
    Affinity, Binding, HandsOff, Machine, MaskChange, MaskError, MetricSource, Outcome, Plan,
    Policy, ProcessId, PuSet, Reason, Snapshot, ThreadId, Wake, affinity::Relative, metric::names,
};
use perch_engine::{
    Acting, Cause, Journal, Observer, Options, Period, Recovery, Session, SessionEnd, StateDir,
    journal::{Header, Knob as What, Record, SetRecord, file::JournalFile, state_dir},
    recover_all, restore,
};
use std::{cell::RefCell, rc::Rc, sync::Arc};

type Shared = Rc<RefCell<Kernel>>;

fn kernel(cores: u32) -> (Shared, PuSet) {
    let kernel = Kernel::new(2 * cores);
    let all = kernel.pus.clone();
    (Rc::new(RefCell::new(kernel)), all)
}

fn session(
    kernel: &Shared,
    steps: Vec<Step>,
    policy: impl FnMut(&Snapshot) -> Plan + 'static,
    acting: Acting,
    take_over: bool,
) -> Session<Scripted> {
    let cores = kernel.borrow().pus.len() as u32 / 2;
    let options = Options {
        policy: Box::new(Decide(policy)) as Box<dyn Policy>,
        processor: Box::new(TestProcessor),
        period: None,
        acting,
        take_over,
        pus: None,
    };
    let mut session = Session::new(Scripted::new(kernel, cores, steps), options).unwrap();
    session.set_clock(now);
    session
}

fn live() -> (tempfile::TempDir, Acting) {
    let dir = tempfile::tempdir().unwrap();
    let acting = Acting::Live(StateDir::open(dir.path()).unwrap());
    (dir, acting)
}

fn run(session: &mut Session<Scripted>) -> (Heard, SessionEnd) {
    let mut seen = Heard::default();
    let end = session.run(&mut seen).unwrap();
    (seen, end)
}

fn bind(thread: ThreadId, pus: &str) -> Binding {
    Binding {
        thread,
        pus: set(pus),
        reason: Reason::new("a test"),
    }
}

fn bindings(bindings: Vec<Binding>) -> Plan {
    Plan {
        bindings,
        ..Plan::default()
    }
}

fn steps(n: usize) -> Vec<Step> {
    vec![Step::default(); n]
}

#[test]
fn a_plan_that_stays_the_same_writes_nothing() {
    let (kernel, all) = kernel(4);
    let thread = kernel.borrow_mut().spawn(None, &all, 0.5);
    let (dir, acting) = live();
    let watched = dir.path().to_owned();
    let writes = Rc::new(RefCell::new(Vec::new()));
    let seen_writes = Rc::clone(&writes);
    let changes = Rc::clone(&kernel);
    let policy = move |_: &Snapshot| {
        let journal = std::fs::read_dir(&watched).unwrap().next();
        let length = journal.map(|entry| entry.unwrap().metadata().unwrap().len());
        seen_writes
            .borrow_mut()
            .push((length, changes.borrow().changes));
        bindings(vec![bind(thread, "3")])
    };
    let (seen, end) = run(&mut session(&kernel, steps(5), policy, acting, false));
    let writes = writes.borrow();
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
    assert_eq!(end.restored.restored, 1);
    assert_eq!(masks(&kernel)[&thread], all);
}

#[test]
fn a_policy_that_binds_nothing_makes_no_journal() {
    let (kernel, all) = kernel(2);
    kernel.borrow_mut().spawn(None, &all, 0.5);
    kernel.borrow_mut().spawn(None, &set("1"), 0.5);
    let (dir, acting) = live();
    let watched = dir.path().to_owned();
    let policy = move |_: &Snapshot| {
        assert_eq!(std::fs::read_dir(&watched).unwrap().count(), 0);
        Plan::default()
    };
    run(&mut session(&kernel, steps(3), policy, acting, false));
    assert_eq!(kernel.borrow().changes, 0);
}

#[test]
fn invalid_bindings_are_dropped_and_named() {
    let (kernel, all) = kernel(2);
    let good = kernel.borrow_mut().spawn(None, &all, 0.5);
    let other = kernel.borrow_mut().spawn(None, &all, 0.5);
    let placed = kernel.borrow_mut().spawn(None, &set("1,2"), 0.5);
    let nobody = ThreadId { tid: 1, start: 1 };
    let (_dir, acting) = live();
    let policy = move |_: &Snapshot| {
        bindings(vec![
            bind(good, "2"),
            bind(good, "3"),
            bind(other, ""),
            bind(other, "0,17"),
            bind(placed, "1"),
            bind(nobody, "1"),
        ])
    };
    let (seen, _) = run(&mut session(&kernel, steps(3), policy, acting, false));
    assert_eq!(kernel.borrow().changes, 2, "one to bind, one to restore");
    assert_eq!(seen.plans[0].bindings, [bind(good, "2")]);
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
        let placed = kernel.borrow_mut().spawn(None, &set("1,2"), 0.5);
        kernel.borrow_mut().spawn(None, &all, 0.5);
        let (_dir, acting) = live();
        let policy = move |snapshot: &Snapshot| {
            let thread = snapshot.thread(placed).unwrap();
            match thread.hands_off {
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
            assert_eq!(thread.hands_off, Some(HandsOff::PlacedBefore));
        }
        assert_eq!(masks(&kernel)[&placed], set("1,2"));
    }
}

#[test]
fn a_mask_that_others_change_is_theirs_for_good() {
    let (kernel, all) = kernel(4);
    let thread = kernel.borrow_mut().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let policy = move |snapshot: &Snapshot| match snapshot.threads[0].hands_off {
        Some(_) => Plan::default(),
        None => bindings(vec![bind(thread, "3")]),
    };
    let mut script = steps(4);
    script[1].before.push(Op::Taskset {
        of: 0,
        mask: set("0,2"),
    });
    let (seen, _) = run(&mut session(&kernel, script, policy, acting, false));
    let hands_off: Vec<_> = seen
        .snapshots
        .iter()
        .map(|s| s.threads[0].hands_off)
        .collect();
    assert_eq!(hands_off[0], None);
    assert!(
        hands_off[1..]
            .iter()
            .all(|h| *h == Some(HandsOff::ChangedByOthers))
    );
    assert_eq!(masks(&kernel)[&thread], set("0,2"));
}

#[test]
fn a_change_between_look_and_deed_is_noticed() {
    let (kernel, all) = kernel(4);
    let thread = kernel.borrow_mut().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let policy = move |snapshot: &Snapshot| match snapshot.threads[0].hands_off {
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
    assert!(seen.snapshots[1].threads[0].hands_off.is_some());
    assert_eq!(masks(&kernel)[&thread], set("0,2"));
}

#[test]
fn children_of_bound_threads_are_perchs_own() {
    let (kernel, all) = kernel(4);
    let parent = kernel.borrow_mut().spawn(None, &all, 0.5);
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
        (child.bound.clone(), child.hands_off),
        (Some(set("3")), None)
    );
    assert_eq!(child.allowed, all);
    // It was not in the plan: it is let go.
    assert_eq!(seen.moves[1][0].thread, child.info.id);
    assert_eq!(seen.snapshots[2].threads[1].bound, None);
}

#[test]
fn a_mask_that_somebody_elses_thread_has_too_proves_nothing() {
    let (kernel, all) = kernel(4);
    let ours = kernel.borrow_mut().spawn(None, &all, 0.5);
    let theirs = kernel.borrow_mut().spawn(None, &set("3"), 0.5);
    let (_dir, acting) = live();
    let policy = move |_: &Snapshot| bindings(vec![bind(ours, "3")]);
    let mut script = steps(3);
    script[1].before.push(Op::Fork {
        of: 1,
        own_process: true,
    });
    let (seen, _) = run(&mut session(&kernel, script, policy, acting, false));
    let child = &seen.snapshots[1].threads[2];
    assert_eq!(child.hands_off, Some(HandsOff::PlacedBefore));
    assert_eq!(masks(&kernel)[&theirs], set("3"));
    assert_eq!(masks(&kernel)[&child.info.id], set("3"));
}

#[test]
fn on_paper_nothing_is_changed_but_the_plan_is_followed() {
    let (kernel, all) = kernel(1);
    let thread = kernel.borrow_mut().spawn(None, &all, 0.5);
    let placed = kernel.borrow_mut().spawn(None, &set("1"), 0.5);
    let paper = Arc::new(common::topology(4, &set("0-7")));
    let policy = move |snapshot: &Snapshot| {
        assert!(
            snapshot
                .threads
                .iter()
                .all(|thread| thread.allowed == set("0-7"))
        );
        bindings(vec![bind(thread, "6"), bind(placed, "7")])
    };
    let mut session = session(&kernel, steps(3), policy, Acting::Paper(Some(paper)), false);
    assert_eq!(session.mark(), None);
    let (seen, _) = run(&mut session);
    assert_eq!(kernel.borrow().changes, 0);
    assert_eq!(
        seen.moves.iter().map(Vec::len).collect::<Vec<_>>(),
        [2, 0, 0, 0]
    );
    assert_eq!(seen.moves[0][0].outcome, Outcome::NotApplied);
    assert_eq!(
        seen.snapshots[1].thread(thread).unwrap().bound,
        Some(set("6"))
    );
    assert_eq!(seen.snapshots[1].fp_domains.len(), 4);
}

#[test]
fn the_threshold_is_that_of_the_source() {
    let (kernel, all) = kernel(1);
    kernel.borrow_mut().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let (seen, _) = run(&mut session(
        &kernel,
        steps(1),
        |_| Plan::default(),
        acting,
        false,
    ));
    assert_eq!(seen.snapshots[0].fp_threshold, 0.05);
    let share = seen.snapshots[0].threads[0]
        .metrics
        .get(names::FP_SHARE)
        .unwrap();
    assert_eq!(share.source, MetricSource::Sampling);
}

#[test]
fn a_stop_ends_the_session_and_restores() {
    let (kernel, all) = kernel(4);
    let thread = kernel.borrow_mut().spawn(None, &all, 0.5);
    let (dir, acting) = live();
    let policy = move |_: &Snapshot| bindings(vec![bind(thread, "3")]);
    let mut session = session(&kernel, steps(2), policy, acting, false);
    session.machine().end = Wake::Stop(15);
    let (_, end) = run(&mut session);
    assert_eq!((end.cause, end.periods), (Cause::Stopped(15), 3));
    assert_eq!(masks(&kernel)[&thread], all);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_panic_leaves_no_masks_behind() {
    let (kernel, all) = kernel(4);
    let thread = kernel.borrow_mut().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let policy = move |snapshot: &Snapshot| {
        assert_eq!(
            snapshot.period, 0,
            "a policy that fails in its second period"
        );
        bindings(vec![bind(thread, "3")])
    };
    let mut session = session(&kernel, steps(3), policy, acting, false);
    let run = std::panic::AssertUnwindSafe(|| {
        let _ = session.run(&mut ());
    });
    assert!(std::panic::catch_unwind(run).is_err());
    assert_eq!(masks(&kernel)[&thread], set("3"));
    drop(session);
    assert_eq!(masks(&kernel)[&thread], all);
}

#[test]
fn without_a_journal_nothing_is_changed() {
    let (kernel, all) = kernel(4);
    let thread = kernel.borrow_mut().spawn(None, &all, 0.5);
    let (dir, acting) = live();
    std::fs::remove_dir(dir.path()).unwrap();
    let policy = move |_: &Snapshot| bindings(vec![bind(thread, "3")]);
    let (seen, _) = run(&mut session(&kernel, steps(3), policy, acting, false));
    assert_eq!(kernel.borrow().changes, 0);
    assert_eq!(seen.moves[0][0].outcome, Outcome::NotApplied);
    assert!(seen.remarks[0].contains("without a journal nothing is changed"));
    assert_eq!(seen.remarks.len(), 1, "said once");
}

/// A journal that says that this thread's mask is perch's.
fn journal_of(state: &StateDir, header: Header, thread: ThreadId, before: &PuSet) -> JournalFile {
    let mut file = JournalFile::create(state, header).unwrap();
    let record = Record::Set(SetRecord {
        thread,
        process: thread.tid,
        knob: What::Affinity,
        before: before.clone(),
        whole: Some(true),
        from: vec![before.clone()],
        set: set("3"),
        let_go: Some(false),
        at: 0,
    });
    file.announce(&[record]).unwrap();
    file
}

#[test]
fn recovery_undoes_the_dead_and_spares_the_living() {
    let (kernel, all) = kernel(4);
    let thread = kernel.borrow_mut().spawn(None, &all, 0.5);
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path()).unwrap();
    let header = || state_dir::header(all.clone()).unwrap();
    // Held open it is locked, so that its perch lives, whatever its process number is.
    let alive = journal_of(&state, header(), thread, &all);
    let mut elsewhere = header();
    elsewhere.namespaces.pid += 1;
    let mut other_clock = header();
    other_clock.namespaces.time += 1;
    let mut old = header();
    old.boot = "another".to_owned();
    for header in [header(), elsewhere, other_clock, old] {
        drop(journal_of(&state, header, thread, &all));
    }
    let damaged = journal_of(&state, header(), thread, &all).path().to_owned();
    let mut bytes = std::fs::read(&damaged).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    std::fs::write(dir.path().join("garbage.journal"), "garbage").unwrap();
    std::fs::write(dir.path().join("unfinished.new"), "").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link.journal")).unwrap();
    std::fs::create_dir(dir.path().join("dir.journal")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("fifo.journal"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    kernel
        .borrow_mut()
        .tasks
        .get_mut(&thread)
        .unwrap()
        .requested = set("3");

    let recovered = recover_all(&state, &mut Knob(Rc::clone(&kernel))).unwrap();
    assert_eq!(masks(&kernel)[&thread], all);
    let told = |recovery: &Recovery| match recovery {
        Recovery::Alive { .. } => "alive",
        Recovery::Elsewhere => "elsewhere",
        Recovery::OtherBoot => "other boot",
        Recovery::Restored(report) => {
            assert_eq!(report.restored + report.already, 1);
            "restored"
        }
        Recovery::Damaged { .. } => "damaged",
        Recovery::Unreadable { .. } => "unreadable",
    };
    let mut what: Vec<&str> = recovered
        .iter()
        .map(|(_, recovery)| told(recovery))
        .collect();
    what.sort_unstable();
    let unreadable = ["unreadable"; 4];
    let others = [
        "alive",
        "damaged",
        "elsewhere",
        "elsewhere",
        "other boot",
        "restored",
    ];
    assert_eq!(what, [&others[..], &unreadable[..]].concat());
    // Nothing goes that somebody may need.
    let mut left: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| name.rsplit_once('.').unwrap().1.to_owned())
        .collect();
    left.sort_unstable();
    assert_eq!(left, [&["damaged"][..], &["journal"; 7][..]].concat());
    drop(alive);
}

#[test]
fn another_users_journal_moves_nobody_elses_threads() {
    let (kernel, all) = kernel(4);
    let thread = kernel.borrow_mut().spawn(None, &all, 0.5);
    kernel
        .borrow_mut()
        .tasks
        .get_mut(&thread)
        .unwrap()
        .requested = set("3");
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path()).unwrap();
    let file = journal_of(
        &state,
        state_dir::header(all.clone()).unwrap(),
        thread,
        &all,
    );
    let mut knob = Strangers(Knob(Rc::clone(&kernel)));
    let report = restore(&mut knob, file.journal(), Some(1000));
    assert_eq!((report.restored, report.failed.len()), (0, 1));
    assert_eq!(masks(&kernel)[&thread], set("3"));
    // Who names the journal trusts it.
    let report = restore(&mut knob, file.journal(), None);
    assert_eq!((report.restored, report.failed.len()), (1, 0));
    assert_eq!(masks(&kernel)[&thread], all);
}

/// A kernel on which all threads are somebody else's.
struct Strangers(Knob);

impl Affinity for Strangers {
    fn mask(&self, thread: ThreadId) -> Result<PuSet, MaskError> {
        self.0.mask(thread)
    }

    fn change(&mut self, change: &MaskChange) -> Outcome {
        self.0.change(change)
    }

    fn allowed(&self, thread: ThreadId) -> Option<PuSet> {
        self.0.allowed(thread)
    }

    fn belongs_to(&self, _: ThreadId, _: u32) -> bool {
        false
    }

    fn relatives(
        &self,
        session: &str,
        processes: &[ProcessId],
        known: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Relative>, MaskError> {
        self.0.relatives(session, processes, known)
    }
}

#[test]
fn only_threads_born_after_a_mask_was_set_can_have_inherited_it() {
    let (kernel, all) = kernel(4);
    let before = kernel.borrow_mut().spawn(None, &all, 0.5);
    let mut journal = Journal::new(state_dir::header(all.clone()).unwrap());
    journal.add(&Record::Mask(perch_engine::journal::MaskRecord {
        process: 0,
        set: set("3"),
        before: all.clone(),
        whole: Some(true),
        at: before.start + 1,
    }));
    kernel.borrow_mut().taskset(before, &set("3"));
    let mut machine = Scripted::new(&kernel, 4, Vec::new());
    machine.wait(std::time::Duration::ZERO).unwrap();
    let after = kernel.borrow_mut().spawn(None, &set("3"), 0.5);
    let report = restore(&mut machine.knob, &journal, None);
    assert_eq!((report.restored, report.inherited), (1, 1));
    assert_eq!(masks(&kernel)[&before], set("3"));
    assert_eq!(masks(&kernel)[&after], all);
}

/// Starts a daemon after the last look at the threads, and hears how the session ended.
struct LateDaemon {
    kernel: Shared,
    of: ThreadId,
    daemon: Option<ThreadId>,
}

impl Observer for LateDaemon {
    fn period(&mut self, period: &Period<'_>) {
        if period.last {
            let mut kernel = self.kernel.borrow_mut();
            let daemon = kernel.fork(self.of, true).unwrap();
            kernel.daemons.insert(daemon.tid);
            self.daemon = Some(daemon);
        }
    }
}

#[test]
fn a_daemon_born_after_the_last_look_gets_the_mask_that_its_parent_had() {
    let (kernel, all) = kernel(4);
    let thread = kernel.borrow_mut().spawn(None, &all, 0.5);
    let placed = kernel.borrow_mut().spawn(None, &set("2"), 0.5);
    let policy = move |_: &Snapshot| bindings(vec![bind(thread, "3")]);
    let mut ended = Vec::new();
    for of in [thread, placed] {
        let mut late = LateDaemon {
            kernel: Rc::clone(&kernel),
            of,
            daemon: None,
        };
        let (_dir, acting) = live();
        let mut session = session(&kernel, steps(2), policy, acting, false);
        let end = session.run(&mut late).unwrap();
        ended.push((late.daemon.unwrap(), end.restored));
    }
    let [(ours, report), (theirs, _)] = &ended[..] else {
        panic!("{ended:?}")
    };
    assert_eq!((report.restored, report.inherited), (2, 1), "{report:?}");
    assert_eq!(masks(&kernel)[ours], all);
    assert_eq!(masks(&kernel)[theirs], set("2"));
}

#[test]
fn a_process_is_journaled_when_it_is_first_seen() {
    let (kernel, all) = kernel(4);
    let thread = kernel.borrow_mut().spawn(None, &all, 0.5);
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

/// How many processes the journal names at each period's end.
struct Journaled {
    dir: std::path::PathBuf,
    processes: Vec<usize>,
}

impl Observer for Journaled {
    fn period(&mut self, _: &Period<'_>) {
        let file = std::fs::read_dir(&self.dir).unwrap().next().unwrap();
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let journal = Journal::parse(&bytes).unwrap();
        self.processes.push(journal.processes().count());
    }
}

#[test]
fn a_metric_without_a_new_value_is_believed_less_and_less() {
    let (kernel, all) = kernel(1);
    kernel.borrow_mut().spawn(None, &all, 0.5);
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
        kernel.borrow_mut().spawn(None, &all, 0.5);
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
    assert_eq!(seen.snapshots[0].fp_threshold, 0.5);
}

#[test]
fn a_bound_thread_that_calls_execve_gives_its_mask_back_under_its_new_number() {
    for late in [false, true] {
        let (kernel, all) = kernel(4);
        let first = kernel.borrow_mut().spawn(None, &all, 0.5);
        let worker = kernel.borrow_mut().spawn(Some(first.tid), &all, 0.9);
        let (_dir, acting) = live();
        let policy = move |snapshot: &Snapshot| {
            let here = snapshot.thread(worker).is_some();
            bindings(here.then(|| bind(worker, "3")).into_iter().collect())
        };
        let mut script = steps(4);
        // Before perch looks, or between its look and its deed.
        let exec = vec![Op::Exec { of: 1 }];
        match late {
            false => script[2].before = exec,
            true => script[2].race = exec,
        }
        let mut session = session(&kernel, script, policy, acting, false);
        let (seen, _) = run(&mut session);
        assert_eq!(masks(&kernel)[&first], all, "late: {late}");
        let bound = |at: usize| seen.snapshots[at].thread(first).unwrap().bound.clone();
        assert_eq!(
            bound(if late { 3 } else { 2 }),
            Some(set("3")),
            "late: {late}"
        );
    }
}

#[test]
fn a_child_born_before_somebody_places_its_creator_is_perchs() {
    let (kernel, all) = kernel(4);
    let parent = kernel.borrow_mut().spawn(None, &all, 0.5);
    let (_dir, acting) = live();
    let policy = move |snapshot: &Snapshot| {
        let pus = if snapshot.period < 2 { "5" } else { "6" };
        let free = snapshot
            .thread(parent)
            .is_some_and(|thread| thread.hands_off.is_none());
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
