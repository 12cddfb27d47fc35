//! Restoring from the journal alone: threads that are not in it, or no longer what they were.

use crate::common;
use crate::common::{Knob, Op, Shared, kernel, masks, now, set};
use perch_core::{ProcessId, PuSet, Snapshot, ThreadId, affinity::Image};
use perch_engine::{
    Journal, Period, SessionSink,
    journal::{Kept, Knob as What, ProcessRecord, Record, SetRecord, state_dir},
    restore,
};
use std::sync::Arc;

/// The process that has this first thread.
fn process(first: ThreadId) -> ProcessId {
    ProcessId {
        pid: first.tid,
        start: first.start,
    }
}

fn process_record(first: ThreadId) -> ProcessRecord {
    ProcessRecord {
        id: process(first),
        image: Some(Image { code: 0, stack: 0 }),
        unseen: false,
        first_ended: false,
        ended: None,
    }
}

/// A journal of these processes.
fn journal_of(all: &PuSet, processes: &[ProcessRecord]) -> Journal {
    let mut journal = Journal::new(state_dir::header(all.clone()).unwrap());
    for process in processes {
        journal.add(&Record::Process(*process));
    }
    journal
}

/// Perch binds a thread of a process.
fn bind(kernel: &Shared, journal: &mut Journal, pid: i32, thread: ThreadId, mask: &str) {
    let mut kernel = kernel.write().unwrap();
    journal.add(&Record::Set(SetRecord {
        thread,
        process: pid,
        knob: What::Affinity,
        before: kernel.pus.clone(),
        whole: Some(true),
        from: Vec::new(),
        set: set(mask),
        let_go: Some(false),
        at: now(),
    }));
    kernel.taskset(thread, &set(mask));
}

#[test]
fn an_exec_that_cannot_be_told_from_what_others_did_is_reported() {
    fn hidden(first: ThreadId) -> ProcessRecord {
        ProcessRecord {
            image: None,
            ..process_record(first)
        }
    }
    fn ended(first: ThreadId) -> ProcessRecord {
        ProcessRecord {
            first_ended: true,
            ..hidden(first)
        }
    }
    type Case = (fn(ThreadId) -> ProcessRecord, bool, (usize, usize));
    let cases: [Case; 4] = [
        (hidden, false, (0, 1)),
        // Without address space randomization.
        (process_record, true, (0, 1)),
        (process_record, false, (1, 0)),
        // Its first thread had ended: only another one can live under its number.
        (ended, false, (1, 0)),
    ];
    for (case, (record, same_images, counted)) in cases.into_iter().enumerate() {
        let (kernel, all) = kernel(4);
        let first = kernel.write().unwrap().spawn(None, &all, 0.5);
        let worker = kernel.write().unwrap().fork(first, false).unwrap();
        kernel.write().unwrap().same_images = same_images;
        let mut journal = journal_of(&all, &[record(first)]);
        bind(&kernel, &mut journal, first.tid, worker, "3");
        kernel.write().unwrap().exec(worker);
        let child = kernel.write().unwrap().fork(first, false).unwrap();
        let report = restore(&mut Knob(Arc::clone(&kernel)), &journal, None).masks;
        // Its child has the mask from it.
        let both = (2 * counted.0, 2 * counted.1);
        let got = (report.restored, report.failed.len());
        assert_eq!(got, both, "case {case}: {report:?}");
        let expected = if counted.0 == 1 {
            all.clone()
        } else {
            set("3")
        };
        assert_eq!(masks(&kernel)[&first], expected, "case {case}");
        assert_eq!(masks(&kernel)[&child], expected, "case {case}");
    }
}

#[test]
fn an_exec_that_is_under_way_is_waited_for() {
    let (kernel, all) = kernel(4);
    let first = kernel.write().unwrap().spawn(None, &all, 0.5);
    let worker = kernel.write().unwrap().fork(first, false).unwrap();
    let mut journal = journal_of(&all, &[process_record(first)]);
    bind(&kernel, &mut journal, first.tid, worker, "3");
    kernel.write().unwrap().exec(worker);
    kernel.write().unwrap().loading = 7;
    let report = restore(&mut Knob(Arc::clone(&kernel)), &journal, None).masks;
    assert_eq!(report.restored, 1, "{report:?}");
    assert_eq!(masks(&kernel)[&first], all);
}

#[test]
fn where_another_known_thread_lives_there_was_no_exec() {
    let (kernel, all) = kernel(4);
    let first = kernel.write().unwrap().spawn(None, &all, 0.5);
    let worker = kernel.write().unwrap().fork(first, false).unwrap();
    let other = kernel.write().unwrap().fork(first, false).unwrap();
    kernel.write().unwrap().same_images = true;
    let mut journal = journal_of(&all, &[process_record(first)]);
    bind(&kernel, &mut journal, first.tid, worker, "3");
    bind(&kernel, &mut journal, first.tid, other, "2");
    kernel.write().unwrap().end(worker);
    kernel.write().unwrap().taskset(first, &set("3"));
    let report = restore(&mut Knob(Arc::clone(&kernel)), &journal, None).masks;
    assert_eq!((report.restored, report.gone), (1, 1), "{report:?}");
    assert_eq!(report.failed, [], "{report:?}");
    assert_eq!(masks(&kernel)[&first], set("3"));
}

#[test]
fn what_an_ended_process_cannot_have_started_is_left_alone() {
    let (kernel, all) = kernel(4);
    let spawn = |mask: &PuSet| {
        let mut kernel = kernel.write().unwrap();
        let first = kernel.spawn(None, mask, 0.5);
        // Time goes on.
        let helper = kernel.fork(first, false).unwrap();
        kernel.end(helper);
        first
    };
    let (lasting, gone) = (spawn(&all), spawn(&all));
    let mut journal = journal_of(&all, &[process_record(lasting)]);
    journal.add(&Record::Process(process_record(gone)));
    bind(&kernel, &mut journal, gone.tid, gone, "3");
    // Both are in its group; the second is a stranger's, to whom its number was given.
    let own = spawn(&set("3"));
    kernel.write().unwrap().end(gone);
    journal.add(&Record::Process(ProcessRecord {
        ended: Some(now()),
        ..process_record(gone)
    }));
    spawn(&all);
    let strange = spawn(&set("3"));
    for daemon in [own, strange] {
        let mut kernel = kernel.write().unwrap();
        kernel.daemons.insert(daemon.tid);
        kernel.leaders.insert(daemon.tid, gone.tid);
    }
    let report = restore(&mut Knob(Arc::clone(&kernel)), &journal, None).masks;
    assert_eq!(masks(&kernel)[&own], all);
    assert_eq!(masks(&kernel)[&strange], set("3"));
    let failed: Vec<_> = report.failed.iter().map(|(thread, _)| *thread).collect();
    assert_eq!(failed, [Some(strange)]);
    // Later all that it has started is known.
    let process = process(gone);
    journal.add(&Record::Forgotten { process });
    let report = restore(&mut Knob(Arc::clone(&kernel)), &journal, None);
    assert!(!report.has_failed(), "{report:?}");
    assert_eq!(masks(&kernel)[&strange], set("3"));
}

#[test]
fn threads_that_perch_has_seen_free_are_no_heirs() {
    let (kernel, all) = kernel(4);
    let first = kernel.write().unwrap().spawn(None, &all, 0.5);
    let worker = kernel.write().unwrap().fork(first, false).unwrap();
    let (dir, acting) = common::live();
    let policy = move |_: &Snapshot| common::bindings(vec![common::bind(worker, "3")]);
    // Created after the worker was bound, by a thread that was not.
    let mut script = common::steps(4);
    script[2].before = vec![Op::Fork {
        of: 0,
        own_process: false,
    }];
    let mut session = common::session(&kernel, script, policy, acting, false);
    let mut seen = Copied {
        from: dir.path().to_owned(),
        bytes: Vec::new(),
    };
    session.run(&mut seen).unwrap();
    let journal = Journal::parse(&seen.bytes).unwrap();
    let id = |n| kernel.read().unwrap().nth(n).unwrap();
    let free = id(2);
    assert_eq!(
        journal.thread(free),
        Some(&Kept::Free { process: first.tid })
    );
    // Perch was killed, and others set these.
    for thread in [worker, free] {
        kernel.write().unwrap().taskset(thread, &set("3"));
    }
    let report = restore(&mut Knob(Arc::clone(&kernel)), &journal, None).masks;
    assert_eq!((report.restored, report.inherited), (1, 0), "{report:?}");
    assert_eq!(masks(&kernel)[&worker], all);
    assert_eq!(masks(&kernel)[&free], set("3"));
}

/// Copies the journal as it is after the last observation.
struct Copied {
    from: std::path::PathBuf,
    bytes: Vec<u8>,
}

impl SessionSink for Copied {
    fn period(&mut self, _: &Period) {
        for entry in std::fs::read_dir(&self.from).unwrap() {
            self.bytes = std::fs::read(entry.unwrap().path()).unwrap();
        }
    }
}

#[test]
fn a_mask_of_a_thread_older_than_perchs_is_anothers() {
    let (kernel, all) = kernel(4);
    let first = kernel.write().unwrap().spawn(None, &all, 0.5);
    let worker = kernel.write().unwrap().fork(first, false).unwrap();
    let mut journal = journal_of(&all, &[process_record(first)]);
    bind(&kernel, &mut journal, first.tid, worker, "3");
    kernel.write().unwrap().taskset(first, &set("3"));
    let child = kernel.write().unwrap().fork(first, false).unwrap();
    let report = restore(&mut Knob(Arc::clone(&kernel)), &journal, None).masks;
    assert_eq!((report.restored, report.inherited), (1, 0), "{report:?}");
    assert_eq!(masks(&kernel)[&worker], all);
    assert_eq!(masks(&kernel)[&first], set("3"));
    assert_eq!(masks(&kernel)[&child], set("3"));
}

#[test]
fn what_was_adopted_is_reported() {
    let (kernel, all) = kernel(4);
    let first = kernel.write().unwrap().spawn(None, &all, 0.5);
    let bound = kernel.write().unwrap().fork(first, true).unwrap();
    let other = kernel.write().unwrap().fork(first, true).unwrap();
    let processes = [first, bound, other].map(process_record);
    let mut journal = journal_of(&all, &processes);
    bind(&kernel, &mut journal, bound.tid, bound, "3");
    let fork = |of| kernel.write().unwrap().fork(of, true).unwrap();
    // The first process adopts orphans. Below the other one there is nothing of perch's.
    let (adopted, stranger, free) = (fork(bound), fork(other), fork(first));
    kernel
        .write()
        .unwrap()
        .parents
        .insert(adopted.tid, first.tid);
    kernel.write().unwrap().taskset(stranger, &set("3"));
    // With a thread that is in no journal its parent shows.
    kernel.write().unwrap().fork(bound, false).unwrap();
    let report = restore(&mut Knob(Arc::clone(&kernel)), &journal, None).masks;
    let failed: Vec<_> = report.failed.iter().map(|(thread, _)| *thread).collect();
    assert_eq!(failed, [Some(adopted)], "{report:?}");
    let masks = masks(&kernel);
    assert_eq!(masks[&bound], all);
    assert_eq!(masks[&free], all);
    assert_eq!(
        (&masks[&adopted], &masks[&stranger]),
        (&set("3"), &set("3"))
    );
}

#[test]
fn each_thread_is_judged_by_its_own_cpu_set() {
    let (kernel, all) = kernel(4);
    let first = kernel.write().unwrap().spawn(None, &all, 0.5);
    let worker = kernel.write().unwrap().fork(first, false).unwrap();
    let placed = kernel.write().unwrap().fork(first, false).unwrap();
    let mut journal = journal_of(&all, &[process_record(first)]);
    bind(&kernel, &mut journal, first.tid, worker, "3");
    // Its CPU set allows no other, which perch took for another's mask.
    journal.add(&Record::Placed {
        thread: placed,
        process: first.tid,
        mask: set("3"),
    });
    let fork = |of| kernel.write().unwrap().fork(of, false).unwrap();
    let (_free, heir, moved) = (fork(first), fork(worker), fork(worker));
    for (thread, pus) in [(placed, "3"), (moved, "1")] {
        kernel.write().unwrap().own_cpusets.insert(thread, set(pus));
    }
    let report = restore(&mut Knob(Arc::clone(&kernel)), &journal, None).masks;
    assert_eq!((report.restored, report.inherited), (3, 2), "{report:?}");
    kernel.write().unwrap().own_cpusets.clear();
    for thread in [worker, heir, moved, placed] {
        assert_eq!(masks(&kernel)[&thread], all, "{thread:?}");
    }
}
