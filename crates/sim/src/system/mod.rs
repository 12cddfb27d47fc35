//! A machine with its operating system and a workload, played cycle by cycle.

mod addresses;
mod life;

use crate::{
    core::{Core, Finished, Supply},
    counters::Counters,
    memory::Memory,
    model::MachineModel,
    os::{Scheduler, SchedulerModel, Sync},
    stream::{Instruction, Random},
    thread::{Place, Thread},
    units::Ps,
    workload::WorkloadModel,
};
use addresses::Addresses;
use perch_core::PuSet;
use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

/// Cores take turns of so many picoseconds: what one does to caches that they share, another sees at most that much
/// later. The result depends on it a little and on nothing else, so it never changes.
const QUANTUM: Ps = 20_000;

/// A run that cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// Everybody waits for somebody else.
    #[error("deadlock at {}: nobody can go on\n{}", .at, .waiting.join("\n"))]
    Deadlock {
        /// When, on the machine, in words.
        at: String,
        /// A line for each thread: what it waits for.
        waiting: Vec<String>,
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
    cores: Vec<Core>,
    /// Core and context of each PU.
    places: Vec<(usize, usize)>,
    memory: Memory,
    scheduler: Scheduler,
    threads: Vec<Thread>,
    processes: Vec<Process>,
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
    /// Who was where, if that is to be remembered.
    stays: Option<Vec<Stay>>,
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

/// Threads as a source of instructions.
struct Streams<'a>(&'a mut [Thread]);

impl Supply for Streams<'_> {
    #[inline]
    fn next(&mut self, thread: u32) -> Option<Instruction> {
        self.0[thread as usize].instruction()
    }
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
        let mut first = 0;
        let cores = machine
            .cores
            .iter()
            .map(|core| {
                let kind = machine.kind(core);
                let made = Core::new(first, kind);
                first += kind.contexts as usize;
                made
            })
            .collect();
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
            memory: Memory::new(&machine),
            places: machine.places(),
            scheduler: Scheduler::new(&machine, scheduler, random.part(1)),
            unfinished: starts.len(),
            default_mask: (0..machine.pus() as u32).collect(),
            switch: machine.machine_time(scheduler.switch),
            cores,
            threads: Vec::new(),
            processes: Vec::new(),
            addresses: Addresses::new(random.part(0)),
            starts,
            random,
            now: 0,
            finished: Vec::new(),
            sleepers: BinaryHeap::new(),
            changed: true,
            stays: None,
            machine,
            workload,
        }
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

    /// All processes that there were.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Remembers from now on who is where, for [`System::stays`].
    pub fn remember_stays(&mut self) {
        self.stays.get_or_insert_default();
    }

    /// Who was where, in the order in which they left; those who are still there last.
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

    /// The memory system: for occupancies.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether every program has ended once.
    pub fn is_done(&self) -> bool {
        self.unfinished == 0
    }

    /// The mask of threads that nobody places.
    pub fn default_mask(&self) -> &PuSet {
        &self.default_mask
    }

    /// Sets a thread's mask, which must name a PU of the machine. A thread that may not stay where it is moves at once.
    pub fn set_mask(&mut self, thread: usize, mask: PuSet) {
        self.threads[thread].mask = mask;
        let now = self.now;
        self.scheduler.masked(thread, &mut self.threads, now);
        self.changed = true;
        self.put();
    }

    /// Runs up to a moment, or until every program has ended once.
    ///
    /// # Errors
    /// A deadlock.
    pub fn run(&mut self, until: Ps) -> Result<(), SimError> {
        while self.now < until && !self.is_done() {
            self.begin();
            self.put();
            let wake = self.next_wake();
            if wake.is_none() && self.scheduler.is_idle() {
                return Err(self.deadlock());
            }
            let next = (self.now + QUANTUM)
                .min(until)
                .min(self.scheduler.next_tick().max(self.now + 1))
                .min(wake.unwrap_or(Ps::MAX).max(self.now + 1));
            // With nobody on a PU nothing happens until somebody wakes.
            let next = match wake.filter(|_| self.scheduler.is_idle()) {
                Some(wake) => wake.clamp(self.now + 1, until),
                None => next,
            };
            self.play(next);
            self.now = next;
            self.handle_finished();
            self.wake();
            if self.scheduler.next_tick() <= self.now {
                self.account();
                self.scheduler.tick(&mut self.threads, next);
                self.changed = true;
            }
        }
        self.account();
        Ok(())
    }

    /// Lets every core run up to a moment.
    fn play(&mut self, until: Ps) {
        let mut streams = Streams(&mut self.threads);
        for core in &mut self.cores {
            let finished = &mut self.finished;
            core.run(until, &mut streams, &mut self.memory, |thread| {
                finished.push(thread)
            });
        }
    }

    /// Puts on every PU whom the scheduler wants there.
    fn put(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        for pu in 0..self.places.len() {
            let (core, context) = self.places[pu];
            let wanted = self.scheduler.current(pu);
            let present = self.cores[core]
                .thread(context)
                .map(|thread| thread as usize);
            if wanted == present {
                continue;
            }
            if let Some(before) = present {
                self.take_off(before);
            }
        }
        for pu in 0..self.places.len() {
            let (core, context) = self.places[pu];
            let Some(wanted) = self.scheduler.current(pu) else {
                continue;
            };
            if self.cores[core].thread(context).is_some() || self.threads[wanted].place.is_some() {
                continue;
            }
            let now = self.now;
            self.threads[wanted].place = Some(Place {
                pu: pu as u32,
                begun: now,
                accounted: now,
            });
            let at = self.now + self.switch;
            let mut streams = Streams(&mut self.threads);
            self.cores[core].assign(
                context,
                Some(wanted as u32),
                at,
                &mut streams,
                &mut self.memory,
            );
        }
    }

    /// Takes a thread off its PU, with what it has counted there.
    fn take_off(&mut self, index: usize) {
        self.account_one(index);
        let Some(place) = self.threads[index].place.take() else {
            return;
        };
        if let Some(stays) = &mut self.stays {
            stays.push(Stay {
                thread: index,
                pu: place.pu,
                from: place.begun,
                to: self.now,
            });
        }
        let (core, context) = self.places[place.pu as usize];
        let now = self.now;
        let mut streams = Streams(&mut self.threads);
        let returned = self.cores[core].assign(context, None, now, &mut streams, &mut self.memory);
        self.threads[index].give_back(returned);
    }

    /// Brings times and counts of running threads up to date.
    fn account(&mut self) {
        for pu in 0..self.places.len() {
            let (core, context) = self.places[pu];
            if let Some(thread) = self.cores[core].thread(context) {
                self.account_one(thread as usize);
            }
        }
    }

    fn account_one(&mut self, index: usize) {
        let now = self.now;
        let Some(place) = &mut self.threads[index].place else {
            return;
        };
        let ran = now.saturating_sub(place.accounted);
        place.accounted = now;
        let (core, context) = self.places[place.pu as usize];
        let counted: Counters = self.cores[core].take_counters(context);
        let cycles = ran / self.cores[core].cycle_time();
        let thread = &mut self.threads[index];
        thread.cpu_time += ran;
        thread.virtual_time += ran;
        thread.cycles += cycles;
        thread.counters += counted;
    }
}
