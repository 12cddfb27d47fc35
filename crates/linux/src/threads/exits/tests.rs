//! What is made of exit records: each reported once, divided, kept while others may come late.

use super::*;

/// A thread that began 5 s after the machine was opened and lived for 2 s.
const TID: i32 = 77;
const OPENED: u64 = 1_000 * SECOND;
const CREATED: Created = Created {
    pid: TID,
    tid: TID,
    by_pid: 1,
    by_tid: 1,
    at: 5 * SECOND,
};

fn exit() -> Exit {
    Exit {
        record: ExitRecord {
            tid: TID,
            name: *b"brief\0\0\0\0\0\0\0\0\0\0\0",
            elapsed: 2 * SECOND,
            run: SECOND,
            wait: 3,
            slices: 4,
        },
        made: (OPENED + 7 * SECOND, OPENED + 8 * SECOND),
    }
}

fn tracker(exit: Exit) -> Tracker {
    let mut tracker = Tracker::new();
    tracker.exits.opened = OPENED;
    let kept = Kept { exit, told: false };
    tracker.exits.present.insert(TID, kept);
    tracker
}

#[test]
fn a_thread_that_came_and_went_is_told_once_with_its_whole_life() {
    let mut tracker = tracker(exit());
    // Its creation may be told again by /proc, or late.
    tracker.exits.passed = vec![CREATED, CREATED];
    let sampled = tracker.sample(SECOND);
    assert_eq!(tracker.take_unseen(), 0);
    let [sample] = &sampled.threads[..] else {
        panic!("{sampled:?}");
    };
    assert_eq!(sampled.ended, [sample.info.id]);
    let info = &sample.info;
    assert_eq!(
        (info.id.tid, info.pid, &*info.name, &*info.process),
        (TID, TID, "brief", "brief")
    );
    assert_eq!(
        (sample.cpu_time, sample.wait_time, sample.switches),
        (SECOND, 3, Some(4))
    );
    assert_eq!(sample.interval, 2 * SECOND);
}

/// A busy kernel tells late that a thread has ended, and later that it was created: what samples have told of it is
/// not told again.
#[test]
fn a_thread_whose_record_comes_late_is_not_told_again() {
    let mut tracker = tracker(exit());
    tracker.exits.present.clear();
    let began = OPENED + CREATED.at + suspended();
    let id = ThreadId {
        tid: TID,
        start: began / SECOND,
    };
    assert!(tracker.exits.of_followed(id, SECOND).is_none());
    let kept = Kept {
        exit: exit(),
        told: false,
    };
    tracker.exits.present.insert(TID, kept);
    tracker.exits.passed = vec![CREATED];
    assert!(tracker.sample(SECOND).threads.is_empty());
    assert_eq!(tracker.take_unseen(), 0);
    // Another one with its number, later.
    let later = Created {
        at: CREATED.at + 10 * SECOND,
        ..CREATED
    };
    tracker.exits.passed = vec![later];
    tracker.sample(SECOND);
    assert_eq!(tracker.take_unseen(), 1);
}

#[test]
fn records_of_strangers_and_of_earlier_threads_with_the_number_say_nothing() {
    let mut tracker = tracker(exit());
    assert!(tracker.sample(SECOND).threads.is_empty());
    // It began when the other had ended, or lived for longer than since then.
    for (at, elapsed) in [(10 * SECOND, 2 * SECOND), (5 * SECOND, 9 * SECOND)] {
        let mut exit = exit();
        exit.record.elapsed = elapsed;
        let mut tracker = self::tracker(exit);
        tracker.exits.passed = vec![Created { at, ..CREATED }];
        assert!(tracker.sample(SECOND).threads.is_empty());
        assert_eq!(tracker.take_unseen(), 1);
    }
}

#[test]
fn what_came_after_the_records_is_divided_by_what_each_can_have_had() {
    let mut tracker = tracker(exit());
    let mut other = exit();
    // It waited for all but 1 ms of the time in which it did not run.
    (other.record.tid, other.record.wait) = (TID + 1, SECOND - 1_000_000);
    let kept = Kept {
        exit: other,
        told: false,
    };
    tracker.exits.present.insert(TID + 1, kept);
    tracker.exits.tick = 4_000_000;
    tracker.exits.passed = vec![
        CREATED,
        Created {
            tid: TID + 1,
            ..CREATED
        },
    ];
    // The records alone tell 2 s; after them the first can have had one tick, the other 1 ms.
    tracker.orphan_ended(TID, 2 * SECOND + 2_500_000);
    let mut sampled = tracker.sample(SECOND);
    tracker.divide_rest(&mut sampled);
    let times: Vec<u64> = sampled
        .threads
        .iter()
        .map(|sample| sample.cpu_time)
        .collect();
    assert_eq!(times, [SECOND + 2_000_000, SECOND + 500_000]);
    assert_eq!(tracker.take_unmeasured(), 0);
    // What is more than they can have had is nobody's.
    tracker.orphan_ended(TID, SECOND);
    assert!(tracker.sample(SECOND).threads.is_empty());
    assert_eq!(tracker.take_unmeasured(), SECOND);
}

#[test]
fn a_lost_record_may_have_told_of_all_the_time_since_the_last_sample() {
    let mut tracker = tracker(exit());
    tracker.exits.tick = 4_000_000;
    let lost = Created {
        tid: TID + 1,
        ..CREATED
    };
    let record = exit().record;
    let mut sampled = Sampled {
        threads: vec![
            tracker.whole_life(&CREATED, &record),
            tracker.whole_life(&lost, &record),
        ],
        ..Sampled::default()
    };
    // It slept until it was read last, 396 ms before its end.
    let last = &mut sampled.threads[1];
    (last.cpu_time, last.interval) = (0, 396_000_000);
    tracker.exits.note(sampled.threads[0].info.id, &record);
    tracker.exits.note_unrecorded(&sampled.threads[1]);
    tracker.orphan_ended(TID, 200_000_000);
    tracker.divide_rest(&mut sampled);
    let times = sampled.threads.iter().map(|sample| sample.cpu_time);
    let times: Vec<u64> = times.collect();
    assert_eq!(times, [record.run + 2_000_000, 198_000_000]);
    assert_eq!(tracker.take_unmeasured(), 0);
}

#[test]
fn records_are_kept_while_others_may_come_late() {
    let mut tracker = tracker(exit());
    tracker.exits.age();
    let mut exit = exit();
    (exit.record.tid, exit.record.name[0]) = (TID + 1, b'g');
    let kept = Kept { exit, told: false };
    tracker.exits.present.insert(TID + 1, kept);
    let second = Created {
        tid: TID + 1,
        ..CREATED
    };
    tracker.exits.passed = vec![CREATED, second];
    let sampled = tracker.sample(SECOND);
    let names = sampled.threads.iter();
    let names: Vec<_> = names
        .map(|of| (&*of.info.name, &*of.info.process))
        .collect();
    assert_eq!(names, [("brief", "brief"), ("grief", "brief")]);
    tracker.exits.age();
    tracker.exits.passed = vec![CREATED];
    assert!(tracker.sample(SECOND).threads.is_empty());
}

#[test]
fn lost_records_are_said_and_those_threads_counted() {
    let mut tracker = Tracker::new();
    if !tracker.open_exit_records(0) {
        return perch_skip::skip!(Root, "exit records are refused here");
    }
    let source = tracker.exits.source.as_ref().expect("open");
    source.keep_few();
    for _ in 0..50 {
        std::thread::spawn(|| ()).join().unwrap();
    }
    tracker.drain_exit_records();
    let remarks = tracker.take_remarks();
    assert!(
        remarks
            .iter()
            .any(|remark| remark.code == "exit-records-lost"),
        "{remarks:?}"
    );
    tracker.drain_exit_records();
    assert!(tracker.take_remarks().is_empty());
    tracker.came_and_went(&CREATED);
    assert_eq!(tracker.take_unseen(), 0);
    tracker.sample(SECOND);
    assert_eq!(tracker.take_unseen(), 1);
}
