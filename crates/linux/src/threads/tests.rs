//! The tracker on threads of this very process.

use super::{adding::MASKS_AT_ONCE, *};
use crate::{affinity::LinuxAffinity, limits::Purpose, proc::Stat};
use perch_core::{Affinity, MaskChange, Origin, Outcome, Source, ThreadSample};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
};

/// A thread that computes until it is dropped.
struct Busy {
    id: ThreadId,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    fn new() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (send, receive) = mpsc::channel();
        let stopped = Arc::clone(&stop);
        let work = move || {
            send.send(rustix::thread::gettid().as_raw_nonzero().get())
                .unwrap();
            while !stopped.load(Ordering::Relaxed) {
                std::hint::black_box((0..1000).sum::<u64>());
            }
        };
        let thread = std::thread::Builder::new()
            .name("busy (one) x".into())
            .spawn(work)
            .unwrap();
        let tid = receive.recv().unwrap();
        let start = crate::proc::start_of(tid).unwrap();
        Self {
            id: ThreadId { tid, start },
            stop,
            thread: Some(thread),
        }
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.end();
    }
}

fn own_pid() -> i32 {
    std::process::id() as i32
}

/// Samples until the thread's sample is as wanted.
fn sample_until(
    tracker: &mut Tracker,
    id: ThreadId,
    wanted: impl Fn(&ThreadSample) -> bool,
) -> ThreadSample {
    for _ in 0..500 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        let sampled = tracker.sample(10_000_000);
        let sample = sampled
            .threads
            .into_iter()
            .find(|s| s.info.id == id)
            .expect("followed");
        if wanted(&sample) {
            return sample;
        }
    }
    panic!("never as wanted");
}

#[test]
fn without_descriptors_the_same_is_read() {
    let busy = Busy::new();
    for budget in [0, 1000] {
        let mut tracker = Tracker::new();
        tracker.budget = Budget::of(budget);
        assert!(tracker.follow_running(own_pid(), 0));
        let sample = sample_until(&mut tracker, busy.id, |s| s.cpu_time > 0);
        assert_eq!(&*sample.info.name, "busy (one) x");
        assert!(sample.last_pu.is_some());
        let told = tracker
            .take_remarks()
            .iter()
            .filter(|r| r.text.contains("descriptors"))
            .count();
        assert_eq!(told, usize::from(budget == 0));
        assert!(tracker.budget.used(Purpose::Threads) <= budget);
    }
}

#[test]
fn an_ended_thread_is_told_once_and_its_descriptors_are_closed() {
    let mut busy = Busy::new();
    let mut tracker = Tracker::new();
    tracker.budget = Budget::of(1000);
    tracker.follow_running(own_pid(), 0);
    sample_until(&mut tracker, busy.id, |s| s.cpu_time > 0);
    busy.end();
    let mut ended = 0;
    for _ in 0..500 {
        let sampled = tracker.sample(1_000_000);
        ended += sampled.ended.iter().filter(|id| **id == busy.id).count();
        if sampled.threads.iter().all(|s| s.info.id != busy.id) {
            break;
        }
    }
    assert_eq!(ended, 1);
    let kept =
        |thread: &Thread| usize::from(thread.file.is_some()) + usize::from(thread.stat.is_some());
    assert_eq!(
        tracker.budget.used(Purpose::Threads),
        tracker.threads.values().map(kept).sum::<usize>()
    );
}

#[test]
fn a_changed_mask_is_noticed_and_an_unchanged_one_not_told_again() {
    let busy = Busy::new();
    let mut tracker = Tracker::new();
    tracker.follow_running(own_pid(), 0);
    let first = sample_until(&mut tracker, busy.id, |s| s.mask.is_some());
    let default = first.mask.unwrap();
    let again = sample_until(&mut tracker, busy.id, |s| s.cpu_time > 0);
    assert_eq!(again.mask, None);
    let one = PuSet::single(default.first().unwrap());
    let outcome = LinuxAffinity::new().change(&MaskChange {
        thread: busy.id,
        process: own_pid(),
        expect: default.clone(),
        set: one.clone(),
        to_default: false,
    });
    assert_eq!(outcome, Outcome::Applied);
    if one != default {
        let changed = sample_until(&mut tracker, busy.id, |s| s.mask.is_some());
        assert_eq!(changed.mask, Some(one.clone()));
    }
    tracker.read_masks_again();
    let told = sample_until(&mut tracker, busy.id, |s| s.mask.is_some());
    assert_eq!(told.mask, Some(one));
}

#[test]
fn of_many_threads_each_has_its_own_mask() {
    let (send, receive) = mpsc::channel();
    let end = Arc::new(std::sync::Barrier::new(MASKS_AT_ONCE + 2));
    let start = |_| {
        let (send, end) = (send.clone(), Arc::clone(&end));
        std::thread::spawn(move || {
            let own = rustix::thread::gettid();
            send.send(own.as_raw_nonzero().get()).unwrap();
            end.wait();
        })
    };
    let threads: Vec<JoinHandle<()>> = (0..=MASKS_AT_ONCE).map(start).collect();
    let tids: Vec<i32> = receive.iter().take(threads.len()).collect();
    let ids = tids.into_iter().map(|tid| ThreadId {
        tid,
        start: crate::proc::start_of(tid).unwrap(),
    });
    let ids: Vec<ThreadId> = ids.collect();
    let mut affinity = LinuxAffinity::new();
    let before = affinity.mask(ids[0]).unwrap();
    let one = PuSet::single(before.first().unwrap());
    let bound = MaskChange {
        thread: ids[MASKS_AT_ONCE / 2],
        process: own_pid(),
        expect: before.clone(),
        set: one.clone(),
        to_default: false,
    };
    assert_eq!(affinity.change(&bound), Outcome::Applied);
    let mut tracker = Tracker::new();
    tracker.follow_running(own_pid(), 0);
    let samples = tracker.sample(1_000_000).threads;
    end.wait();
    for id in &ids {
        let sample = samples.iter().find(|sample| sample.info.id == *id);
        let mask = if *id == bound.thread { &one } else { &before };
        assert_eq!(sample.unwrap().mask.as_ref(), Some(mask));
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_mask_that_was_given_back_is_noticed() {
    let busy = Busy::new();
    let mut tracker = Tracker::new();
    tracker.follow_running(own_pid(), 0);
    let first = sample_until(&mut tracker, busy.id, |s| s.mask.is_some());
    let default = first.mask.unwrap();
    let one = PuSet::single(default.first().unwrap());
    let mut affinity = LinuxAffinity::new();
    // perch binds the thread, and another process gives its mask back before perch looks.
    for (expect, set) in [(&default, &one), (&one, &default)] {
        let outcome = affinity.change(&MaskChange {
            thread: busy.id,
            process: own_pid(),
            expect: expect.clone(),
            set: set.clone(),
            to_default: false,
        });
        assert_eq!(outcome, Outcome::Applied);
    }
    for tid in affinity.take_set() {
        tracker.read_mask_again(tid);
    }
    let again = sample_until(&mut tracker, busy.id, |s| s.cpu_time > 0);
    assert_eq!(again.mask, Some(default));
}

#[test]
fn migrations_are_read_as_often_a_second_at_every_interval() {
    let busy = Busy::new();
    let mut tracker = Tracker::new();
    tracker.follow_running(own_pid(), 0);
    let first = sample_until(&mut tracker, busy.id, |s| s.mask.is_some());
    let one = PuSet::single(first.mask.as_ref().and_then(PuSet::first).unwrap());
    // Where it stays, only time is a reason.
    LinuxAffinity::new().change(&MaskChange {
        thread: busy.id,
        process: own_pid(),
        expect: first.mask.unwrap(),
        set: one,
        to_default: false,
    });
    let unread = |tracker: &Tracker| tracker.threads[&busy.id.tid].unread;
    // It has come there.
    for _ in 0..3 {
        sample_until(&mut tracker, busy.id, |s| s.cpu_time > 0);
    }
    for (milliseconds, expected) in [(1_000, 8), (5_000, 8), (500, 16)] {
        tracker.threads.get_mut(&busy.id.tid).unwrap().unread = Duration::ZERO;
        let mut ran = 0;
        while ran == 0 || unread(&tracker) > Duration::ZERO {
            std::thread::sleep(Duration::from_millis(5));
            let sampled = tracker.sample(milliseconds * 1_000_000);
            let sample = sampled.threads.iter().find(|s| s.info.id == busy.id);
            ran += usize::from(sample.expect("followed").cpu_time > 0);
        }
        assert_eq!(ran, expected, "{milliseconds} ms");
    }
}

#[test]
fn records_of_threads_that_were_never_seen_are_counted() {
    let mut tracker = Tracker::new();
    tracker.follow_running(own_pid(), 0);
    let nobody = i32::MAX;
    // Reported as created and ended; reported as created but no longer in /proc; another process's thread.
    tracker.forked(created(own_pid(), nobody, own_pid()));
    tracker.exited(nobody);
    tracker.forked(created(nobody - 1, nobody - 1, own_pid()));
    tracker.forked(created(1, nobody - 2, 1));
    tracker.discover();
    assert_eq!(tracker.take_unseen(), 2);
    assert_eq!(tracker.take_unseen(), 0);
}

fn created(pid: i32, tid: i32, by: i32) -> Created {
    Created {
        pid,
        tid,
        by_pid: by,
        by_tid: by,
        at: 0,
    }
}

/// A process that sleeps until it is dropped, and whose parent is this one.
struct Sleeper(std::process::Child);

impl Sleeper {
    fn new() -> Self {
        let mut command = std::process::Command::new("sleep");
        let sleeper = Self(command.arg("600").spawn().unwrap());
        // spawn() returns before the kernel has set up all of the new program.
        let sleeps = |stat: Stat<'_>| stat.state == b'S' && stat.image.0 > 1;
        while !Reader::new()
            .stat(sleeper.pid(), sleeper.pid())
            .is_ok_and(sleeps)
        {
            std::thread::yield_now();
        }
        sleeper
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Which of the two ancestors of a daemon live when is decided here; the daemon itself is a process that `/proc` shows
/// to be a stranger.
#[test]
fn a_daemon_is_followed_though_nobody_has_seen_its_parents() {
    const PARENT: i32 = i32::MAX;
    let follows = |records: &dyn Fn(&mut Tracker, i32, i32)| {
        let (given, daemon) = (Sleeper::new(), Sleeper::new());
        let mut tracker = Tracker::new();
        assert!(tracker.follow_running(given.pid(), 0));
        tracker.discover();
        tracker.sample(1_000_000);
        records(&mut tracker, given.pid(), daemon.pid());
        tracker.discover();
        tracker
            .processes()
            .any(|(process, _)| process.pid == daemon.pid())
    };
    // The parent was reported, but had exited when perch looked at it; then its child is reported.
    assert!(follows(&|tracker, given, daemon| {
        tracker.forked(created(PARENT, PARENT, given));
        tracker.discover();
        tracker.forked(created(daemon, daemon, PARENT));
        tracker.exited(PARENT);
    }));
    // The parent exits after it was seen and before its child is reported.
    assert!(follows(&|tracker, given, daemon| {
        let parent = Sleeper::new();
        tracker.forked(created(parent.pid(), parent.pid(), given));
        tracker.discover();
        let pid = parent.pid();
        drop(parent);
        tracker.sample(1_000_000);
        tracker.forked(created(daemon, daemon, pid));
    }));
    // The child's record is read before its parent's, of another CPU.
    assert!(follows(&|tracker, given, daemon| {
        tracker.forked(created(daemon, daemon, PARENT));
        tracker.exited(PARENT);
        tracker.discover();
        tracker.forked(created(PARENT, PARENT, given));
    }));
    // Another program's daemon.
    assert!(!follows(&|tracker, given, daemon| {
        tracker.forked(created(PARENT - 1, PARENT - 1, given));
        tracker.forked(created(PARENT, PARENT, 1));
        tracker.forked(created(daemon, daemon, PARENT));
    }));
}

/// All records of a thread may come at once, after `/proc` has shown it and perch may have set its mask.
#[test]
fn a_thread_that_was_seen_before_its_records_has_created_its_children_itself() {
    let (given, creator, child) = (Sleeper::new(), Sleeper::new(), Sleeper::new());
    let mut tracker = Tracker::new();
    for process in [&given, &creator] {
        assert!(tracker.follow_running(process.pid(), 0));
    }
    tracker.discover();
    tracker.sample(1_000_000);
    tracker.take_origins();
    tracker.forked(created(creator.pid(), creator.pid(), given.pid()));
    tracker.forked(created(child.pid(), child.pid(), creator.pid()));
    tracker.exited(creator.pid());
    tracker.discover();
    tracker.sample(1_000_000);
    let origins = tracker.take_origins();
    let origin = origins
        .iter()
        .find(|origin| origin.thread.tid == child.pid());
    let Some(Source::Thread(from)) = origin.map(|origin| origin.from) else {
        panic!("{origins:?}");
    };
    assert_eq!(from.tid, creator.pid());
}

/// The only origin of this process's first thread.
fn origin_of(tracker: &mut Tracker, pid: i32) -> Origin {
    let mut origins = tracker.take_origins();
    origins.retain(|origin| origin.thread.tid == pid);
    assert_eq!(origins.len(), 1, "{origins:?}");
    origins.remove(0)
}

/// A process, its first thread's end and the execve of another thread are reported before anybody has looked.
#[test]
fn a_process_that_nobody_saw_before_its_thread_called_execve_comes_from_its_creator() {
    const PARENT: i32 = i32::MAX;
    const CALLER: i32 = i32::MAX - 1;
    for by_way_of_another in [false, true] {
        let (given, second, program) = (Sleeper::new(), Sleeper::new(), Sleeper::new());
        let pid = program.pid();
        let mut tracker = Tracker::new();
        for (target, process) in [(0, &given), (1, &second)] {
            assert!(tracker.follow_running(process.pid(), target));
        }
        tracker.discover();
        tracker.sample(1_000_000);
        tracker.take_origins();
        let mut creator = second.pid();
        if by_way_of_another {
            tracker.forked(created(PARENT, PARENT, creator));
            creator = PARENT;
        }
        tracker.forked(Created {
            at: 7,
            ..created(pid, pid, creator)
        });
        tracker.forked(created(pid, CALLER, pid));
        if by_way_of_another {
            tracker.exited(PARENT);
        }
        tracker.exited(pid);
        tracker.executed(pid, 9);
        tracker.discover();
        tracker.sample(1_000_000);
        assert_eq!(tracker.target_if_followed(pid), Some(1));
        let origin = origin_of(&mut tracker, pid);
        let Source::Thread(from) = origin.from else {
            panic!("{origin:?}");
        };
        // When that is known, it is the moment at which the process was created.
        let at = (!by_way_of_another).then_some(7);
        assert_eq!((from.tid, origin.at), (second.pid(), at));
        // What it creates from now on it has created itself.
        let child = Sleeper::new();
        tracker.forked(created(child.pid(), child.pid(), pid));
        tracker.discover();
        tracker.sample(1_000_000);
        let origin = origin_of(&mut tracker, child.pid());
        assert!(matches!(origin.from, Source::Thread(from) if from.tid == pid));
    }
}

/// The kernel reports the execve, or has lost that record.
#[test]
fn a_program_executed_after_the_first_thread_has_ended_is_followed_on() {
    const CALLER: i32 = i32::MAX;
    for reported in [true, false] {
        let process = Sleeper::new();
        let pid = process.pid();
        let mut tracker = Tracker::new();
        assert!(tracker.follow_running(pid, 3));
        tracker.sample(1_000_000);
        tracker.take_origins();
        // All that is left of it is another thread, which has taken over the number by now.
        let mut thread = tracker.threads.remove(&pid).unwrap();
        thread.id.tid = CALLER;
        thread.file = None;
        let caller = thread.id;
        tracker.threads.insert(CALLER, thread);
        if reported {
            tracker.executed(pid, 9);
        }
        let sampled = tracker.sample(1_000_000);
        assert_eq!(sampled.ended, [caller]);
        let origin = origin_of(&mut tracker, pid);
        let at = reported.then_some(9);
        let expected = (true, Source::Thread(caller), at);
        assert_eq!((origin.exec, origin.from, origin.at), expected);
        assert_eq!(tracker.target_if_followed(pid), Some(3));
        let sampled = tracker.sample(1_000_000);
        assert_eq!(sampled.ended, []);
        assert!(sampled.threads.iter().any(|of| of.info.id.tid == pid));
    }
}

/// `/proc` shows the caller under the first one's number before the kernel's record of the call comes, with or without
/// the record of the first one's end.
#[test]
fn a_caller_of_execve_is_known_though_proc_has_shown_it_under_another_number() {
    const CALLER: i32 = i32::MAX;
    for end_comes in [true, false] {
        let process = Sleeper::new();
        let pid = process.pid();
        let mut tracker = Tracker::new();
        tracker.expect_records(true);
        assert!(tracker.follow_running(pid, 3));
        let mut thread = tracker.threads.remove(&pid).unwrap();
        let first = thread.id;
        thread.id.tid = CALLER;
        thread.file = None;
        let caller = thread.id;
        tracker.threads.insert(CALLER, thread);
        assert!(tracker.add_thread(pid, pid, false));
        if end_comes {
            tracker.exited(pid);
        }
        let sampled = tracker.sample(1_000_000);
        assert_eq!(sampled.ended, [caller]);
        tracker.take_origins();
        tracker.executed(pid, 9);
        let origin = origin_of(&mut tracker, pid);
        let expected = match end_comes {
            true => Source::Thread(caller),
            false => Source::Process(pid),
        };
        assert_eq!((origin.exec, origin.from), (true, expected));
        // The next call is that of the only thread that is left.
        tracker.executed(pid, 10);
        let origin = origin_of(&mut tracker, pid);
        assert_eq!((origin.exec, origin.from), (true, Source::Thread(first)));
    }
}

/// The first thread's end is noticed in the same look, so that another with its number is sampled in the next only.
#[test]
fn a_call_of_execve_is_reported_with_the_look_that_shows_the_caller() {
    const CALLER: i32 = i32::MAX;
    for all_ended in [true, false] {
        let process = Sleeper::new();
        let pid = process.pid();
        let mut tracker = Tracker::new();
        tracker.expect_records(true);
        assert!(tracker.follow_running(pid, 3));
        let mut thread = tracker.threads.remove(&pid).unwrap();
        let first = thread.id;
        thread.id.tid = CALLER;
        let caller = thread.id;
        tracker.threads.insert(CALLER, thread);
        assert!(tracker.add_thread(pid, pid, false));
        tracker.take_origins();
        match all_ended {
            true => tracker.forget_ended(&[first, caller]),
            false => tracker.forget_ended(&[first]),
        }
        tracker.executed(pid, 9);
        assert_eq!(tracker.take_origins(), []);
        let known = tracker.take_origins();
        assert!(!known.is_empty());
        for origin in known {
            assert_eq!((origin.exec, origin.from), (true, Source::Thread(caller)));
        }
    }
}

#[test]
fn a_told_name_counts_for_thread_and_process() {
    let mut tracker = Tracker::new();
    tracker.follow_running(own_pid(), 0);
    tracker.renamed(own_pid(), "other");
    // Other tests start processes meanwhile, which are followed too.
    let own = tracker.threads.values().filter(|t| t.pid == own_pid());
    let infos: Vec<ThreadInfo> = own.map(|t| tracker.info(t)).collect();
    assert!(infos.iter().all(|info| *info.process == *"other"));
    assert!(
        infos
            .iter()
            .any(|info| info.id.tid == own_pid() && *info.name == *"other")
    );
}

#[test]
fn a_thread_whose_record_is_still_to_come_waits_for_it_once() {
    for record_comes in [false, true] {
        let mut tracker = Tracker::new();
        tracker.expect_records(true);
        tracker.follow_running(own_pid(), 0);
        tracker.discover();
        tracker.sample(1_000_000);
        tracker.take_origins();
        let busy = Busy::new();
        let look = |tracker: &mut Tracker| {
            tracker.look_everywhere_next();
            tracker.discover();
            let threads = tracker.sample(1_000_000).threads;
            let mut origins = tracker.take_origins();
            origins.retain(|origin| origin.thread == busy.id);
            (threads.iter().any(|s| s.info.id == busy.id), origins)
        };
        assert_eq!(look(&mut tracker), (false, Vec::new()));
        if record_comes {
            tracker.forked(Created {
                pid: own_pid(),
                tid: busy.id.tid,
                by_pid: own_pid(),
                by_tid: own_pid(),
                at: 1,
            });
        }
        let (sampled, origins) = look(&mut tracker);
        assert!(sampled);
        assert_eq!(origins.len(), 1);
        let from_thread = matches!(origins[0].from, Source::Thread(_));
        assert_eq!(from_thread, record_comes);
    }
}

#[test]
fn all_processes_are_followed_but_our_own() {
    let mut tracker = Tracker::new();
    tracker.follow_all(3);
    let parent = std::os::unix::process::parent_id() as i32;
    let targets = |tracker: &Tracker| -> BTreeMap<i32, u32> {
        let processes = tracker.processes();
        processes.map(|(of, target)| (of.pid, target)).collect()
    };
    let before = targets(&tracker);
    assert_eq!(before.get(&parent), Some(&3), "{before:?}");
    assert!(!before.contains_key(&own_pid()));
    // One that comes later, in a session of its own.
    let mut child = std::process::Command::new("setsid")
        .args(["sleep", "1000"])
        .spawn()
        .unwrap();
    tracker.discover();
    let after = targets(&tracker);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(after.get(&(child.id() as i32)), Some(&3));
}
