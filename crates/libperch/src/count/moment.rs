//! A thread's totals at one moment.

use perch_linux::{
    perf::{OwnCounters, Snapshot},
    proc::parse_schedstat,
};
use rustix::fd::OwnedFd;

/// Totals at one moment, in nanoseconds and events.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moment {
    /// The monotonic clock.
    pub wall: u64,
    /// CPU time; of the active event set, if there are counters.
    pub cpu: u64,
    /// Time runnable without a PU, where it is wanted.
    pub wait: u64,
    pub counts: Snapshot,
}

/// What a thread's totals are read from.
pub(crate) struct Source {
    pub counters: Option<OwnCounters>,
    /// `schedstat` of the thread, where waiting times are wanted.
    schedstat: Option<OwnedFd>,
    cpu_clock: libc::clockid_t,
}

impl Source {
    /// Of the calling thread.
    pub(crate) fn new(tid: i32, counters: Option<OwnCounters>, waits: bool) -> Self {
        let schedstat = waits.then(|| {
            use rustix::fs::{Mode, OFlags, open};
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            open("/proc/thread-self/schedstat", flags, Mode::empty()).ok()
        });
        Self {
            counters,
            schedstat: schedstat.flatten(),
            // The thread's CPU-time clock, as pthread_getcpuclockid(3) makes it: CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED.
            cpu_clock: (!tid << 3) | 6,
        }
    }

    /// Reads the totals; `own` tells that the thread reads its own. What cannot be read counts nothing.
    pub(crate) fn read(&self, own: bool, into: &mut Moment) {
        into.cpu = match &self.counters {
            Some(counters) => {
                let read = match own {
                    true => counters.read(&mut into.counts),
                    false => counters.read_remotely(&mut into.counts),
                };
                if read.is_err() {
                    into.counts.clear();
                }
                into.counts.enabled()
            }
            None => clock(self.cpu_clock),
        };
        if let Some(file) = &self.schedstat {
            let mut buffer = [0; 128];
            let length = rustix::io::pread(file, &mut buffer, 0).unwrap_or(0);
            into.wait = parse_schedstat(&buffer[..length]).map_or(into.wait, |stat| stat.wait);
        }
    }
}

/// A clock in nanoseconds; 0 for that of a thread that has ended.
fn clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the answer.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        _ => 0,
    }
}

/// The monotonic clock, in nanoseconds.
pub(crate) fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_thread_runs_while_it_does() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let source = Source::new(tid, None, true);
        let (mut before, mut after) = (Moment::default(), Moment::default());
        source.read(true, &mut before);
        while after.cpu < before.cpu + 1_000_000 {
            source.read(true, &mut after);
        }
        // Another thread reads the same clock.
        let mut remote = Moment::default();
        std::thread::scope(|scope| {
            scope.spawn(|| source.read(false, &mut remote));
        });
        assert!(remote.cpu >= after.cpu);
        assert!(after.wait >= before.wait);
    }
}
