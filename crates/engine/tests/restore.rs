//! Restoring masks: when a session ends, and from its journal if it was killed.

use crate::common::{
    Knob, Op, Scripted, Shared, bind, bindings, kernel, live, masks, run, session, set, steps,
};
use perch_core::{
    Affinity, Machine, MaskChange, MaskError, Outcome, ProcessId, PuSet, Snapshot, ThreadId, Wake,
    affinity::Descendant,
};
use perch_engine::{
    Cause, Journal, Period, Recovery, SessionSink, StateDir,
    journal::{Header, Knob as What, Record, SetRecord, file::JournalFile, state_dir},
    recover_all, restore,
};
use std::{collections::BTreeMap, sync::Arc};

#[test]
fn a_stop_ends_the_session_and_restores() {
    let (kernel, all) = kernel(4);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
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
fn what_was_being_created_during_a_restore_has_its_mask_back_too() {
    let (kernel, all) = kernel(4);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    kernel.write().unwrap().creating = Some((thread, set("3")));
    let (dir, acting) = live();
    let policy = move |_: &Snapshot| bindings(vec![bind(thread, "3")]);
    let mut session = session(&kernel, steps(2), policy, acting, false);
    let (_, end) = run(&mut session);
    assert!(kernel.read().unwrap().creating.is_none());
    assert_eq!(end.restored.masks.inherited, 1, "{:?}", end.restored);
    let masks = masks(&kernel);
    assert_eq!(masks.len(), 2);
    assert!(masks.values().all(|mask| *mask == all), "{masks:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A process is known before any of its threads is sampled, where the kernel has yet to say who created them.
#[test]
fn a_process_of_which_no_thread_has_been_sampled_has_its_mask_back() {
    for daemon in [false, true] {
        let (kernel, all) = kernel(4);
        let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
        let (dir, acting) = live();
        let policy = move |_: &Snapshot| bindings(vec![bind(thread, "3")]);
        // The second thread ends as the process comes: that is not the end of the process.
        let mut script = steps(6);
        script[1].before.push(Op::Fork {
            of: 0,
            own_process: false,
        });
        let fork = Op::Fork {
            of: 0,
            own_process: true,
        };
        script[3].before = vec![fork, Op::End { of: 1 }];
        let new = thread.tid + 2;
        if daemon {
            kernel.write().unwrap().daemons.insert(new);
        }
        let mut session = session(&kernel, script, policy, acting, false);
        session.machine().late = true;
        let mut killed = Killed {
            kernel: Shared::clone(&kernel),
            dir: dir.path().to_owned(),
            in_period: 3,
            masks: BTreeMap::new(),
            ended: Vec::new(),
        };
        session.run(&mut killed).unwrap();
        assert_eq!(killed.masks.len(), 2);
        for (thread, mask) in killed.masks {
            assert_eq!(mask, all, "{thread:?}, daemon: {daemon}");
        }
        assert_eq!(killed.ended, [""; 0]);
    }
}

/// Undoes in some period what a perch that is killed then leaves behind.
struct Killed {
    kernel: Shared,
    dir: std::path::PathBuf,
    in_period: u64,
    /// The masks after that.
    masks: BTreeMap<ThreadId, PuSet>,
    /// Processes that the journal takes for ended, at any period's end.
    ended: Vec<String>,
}

impl SessionSink for Killed {
    fn period(&mut self, period: &Period) {
        let Some(file) = std::fs::read_dir(&self.dir).unwrap().next() else {
            return;
        };
        let journal = Journal::parse(&std::fs::read(file.unwrap().path()).unwrap()).unwrap();
        let processes = journal.processes();
        let ended = processes.filter(|id| journal.process(*id).unwrap().ended.is_some());
        self.ended.extend(ended.map(|id| format!("{id:?}")));
        if period.snapshot.period == self.in_period {
            restore(&mut Knob(Shared::clone(&self.kernel)), &journal, None);
            self.masks = masks(&self.kernel);
        }
    }
}

#[test]
fn a_panic_leaves_no_masks_behind() {
    let (kernel, all) = kernel(4);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
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
    file.log_intent(&[record]).unwrap();
    file
}

#[test]
fn recovery_undoes_the_dead_and_spares_the_living() {
    let (kernel, all) = kernel(4);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
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
    // A directory that several machines see.
    let mut other_machine = header();
    (other_machine.boot, other_machine.machine) = ("another".to_owned(), "node7 1f".to_owned());
    for header in [header(), elsewhere, other_clock, old, other_machine] {
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
    kernel.write().unwrap().taskset(thread, &set("3"));

    let recovered = recover_all(&state, &mut Knob(Arc::clone(&kernel))).unwrap();
    assert_eq!(masks(&kernel)[&thread], all);
    let told = |recovery: &Recovery| match recovery {
        Recovery::Alive { .. } => "alive",
        Recovery::Elsewhere => "elsewhere",
        Recovery::OtherBoot => "other boot",
        Recovery::Restored(report) => {
            assert_eq!(report.masks.restored + report.masks.already, 1);
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
        "elsewhere",
        "other boot",
        "restored",
    ];
    assert_eq!(what, [&others[..], &unreadable[..]].concat());
    // No file is removed that a later restore may need.
    let mut left: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| name.rsplit_once('.').unwrap().1.to_owned())
        .collect();
    left.sort_unstable();
    assert_eq!(left, [&["damaged"][..], &["journal"; 8][..]].concat());
    drop(alive);
}

#[test]
fn a_directory_that_was_exchanged_is_not_read() {
    if !rustix::process::geteuid().is_root() {
        return perch_skip::skip!(Root, "only root may give files away");
    }
    let (kernel, _) = kernel(4);
    let dir = tempfile::tempdir().unwrap();
    let theirs = dir.path().join("perch");
    std::fs::create_dir(&theirs).unwrap();
    // Root's own, where a user's has to be.
    assert!(StateDir::of_other(theirs.clone(), 1000).is_none());
    std::os::unix::fs::chown(&theirs, Some(1000), None).unwrap();
    let state = StateDir::of_other(theirs.clone(), 1000).unwrap();
    assert_eq!(state.owner(), Some(1000));
    recover_all(&state, &mut Knob(Arc::clone(&kernel))).unwrap();
    std::os::unix::fs::chown(&theirs, Some(1001), None).unwrap();
    let exchanged = recover_all(&state, &mut Knob(Arc::clone(&kernel)));
    assert!(exchanged.is_err_and(|error| error.to_string().contains("only you can write")));
    // Its own, too.
    let own = StateDir::open(dir.path()).unwrap();
    std::os::unix::fs::chown(dir.path(), Some(1000), None).unwrap();
    assert!(recover_all(&own, &mut Knob(kernel)).is_err());
}

#[test]
fn another_users_journal_moves_only_that_users_threads() {
    let (kernel, all) = kernel(4);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    kernel.write().unwrap().taskset(thread, &set("3"));
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path()).unwrap();
    let file = journal_of(
        &state,
        state_dir::header(all.clone()).unwrap(),
        thread,
        &all,
    );
    let mut knob = Strangers(Knob(Arc::clone(&kernel)));
    let report = restore(&mut knob, file.journal(), Some(1000));
    assert_eq!((report.masks.restored, report.masks.failed.len()), (0, 1));
    assert_eq!(masks(&kernel)[&thread], set("3"));
    // Who names the journal trusts it.
    let report = restore(&mut knob, file.journal(), None);
    assert_eq!((report.masks.restored, report.masks.failed.len()), (1, 0));
    assert_eq!(masks(&kernel)[&thread], all);
}

/// A kernel on which all threads belong to another user.
struct Strangers(Knob);

impl Affinity for Strangers {
    fn settle(&self) {}

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

    fn descendants(
        &self,
        session: &str,
        processes: &[ProcessId],
        known: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Descendant>, MaskError> {
        self.0.descendants(session, processes, known)
    }
}

#[test]
fn only_threads_born_after_a_mask_was_set_can_have_inherited_it() {
    let (kernel, all) = kernel(4);
    let before = kernel.write().unwrap().spawn(None, &all, 0.5);
    let mut journal = Journal::new(state_dir::header(all.clone()).unwrap());
    journal.add(&Record::Mask(perch_engine::journal::MaskRecord {
        process: 0,
        set: set("3"),
        before: all.clone(),
        whole: Some(true),
        at: before.start + 1,
    }));
    kernel.write().unwrap().taskset(before, &set("3"));
    let mut machine = Scripted::new(&kernel, 4, Vec::new());
    machine.wait(std::time::Duration::ZERO).unwrap();
    let after = kernel.write().unwrap().spawn(None, &set("3"), 0.5);
    let report = restore(&mut machine.knob, &journal, None);
    assert_eq!((report.masks.restored, report.masks.inherited), (1, 1));
    assert_eq!(masks(&kernel)[&before], set("3"));
    assert_eq!(masks(&kernel)[&after], all);
}

/// Starts a daemon after the last look at the threads, and hears how the session ended.
struct LateDaemon {
    kernel: Shared,
    of: ThreadId,
    daemon: Option<ThreadId>,
}

impl SessionSink for LateDaemon {
    fn period(&mut self, period: &Period) {
        if period.last {
            let mut kernel = self.kernel.write().unwrap();
            let daemon = kernel.fork(self.of, true).unwrap();
            kernel.daemons.insert(daemon.tid);
            self.daemon = Some(daemon);
        }
    }
}

#[test]
fn a_daemon_born_after_the_last_look_gets_the_mask_that_its_parent_had() {
    let (kernel, all) = kernel(4);
    let thread = kernel.write().unwrap().spawn(None, &all, 0.5);
    let placed = kernel.write().unwrap().spawn(None, &set("2"), 0.5);
    let policy = move |_: &Snapshot| bindings(vec![bind(thread, "3")]);
    let mut ended = Vec::new();
    for of in [thread, placed] {
        let mut late = LateDaemon {
            kernel: Arc::clone(&kernel),
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
    assert_eq!(
        (report.masks.restored, report.masks.inherited),
        (2, 1),
        "{report:?}"
    );
    assert_eq!(masks(&kernel)[ours], all);
    assert_eq!(masks(&kernel)[theirs], set("2"));
}

#[test]
fn a_bound_thread_that_calls_execve_gives_its_mask_back_under_its_new_number() {
    for late in [false, true] {
        let (kernel, all) = kernel(4);
        let first = kernel.write().unwrap().spawn(None, &all, 0.5);
        let worker = kernel.write().unwrap().spawn(Some(first.tid), &all, 0.9);
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
