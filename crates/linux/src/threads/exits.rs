//! What threads did up to their very end, where the kernel's exit records tell: the last moments of followed threads, and
//! the whole life of those that came and went between two looks.
//!
//! A record tells the run time as of the last clock tick or switch before. The processes' accounts hold what came after;
//! it is divided among the threads that ended since the last look, in proportion to what each can have had. One whose
//! record was lost can have had all of the time since it was last read.

use super::{Created, SECOND, Sampled, Tracker};
use crate::{
    proc::RunClock,
    taskstats::{Exit, ExitRecord, ExitRecords},
};
use perch_core::{Remark, ThreadId, ThreadInfo, ThreadSample, text};
use rustc_hash::FxHashMap;
use rustix::time::{ClockId, clock_getres};
use std::mem;

/// Records of so many threads are kept in each generation: most are of strangers.
const KEPT: usize = 1 << 16;

/// A record is made, and a creation told, up to this much later than it happened: the thread may have to wait for a PU in
/// between. A number is not given out again as soon.
const LATE: u64 = SECOND;

/// A record, and whether a sample has told of it.
#[derive(Debug)]
struct Kept {
    exit: Exit,
    told: bool,
}

/// The records that came lately.
#[derive(Debug, Default)]
pub(super) struct Exits {
    source: Option<ExitRecords>,
    /// When the machine was opened, in nanoseconds of CLOCK_MONOTONIC.
    opened: u64,
    /// By thread number.
    present: FxHashMap<i32, Kept>,
    last: FxHashMap<i32, Kept>,
    /// Nanoseconds between two clock ticks of the kernel; 0 without records.
    tick: u64,
    /// Threads that ended since the last sample, and by how much the run time of each may be too short.
    short: Vec<(ThreadId, u64)>,
    /// Threads that came and went since the last sample.
    passed: Vec<Created>,
    /// Followed threads whose record had not come when their last sample was taken, by number: when each began, at the
    /// earliest and at the latest, in nanoseconds of CLOCK_MONOTONIC.
    unrecorded: FxHashMap<i32, (u64, u64)>,
    last_unrecorded: FxHashMap<i32, (u64, u64)>,
    /// Whether records were lost.
    lost: bool,
}

impl Exits {
    /// Takes in what waits.
    fn drain(&mut self) {
        let Some(source) = &mut self.source else {
            return;
        };
        let (exits, lost) = source.drain();
        self.lost |= lost;
        for exit in exits {
            if self.present.len() < KEPT {
                let kept = Kept { exit, told: false };
                self.present.insert(exit.record.tid, kept);
            }
        }
    }

    /// The record of a thread that has ended and that began in this span of CLOCK_MONOTONIC, in nanoseconds; and whether
    /// it was asked for before.
    fn of(&mut self, tid: i32, began: (u64, u64)) -> Option<(ExitRecord, bool)> {
        let kept = match self.present.get_mut(&tid) {
            Some(kept) => kept,
            None => self.last.get_mut(&tid)?,
        };
        let (record, made) = (kept.exit.record, kept.exit.made);
        let start = |end: u64| end.saturating_sub(record.elapsed);
        let same = start(made.0) <= began.1 + LATE && began.0 <= start(made.1) + LATE;
        same.then(|| (record, mem::replace(&mut kept.told, true)))
    }

    /// The record of a followed thread.
    pub fn of_followed(&mut self, id: ThreadId, tick: u64) -> Option<ExitRecord> {
        let start = id.start.saturating_mul(tick);
        // /proc counts suspended time before the start, CLOCK_MONOTONIC does not.
        let suspended = suspended();
        let began = (start.saturating_sub(suspended), start + tick);
        let mut told = self.of(id.tid, began);
        if told.is_none() {
            // It may have ended a moment ago.
            self.drain();
            told = self.of(id.tid, began);
        }
        if told.is_none() && self.unrecorded.len() < KEPT {
            self.unrecorded.insert(id.tid, began);
        }
        told.map(|(record, _)| record)
    }

    /// Whether samples have told of a thread, though its record came later or not at all. Its creation may be told later
    /// still, as of one that came and went.
    fn was_followed(&self, created: &Created) -> bool {
        let began = self.unrecorded.get(&created.tid);
        let began = began.or_else(|| self.last_unrecorded.get(&created.tid));
        let at = created.at + self.opened;
        began.is_some_and(|began| began.0 <= at + LATE && at <= began.1 + LATE)
    }

    /// The name of a thread that has ended.
    fn name_of(&self, tid: i32) -> Option<String> {
        let kept = self.present.get(&tid).or_else(|| self.last.get(&tid));
        kept.map(|kept| name(&kept.exit.record))
    }

    /// The record of a thread that came and went.
    fn of_passed(&mut self, created: &Created) -> Option<(ExitRecord, bool)> {
        let at = created.at + self.opened;
        self.of(created.tid, (at, at))
    }

    /// A sample tells of a thread what its record does, and no more.
    pub fn note(&mut self, id: ThreadId, record: &ExitRecord) {
        let known = record.run.saturating_add(record.wait);
        let short = record.elapsed.saturating_sub(known).min(self.tick);
        self.short.push((id, short));
    }

    /// Nothing tells what a thread did between its last sample and its end.
    pub fn note_unrecorded(&mut self, last: &ThreadSample) {
        if self.tick > 0 {
            let short = last.interval.saturating_sub(last.cpu_time);
            self.short.push((last.info.id, short));
        }
    }

    /// What is remembered grows older.
    pub fn age(&mut self) {
        self.last = mem::take(&mut self.present);
        self.last_unrecorded = mem::take(&mut self.unrecorded);
    }

    /// Whether threads have come and gone since the last sample.
    pub fn has_passed(&self) -> bool {
        !self.passed.is_empty()
    }

    /// A thread came and went. False if there are no records of such threads.
    pub fn passed(&mut self, created: &Created) -> bool {
        if self.source.is_some() {
            self.passed.push(*created);
        }
        self.source.is_some()
    }
}

impl Tracker {
    /// From now on the kernel tells what threads did up to their end, if it may: `opened` is when the machine was opened,
    /// in nanoseconds of CLOCK_MONOTONIC. Whether it does.
    pub fn open_exit_records(&mut self, opened: u64) -> bool {
        // Records hold the numbers of schedstat.
        if self.exits.source.is_none() && self.clock == RunClock::Schedstat {
            self.exits.source = ExitRecords::open();
            self.exits.opened = opened;
            // What the coarse clocks go by.
            let tick = clock_getres(ClockId::MonotonicCoarse);
            self.exits.tick = tick.tv_sec as u64 * SECOND + tick.tv_nsec as u64;
        }
        self.exits.source.is_some()
    }

    /// Nothing is followed any more.
    pub fn close_exit_records(&mut self) {
        self.unseen += self.exits.passed.len() as u64;
        self.exits = Exits::default();
    }

    /// Takes in the kernel's exit records, so that they need not wait for the end of a period.
    pub fn drain_exit_records(&mut self) {
        self.exits.drain();
        if mem::take(&mut self.exits.lost) {
            let text = "the kernel had more to tell of threads that ended than perch could take in: the CPU time of \
                        some is estimated";
            self.remarks
                .push(Remark::warning("exit-records-lost", text).once());
        }
    }

    /// Adds the threads that came and went since the last sample, or counts those without a record.
    pub(super) fn sample_passed(&mut self, sampled: &mut Sampled) {
        let passed = mem::take(&mut self.exits.passed);
        let before = sampled.threads.len();
        for created in passed {
            // What it did since its last sample is in the accounts.
            if self.exits.was_followed(&created) {
                continue;
            }
            match self.exits.of_passed(&created) {
                Some((record, false)) => {
                    let sample = self.whole_life(&created, &record);
                    self.accounts.sampled(sample.cpu_time);
                    self.exits.note(sample.info.id, &record);
                    sampled.ended.push(sample.info.id);
                    sampled.threads.push(sample);
                }
                // /proc had shown it.
                Some((_, true)) => {}
                None => self.unseen += 1,
            }
        }
        if sampled.threads.len() > before {
            sampled.threads.sort_by_key(|sample| sample.info.id);
        }
    }

    /// Divides what the accounts tell beyond the records.
    pub(super) fn divide_rest(&mut self, sampled: &mut Sampled) {
        let short = mem::take(&mut self.exits.short);
        let all: u64 = short.iter().map(|(_, short)| short).sum();
        let rest = self.accounts.rest().min(all);
        if rest == 0 {
            return;
        }
        for (id, short) in short {
            let part = (u128::from(rest) * u128::from(short) / u128::from(all)) as u64;
            let place = sampled
                .threads
                .binary_search_by_key(&id, |sample| sample.info.id);
            if let Some(sample) = place.ok().and_then(|at| sampled.threads.get_mut(at)) {
                sample.cpu_time += part;
                sample.interval = sample.interval.max(sample.cpu_time);
                self.accounts.sampled(part);
            }
        }
    }

    /// The only sample of a thread that came and went.
    fn whole_life(&mut self, created: &Created, record: &ExitRecord) -> ThreadSample {
        let at = created.at + self.exits.opened;
        let start = (at + suspended()) / self.tick;
        let name = self.names.get(&name(record));
        let process = match self.processes.get(&created.pid) {
            Some(process) => process.name.clone(),
            // It has ended too: its first thread's record tells.
            None => match self.exits.name_of(created.pid) {
                Some(first) => self.names.get(&first),
                None => name.clone(),
            },
        };
        ThreadSample {
            info: ThreadInfo {
                id: ThreadId {
                    tid: created.tid,
                    start,
                },
                pid: created.pid,
                name,
                process,
                work: perch_core::Work::default(),
            },
            interval: record.elapsed.max(record.run),
            cpu_time: record.run,
            wait_time: record.wait,
            switches: Some(record.slices),
            migrations: None,
            last_pu: None,
            mask: None,
            counts: Vec::new(),
            event_set: None,
            metrics: Default::default(),
        }
    }
}

fn name(record: &ExitRecord) -> String {
    let name = record.name.split(|byte| *byte == 0).next();
    text::name(name.unwrap_or_default())
}

/// For how long the machine was suspended since it was booted, in nanoseconds.
fn suspended() -> u64 {
    super::sample::since_boot().saturating_sub(crate::perf::task_events::monotonic())
}

#[cfg(test)]
mod tests {
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
        let sampled = tracker.sample(SECOND);
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
}
