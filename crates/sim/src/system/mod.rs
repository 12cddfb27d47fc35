//! A machine with its operating system and a workload, simulated cycle by cycle.

mod addresses;
mod life;
mod outcome;
mod run;
mod steps;

pub use outcome::Outcome;

use crate::{
    core::Finished,
    counters::Counters,
    cycle::CycleLevel,
    detail::Detail,
    energy::{Energy, Mark, Meter},
    interval::{IntervalLevel, Knowledge},
    memory::Occupancy,
    model::{MachineModel, OperatingPoint},
    os::{Devices, Interrupts, Queue, Scheduler, SchedulerModel, Sync},
    processor::Processor,
    sharing::Shared,
    stream::Random,
    thread::Thread,
    units::Ps,
    workload::WorkloadModel,
};
use addresses::Addresses;
use perch_core::{PuSet, WayMask};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::Arc,
};

/// A run that cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// Every thread waits for another one.
    #[error("deadlock at {}: nobody can go on\n{}", .at, .waiting.join("\n"))]
    Deadlock {
        /// When, on the machine, in words.
        at: String,
        /// A line for each thread: what it waits for.
        waiting: Vec<String>,
    },
    /// A thread is pinned to PUs of which the machine has none.
    #[error("`{thread}` is pinned to PUs that the machine does not have: it has {pus}, from 0 on")]
    Pinned {
        /// The thread.
        thread: String,
        /// How many PUs there are.
        pus: usize,
    },
    /// A placement puts a thread where it is not pinned.
    #[error(
        "`{thread}` is pinned to PUs {pus} and cannot be placed on PU {pu}: leave out its `pus`, or place it there"
    )]
    PinnedElsewhere {
        /// The thread.
        thread: String,
        /// Its PUs.
        pus: String,
        /// Where it was to be placed.
        pu: u32,
    },
    /// Threads are started without an end.
    #[error("too many threads at {at}: {why}")]
    Threads {
        /// When, on the machine, in words.
        at: String,
        /// Which limit, and which program starts them.
        why: String,
    },
}

/// A process of a run.
#[derive(Debug, Clone)]
pub struct Process {
    /// The program: an index of the workload's.
    pub program: usize,
    /// Its name.
    pub name: String,
    /// Its number: that of its first thread.
    pub pid: i32,
    /// When it started.
    pub started: Ps,
    /// When its last thread ended.
    pub ended: Option<Ps>,
    live: usize,
    /// Whether it was started again because others had not ended yet.
    again: bool,
    sync: Sync,
    requests: Option<Queue>,
    /// How many threads of each kind it has had.
    born: Vec<u32>,
    /// Where the data of threads were that have ended: the next ones get them.
    free: Vec<u64>,
    /// Where the regions are that all its threads share.
    regions: HashMap<String, u64>,
    /// Where the code of each mix is.
    code: Vec<u64>,
}

/// A start that is to come.
#[derive(Debug, Clone, Copy)]
struct Start {
    program: usize,
    at: Ps,
    again: bool,
}

/// The machine, its operating system and its threads.
pub struct System {
    machine: Arc<MachineModel>,
    workload: Arc<WorkloadModel>,
    processor: Box<dyn Processor>,
    /// How many PUs there are.
    pus: usize,
    scheduler: Scheduler,
    threads: Vec<Thread>,
    processes: Vec<Process>,
    /// Threads that have not ended.
    alive: usize,
    /// Processes that have requests and have not ended.
    serving: Vec<usize>,
    devices: Devices,
    interrupts: Interrupts,
    meter: Option<Meter>,
    /// Where energy is measured from: when, and what there was then, once that moment has passed.
    measured: (Ps, Option<Mark>),
    /// Threads whose turn it is to go on; empty between calls, kept for its room.
    turns: Vec<(usize, bool)>,
    /// Why it cannot go on.
    failure: Option<SimError>,
    addresses: Addresses,
    starts: Vec<Start>,
    /// Programs that have not ended once.
    unfinished: usize,
    default_mask: PuSet,
    random: Random,
    switch: Ps,
    now: Ps,
    finished: Vec<Finished>,
    /// When sleepers wake, the first first.
    sleepers: BinaryHeap<Reverse<(Ps, usize)>>,
    /// Whether the scheduler may want others on PUs than are there.
    changed: bool,
    /// The operating point of each core.
    points: Vec<OperatingPoint>,
    /// What each PU has done, no matter which threads ran on it.
    deeds: Vec<PuDeed>,
    /// Which thread was where, if that is to be remembered.
    stays: Option<Vec<Stay>>,
}

/// What a PU has done from the beginning on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PuDeed {
    /// Time with a thread on it.
    pub busy: Ps,
    /// Cycles of its core meanwhile.
    pub cycles: u64,
    /// What it counted.
    pub counters: Counters,
    /// Nanojoules that its threads took.
    pub energy: Energy,
    /// Nanojoules that no thread took: its part of its core's while that was idle, of its package's, its memory's and
    /// everything else's.
    pub rest: Energy,
    /// Time taken by interrupts.
    pub interrupts: Ps,
    /// That of those that came while it was idle.
    pub idle_interrupts: Ps,
}

/// A thread's time on a PU without a break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stay {
    /// The thread: an index of [`System::threads`].
    pub thread: usize,
    /// The PU.
    pub pu: u32,
    /// When it came.
    pub from: Ps,
    /// When it went.
    pub to: Ps,
}

impl System {
    /// A machine that is about to run a workload. The seed decides what chance decides: streams, and ties of the
    /// scheduler.
    pub fn new(
        machine: Arc<MachineModel>,
        workload: Arc<WorkloadModel>,
        scheduler: SchedulerModel,
        seed: u64,
    ) -> Self {
        Self::at(&Detail::Cycle, machine, workload, scheduler, seed)
    }

    /// The same at a chosen level of detail. What an interval level knows already changes nothing but the time that
    /// it takes; knowledge of another machine or of other mixes is not used.
    pub fn at(
        detail: &Detail,
        machine: Arc<MachineModel>,
        workload: Arc<WorkloadModel>,
        scheduler: SchedulerModel,
        seed: u64,
    ) -> Self {
        let processor: Box<dyn Processor> = match detail {
            Detail::Cycle => Box::new(CycleLevel::new(Arc::clone(&machine))),
            Detail::Interval(known) if known.is_about(&machine, &workload) => {
                Box::new(IntervalLevel::new(Arc::clone(known), &workload))
            }
            Detail::Interval(_) => {
                let known = Knowledge::new(Arc::clone(&machine), &workload);
                Box::new(IntervalLevel::new(Arc::new(known), &workload))
            }
        };
        Self::with(processor, machine, workload, scheduler, seed)
    }

    fn with(
        processor: Box<dyn Processor>,
        machine: Arc<MachineModel>,
        workload: Arc<WorkloadModel>,
        scheduler: SchedulerModel,
        seed: u64,
    ) -> Self {
        let random = Random::new(seed);
        let mut starts = Vec::new();
        for (program, model) in workload.programs.iter().enumerate() {
            let start = Start {
                program,
                at: machine.machine_time(model.start),
                again: false,
            };
            starts.extend((0..model.count).map(|_| start));
        }
        // The last one is taken first.
        starts.sort_by_key(|start| Reverse((start.at, start.program)));
        Self {
            pus: machine.pus(),
            processor,
            scheduler: Scheduler::new(&machine, scheduler, random.part(1)),
            unfinished: starts
                .iter()
                .filter(|start| !workload.programs[start.program].system)
                .count(),
            default_mask: (0..machine.pus() as u32).collect(),
            switch: machine.machine_time(scheduler.switch),
            threads: Vec::new(),
            processes: Vec::new(),
            alive: 0,
            serving: Vec::new(),
            devices: Devices::new(&workload.devices, machine.scale),
            // Beyond the numbers of threads, below those of processes.
            interrupts: Interrupts::new(&machine, &random.part(1 << 40)),
            meter: Meter::new(&machine),
            measured: (0, Some(Mark::default())),
            turns: Vec::new(),
            failure: None,
            addresses: Addresses::new(random.part(0)),
            starts,
            random,
            now: 0,
            finished: Vec::new(),
            sleepers: BinaryHeap::new(),
            changed: true,
            points: machine.first_points(),
            deeds: vec![PuDeed::default(); machine.pus()],
            stays: None,
            machine,
            workload,
        }
    }

    /// What runs on it.
    pub fn workload(&self) -> &Arc<WorkloadModel> {
        &self.workload
    }

    /// The machine.
    pub fn machine(&self) -> &Arc<MachineModel> {
        &self.machine
    }

    /// Now.
    pub fn now(&self) -> Ps {
        self.now
    }

    /// All threads that there were, in the order in which they started.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Whether a thread does work of the operating system.
    pub fn is_system(&self, thread: &Thread) -> bool {
        self.workload.programs[thread.identity.program].system
    }

    /// All threads that there were of programs that are not the operating system's, with their indices.
    pub fn program_threads(&self) -> impl Iterator<Item = (usize, &Thread)> {
        let threads = self.threads.iter().enumerate();
        threads.filter(|(_, thread)| !self.is_system(thread))
    }

    /// All processes that there were.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// What each PU has done so far. But for interrupts, its operating system and its devices take no time of PUs, so that
    /// is what threads did there.
    pub fn pus(&self) -> &[PuDeed] {
        &self.deeds
    }

    /// Remembers from now on which thread is where, for [`System::stays`].
    pub fn remember_stays(&mut self) {
        self.stays.get_or_insert_default();
    }

    /// Which thread was where, in the order in which they left; those that are still there last.
    pub fn stays(&self) -> Vec<Stay> {
        let there = self
            .threads
            .iter()
            .enumerate()
            .filter_map(|(thread, state)| {
                let place = state.place?;
                Some(Stay {
                    thread,
                    pu: place.pu,
                    from: place.begun,
                    to: self.now,
                })
            });
        self.stays.iter().flatten().copied().chain(there).collect()
    }

    /// How many lines of each cache of a level each thread holds, 1 to 3, in the order of the model. Threads are indices of
    /// [`System::threads`].
    pub fn occupancy(&self, level: u8) -> Vec<Occupancy> {
        self.processor.occupancy(level)
    }

    /// Lines that threads needed after others wrote them, since this was last asked: each thread's strongest partners.
    /// Only regions and recordings are shared.
    pub fn take_shared(&mut self) -> Vec<Shared> {
        self.processor.take_shared(&self.threads)
    }

    /// Whether every program has ended once; but for the operating system's.
    pub fn is_done(&self) -> bool {
        self.unfinished == 0
    }

    /// The mask of threads whose affinity was not set.
    pub fn default_mask(&self) -> &PuSet {
        &self.default_mask
    }

    /// Sets a thread's mask, which must name a PU of the machine. A thread that may not stay where it is moves at once.
    pub fn set_mask(&mut self, thread: usize, mask: PuSet) {
        self.threads[thread].mask = mask;
        let (now, before) = (self.now, self.threads[thread].place.map(|place| place.pu));
        self.scheduler.masked(thread, &mut self.threads, now);
        self.changed = true;
        let mask = &self.threads[thread].mask;
        if let Some(before) = before.filter(|before| !mask.contains(*before)) {
            let time = self.machine.machine_time(self.machine.os.costs.migrate);
            self.put_after(thread, before as usize, time);
        }
        self.put();
    }

    /// Sets a thread's nice value, -20 to 19: what it has run so far counts as it did.
    pub fn set_nice(&mut self, thread: usize, nice: i32) {
        self.account();
        self.threads[thread].nice = nice;
    }

    /// Sets the ways of the caches of a level, 2 or 3, that a thread may fill; `None` for all. That takes no time. What it
    /// has in other ways stays there until others need the place.
    pub fn set_ways(&mut self, thread: usize, level: u8, ways: Option<WayMask>) {
        self.account();
        self.threads[thread].ways.set(level, ways);
        self.processor
            .set_ways(thread as u32, &self.threads[thread]);
    }

    /// The operating point of a core.
    pub fn point(&self, core: usize) -> OperatingPoint {
        self.points[core]
    }

    /// Sets the operating point of a core, from now on, as far as its kind can be set
    /// ([`CoreKind`](crate::model::CoreKind)). Caches and memory take the time that they took before.
    pub fn set_point(&mut self, core: usize, point: OperatingPoint) {
        self.account();
        if let Some(meter) = &mut self.meter {
            meter.set_point(core, point, self.now);
        }
        self.points[core] = point;
        self.processor.set_points(self.now, &self.points);
        let time = self.machine.machine_time(self.machine.os.costs.set_clock);
        let places = self.machine.places().into_iter().enumerate();
        for (pu, _) in places.filter(|(_, (of, _))| *of == core) {
            self.seize(pu, time);
        }
    }

    /// Lets the threads that are on PUs find their caches as if they had run there for long, so that a run may begin
    /// with what comes after. Recordings begin with cold caches all the same at the cycle level.
    pub fn warm(&mut self) {
        self.processor.warm(&self.threads);
    }
}
