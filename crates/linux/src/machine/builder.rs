//! Opening the machine.

use super::{
    Changes, CountersMode, Counting, EarlyLooks, IrqWatch, LiveMachine, Newcomers, Places, Pus,
    System,
};
use crate::{
    LinuxMachine,
    affinity::LinuxAffinity,
    limits,
    perf::task_events::monotonic,
    proc::{Reader, check_numbers},
    threads::Tracker,
    topology::{self, Source},
};
use perch_core::{MachineError, Module, PuSet, Topology, topology::TopologySource};
use std::{collections::HashSet, sync::Arc, time::Instant};

/// Settings for opening the live machine.
#[derive(Default)]
#[must_use]
pub struct Builder {
    topology: Option<Topology>,
    restrict: Option<PuSet>,
    leave_orphans: bool,
    counters: CountersMode,
    sampling_rate: Option<u32>,
    modules: Vec<Box<dyn Module>>,
    per_thread: bool,
}

impl Builder {
    /// Uses this topology instead of asking hwloc. If it is this machine's own, as [`topology::load`] returned it
    /// before, changes are followed; any other is pretended, and stays as it is.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = Some(topology);
        self
    }

    /// How threads are characterised (`--counters`).
    pub fn counters(mut self, mode: CountersMode) -> Self {
        self.counters = mode;
        self
    }

    /// Samples a second of each CPU, or of each thread where only threads may be sampled; the default suits.
    pub fn sampling_rate(mut self, hertz: u32) -> Self {
        self.sampling_rate = Some(hertz);
        self
    }

    /// Limits the PUs on which perch may put threads (`--pus`).
    pub fn restrict(mut self, pus: &PuSet) -> Self {
        self.restrict = Some(pus.clone());
        self
    }

    /// Whether orphans of a launched program go to init instead of to perch. For processes that have children of their
    /// own besides: perch takes every child that ends for an orphan of the program.
    pub fn leave_orphans(mut self, leave: bool) -> Self {
        self.leave_orphans = leave;
        self
    }

    /// Adds a monitoring module, whose metrics then come with the threads.
    pub fn module(mut self, module: Box<dyn Module>) -> Self {
        self.modules.push(module);
        self
    }

    /// Watches threads one by one and without exit records, as an ordinary user has to, even where more is allowed: to
    /// measure what that costs and what it misses.
    pub fn per_thread(mut self, per_thread: bool) -> Self {
        self.per_thread = per_thread;
        self
    }

    /// Opens the machine.
    ///
    /// # Errors
    /// An unreadable topology or `/proc`; none of the PUs of [`Builder::restrict`] is usable.
    pub fn build(self) -> Result<LinuxMachine, MachineError> {
        let subreaper = !self.leave_orphans;
        LinuxMachine::new(self.build_live()?, subreaper)
    }

    /// Opens the machine without a supervisor: for services, which handle signals and reap processes themselves.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn build_live(self) -> Result<LiveMachine, MachineError> {
        check_numbers().map_err(MachineError::Other)?;
        limits::raise_open_files();
        let mut topology = match self.topology {
            Some(topology) => topology,
            None => topology::load(&Source::Native)?.topology,
        };
        let changes = (topology.source == TopologySource::ThisMachine)
            .then(|| Changes::new(self.restrict.clone()));
        if let Some(pus) = &self.restrict {
            topology::restrict(&mut topology, pus)?;
        }
        let now = Instant::now();
        Ok(LiveMachine {
            topology: Arc::new(topology),
            changes,
            told_default: own_mask()?,
            live_targets: HashSet::new(),
            places: Places::new(own_mask()?),
            tracker: Tracker::new(),
            affinity: LinuxAffinity::new(),
            task_events: None,
            counting: Counting::new(
                self.counters,
                self.sampling_rate,
                self.per_thread,
                self.modules,
            ),
            pus: Pus::default(),
            irqs: IrqWatch::default(),
            nices: false,
            settings: false,
            system: System::Ignored,
            over: false,
            let_go: Vec::new(),
            per_thread: self.per_thread,
            exit_records: false,
            early: EarlyLooks::default(),
            newcomers: Newcomers::default(),
            opened: monotonic(),
            period_end: None,
            observed: now,
            own_cpu_time: LiveMachine::own_cpu_time(),
            remarks: Vec::new(),
        })
    }
}

/// The mask that perch itself inherited, and with it what it launches.
pub(super) fn own_mask() -> Result<PuSet, MachineError> {
    let pid = std::process::id() as i32;
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let status = Reader::new().status(pid, tid).ok();
    status.and_then(|status| status.mask).ok_or_else(|| {
        MachineError::Other(
            "/proc/self/status cannot be read or tells no Cpus_allowed_list: perch needs /proc mounted (`mount -t proc \
             proc /proc`)"
                .into(),
        )
    })
}
