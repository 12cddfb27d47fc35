//! The live machine behind [`perch_core::Machine`]: it observes threads and changes masks. It handles no signals, starts and
//! reaps no processes, and never ends by itself; [`crate::LinuxMachine`] does that for a command, and a service for itself.

mod builder;
mod changes;
mod counting;
mod early;
mod irqs;
mod modules;
mod newcomers;
mod places;
mod pus;
mod records;
mod targets;

pub use builder::Builder;
pub use counting::CountersMode;

use crate::{
    affinity::LinuxAffinity,
    perf::{TaskEvents, task_events::monotonic},
    threads::{Launched, Sampled, Tracker},
};
use changes::Changes;
use counting::Counting;
use early::EarlyLooks;
use irqs::IrqWatch;
use newcomers::Newcomers;
use perch_core::{
    Affinity, EventPlan, Machine, MachineError, NiceSample, Observation, ProcessId, PuSet, Remark,
    Settings, Targets, ThreadId, ThreadSample, Topology, Wake, Weights,
};
use places::Places;
use pus::Pus;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::BorrowedFd,
    io::Errno,
};
use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

/// The machine that perch runs on.
pub struct LiveMachine {
    topology: Arc<Topology>,
    changes: Option<Changes>,
    tracker: Tracker,
    affinity: LinuxAffinity,
    task_events: Option<TaskEvents>,
    counting: Counting,
    pus: Pus,
    irqs: IrqWatch,
    /// Whether nice values are observed.
    nices: bool,
    /// Whether settings of the machine are observed.
    settings: bool,
    system: System,
    /// Whether the launched program has ended, so that this is the last observation.
    over: bool,
    /// Threads that are no longer followed, for those who count what they do.
    let_go: Vec<ThreadId>,
    /// Whether events are those of single threads even where whole PUs may be watched.
    per_thread: bool,
    /// Whether the kernel tells what threads did up to their end, or did when there was something to follow.
    exit_records: bool,
    early: EarlyLooks,
    newcomers: Newcomers,
    places: Places,
    /// The default mask as it was last reported.
    told_default: PuSet,
    /// Targets with processes when last observed; kept only where task records of each target are open.
    live_targets: HashSet<u32>,
    /// When it was opened, by the clock of the kernel's records: what they tell is compared with what perch did.
    opened: u64,
    /// When the last period ended, from which the next is counted; `None` before the first one is waited for. What comes
    /// before that, such as the start of a program, is not part of it.
    period_end: Option<Instant>,
    observed: Instant,
    own_cpu_time: u64,
    remarks: Vec<Remark>,
}

/// Whether the threads of the operating system are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum System {
    Ignored,
    /// From the next observation on: what belongs to programs is known by then.
    Wanted,
    /// As this target.
    Followed(u32),
}

impl std::fmt::Debug for LiveMachine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveMachine")
            .field("topology", &self.topology.source)
            .field("threads", &self.tracker.len())
            .finish_non_exhaustive()
    }
}

impl LiveMachine {
    /// Begins to follow a program that was forked and has not been executed yet; its target. `name` is what its first
    /// thread is called from then on: one that ends before it is looked at again would keep perch's name.
    pub(crate) fn follow_launched(&mut self, pid: i32, launched: Launched, name: &str) -> u32 {
        let target = self.places.add_launched();
        self.open_task_events(pid, target);
        let since = launched.since;
        self.tracker.follow_launched(pid, launched, target);
        self.tracker.renamed(pid, name);
        let thread = ThreadId {
            tid: pid,
            start: since,
        };
        self.counting.launched(thread, target);
        target
    }

    /// Sleeps until this moment, or until the kernel has something to tell or one of these descriptors is readable; takes
    /// in what was reported.
    pub(crate) fn sleep(
        &mut self,
        until: Instant,
        also: &[BorrowedFd<'_>],
    ) -> Result<(), MachineError> {
        let looks = [self.early.due(), self.counting.due(), self.newcomers.due()];
        let until = looks.into_iter().flatten().fold(until, Instant::min);
        let time = until.saturating_duration_since(Instant::now());
        let listen = self.newcomers.listen();
        let events = self.task_events.iter().filter(|_| listen);
        let events = events.flat_map(|events| events.fds());
        let mut fds: Vec<PollFd<'_>> = also
            .iter()
            .copied()
            .chain(events)
            .chain(self.counting.fd())
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(MachineError::Io {
                    what: "waiting".into(),
                    error: errno.into(),
                });
            }
        }
        self.drain_task_events();
        self.look_early();
        self.count_newcomers();
        self.counting.drain();
        Ok(())
    }

    /// Follows every process of the machine, of all users, to observe them: masks of others' threads cannot be changed.
    /// The kernel's records are used where they tell of the whole machine; those of single threads would cost too much.
    pub(crate) fn follow_all(&mut self) {
        let target = self.places.add_attached();
        if !self.per_thread {
            self.exit_records |= self.tracker.open_exit_records(self.opened);
            if let Ok(events) = TaskEvents::system_wide(self.newcomers.buffering()) {
                self.task_events = Some(events);
                self.tracker.expect_records(true);
            }
        }
        self.tracker.follow_all(target);
        self.places.look(self.tracker.processes());
    }

    /// Follows the threads of the operating system from now on, if they are wanted and not followed yet.
    fn follow_system(&mut self) {
        if self.system != System::Wanted {
            return;
        }
        let target = self.places.add_attached();
        self.system = System::Followed(target);
        self.tracker.follow_system(target);
    }

    /// Takes the operating system's threads out of a sample: of these only run times and masks matter, and to count or
    /// sample what they do would cost more than they.
    fn take_system(&self, sampled: &mut Sampled) -> Vec<ThreadSample> {
        if self.system_target().is_none() {
            return Vec::new();
        }
        let threads = std::mem::take(&mut sampled.threads);
        let is_program = |sample: &ThreadSample| sample.info.work.is_program();
        let (programs, system) = threads.into_iter().partition(is_program);
        sampled.threads = programs;
        let tracker = &self.tracker;
        sampled.new.retain(|(_, pid)| !tracker.is_system(*pid));
        system
    }

    /// What PUs did until now is no part of what is observed from now on.
    pub(crate) fn forget_pus(&mut self) {
        let _ = self.pus.observe();
    }

    /// The first interval begins now.
    pub(crate) fn begin(&mut self) {
        self.forget_pus();
        self.observed = Instant::now();
    }

    /// See [`Tracker::watch_migrations`](crate::threads::Tracker::watch_migrations).
    pub(crate) fn watch_migrations(&mut self) {
        self.tracker.watch_migrations();
    }

    /// When the present period ends.
    pub(crate) fn due(&self, period: Duration) -> Instant {
        self.period_end.unwrap_or_else(Instant::now) + period
    }

    /// Whether the present period is over; if so, the next one begins.
    pub(crate) fn is_over(&mut self, period: Duration) -> bool {
        let now = Instant::now();
        let due = *self.period_end.get_or_insert(now) + period;
        if now < due {
            return false;
        }
        // After a whole period lost (a suspended machine) the count begins anew.
        self.period_end = Some(if now - due > period { now } else { due });
        true
    }

    /// The processes of programs that are followed, as far as they were seen.
    pub(crate) fn known_processes(&self) -> Vec<ProcessId> {
        let processes = self.tracker.processes();
        let programs = processes.filter(|(_, target)| self.system_target() != Some(*target));
        programs.map(|(process, _)| process).collect()
    }

    /// The launched program has ended: the next observation is the last.
    pub(crate) fn end(&mut self) {
        self.over = true;
    }

    /// Whether no thread of a program is followed.
    pub(crate) fn is_idle(&self) -> bool {
        self.tracker.has_no_program()
    }

    /// A process that was adopted by perch has ended and was reaped; it had spent this many nanoseconds on PUs.
    pub(crate) fn orphan_ended(&mut self, pid: i32, spent: u64) {
        self.tracker.orphan_ended(pid, spent);
    }

    /// The mask of threads that have not been placed, if it has changed.
    fn default_if_new(&mut self) -> Option<PuSet> {
        let default = self.places.first_default();
        (default != self.told_default).then(|| {
            self.told_default.clone_from(&default);
            default
        })
    }

    /// Tells the user something in the next observation.
    pub(crate) fn remark(&mut self, remark: Remark) {
        self.remarks.push(remark);
    }

    /// The nice values of threads, if the policy asks for weights.
    fn nices_of(&self, threads: &[ThreadSample]) -> Vec<NiceSample> {
        let threads = threads.iter().filter(|_| self.nices);
        let sample = |thread: &ThreadSample| {
            let (id, pid) = (thread.info.id, thread.info.pid);
            let nice = self.affinity.nice(id).ok()?;
            Some(NiceSample {
                thread: id,
                pid,
                nice,
            })
        };
        threads.filter_map(sample).collect()
    }

    /// Nanoseconds that perch has spent on PUs.
    fn own_cpu_time() -> u64 {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64
    }
}

impl Machine for LiveMachine {
    fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.topology)
    }

    fn configure(&mut self, plan: &EventPlan) -> Result<(), MachineError> {
        self.counting.configure(plan, self.tracker.threads())?;
        self.pus.configure(self.counting.counters());
        if self.counting.counts_chosen() {
            self.newcomers.want();
            self.tracker.report_newcomers();
        }
        Ok(())
    }

    fn watch_pus(&mut self, watch: bool) -> Result<(), MachineError> {
        self.pus.watch(watch);
        Ok(())
    }

    fn watch_irqs(&mut self, watch: bool) -> Result<(), MachineError> {
        self.irqs.watch(watch)
    }

    fn watch_weights(&mut self, watch: bool) -> Result<(), MachineError> {
        self.nices = watch;
        Ok(())
    }

    fn watch_settings(&mut self, watch: bool) -> Result<(), MachineError> {
        self.settings = watch;
        Ok(())
    }

    fn watch_system(&mut self, watch: bool) -> Result<(), MachineError> {
        match (watch, self.system) {
            (true, System::Ignored) => {
                if !rustix::process::geteuid().is_root() {
                    return Err(MachineError::Other(
                        "the threads of the operating system belong to root: run perch as root (`sudo perch …`)"
                            .to_owned(),
                    ));
                }
                self.system = System::Wanted;
            }
            (false, System::Followed(target)) => {
                self.system = System::Ignored;
                self.let_go.extend(self.tracker.unfollow_system(target));
            }
            (false, _) => self.system = System::Ignored,
            (true, _) => {}
        }
        Ok(())
    }

    fn system_target(&self) -> Option<u32> {
        match self.system {
            System::Followed(target) => Some(target),
            System::Ignored | System::Wanted => None,
        }
    }

    fn targets(&mut self) -> Option<&mut dyn Targets> {
        Some(self)
    }

    fn wait(&mut self, period: Duration) -> Result<Wake, MachineError> {
        while !self.is_over(period) {
            self.sleep(self.due(period), &[])?;
        }
        Ok(Wake::Period)
    }

    fn observe(&mut self) -> Result<Observation, MachineError> {
        self.drain_task_events();
        self.follow_system();
        // First, so that masks are read after a change.
        let mut topology_changed = self.follow_topology();
        self.tracker.discover();
        // Of a thread that /proc showed a moment ago the record may have come since.
        self.drain_task_events();
        self.tracker.consider_told();
        let (now, at) = (Instant::now(), monotonic() - self.opened);
        let interval = (now - self.observed).as_nanos() as u64;
        self.observed = now;
        self.tracker.read_accounts(self.over);
        for tid in self.affinity.take_set() {
            self.tracker.read_mask_again(tid);
        }
        let mut sampled = self.tracker.sample(interval);
        // Those of which a record is awaited are in no sample yet.
        self.open_counters();
        if topology_changed || sampled.threads.iter().any(|thread| thread.mask.is_some()) {
            // A PU that goes offline while masks are read changes some of them: the code that judges these must know
            // that.
            topology_changed |= self.follow_topology();
        }
        // Likewise a CPU set; and a thread that changed its number while they were read.
        let changed = sampled
            .threads
            .iter()
            .filter(|thread| thread.mask.is_some());
        self.places
            .look_again(changed.map(|thread| thread.info.pid));
        self.places.look(self.tracker.processes());
        let processes = self.places.take_news();
        self.drain_task_events();
        if let Some(events) = &mut self.task_events
            && events.slows_switches()
        {
            // A process that has ended may have started another one whose record comes a little later.
            let live: HashSet<u32> = self.tracker.processes().map(|(_, of)| of).collect();
            let before = std::mem::replace(&mut self.live_targets, live);
            if !self.tracker.has_told() {
                let live = &self.live_targets;
                events
                    .close_targets_but(|target| live.contains(&target) || before.contains(&target));
            }
        }
        let origins = self.tracker.take_origins();
        let pus = self.pus.observe();
        let irqs = self.irqs.observe(&mut self.affinity);
        let nices = self.nices_of(&sampled.threads);
        let settings = match self.settings {
            true => Settings::settings(&self.affinity),
            false => Vec::new(),
        };
        self.end_early(&sampled);
        let system = self.take_system(&mut sampled);
        let ended = sampled.ended.len();
        sampled.ended.append(&mut self.let_go);
        self.counting.read_counters(&mut sampled, interval);
        self.tracker.counted_late(sampled.counted_late);
        self.tracker.divide_rest(&mut sampled);
        if self.tracker.is_empty() {
            self.tracker.close_exit_records();
        }
        let readings = self
            .counting
            .period(&self.topology, interval, &mut sampled, &pus);
        sampled.ended.truncate(ended);
        if !system.is_empty() {
            sampled.threads.extend(system);
            sampled.threads.sort_by_key(|sample| sample.info.id);
        }
        self.remarks.extend(self.tracker.take_remarks());
        self.remarks.extend(self.counting.take_remarks());
        self.remarks.extend(self.pus.take_remarks());
        self.remarks.extend(self.irqs.take_remark());
        let before = std::mem::replace(&mut self.own_cpu_time, Self::own_cpu_time());
        Ok(Observation {
            settings,
            at,
            interval,
            threads: sampled.threads,
            targets: self.counting.targets(),
            windows: self.counting.windows(self.opened),
            pus,
            readings,
            irqs,
            nices,
            sharing: self.counting.sharing(),
            ended: sampled.ended,
            processes,
            origins,
            unseen: self.tracker.take_unseen(),
            unmeasured: self.tracker.take_unmeasured(),
            remarks: std::mem::take(&mut self.remarks),
            own_cpu_time: self.own_cpu_time - before,
            topology: topology_changed.then(|| Arc::clone(&self.topology)),
            default: self.default_if_new(),
            read_late: Vec::new(),
            allowed: Vec::new(),
        })
    }

    fn processes(&mut self) -> Vec<(ProcessId, u32)> {
        self.drain_task_events();
        self.tracker.discover();
        self.tracker.processes().collect()
    }

    fn now(&self) -> Option<u64> {
        Some(monotonic() - self.opened)
    }

    fn default_mask(&self) -> PuSet {
        self.places.first_default()
    }

    fn affinity(&mut self) -> &mut dyn Affinity {
        &mut self.affinity
    }

    fn counting(&self) -> String {
        let mut texts = vec![self.counting.description()];
        texts.extend(self.pus.description().map(str::to_owned));
        if self.exit_records {
            texts.push("for threads that ended, the kernel's exit records".to_owned());
        }
        texts.join("; ")
    }
}
