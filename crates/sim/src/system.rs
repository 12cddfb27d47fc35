//! A machine with its operating system and a workload, played cycle by cycle.

use crate::{
    core::{Core, Finished, Supply},
    counters::Counters,
    memory::Memory,
    model::MachineModel,
    os::{Scheduler, SchedulerModel, Sync},
    stream::{Instruction, Random},
    thread::{Identity, Place, Sources, State, Thread, Wish},
    units::{NANOSECOND, Ps},
    workload::{Step, WorkloadModel},
};
use perch_core::PuSet;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::Arc,
};

/// Cores take turns of so many picoseconds: what one does to caches that they share, another sees at most that much
/// later. The result depends on it a little and on nothing else, so it never changes.
const QUANTUM: Ps = 20_000;

/// Bytes of address space of each process.
const PROCESS: u64 = 1 << 44;

/// Where a process's threads have their own data, its regions and its code, from the beginning of its address space.
const OWN: u64 = 1 << 36;
const REGIONS: u64 = 1 << 42;
const CODE: u64 = 1 << 43;

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
            .enumerate()
            .map(|(number, core)| {
                let kind = machine.kind(core);
                let made = Core::new(number, first, kind);
                first += kind.contexts as usize;
                made
            })
            .collect();
        let random = Random::new(seed);
        let scale = machine.scale;
        let on_machine = |ns: u64| ((ns * NANOSECOND) as f64 / scale).round() as Ps;
        let mut starts = Vec::new();
        for (program, model) in workload.programs.iter().enumerate() {
            let start = Start {
                program,
                at: on_machine(model.start),
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
            switch: on_machine(scheduler.switch),
            cores,
            threads: Vec::new(),
            processes: Vec::new(),
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

    /// Starts the programs whose time has come.
    fn begin(&mut self) {
        while let Some(start) = self
            .starts
            .last()
            .copied()
            .filter(|start| start.at <= self.now)
        {
            self.starts.pop();
            self.start(start);
        }
    }

    fn start(&mut self, start: Start) {
        let program = start.program;
        let workload = Arc::clone(&self.workload);
        let model = &workload.programs[program];
        let number = self.processes.len();
        let base = (number as u64 + 1) * PROCESS;
        let mut regions = HashMap::new();
        for set in workload.mixes.iter().flat_map(|mix| &mix.working_sets) {
            if let Some(region) = &set.region {
                let at = base + REGIONS + regions.len() as u64 * (1 << 34);
                regions.entry(region.clone()).or_insert(at);
            }
        }
        let mut sync = Sync::default();
        let first = self.threads.len();
        for kind in &model.threads {
            let steps: Arc<[Step]> = kind.steps.clone().into();
            for copy in 0..kind.count {
                let index = self.threads.len();
                let name = match kind.count {
                    1 => kind.name.clone(),
                    _ => format!("{}-{}", kind.name, copy + 1),
                };
                let identity = Identity {
                    tid: index as i32 + 1,
                    process: number,
                    name,
                    started: self.now,
                };
                let mut barriers: Vec<&str> = kind.steps.iter().filter_map(barrier).collect();
                barriers.sort_unstable();
                barriers.dedup();
                barriers.iter().for_each(|name| sync.join_barrier(name));
                let sources = Sources {
                    mixes: &workload.mixes,
                    own: base + OWN * (1 + (index - first) as u64),
                    regions: &regions,
                    code: base + CODE,
                };
                let random = self.random.part(index as u64 + 2);
                let mask = self.default_mask.clone();
                self.threads.push(Thread::new(
                    identity,
                    Arc::clone(&steps),
                    kind.repeat,
                    mask,
                    &sources,
                    &random,
                ));
            }
        }
        let started = self.now;
        self.processes.push(Process {
            program,
            name: model.name.clone(),
            pid: first as i32 + 1,
            started,
            ended: None,
            live: self.threads.len() - first,
            again: start.again,
            sync,
        });
        self.changed = true;
        for index in first..self.threads.len() {
            self.go_on(index, started, true);
        }
    }

    /// Lets a thread go on to what it wants next. It is on no PU, unless it computes on.
    fn go_on(&mut self, index: usize, at: Ps, mut stopped: bool) {
        loop {
            let process = self.threads[index].identity.process;
            match self.threads[index].step() {
                Wish::Compute if stopped => {
                    let is_new = self.threads[index].cpu_time == 0;
                    self.threads[index].state = State::Runnable;
                    match is_new {
                        true => self.scheduler.start(index, &mut self.threads, self.now),
                        false => self.scheduler.wake(index, &mut self.threads, self.now),
                    }
                    return;
                }
                Wish::Compute => return self.resume(index, at),
                Wish::Barrier(name) => match self.processes[process].sync.arrive(&name, index) {
                    Some(others) => {
                        for other in others {
                            self.go_on(other, at, true);
                        }
                    }
                    None => return self.block(index, State::AtBarrier(name), stopped),
                },
                Wish::Lock(name) => {
                    if !self.processes[process].sync.lock(&name, index) {
                        return self.block(index, State::ForLock(name), stopped);
                    }
                }
                Wish::Unlock(name) => {
                    if let Some(next) = self.processes[process].sync.unlock(&name) {
                        self.go_on(next, at, true);
                    }
                }
                Wish::Sleep(time) => {
                    let time = ((time * NANOSECOND) as f64 / self.machine.scale) as Ps;
                    let until = at + time.max(1);
                    self.sleepers.push(Reverse((until, index)));
                    return self.block(index, State::Sleeping(until), stopped);
                }
                Wish::End => return self.end(index, at, stopped),
            }
            stopped |= !self.threads[index].is_runnable();
        }
    }

    /// It computes on where it is.
    fn resume(&mut self, index: usize, at: Ps) {
        let Some(place) = self.threads[index].place else {
            return;
        };
        let (core, context) = self.places[place.pu as usize];
        let mut streams = Streams(&mut self.threads);
        self.cores[core].assign(
            context,
            Some(index as u32),
            at,
            &mut streams,
            &mut self.memory,
        );
    }

    fn block(&mut self, index: usize, state: State, stopped: bool) {
        self.threads[index].state = state;
        if !stopped {
            self.leave(index);
        }
    }

    /// A thread that was runnable has nothing to do.
    fn leave(&mut self, index: usize) {
        self.threads[index].switches += 1;
        self.take_off(index);
        let now = self.now;
        self.scheduler.stop(index, &mut self.threads, now);
    }

    fn end(&mut self, index: usize, at: Ps, stopped: bool) {
        self.threads[index].state = State::Ended;
        self.threads[index].ended = Some(at);
        if !stopped {
            self.leave(index);
        }
        let number = self.threads[index].identity.process;
        let process = &mut self.processes[number];
        process.live -= 1;
        if process.live > 0 {
            return;
        }
        process.ended = Some(at);
        let program = process.program;
        self.unfinished -= usize::from(!process.again);
        if self.workload.programs[program].restart && self.unfinished > 0 {
            let again = Start {
                program,
                at,
                again: true,
            };
            self.starts.push(again);
        }
    }

    fn handle_finished(&mut self) {
        if self.finished.is_empty() {
            return;
        }
        self.changed = true;
        let mut finished = std::mem::take(&mut self.finished);
        for done in finished.drain(..) {
            self.go_on(done.thread as usize, done.at.min(self.now), false);
        }
        self.finished = finished;
    }

    fn next_wake(&self) -> Option<Ps> {
        let sleeper = self.sleepers.peek().map(|Reverse((at, _))| *at);
        sleeper
            .into_iter()
            .chain(self.starts.last().map(|start| start.at))
            .min()
    }

    fn wake(&mut self) {
        while let Some(Reverse((at, index))) = self.sleepers.peek().copied()
            && at <= self.now
        {
            self.sleepers.pop();
            self.changed = true;
            self.go_on(index, self.now, true);
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

    fn deadlock(&self) -> SimError {
        let waiting = self.threads.iter().filter_map(|thread| {
            let process = &self.processes[thread.identity.process];
            let name = format!("{} of {}", thread.identity.name, process.name);
            match &thread.state {
                State::AtBarrier(barrier) => {
                    let (there, parties) = process.sync.at_barrier(barrier);
                    Some(format!(
                        "  {name} waits at barrier '{barrier}' ({there} of {parties} are there)"
                    ))
                }
                State::ForLock(lock) => {
                    let holder = process
                        .sync
                        .holder(lock)
                        .map(|holder| self.threads[holder].identity.name.as_str());
                    Some(format!(
                        "  {name} waits for lock '{lock}', held by {}",
                        holder.unwrap_or("nobody")
                    ))
                }
                _ => None,
            }
        });
        SimError::Deadlock {
            at: format!("{:.6} ms", self.now as f64 * 1e-9),
            waiting: waiting.collect(),
        }
    }
}

fn barrier(step: &Step) -> Option<&str> {
    match step {
        Step::Barrier(name) => Some(name),
        _ => None,
    }
}
