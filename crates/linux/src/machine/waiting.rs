//! Sleeping until something happens: a period's end, the program's end, a signal, full rings.

use super::LinuxMachine;
use crate::{
    proc::{Reader, parse_stat},
    signals::{self, Received, Sender},
};
use perch_core::{Affinity, MachineError, ProcessId, Wake, text};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, OwnedFd},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::time::{Duration, Instant};

impl LinuxMachine {
    pub(super) fn wait_for(&mut self, period: Duration) -> Result<Wake, MachineError> {
        let due = self.period_end + period;
        loop {
            let arrived = self.signals.take();
            if arrived.child {
                self.reap_orphans();
            }
            for received in arrived.passed {
                self.pass(received);
            }
            if let Some(end) = self.child.as_mut().and_then(|child| child.ended()) {
                return Ok(Wake::Ended(end.status()));
            }
            if let Some(stop) = arrived.stop {
                return Ok(Wake::Stop(stop.signal));
            }
            if self.child.is_none() && !self.attached_live() {
                return Ok(Wake::Ended(None));
            }
            let now = Instant::now();
            if now >= due {
                // After a whole period lost (a suspended machine) the count begins anew.
                self.period_end = if now - due > period { now } else { due };
                return Ok(Wake::Period);
            }
            let looks = [self.early.due(), self.counting.due()];
            let until = looks.into_iter().flatten().fold(due, Instant::min);
            self.sleep(until.saturating_duration_since(now))?;
            self.drain_task_events();
            self.look_early();
            self.counting.drain();
        }
    }

    /// Passes the signal that stopped perch last on to the launched program, as sudo(8) does: not one that the program
    /// sent itself; and of the kernel's none that a terminal sends to the whole group, the program included, or that
    /// is about perch's own limits.
    pub fn pass_stop(&mut self) {
        let Some(received) = self.signals.stopped_by() else {
            return;
        };
        let own = matches!(
            received.signal,
            libc::SIGINT | libc::SIGQUIT | libc::SIGXCPU | libc::SIGXFSZ
        );
        if received.sender != Sender::Kernel || !own {
            self.pass(received);
        }
    }

    /// Passes a signal on to the launched program, unless it comes from there.
    fn pass(&mut self, received: Received) {
        let Received { signal, times, .. } = received;
        if self.child.is_none() {
            self.remark(format!(
                "{} is ignored: perch passes signals on to a program that it has started (perch run)",
                signals::name(signal)
            ));
            return;
        }
        if matches!(received.sender, Sender::Process(pid) if self.is_followed(pid)) {
            return;
        }
        if let Some(child) = &self.child {
            (0..times).for_each(|_| child.signal(signal));
        }
    }

    /// Whether a process is followed, or descends from one that is. One that has ended since is not known any more.
    fn is_followed(&mut self, pid: i32) -> bool {
        let known: Vec<ProcessId> = self
            .tracker
            .processes()
            .map(|(process, _)| process)
            .collect();
        // A look at all processes takes longer.
        known.iter().any(|process| process.pid == pid)
            || self
                .affinity
                .relatives("", &known, &|_| false)
                .unwrap_or_default()
                .iter()
                .any(|relative| relative.process.pid == pid)
    }

    /// Sleeps this long, or until a descriptor tells something.
    fn sleep(&self, time: Duration) -> Result<(), MachineError> {
        let signals = self.signals.fd();
        let child = self.child.as_ref().and_then(|child| child.end());
        let attached = self
            .attached
            .iter()
            .filter_map(|(_, end)| end.as_ref().map(AsFd::as_fd));
        let events = self.task_events.iter().flat_map(|events| events.fds());
        let mut fds: Vec<PollFd<'_>> = [signals]
            .into_iter()
            .chain(child)
            .chain(attached)
            .chain(events)
            .chain(self.counting.fd())
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(MachineError::Io {
                what: "waiting".into(),
                error: errno.into(),
            }),
        }
    }

    /// A descriptor that tells the end of a process to attach to.
    pub(super) fn open_end(&self, pid: i32) -> Result<Option<OwnedFd>, MachineError> {
        let number = Some(pid)
            .filter(|pid| *pid > 0)
            .and_then(Pid::from_raw)
            .ok_or(MachineError::NoSuchProcess(pid))?;
        match pidfd_open(number, PidfdFlags::empty()) {
            Ok(end) => Ok(Some(end)),
            // A thread's number that is not its process' is refused as invalid (or, since 6.9, not found).
            Err(Errno::SRCH) => Err(MachineError::NoSuchProcess(pid)),
            Err(Errno::INVAL | Errno::NOENT) => Err(MachineError::Other(format!(
                "{pid} is a thread, not a process: attach to its process ({})",
                process_of(pid).map_or_else(|| "see `ps -eL`".to_owned(), |p| p.to_string())
            ))),
            // Kernels before 5.3: the end is noticed at the next period.
            Err(_) => Ok(None),
        }
    }

    /// Whether any process that perch was attached to, or a descendant, still lives.
    fn attached_live(&mut self) -> bool {
        if self.attached.is_empty() && self.tracker.is_empty() {
            return false;
        }
        let mut reader = Reader::new();
        let mut lives = |pid: i32| {
            let stat = reader
                .file(&format!("/proc/{pid}/stat"))
                .ok()
                .and_then(parse_stat);
            stat.is_some_and(|stat| !stat.is_dead()) || crate::proc::task_numbers(pid).len() > 1
        };
        // `stat` of a whole process sums up all of its threads, so the descriptor is asked where there is one.
        self.attached.retain(|(pid, end)| match end {
            Some(end) => !has_ended(end),
            None => lives(*pid),
        });
        if !self.attached.is_empty() {
            return true;
        }
        self.tracker
            .processes()
            .any(|(process, _)| lives(process.pid))
    }

    /// Reaps orphans of the launched program that came to perch and ended.
    pub(super) fn reap_orphans(&mut self) {
        if !self.subreaper {
            return;
        }
        let Some(child) = self.child.as_ref().map(|child| child.pid()) else {
            return;
        };
        loop {
            // SAFETY: a zeroed siginfo_t is valid, and only read where waitid has filled it in.
            let pid = unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
                match libc::waitid(libc::P_ALL, 0, &raw mut info, flags) {
                    0 => info.si_pid(),
                    _ => 0,
                }
            };
            if pid == child {
                // It is reaped at the very end and hides the others until then: ask for those that are known.
                let known: Vec<i32> = self
                    .tracker
                    .processes()
                    .map(|(process, _)| process.pid)
                    .collect();
                for pid in known.into_iter().filter(|pid| *pid != child) {
                    self.reap(pid);
                }
                return;
            }
            if pid <= 0 {
                return;
            }
            self.reap(pid);
        }
    }

    fn reap(&mut self, pid: i32) {
        // SAFETY: reaps a child of ours, if it is one and has ended. A zeroed rusage is valid.
        let (reaped, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            let reaped = libc::wait4(pid, std::ptr::null_mut(), libc::WNOHANG, &raw mut usage);
            (reaped, usage)
        };
        if reaped == pid {
            let time = |time: libc::timeval| {
                time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000
            };
            let spent = time(usage.ru_utime) + time(usage.ru_stime);
            self.tracker.orphan_ended(pid, spent);
        }
    }
}

/// Whether all threads of a pidfd's process have ended.
fn has_ended(end: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(end, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    matches!(poll(&mut fds, Some(&now)), Ok(1..))
}

/// Whether perch may place the threads of a process: its own user's, or any with CAP_SYS_NICE
/// (sched_setaffinity(2)).
pub(super) fn check_owner(pid: i32) -> Result<(), MachineError> {
    let status = |pid: i32| procfs::process::Process::new(pid).and_then(|process| process.status());
    let (Ok(theirs), Ok(ours)) = (status(pid), status(std::process::id() as i32)) else {
        return Err(MachineError::NoSuchProcess(pid));
    };
    const CAP_SYS_NICE: u64 = 1 << 23;
    if ours.capeff & CAP_SYS_NICE != 0 || [theirs.ruid, theirs.euid].contains(&ours.euid) {
        return Ok(());
    }
    Err(MachineError::NotPermitted {
        what: format!(
            "attaching to process {pid} ({}) of user {}",
            text::printable(&theirs.name),
            theirs.euid
        ),
        remedy: format!(
            "run perch as that user or as root, or {}",
            crate::capability::advice("CAP_SYS_NICE")
        ),
    })
}

fn process_of(tid: i32) -> Option<i32> {
    let mut reader = Reader::new();
    let bytes = reader.file(&format!("/proc/{tid}/status")).ok()?;
    Some(crate::proc::parse_status(bytes).process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_tells_its_process() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        assert_eq!(process_of(tid), Some(std::process::id() as i32));
        assert_eq!(process_of(0), None);
    }
}
