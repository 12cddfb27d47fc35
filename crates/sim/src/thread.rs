//! A thread while it runs: where it is in its steps, and what it has done.

use crate::{
    counters::Counters,
    energy::Energy,
    memory::Access,
    stream::{Instruction, MixStream, Random, RecordedStream, Stream},
    units::Ps,
    ways::Ways,
    workload::{Mix, Step, ThreadModel},
};
use perch_core::{PuSet, scheduler_weight};
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
    /// Waits for a request.
    ForRequest,
    /// Waits for this device of the workload, until this moment.
    ForDevice(usize, Ps),
    /// Waits until the threads of this kind that it started have ended.
    Joining(usize),
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
    /// To sleep for this many nanoseconds of the operating system.
    Sleep(u64),
    /// The next request.
    Receive,
    /// To be done with the request.
    Reply,
    /// To read or write on a device: its latency in nanoseconds of the operating system, and bytes.
    Io {
        device: usize,
        time: u64,
        bytes: u64,
    },
    /// To start `count` threads of a kind.
    Spawn { kind: usize, count: u32 },
    /// To wait for the threads of a kind that it started.
    Join(usize),
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
    /// Its program: an index of the workload's programs.
    pub program: usize,
    /// What it does: an index of its program's threads.
    pub kind: usize,
    /// Who started it, unless it was there from its program's beginning: an index of the run's threads.
    pub parent: Option<usize>,
    /// Its name.
    pub name: String,
    /// When it started.
    pub started: Ps,
}

/// Run time, in picoseconds of a thread of nice value 0, from an origin that each PU has for itself. Wide enough for days of
/// a thread of the smallest weight.
pub type VirtualTime = i128;

/// A thread of the simulated machine.
#[derive(Debug, Clone)]
pub struct Thread {
    /// Its id, its process, its kind and its name.
    pub identity: Identity,
    /// What it is doing.
    pub state: State,
    /// On which PUs it may run.
    pub mask: PuSet,
    /// Its nice value, -20 to 19.
    pub nice: i32,
    /// The ways of caches that it may fill.
    pub ways: Ways,
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
    /// Run time by which the operating system shares a PU; means something only beside that of others of the same PU.
    pub virtual_time: VirtualTime,
    /// Under EEVDF: when, in virtual time, it should have had its slice.
    pub deadline: VirtualTime,
    /// Under EEVDF: what it had less than its share when it last had nothing to do, negative if it had more.
    pub lag: VirtualTime,
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
    /// Energy that it took, in nanojoules: its instructions' and accesses', and its share of its cores' power while it
    /// was on them. 0 on a machine whose energy is not modelled.
    pub energy: Energy,
    /// The threads that it started and that have not ended, by kind.
    pub(crate) children: Vec<(usize, u32)>,
    /// Where its own data begin.
    pub(crate) own: u64,
    steps: Arc<[Step]>,
    at: usize,
    repeat: u64,
    streams: HashMap<usize, Stream>,
    current: Option<(usize, Stream)>,
    /// Instructions left of the step.
    left: u64,
    /// Instructions that were fetched and not executed before the thread left its PU.
    returned: Vec<Instruction>,
    /// Part of the next instruction that was done when it left its PU, at the interval level.
    begun: f64,
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
    /// Which of its program's threads it is, from 0.
    pub ordinal: usize,
}

impl Thread {
    pub(crate) fn new(
        identity: Identity,
        steps: Arc<[Step]>,
        model: &ThreadModel,
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
            nice: model.nice,
            ways: Ways::default(),
            place: None,
            last_pu: 0,
            cpu_time: 0,
            wait_time: 0,
            waiting_since: None,
            virtual_time: 0,
            deadline: 0,
            lag: 0,
            switches: 0,
            migrations: 0,
            counters: Counters::default(),
            cycles: 0,
            ended: None,
            energy: Energy::default(),
            children: Vec::new(),
            own: sources.own,
            steps,
            at: 0,
            repeat: model.repeat,
            streams,
            current: None,
            left: 0,
            returned: Vec::new(),
            begun: 0.0,
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
            Step::Receive => Wish::Receive,
            Step::Reply => Wish::Reply,
            Step::Io {
                device,
                time,
                bytes,
            } => Wish::Io {
                device: *device,
                time: *time,
                bytes: *bytes,
            },
            Step::Spawn { kind, count } => Wish::Spawn {
                kind: *kind,
                count: *count,
            },
            Step::Join(kind) => Wish::Join(*kind),
        }
    }

    /// What it does.
    pub(crate) fn steps(&self) -> Arc<[Step]> {
        Arc::clone(&self.steps)
    }

    /// How many of this kind that it started have not ended.
    pub(crate) fn living(&self, kind: usize) -> u32 {
        let of_kind = self.children.iter().find(|(of, _)| *of == kind);
        of_kind.map_or(0, |(_, living)| *living)
    }

    /// It started `count` threads of a kind.
    pub(crate) fn bear(&mut self, kind: usize, count: u32) {
        match self.children.iter_mut().find(|(of, _)| *of == kind) {
            Some((_, living)) => *living += count,
            None => self.children.push((kind, count)),
        }
    }

    /// One that it started has ended. True if it waited for just that.
    pub(crate) fn lose(&mut self, kind: usize) -> bool {
        if let Some((_, living)) = self.children.iter_mut().find(|(of, _)| *of == kind) {
            *living -= 1;
        }
        self.living(kind) == 0 && self.state == State::Joining(kind)
    }

    /// It has ended: frees what it ran on, keeps what it did.
    pub(crate) fn bury(&mut self) {
        self.streams = HashMap::new();
        self.current = None;
        self.steps = Arc::new([]);
        self.children = Vec::new();
        self.returned = Vec::new();
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

    /// The mix that it computes: an index of the workload's mixes.
    pub(crate) fn mix(&self) -> Option<usize> {
        self.current.as_ref().map(|(mix, _)| *mix)
    }

    /// Where the code and the data are that it goes through now, how many bytes that is, and through how many of them
    /// one instruction goes. Of a recording that is not known.
    pub(crate) fn spans(&self, line: u64) -> impl Iterator<Item = (Access, u64, u64, f64)> {
        let mix = self.current.iter().filter_map(|(_, stream)| match stream {
            Stream::Mix(mix) => Some(mix),
            Stream::Recorded(_) => None,
        });
        mix.flat_map(move |mix| {
            let data = mix.data_spans(line);
            let data = data.map(|(from, bytes, each)| (Access::Load, from, bytes, each));
            let (from, bytes, each) = mix.code_span();
            data.chain(std::iter::once((Access::Fetch, from, bytes, each)))
        })
    }

    /// Of a recording that it executes, which of its threads.
    pub(crate) fn recorded(&self) -> Option<usize> {
        match &self.current.as_ref()?.1 {
            Stream::Recorded(recorded) => Some(recorded.thread()),
            Stream::Mix(_) => None,
        }
    }

    /// Instructions left of the step that it computes; `None` if they never end.
    pub(crate) fn left(&self) -> Option<u64> {
        (self.left != u64::MAX).then_some(self.left)
    }

    /// It has executed instructions of the step.
    pub(crate) fn pass(&mut self, instructions: u64) {
        if self.left != u64::MAX {
            self.left = self.left.saturating_sub(instructions);
        }
    }

    /// Part of the next instruction that is done.
    pub(crate) fn begun(&self) -> f64 {
        self.begun
    }

    /// Remembers that.
    pub(crate) fn set_begun(&mut self, part: f64) {
        self.begun = part;
    }

    /// Time on a PU up to now.
    pub(crate) fn cpu_time_at(&self, now: Ps) -> Ps {
        let since = |place: Place| now.saturating_sub(place.accounted);
        self.cpu_time + self.place.map_or(0, since)
    }

    /// Its virtual time at a moment: what it ran since its time was last accounted for counts too.
    pub fn virtual_time_at(&self, now: Ps) -> VirtualTime {
        let ran = self
            .place
            .map_or(0, |place| now.saturating_sub(place.accounted));
        self.virtual_time + self.charge(ran)
    }

    /// What a time on a PU counts against it: the less, the greater its weight (`calc_delta_fair`).
    pub(crate) fn charge(&self, ran: Ps) -> VirtualTime {
        VirtualTime::from(ran) * VirtualTime::from(scheduler_weight(0))
            / VirtualTime::from(self.weight())
    }

    /// The scheduler's weight of it: 1024 at nice value 0.
    pub(crate) fn weight(&self) -> u32 {
        scheduler_weight(self.nice)
    }

    /// It joins the queue of a PU: it waits, if it did not wait before, and has migrated if it ran elsewhere.
    pub(crate) fn queued(&mut self, pu: u32, now: Ps) {
        self.goes_to(pu);
        self.waiting_since.get_or_insert(now);
    }

    /// It goes on on a PU, perhaps another than before.
    pub(crate) fn goes_to(&mut self, pu: u32) {
        if self.last_pu != pu {
            self.migrations += u64::from(self.cpu_time > 0);
            self.last_pu = pu;
        }
    }

    /// It gets a PU: its wait is over.
    pub(crate) fn dispatched(&mut self, now: Ps) {
        if let Some(since) = self.waiting_since.take() {
            self.wait_time += now.saturating_sub(since);
        }
    }

    /// Another one gets its PU although it has more to do: it waits from now on.
    pub(crate) fn preempted(&mut self, now: Ps) {
        self.switches += 1;
        self.waiting_since = Some(now);
    }

    /// Whether it has instructions to execute.
    pub fn is_runnable(&self) -> bool {
        self.state == State::Runnable
    }
}

fn stream(mix: usize, sources: &Sources<'_>, random: &Random) -> Stream {
    let model = &sources.mixes[mix];
    if let Some(trace) = &model.trace
        && let Some(stream) = RecordedStream::new(trace, sources.code[mix], sources.ordinal)
    {
        return Stream::Recorded(Box::new(stream));
    }
    let mut own = sources.own;
    let bases: Vec<u64> = model
        .working_sets
        .iter()
        .map(|set| match &set.region {
            Some(region) => sources.regions.get(region).copied().unwrap_or(sources.own),
            None => {
                let base = own;
                own += set.room();
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
