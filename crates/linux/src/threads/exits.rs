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

/// Nanoseconds that are worth to be called an estimate.
const ESTIMATED: u64 = SECOND / 100;

/// A record, and whether a sample has told of it.
#[derive(Debug)]
struct Kept {
    exit: Exit,
    told: bool,
}

/// A thread that has ended, whose run time may be too short.
#[derive(Debug, Clone, Copy)]
struct Short {
    id: ThreadId,
    /// By how many nanoseconds at most.
    by: u64,
    /// Whether the kernel's record told the rest.
    recorded: bool,
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
    /// Nanoseconds between two clock ticks of the kernel; 0 before records were asked for.
    tick: u64,
    /// Threads that ended since the last sample.
    short: Vec<Short>,
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
        let by = record.elapsed.saturating_sub(known).min(self.tick);
        self.short.push(Short {
            id,
            by,
            recorded: true,
        });
    }

    /// Nothing tells what a thread did between its last sample and its end.
    pub fn note_unrecorded(&mut self, last: &ThreadSample) {
        if self.tick > 0 {
            self.short.push(Short {
                id: last.info.id,
                by: last.interval.saturating_sub(last.cpu_time),
                recorded: false,
            });
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

    /// Divides what the accounts tell beyond the records, after counters have told what they can.
    pub fn divide_rest(&mut self, sampled: &mut Sampled) {
        let mut short = mem::take(&mut self.exits.short);
        short.retain(|short| short.recorded || !sampled.counted_to_end.contains(&short.id));
        let all: u64 = short.iter().map(|short| short.by).sum();
        let rest = self.accounts.rest().min(all);
        if rest == 0 {
            return;
        }
        let guessed = short.iter().filter(|short| !short.recorded && short.by > 0);
        if guessed.count() > 1 && rest > ESTIMATED && self.exits.source.is_none() {
            let text = "without CAP_NET_ADMIN the kernel does not tell how long threads ran in the interval in which they \
                        ended: where there were several, the CPU time of each is estimated";
            self.remarks
                .push(Remark::note("ends-estimated", text).once());
        }
        for Short { id, by, .. } in short {
            let part = (u128::from(rest) * u128::from(by) / u128::from(all)) as u64;
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
mod tests;
