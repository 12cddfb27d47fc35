//! Reading every thread once a period: one kept descriptor each; more only of those that ran.

use super::{SECOND, Thread, Tracker};
use crate::proc::{Gone, Reader, RunClock, Schedstat};
use perch_core::{ThreadId, ThreadSample};

/// What the threads did since the last reading.
#[derive(Debug, Default)]
pub struct Sampled {
    /// All of them, by rising id, those that ended included.
    pub threads: Vec<ThreadSample>,
    /// Those that ended.
    pub ended: Vec<ThreadId>,
}

impl Tracker {
    /// Reads all threads. `interval` is the time since the last reading in nanoseconds.
    pub fn sample(&mut self, interval: u64) -> Sampled {
        let now = since_boot();
        let mut sampled = Sampled::default();
        let mut threads = std::mem::take(&mut self.threads);
        let mut reader = std::mem::take(&mut self.reader);
        for thread in threads.values_mut() {
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
                metrics: Default::default(),
            };
            let alive = match read(&mut reader, self.clock, thread, self.tick) {
                // Until its parent has noticed, a process that ended still tells its last numbers.
                Ok(spent) => update(&mut reader, thread, &mut sample, spent) && !thread.ended,
                Err(Gone::Ended) => false,
                // Not readable this time: as if idle.
                Err(Gone::Refused(_)) => true,
            };
            if !alive {
                thread.ended = true;
                (sample.switches, sample.migrations) = (None, None);
                sampled.ended.push(thread.id);
            } else if thread.pid == thread.id.tid
                && let Some(process) = self.processes.get_mut(&thread.pid)
                && process.name != thread.name
            {
                thread.name.clone_into(&mut process.name);
                sample.info.process.clone_from(&process.name);
            }
            sample.info.name.clone_from(&thread.name);
            thread.new = false;
            sampled.threads.push(sample);
        }
        self.threads = threads;
        self.reader = reader;
        for id in &sampled.ended {
            self.forget(id.tid);
        }
        sampled
    }
}

fn read(
    reader: &mut Reader,
    clock: RunClock,
    thread: &Thread,
    tick: u64,
) -> Result<Schedstat, Gone> {
    match &thread.file {
        Some(file) => clock.read(file, tick),
        None => {
            let spent = reader.run_time(clock, thread.pid, thread.id.tid, tick)?;
            // Without a kept descriptor the number may have gone to another thread.
            if spent.run != thread.run
                && reader.stat(thread.pid, thread.id.tid)?.start != thread.id.start
            {
                return Err(Gone::Ended);
            }
            Ok(spent)
        }
    }
}

/// Takes over what was read; false if the thread turns out to have ended.
fn update(
    reader: &mut Reader,
    thread: &mut Thread,
    sample: &mut ThreadSample,
    spent: Schedstat,
) -> bool {
    // After execve(2) by another than the first thread the numbers start anew.
    sample.cpu_time = spent.run.checked_sub(thread.run).unwrap_or(spent.run);
    sample.wait_time = spent.wait.checked_sub(thread.wait).unwrap_or(spent.wait);
    let ran = spent.run != thread.run;
    (thread.run, thread.wait) = (spent.run, spent.wait);
    if ran || thread.new {
        let (pid, tid) = (thread.pid, thread.id.tid);
        match reader.stat(pid, tid) {
            Ok(stat) if stat.is_dead() => return false,
            Ok(stat) => {
                thread.last_pu = stat.last_pu;
                if stat.comm != thread.name.as_bytes() {
                    thread.name = stat.name();
                }
            }
            Err(Gone::Ended) => return false,
            Err(Gone::Refused(_)) => {}
        }
        if let Ok(status) = reader.status(pid, tid) {
            sample.switches = delta(&mut thread.switches, status.switches);
            sample.mask = status.mask;
        }
        sample.migrations = delta(&mut thread.migrations, reader.migrations(pid, tid));
        sample.last_pu = thread.last_pu;
    }
    sample.interval = sample.interval.max(sample.cpu_time);
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
fn since_boot() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (now.tv_sec as u64)
        .saturating_mul(SECOND)
        .saturating_add(now.tv_nsec as u64)
}
