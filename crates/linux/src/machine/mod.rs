//! The live machine behind [`perch_core::Machine`].

mod builder;
mod changes;
mod counting;
mod early;
mod places;
mod pus;
mod waiting;

pub use builder::Builder;
pub use counting::CountersMode;

use crate::{
    affinity::{LinuxAffinity, SESSION_VARIABLE},
    launch::{self, Child},
    perf::{
        TaskEvent, TaskEvents,
        task_events::{Buffering, monotonic},
    },
    signals::Signals,
    threads::{Created, Launched, Tracker},
};
use changes::Changes;
use counting::Counting;
use early::EarlyLooks;
use perch_core::{
    Affinity, EventPlan, Launch, Machine, MachineError, Observation, ProcessId, PuSet, ThreadId,
    Topology, Wake,
};
use places::Places;
use pus::Pus;
use rustix::fd::OwnedFd;
use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

/// The machine that perch runs on.
pub struct LinuxMachine {
    topology: Arc<Topology>,
    changes: Option<Changes>,
    tracker: Tracker,
    affinity: LinuxAffinity,
    signals: Signals,
    task_events: Option<TaskEvents>,
    counting: Counting,
    pus: Pus,
    child: Option<Child>,
    /// Processes that perch was attached to, while they live: readable when they end.
    attached: Vec<(i32, Option<OwnedFd>)>,
    subreaper: bool,
    /// Whether events are those of single threads even where whole PUs may be watched.
    per_thread: bool,
    early: EarlyLooks,
    places: Places,
    /// When it was opened, by the clock of the kernel's records: what they tell is compared with what perch did.
    opened: u64,
    /// When the last period ended, from which the next is counted.
    period_end: Instant,
    observed: Instant,
    own_cpu_time: u64,
    remarks: Vec<String>,
    said: HashSet<String>,
}

impl std::fmt::Debug for LinuxMachine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinuxMachine")
            .field("topology", &self.topology.source)
            .field("threads", &self.tracker.len())
            .finish_non_exhaustive()
    }
}

impl LinuxMachine {
    /// How to open the machine.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Passes a signal on to the launched program, if it still runs. The terminal sends SIGINT to the program itself.
    pub fn forward(&self, signal: i32) {
        if let Some(child) = &self.child {
            child.signal(signal);
        }
    }

    /// Says something to the user, once.
    fn remark(&mut self, text: String) {
        if self.said.insert(text.clone()) {
            self.remarks.push(text);
        }
    }

    /// Takes in what the kernel reported about threads.
    fn drain_task_events(&mut self) {
        let Some(events) = &mut self.task_events else {
            return;
        };
        for event in events.drain() {
            self.counting.note(&event);
            match event {
                TaskEvent::Fork {
                    pid,
                    tid,
                    ppid,
                    ptid,
                    time,
                } => {
                    self.early.forked();
                    self.tracker.forked(Created {
                        pid,
                        tid,
                        by_pid: ppid,
                        by_tid: ptid,
                        at: time.saturating_sub(self.opened),
                    });
                }
                TaskEvent::Exit { tid, .. } => self.tracker.exited(tid),
                TaskEvent::Comm {
                    pid,
                    tid,
                    name,
                    exec,
                    time,
                } => {
                    if exec {
                        let at = time.saturating_sub(self.opened);
                        self.tracker.executed(pid, at);
                    }
                    self.tracker.renamed(tid, &name);
                }
                TaskEvent::Mapped { .. } => {}
                TaskEvent::Lost(_) => self.tracker.look_everywhere_next(),
            }
        }
        for remark in events.remarks() {
            self.remark(remark);
        }
    }

    /// Opens the kernel's task records: of the whole machine where that is allowed, since it costs the threads
    /// nothing. Those of single threads are opened a little later, if the threads do not switch too often for them.
    fn open_task_events(&mut self, pid: i32) {
        if let Some(events) = &mut self.task_events {
            // A failure leaves finding the threads to /proc.
            let _ = events.add_process(pid);
            return;
        }
        let system_wide = match self.per_thread {
            true => None,
            false => TaskEvents::system_wide(Buffering::default()).ok(),
        };
        match system_wide {
            Some(events) => {
                self.task_events = Some(events);
                self.tracker.expect_records();
            }
            None => {
                self.early.begin();
                self.tracker.watch_young();
            }
        }
    }

    /// Nanoseconds that perch has spent on PUs.
    fn own_cpu_time() -> u64 {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64
    }
}

impl Machine for LinuxMachine {
    fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.topology)
    }

    fn configure(&mut self, plan: &EventPlan) -> Result<(), MachineError> {
        self.counting.configure(plan, self.tracker.threads())?;
        self.pus.configure(self.counting.counters());
        Ok(())
    }

    fn watch_pus(&mut self, watch: bool) {
        self.pus.watch(watch);
    }

    fn launch(&mut self, launch: &Launch) -> Result<i32, MachineError> {
        if self.child.is_some() {
            return Err(MachineError::Other(
                "a program was launched already: one machine follows one".into(),
            ));
        }
        if self.subreaper {
            // Refused only by kernels before 3.4; orphans then go to init and are found by their mark.
            let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        }
        let waiting = launch::prepare(launch)?;
        let pid = waiting.pid();
        self.open_task_events(pid);
        let session = launch
            .environment
            .iter()
            .find(|(name, _)| name == SESSION_VARIABLE);
        let launched = Launched {
            since: crate::proc::start_of(pid).unwrap_or_default(),
            session: session.map(|(_, value)| value.to_string_lossy().into_owned()),
            subreaper: self.subreaper,
        };
        let since = launched.since;
        let target = self.places.add_launched();
        self.tracker.follow_launched(pid, launched, target);
        self.counting.launched(ThreadId {
            tid: pid,
            start: since,
        });
        self.child = Some(waiting.start()?);
        Ok(pid)
    }

    fn attach(&mut self, pid: i32) -> Result<(), MachineError> {
        let end = self.open_end(pid)?;
        if pid == std::process::id() as i32 {
            return Err(MachineError::Other(format!("{pid} is perch itself")));
        }
        waiting::check_owner(pid)?;
        self.open_task_events(pid);
        let target = self.places.add_attached();
        if !self.tracker.follow_running(pid, target) {
            return Err(MachineError::NoSuchProcess(pid));
        }
        self.counting.attached(pid);
        self.places.look(self.tracker.processes());
        self.attached.push((pid, end));
        Ok(())
    }

    fn wait(&mut self, period: Duration) -> Result<Wake, MachineError> {
        self.wait_for(period)
    }

    fn observe(&mut self) -> Result<Observation, MachineError> {
        self.drain_task_events();
        // First, so that masks are read after a change.
        let mut topology_changed = self.follow_topology();
        self.tracker.discover();
        let (now, at) = (Instant::now(), monotonic() - self.opened);
        let interval = (now - self.observed).as_nanos() as u64;
        self.observed = now;
        let over = self
            .child
            .as_mut()
            .is_some_and(|child| child.ended().is_some());
        self.tracker.read_accounts(over);
        let mut sampled = self.tracker.sample(interval);
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
        let origins = self.tracker.take_origins();
        let pus = self.pus.observe();
        self.end_early(&sampled.threads);
        self.counting.period(&self.topology, interval, &mut sampled);
        let said: Vec<String> = self
            .tracker
            .take_remarks()
            .into_iter()
            .chain(self.counting.take_remarks())
            .chain(self.pus.take_remarks())
            .collect();
        for remark in said {
            self.remark(remark);
        }
        let before = std::mem::replace(&mut self.own_cpu_time, Self::own_cpu_time());
        Ok(Observation {
            at,
            interval,
            threads: sampled.threads,
            pus,
            sharing: self.counting.sharing(),
            ended: sampled.ended,
            processes,
            origins,
            unseen: self.tracker.take_unseen(),
            unmeasured: self.tracker.take_unmeasured(),
            remarks: std::mem::take(&mut self.remarks),
            own_cpu_time: self.own_cpu_time - before,
            topology_changed,
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
        let threads = self.counting.description();
        match self.pus.description() {
            Some(pus) => format!("{threads}; {pus}"),
            None => threads,
        }
    }
}
