//! Reading every thread once a period: one kept descriptor each; more only of those that ran.

use super::{SECOND, Thread, Tracker, names::Names};
use crate::{
    limits::{Budget, Purpose},
    proc::{Gone, Reader, RunClock, Schedstat, Stat, parse_stat},
    span::{counted, is_due},
    taskstats::ExitRecord,
    visible::Visible,
};
use perch_core::{ThreadId, ThreadSample};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Migrations are read when a thread is seen on another PU, and at least once in so much time in which it ran, in seconds
/// or long periods: the file with them costs more to read than all others together.
pub(super) const MIGRATIONS_EVERY: Duration = Duration::from_secs(8);

/// What the threads did since the last reading.
#[derive(Debug, Default)]
pub struct Sampled {
    /// All of them, by rising id, those that ended included.
    pub threads: Vec<ThreadSample>,
    /// Those that were not there before, each with its process.
    pub new: Vec<(ThreadId, i32)>,
    /// Those that ended.
    pub ended: Vec<ThreadId>,
    /// Threads that have the number of their process's first thread now ([`Tracker::executed`]), each with what it is now.
    pub renumbered: Vec<(ThreadId, ThreadId)>,
    /// CPU time, in nanoseconds, by which counters have made samples of these longer.
    pub counted_late: u64,
    /// Those that ended whose whole time their counters tell.
    pub counted_to_end: BTreeSet<ThreadId>,
}

impl Tracker {
    /// Reads all threads. `interval` is the time since the last reading in nanoseconds.
    pub fn sample(&mut self, interval: u64) -> Sampled {
        self.drain_exit_records();
        let now = since_boot();
        let mut sampled = Sampled {
            renumbered: self.renumber(),
            ..Sampled::default()
        };
        let mut threads = std::mem::take(&mut self.threads);
        let mut reader = std::mem::take(&mut self.reader);
        let mut names = std::mem::take(&mut self.names);
        let mut pass = match self.clock {
            RunClock::Schedstat => self.tasks.pass(threads.len(), &mut reader),
            RunClock::Stat => None,
        };
        let (mut executed, mut held) = (Vec::new(), false);
        for thread in threads.values_mut() {
            let awaited = std::mem::take(&mut thread.awaited) && !self.is_last;
            if awaited && !self.origins.is_told(thread.id.tid) {
                self.origins.hold(thread.id.tid);
                held = true;
                continue;
            }
            let image = thread.image;
            let mut sample = ThreadSample {
                info: self.info(thread),
                interval: own_interval(thread, now, interval, self.tick),
                cpu_time: 0,
                wait_time: 0,
                switches: Some(0),
                migrations: Some(0),
                last_pu: thread.last_pu,
                mask: thread.new_mask.take(),
                counts: Vec::new(),
                event_set: None,
                metrics: Default::default(),
            };
            if thread.renumbered {
                // What it has done since is the first thread's.
                sampled.ended.push(thread.id);
                sampled.threads.push(sample);
                continue;
            }
            let passed = pass
                .as_mut()
                .and_then(|pass| pass.run_time(thread.id.tid, thread.id.start, self.tick));
            let spent = passed.map_or_else(|| read(&mut reader, self.clock, thread, self.tick), Ok);
            // Until its parent has noticed, a process that ended still tells its last numbers.
            let told = spent.is_ok();
            let alive = match spent {
                Ok(spent) => {
                    let mut means = Means {
                        reader: &mut reader,
                        names: &mut names,
                        clock: self.clock,
                        budget: &self.budget,
                        interval,
                        migrations: self.watches_migrations,
                    };
                    update(&mut means, thread, &mut sample, spent) && !has_ended(&mut means, thread)
                }
                Err(Gone::Ended) => false,
                // Not readable this time: as if idle.
                Err(Gone::Refused(_)) => true,
            };
            if !alive {
                thread.ended = true;
                sample.migrations = match told && self.watches_migrations {
                    true => {
                        let now = reader.migrations(thread.pid, thread.id.tid);
                        delta(&mut thread.migrations, now)
                    }
                    false => None,
                };
                let record = self.exits.of_followed(thread.id, self.tick);
                let began = thread.id.start.saturating_mul(self.tick);
                finish(thread, &mut sample, record.as_ref(), told, (began, now));
                if sample.info.work.is_program() {
                    match record {
                        Some(record) if record.run >= thread.spent.run => {
                            self.exits.note(thread.id, &record);
                        }
                        // `/proc` has shown all that it did.
                        Some(_) => {}
                        None if told => {}
                        None => self.exits.note_unrecorded(&sample),
                    }
                }
                sampled.ended.push(thread.id);
            } else if thread.pid == thread.id.tid
                && let Some(process) = self.processes.get_mut(&thread.pid)
                && process.name != thread.name
            {
                process.name = Arc::clone(&thread.name);
                sample.info.process = Arc::clone(&process.name);
            }
            if alive && thread.image != image && thread.id.tid == thread.pid {
                executed.push(thread.pid);
            }
            if sample.info.work.is_program() {
                self.accounts.sampled(sample.cpu_time);
            }
            sample.info.name = Arc::clone(&thread.name);
            if std::mem::take(&mut thread.new) && alive {
                sampled.new.push((thread.id, thread.pid));
            }
            sampled.threads.push(sample);
        }
        self.threads = threads;
        self.reader = reader;
        self.names = names;
        for pid in executed {
            // The kernel's records would say who asked for it.
            if !self.has_records
                && let Some(first) = self.threads.get(&pid)
            {
                let alone = self
                    .processes
                    .get(&pid)
                    .is_some_and(|process| process.threads == 1);
                self.origins.executed(first.id, alone.then_some(pid), None);
            }
        }
        self.forget_ended(&sampled.ended);
        self.sample_passed(&mut sampled);
        self.accounts.wait(held);
        sampled
    }

    /// Hands on what was read of threads that have the number of their process's first thread now: `/proc` shows their
    /// numbers under it. Each with what it is now; with that twice if it was not known.
    fn renumber(&mut self) -> Vec<(ThreadId, ThreadId)> {
        let mut all = Vec::new();
        for (caller, pid) in std::mem::take(&mut self.renumbered) {
            let Some(first) = self.threads.get(&pid).map(|first| first.id) else {
                continue;
            };
            let known = self.threads.get_mut(&caller).map(|caller| {
                caller.renumbered = true;
                (
                    caller.id,
                    (caller.spent, caller.switches, caller.migrations),
                )
            });
            // Of one that was never read, everything is still to be told.
            let (before, read) = known.unwrap_or((first, Default::default()));
            all.push((before, first));
            if let Some(first) = self.threads.get_mut(&pid) {
                (first.spent, first.switches, first.migrations) = read;
                first.ended = false;
            }
        }
        all
    }

    /// Forgets threads that have ended.
    pub(super) fn forget_ended(&mut self, ended: &[ThreadId]) {
        let mut others = Vec::new();
        for id in ended {
            self.origins.hold_executions(*id);
            let pid = self.threads.get(&id.tid).map_or(id.tid, |of| of.pid);
            if pid != id.tid
                && let Some(process) = self.processes.get(&pid)
            {
                others.push((pid, id.tid, process.start, process.target));
            }
            self.forget(id.tid);
        }
        // Processes of which no thread is left, each with the only one that has ended now.
        let mut gone = BTreeMap::new();
        for (pid, tid, start, target) in others {
            if !self.processes.contains_key(&pid) {
                gone.entry(pid)
                    .and_modify(|(_, _, only)| *only = None)
                    .or_insert((start, target, Some(tid)));
            }
        }
        for (pid, (start, target, caller)) in gone {
            self.outlive(pid, start, target, caller);
        }
    }

    /// A process of which no thread is left may have executed another program: if its first thread had ended before, the
    /// caller has that one's number now.
    fn outlive(&mut self, pid: i32, start: u64, target: u32, caller: Option<i32>) {
        let same = |stat: Stat<'_>| stat.start == start && !stat.is_dead();
        if self.reader.stat(pid, pid).is_ok_and(same) && self.add_process(pid, false, target) {
            if let Some(process) = self.processes.get_mut(&pid) {
                process.first_ended = true;
            }
            let first = ThreadId { tid: pid, start };
            self.origins.executed(first, caller, None);
        }
    }
}

/// What a thread did up to its end since it was last read, as far as it is known: `told` if `/proc` has shown it. It began,
/// and the sample is taken, at these moments in nanoseconds since boot.
fn finish(
    thread: &Thread,
    sample: &mut ThreadSample,
    record: Option<&ExitRecord>,
    told: bool,
    (began, now): (u64, u64),
) {
    let Some(record) = record else {
        if !told {
            sample.switches = None;
        }
        return;
    };
    // One that waits for its parent shows more in `/proc` than it had done when the record was made.
    sample.cpu_time += record.run.saturating_sub(thread.spent.run);
    sample.wait_time += record.wait.saturating_sub(thread.spent.wait);
    let more = record.slices.saturating_sub(thread.spent.slices);
    sample.switches = Some(sample.switches.unwrap_or(0) + more);
    let ended = began.saturating_add(record.elapsed);
    let lived = ended.saturating_sub(now.saturating_sub(sample.interval));
    sample.interval = sample.interval.min(lived.max(1)).max(sample.cpu_time);
}

fn read(
    reader: &mut Reader,
    clock: RunClock,
    thread: &Thread,
    tick: u64,
) -> Result<Schedstat, Gone> {
    match &thread.file {
        Some(file) => clock.read(&**file, tick),
        None => {
            let spent = reader.run_time(clock, thread.pid, thread.id.tid, tick)?;
            // Without a kept descriptor the TID may have been reused by another thread.
            if spent.run != thread.spent.run
                && reader.stat(thread.pid, thread.id.tid)?.start != thread.id.start
            {
                return Err(Gone::Ended);
            }
            Ok(spent)
        }
    }
}

/// What reading a thread needs besides the thread.
struct Means<'a> {
    reader: &'a mut Reader,
    names: &'a mut Names,
    clock: RunClock,
    budget: &'a Budget,
    /// Nanoseconds since the last reading.
    interval: u64,
    /// Whether migrations are wanted of every interval.
    migrations: bool,
}

/// Takes over what was read; false if the thread turns out to have ended.
fn update(
    means: &mut Means<'_>,
    thread: &mut Thread,
    sample: &mut ThreadSample,
    spent: Schedstat,
) -> bool {
    let before = std::mem::replace(&mut thread.spent, spent);
    // After execve(2) by another than the first thread the numbers start anew.
    let growth = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
    sample.cpu_time = growth(spent.run, before.run);
    sample.wait_time = growth(spent.wait, before.wait);
    sample.interval = sample.interval.max(sample.cpu_time);
    if means.clock == RunClock::Schedstat {
        // Each time slice but the running one ended with a switch.
        sample.switches = Some(growth(spent.slices, before.slices));
    }
    let ran = spent.run != before.run;
    if !ran && !thread.new {
        return true;
    }
    // One that was there before it was followed and has not run since is as it was found a moment ago.
    if (ran || thread.born) && !read_stat(means, thread) {
        return false;
    }
    let (pid, tid) = (thread.pid, thread.id.tid);
    if means.clock == RunClock::Stat {
        let now = means.reader.status(pid, tid).ok().and_then(|s| s.switches);
        sample.switches = delta(&mut thread.switches, now);
    }
    let visible = Visible::of(tid).ok().map(|visible| visible.digest());
    if visible != thread.visible {
        thread.visible = visible;
        sample.mask = means.reader.status(pid, tid).ok().and_then(|s| s.mask);
    }
    let period = Duration::from_nanos(means.interval);
    thread.unread += counted(period);
    sample.migrations = None;
    let first = thread.new && thread.born || means.migrations;
    if thread.last_pu != sample.last_pu || is_due(thread.unread, period, MIGRATIONS_EVERY) || first
    {
        thread.unread = Duration::ZERO;
        let now = means.reader.migrations(pid, tid);
        sample.migrations = delta(&mut thread.migrations, now);
    }
    sample.last_pu = thread.last_pu;
    true
}

/// Whether a thread that was reported as ended really has. If a thread other than the main thread calls execve(2), the
/// kernel reports the main thread as ended, and the caller takes over its TID, start time and place in `/proc`.
fn has_ended(means: &mut Means<'_>, thread: &mut Thread) -> bool {
    if thread.ended && thread.id.tid == thread.pid {
        thread.ended = !read_stat(means, thread);
    }
    thread.ended
}

/// Reads PU, name and state of a thread that ran; false if it has ended.
fn read_stat(means: &mut Means<'_>, thread: &mut Thread) -> bool {
    let (pid, tid) = (thread.pid, thread.id.tid);
    if thread.stat.is_none()
        && !thread.new
        && let Some(place) = means.budget.reserve(Purpose::Threads, 1)
    {
        let file = RunClock::Stat.open(pid, tid).ok();
        thread.stat = file.map(|file| place.keep(file));
    }
    let stat = match &thread.stat {
        Some(file) => means
            .reader
            .again(&**file)
            .and_then(|bytes| parse_stat(bytes).ok_or(Gone::Ended)),
        None => means.reader.stat(pid, tid),
    };
    match stat {
        Ok(stat) if stat.is_dead() => return false,
        Ok(stat) => {
            thread.last_pu = stat.last_pu;
            thread.image = stat.image;
            if stat.comm != thread.name.as_bytes() {
                thread.name = means.names.get(&stat.name());
            }
        }
        Err(Gone::Ended) => return false,
        Err(Gone::Refused(_)) => {}
    }
    true
}

/// The growth of a count, which is kept; `None` where either is not known.
fn delta(before: &mut Option<u64>, now: Option<u64>) -> Option<u64> {
    let growth = match (*before, now) {
        (Some(before), Some(now)) => Some(now.saturating_sub(before)),
        _ => None,
    };
    *before = now;
    growth
}

/// A thread that was born since the last reading has had less time than the others. Start times are exact to a clock
/// tick.
fn own_interval(thread: &Thread, now: u64, interval: u64, tick: u64) -> u64 {
    if !(thread.new && thread.born) {
        return interval;
    }
    let age = now.saturating_sub(thread.id.start.saturating_mul(tick));
    age.clamp(1, interval.max(1))
}

/// Nanoseconds since boot, suspended time included, as start times count.
pub(super) fn since_boot() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (now.tv_sec as u64)
        .saturating_mul(SECOND)
        .saturating_add(now.tv_nsec as u64)
}
