//! The live machine under a command: signals, the launched program and its orphans, and the end of all targets.

use crate::{
    helpers,
    launch::{self, Child, Usage},
    limits::{Budget, Kept, Purpose},
    machine::{Builder, LiveMachine},
    proc::{Reader, nested_mark, parse_stat},
    signals::{self, Received, Sender, Signals},
    threads::Launched,
};
use perch_core::{
    Affinity, EventPlan, Launch, Machine, MachineError, Observation, ProcessId, PuSet, Remark,
    Targets, Topology, Wake, machine::SESSION_VARIABLE,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
    process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// A [`LiveMachine`] that launches a program, reaps it, forwards signals to it, and reports when everything has ended
/// or the user asks to stop.
#[derive(Debug)]
pub struct LinuxMachine {
    live: LiveMachine,
    signals: Signals,
    child: Option<Child>,
    /// Processes that perch was attached to, while they live: each once, with its target and a descriptor that is readable
    /// when it ends.
    attached: Vec<(i32, u32, Option<Kept<OwnedFd>>)>,
    subreaper: bool,
    /// Where it does not end with its targets: when it ends, if it does.
    stays: Option<Option<Instant>>,
    /// Whether it was said that signals are ignored.
    said_ignored: bool,
}

impl LinuxMachine {
    /// A builder with default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(live: LiveMachine, subreaper: bool) -> Result<Self, MachineError> {
        Ok(Self {
            live,
            signals: Signals::catch()?,
            child: None,
            attached: Vec::new(),
            subreaper,
            stays: None,
            said_ignored: false,
        })
    }

    /// The first interval begins now, not when the machine was opened.
    pub fn begin(&mut self) {
        self.live.begin();
    }

    /// From now on migrations are those of each interval, which takes more time: without that they are told when some were
    /// noticed, and may be those of several intervals.
    pub fn watch_migrations(&mut self) {
        self.live.watch_migrations();
    }

    /// From now on it does not end when no target is left, but at this moment, if one is given: for sessions about more
    /// than the threads of targets.
    pub fn stay(&mut self, until: Option<Instant>) {
        self.live.forget_pus();
        self.stays = Some(until);
    }

    /// Follows every process of the machine, other users' too, until it is stopped. For sessions that only observe: what
    /// belongs to others cannot be placed.
    pub fn observe_all(&mut self) {
        self.live.follow_all();
        self.stay(None);
    }

    /// When the present wait ends by itself.
    fn until(&self, period: Duration) -> Instant {
        let due = self.live.due(period);
        self.stays.flatten().map_or(due, |end| end.min(due))
    }

    /// Whether everything is over that perch follows.
    fn is_over(&mut self) -> bool {
        match self.stays {
            Some(end) => end.is_some_and(|end| Instant::now() >= end),
            None => self.child.is_none() && !self.attached_live(),
        }
    }

    /// Passes a signal on to the launched program, if it still runs. The terminal sends SIGINT to the program itself.
    pub fn forward(&self, signal: i32) {
        if let Some(child) = &self.child {
            child.signal(signal);
        }
    }

    /// What the launched program took, once it has ended.
    pub fn usage(&self) -> Option<Usage> {
        self.child.as_ref()?.usage()
    }

    /// The signal that asked perch to stop, be it in the moment in which the launched program ended. To be called when
    /// nothing is waited for any more: other signals that have arrived since are forgotten.
    pub fn stopped_by(&mut self) -> Option<i32> {
        self.signals.take();
        Some(self.signals.stopped_by()?.signal)
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
        if self.child.is_none() && self.stays.is_some() {
            if !std::mem::replace(&mut self.said_ignored, true) {
                let text = format!(
                    "{} is ignored, as are all signals that mean nothing to this command",
                    signals::name(signal)
                );
                self.live.remark(Remark::warning("signal-ignored", text));
            }
            return;
        }
        if self.child.is_none() {
            let text = format!(
                "{} is ignored: perch passes signals on to a program that it has started (perch run)",
                signals::name(signal)
            );
            self.live.remark(Remark::warning("signal-ignored", text));
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
        let known: Vec<ProcessId> = self.live.known_processes();
        // A look at all processes takes longer.
        known.iter().any(|process| process.pid == pid)
            || self
                .live
                .affinity()
                .descendants("", &known, &|_| false)
                .unwrap_or_default()
                .iter()
                .any(|relative| relative.process.pid == pid)
    }

    /// A descriptor that signals the end of a process to attach to.
    fn open_end(&self, pid: i32) -> Result<Option<Kept<OwnedFd>>, MachineError> {
        let number = Some(pid)
            .filter(|pid| *pid > 0)
            .and_then(Pid::from_raw)
            .ok_or(MachineError::NoSuchProcess(pid))?;
        match pidfd_open(number, PidfdFlags::empty()) {
            // Without room for it, as on kernels before 5.3.
            Ok(end) => {
                let place = Budget::of_process().reserve(Purpose::Threads, 1);
                Ok(place.map(|place| place.keep(end)))
            }
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
        if self.attached.is_empty() && self.live.is_idle() {
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
        let ends = self.attached.iter().map(|(_, _, end)| end.as_deref());
        let mut ended = have_ended(ends).into_iter();
        self.attached
            .retain(|(pid, ..)| match ended.next().flatten() {
                Some(ended) => !ended,
                None => lives(*pid),
            });
        if !self.attached.is_empty() {
            return true;
        }
        let known = self.live.known_processes();
        known.iter().any(|process| lives(process.pid))
    }

    /// Reaps orphans of the launched program that came to perch and ended.
    fn reap_orphans(&mut self) {
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
                for process in self.live.known_processes() {
                    if process.pid != child {
                        self.reap(process.pid);
                    }
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
        if reaped == pid && !helpers::is_helper(pid) {
            let time = |time: libc::timeval| {
                time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000
            };
            let spent = time(usage.ru_utime) + time(usage.ru_stime);
            self.live.orphan_ended(pid, spent);
        }
    }
}

/// Whether this process has a child, running or not yet waited for, besides perch's own helpers.
fn has_children() -> bool {
    if helpers::are_all_children() == Some(true) {
        return false;
    }
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
}

/// Whether all threads of these pidfds' processes have ended, `None` where there is no pidfd.
fn have_ended<'a>(ends: impl Iterator<Item = Option<&'a OwnedFd>>) -> Vec<Option<bool>> {
    let ends: Vec<Option<&OwnedFd>> = ends.collect();
    let fds = ends.iter().flatten();
    let mut fds: Vec<PollFd<'_>> = fds.map(|end| PollFd::new(*end, PollFlags::IN)).collect();
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let asked = fds.is_empty() || poll(&mut fds, Some(&now)).is_ok();
    let mut told = fds.iter().map(|fd| asked && !fd.revents().is_empty());
    let ended = ends.iter().map(|end| end.and_then(|_| told.next()));
    ended.collect()
}

impl Machine for LinuxMachine {
    fn topology(&self) -> Arc<Topology> {
        self.live.topology()
    }

    fn configure(&mut self, plan: &EventPlan) -> Result<(), MachineError> {
        self.live.configure(plan)
    }

    fn watch_pus(&mut self, watch: bool) -> Result<(), MachineError> {
        self.live.watch_pus(watch)
    }

    fn watch_irqs(&mut self, watch: bool) -> Result<(), MachineError> {
        self.live.watch_irqs(watch)
    }

    fn watch_weights(&mut self, watch: bool) -> Result<(), MachineError> {
        self.live.watch_weights(watch)
    }

    fn watch_settings(&mut self, watch: bool) -> Result<(), MachineError> {
        self.live.watch_settings(watch)
    }

    fn watch_system(&mut self, watch: bool) -> Result<(), MachineError> {
        self.live.watch_system(watch)
    }

    fn system_target(&self) -> Option<u32> {
        self.live.system_target()
    }

    fn targets(&mut self) -> Option<&mut dyn Targets> {
        Some(self)
    }

    fn wait(&mut self, period: Duration) -> Result<Wake, MachineError> {
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
            if self.is_over() {
                return Ok(Wake::Ended(None));
            }
            if self.live.is_over(period) {
                return Ok(Wake::Period);
            }
            let until = self.until(period);
            let child = self.child.as_ref().and_then(|child| child.end());
            let ends = self.attached.iter();
            let ends = ends.filter_map(|(_, _, end)| end.as_ref().map(|end| end.as_fd()));
            let fds: Vec<BorrowedFd<'_>> = [self.signals.fd()]
                .into_iter()
                .chain(child)
                .chain(ends)
                .collect();
            self.live.sleep(until, &fds)?;
        }
    }

    fn observe(&mut self) -> Result<Observation, MachineError> {
        if self
            .child
            .as_mut()
            .is_some_and(|child| child.ended().is_some())
        {
            self.live.end();
        }
        self.live.observe()
    }

    fn now(&self) -> Option<u64> {
        self.live.now()
    }

    fn processes(&mut self) -> Vec<(ProcessId, u32)> {
        self.live.processes()
    }

    fn default_mask(&self) -> PuSet {
        self.live.default_mask()
    }

    fn affinity(&mut self) -> &mut dyn Affinity {
        self.live.affinity()
    }

    fn counting(&self) -> String {
        self.live.counting()
    }
}

impl Targets for LinuxMachine {
    fn launch(&mut self, launch: &Launch) -> Result<i32, MachineError> {
        if self.child.is_some() {
            return Err(MachineError::Other(
                "a program was launched already: one machine follows one".into(),
            ));
        }
        // `server & exec perch run PROGRAM`: the server is perch's child, and its orphans come to perch too.
        let adopts_alone = self.subreaper && !has_children();
        if self.subreaper {
            // Refused only by kernels before 3.4; orphans then go to init and are found by their mark.
            let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        }
        let waiting = launch::prepare(&within_others(launch))?;
        let pid = waiting.pid();
        let session = launch
            .environment
            .iter()
            .find(|(name, _)| name == SESSION_VARIABLE);
        let launched = Launched {
            since: crate::proc::start_of(pid).unwrap_or_default(),
            session: session.map(|(_, value)| value.to_string_lossy().into_owned()),
            adopts_alone,
        };
        let name = launch::thread_name(launch);
        self.live.follow_launched(pid, launched, &name);
        self.live.forget_pus();
        self.child = Some(waiting.start()?);
        Ok(pid)
    }

    fn attach(&mut self, pid: i32) -> Result<u32, MachineError> {
        let end = self.open_end(pid)?;
        let target = self.live.attach(pid)?;
        // It may be attached to already, or the number was another's that has ended.
        self.attached.retain(|(known, ..)| *known != pid);
        self.attached.push((pid, target, end));
        Ok(target)
    }

    fn detach(&mut self, target: u32) {
        self.attached.retain(|(_, of, _)| *of != target);
        self.live.detach(target);
    }
}

/// The launch with the marks of the sessions in which this perch itself runs: without them these would not find what the
/// program leaves behind.
fn within_others(launch: &Launch) -> Launch {
    let outer = std::env::var(SESSION_VARIABLE).ok();
    let mut launch = launch.clone();
    for (name, value) in &mut launch.environment {
        if name == SESSION_VARIABLE {
            *value = nested_mark(outer.as_deref(), &value.to_string_lossy()).into();
        }
    }
    launch
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
    fn each_descriptor_tells_of_its_own_process() {
        let mut processes: Vec<_> = (0..3)
            .map(|_| {
                std::process::Command::new("cat")
                    .stdin(std::process::Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let end = |process: &std::process::Child| {
            let pid = Pid::from_raw(process.id() as i32).unwrap();
            pidfd_open(pid, PidfdFlags::empty()).ok()
        };
        let ends: Option<Vec<OwnedFd>> = processes.iter().map(end).collect();
        processes[1].kill().unwrap();
        processes[1].wait().unwrap();
        // Kernels before 5.3 have none.
        if let Some(ends) = ends {
            let asked = [Some(&ends[0]), None, Some(&ends[1]), Some(&ends[2])];
            let told = have_ended(asked.into_iter());
            assert_eq!(told, [Some(false), None, Some(true), Some(false)]);
        }
        for process in &mut processes {
            let _ = process.kill();
            process.wait().unwrap();
        }
        assert_eq!(have_ended(std::iter::once(None)), [None]);
    }

    #[test]
    fn a_thread_tells_its_process() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        assert_eq!(process_of(tid), Some(std::process::id() as i32));
        assert_eq!(process_of(0), None);
    }
}
