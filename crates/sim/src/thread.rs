//! A thread while it runs: where it is in its steps, and what it has done.

use crate::{
    counters::Counters,
    stream::{Instruction, MixStream, Random, Stream},
    units::Ps,
    workload::{Mix, Step},
};
use perch_core::PuSet;
use std::{collections::HashMap, sync::Arc};

/// What a thread is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Runs, or waits for a PU.
    Runnable,
    /// Sleeps until this moment.
    Sleeping(Ps),
    /// Waits at this barrier of its process.
    AtBarrier(Arc<str>),
    /// Waits for this lock of its process.
    ForLock(Arc<str>),
    /// Has ended.
    Ended,
}

/// What a thread wants at the end of its instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wish {
    /// To execute the next instructions.
    Compute,
    /// To wait for the others.
    Barrier(Arc<str>),
    /// A lock.
    Lock(Arc<str>),
    /// To let a lock go.
    Unlock(Arc<str>),
    /// To sleep for so many nanoseconds of the operating system.
    Sleep(u64),
    /// Nothing more.
    End,
}

/// A thread's place on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The PU.
    pub pu: u32,
    /// Since when it is there without a break.
    pub begun: Ps,
    /// Up to when its time there is accounted for.
    pub accounted: Ps,
}

/// Who a thread is, and of which process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its number, unlike any other of the run.
    pub tid: i32,
    /// Its process: an index of the run's processes.
    pub process: usize,
    /// Its name.
    pub name: String,
    /// When it started.
    pub started: Ps,
}

/// A thread of the simulated machine.
#[derive(Debug, Clone)]
pub struct Thread {
    /// Who.
    pub identity: Identity,
    /// What it is doing.
    pub state: State,
    /// On which PUs it may run.
    pub mask: PuSet,
    /// Where it runs, while it does.
    pub place: Option<Place>,
    /// Where it ran last or waits to run.
    pub last_pu: u32,
    /// Time on a PU so far.
    pub cpu_time: Ps,
    /// Time runnable without a PU so far.
    pub wait_time: Ps,
    /// Since when it waits for a PU.
    pub waiting_since: Option<Ps>,
    /// Weighted run time by which the operating system shares a PU, in picoseconds.
    pub virtual_time: Ps,
    /// Times that it left a PU.
    pub switches: u64,
    /// Times that it went on on another PU.
    pub migrations: u64,
    /// What it has counted.
    pub counters: Counters,
    /// Cycles of its cores while it was on them.
    pub cycles: u64,
    /// When it ended.
    pub ended: Option<Ps>,
    steps: Arc<[Step]>,
    at: usize,
    repeat: u64,
    streams: HashMap<usize, Stream>,
    current: Option<(usize, Stream)>,
    /// Instructions left of the step.
    left: u64,
    /// Instructions that were fetched and not executed before the thread left its PU.
    returned: Vec<Instruction>,
}

/// What a thread's streams are made of: the mixes, and where its data and code lie.
pub(crate) struct Sources<'a> {
    pub mixes: &'a [Mix],
    /// The address at which the data of this thread's own begin.
    pub own: u64,
    /// The addresses of the regions that the process shares, by name.
    pub regions: &'a HashMap<String, u64>,
    /// Where the code of each mix begins.
    pub code: &'a [u64],
}

impl Thread {
    pub(crate) fn new(
        identity: Identity,
        steps: Arc<[Step]>,
        repeat: u64,
        mask: PuSet,
        sources: &Sources<'_>,
        random: &Random,
    ) -> Self {
        let mut streams = HashMap::new();
        for step in steps.iter() {
            let Step::Compute { mix, .. } = step else {
                continue;
            };
            streams
                .entry(*mix)
                .or_insert_with(|| stream(*mix, sources, random));
        }
        Self {
            state: State::Runnable,
            mask,
            place: None,
            last_pu: 0,
            cpu_time: 0,
            wait_time: 0,
            waiting_since: None,
            virtual_time: 0,
            switches: 0,
            migrations: 0,
            counters: Counters::default(),
            cycles: 0,
            ended: None,
            steps,
            at: 0,
            repeat,
            streams,
            current: None,
            left: 0,
            returned: Vec::new(),
            identity,
        }
    }

    /// Goes on to the next step and says what it is. A step of computing is begun.
    pub(crate) fn step(&mut self) -> Wish {
        if self.at >= self.steps.len() {
            if self.repeat != u64::MAX {
                self.repeat -= 1;
            }
            self.at = 0;
        }
        if self.repeat == 0 || self.steps.is_empty() {
            return Wish::End;
        }
        let step = &self.steps[self.at];
        self.at += 1;
        match step {
            Step::Compute { mix, instructions } => {
                if let Some((before, stream)) = self.current.take() {
                    self.streams.insert(before, stream);
                }
                self.current = self.streams.remove(mix).map(|stream| (*mix, stream));
                self.left = *instructions;
                Wish::Compute
            }
            Step::Barrier(name) => Wish::Barrier(name.as_str().into()),
            Step::Lock(name) => Wish::Lock(name.as_str().into()),
            Step::Unlock(name) => Wish::Unlock(name.as_str().into()),
            Step::Sleep(time) => Wish::Sleep(*time),
        }
    }

    /// The next instructions of the step that it computes, as many as there is room for. Returns how many; none at the
    /// end of the step.
    pub(crate) fn fill(&mut self, into: &mut [Instruction]) -> usize {
        if !self.returned.is_empty() {
            let count = self.returned.len().min(into.len());
            for (place, instruction) in into.iter_mut().zip(self.returned.drain(..count)) {
                *place = instruction;
            }
            return count;
        }
        let Some((_, stream)) = &mut self.current else {
            return 0;
        };
        let count = self.left.min(into.len() as u64) as usize;
        if self.left != u64::MAX {
            self.left -= count as u64;
        }
        stream.fill(&mut into[..count]);
        count
    }

    /// Gives instructions back that were fetched and not executed: they come first when it computes again.
    pub(crate) fn give_back(&mut self, rest: &[Instruction]) {
        self.returned.splice(..0, rest.iter().copied());
    }

    /// Whether it has instructions to execute.
    pub fn is_runnable(&self) -> bool {
        self.state == State::Runnable
    }
}

fn stream(mix: usize, sources: &Sources<'_>, random: &Random) -> Stream {
    let model = &sources.mixes[mix];
    let mut own = sources.own;
    let bases: Vec<u64> = model
        .working_sets
        .iter()
        .map(|set| match &set.region {
            Some(region) => sources.regions.get(region).copied().unwrap_or(sources.own),
            None => {
                let base = own;
                own += set.bytes.next_multiple_of(4096);
                base
            }
        })
        .collect();
    let code = sources.code[mix];
    Stream::Mix(MixStream::new(
        model,
        code,
        &bases,
        random.part(mix as u64 + 1),
    ))
}
