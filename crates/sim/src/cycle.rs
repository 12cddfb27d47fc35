//! The cycle level: every instruction passes the pipeline, every access the caches.

use crate::{
    core::{Core, Finished, Supply},
    counters::Counters,
    memory::{Memory, Occupancy, Span},
    model::{MachineModel, OperatingPoint},
    processor::Processor,
    sharing::Shared,
    stream::Instruction,
    thread::Thread,
    units::Ps,
};
use perch_core::CacheWays;
use std::sync::Arc;

/// Cores run one after the other, this many picoseconds each, and each time another core is first, so that none is always
/// the first one at a full memory channel. What one core does to a shared cache, another sees at most that much later.
/// The result depends on this value a little and on nothing else, so it never changes.
const QUANTUM: Ps = 20_000;

/// Cores and memory, simulated cycle by cycle.
pub(crate) struct CycleLevel {
    machine: Arc<MachineModel>,
    cores: Vec<Core>,
    /// The core that runs first in the next quantum.
    first: usize,
    /// Core and context of each PU.
    places: Vec<(usize, usize)>,
    memory: Memory,
}

/// Threads as a source of instructions.
struct Streams<'a>(&'a mut [Thread]);

impl Supply for Streams<'_> {
    #[inline]
    fn fill(&mut self, thread: u32, into: &mut [Instruction]) -> usize {
        self.0[thread as usize].fill(into)
    }

    fn give_back(&mut self, thread: u32, rest: &[Instruction]) {
        self.0[thread as usize].give_back(rest);
    }
}

impl CycleLevel {
    /// An idle machine with empty caches.
    pub(crate) fn new(machine: Arc<MachineModel>) -> Self {
        let mut first = 0;
        let mut make = |core| {
            let kind = machine.kind(core);
            let made = Core::new(first, kind);
            first += kind.contexts as usize;
            made
        };
        Self {
            cores: machine.cores.iter().map(&mut make).collect(),
            first: 0,
            places: machine.places(),
            memory: Memory::new(&machine),
            machine,
        }
    }
}

impl Processor for CycleLevel {
    fn assign(&mut self, pu: usize, thread: Option<u32>, at: Ps, threads: &mut [Thread]) {
        let (core, context) = self.places[pu];
        let mut streams = Streams(threads);
        self.cores[core].assign(context, thread, at, &mut streams, &mut self.memory);
    }

    fn thread(&self, pu: usize) -> Option<u32> {
        let (core, context) = self.places[pu];
        self.cores[core].thread(context)
    }

    fn take_counters(&mut self, pu: usize) -> Counters {
        let (core, context) = self.places[pu];
        self.cores[core].take_counters(context)
    }

    fn cycle_time(&self, pu: usize) -> Ps {
        self.cores[self.places[pu].0].pace().mean_cycle().round() as Ps
    }

    fn set_points(&mut self, now: Ps, points: &[OperatingPoint]) {
        let machine = self.machine.at_points(points);
        for (core, at) in self.cores.iter_mut().zip(&machine.cores) {
            let pace = machine.kind(at).pace();
            if core.pace() != pace {
                core.set_pace(now, pace);
            }
        }
    }

    fn set_ways(&mut self, index: u32, thread: &Thread) {
        for level in CacheWays::FIRST_LEVEL..=CacheWays::LAST_LEVEL {
            self.memory.confine(index, level, thread.ways.bits(level));
        }
    }

    fn warm(&mut self, threads: &[Thread]) {
        let mut spans = Vec::new();
        for (pu, (core, context)) in self.places.iter().enumerate() {
            let Some(thread) = self.cores[*core].thread(*context) else {
                continue;
            };
            let spans_of = threads[thread as usize].spans(self.memory.line());
            spans.extend(spans_of.map(|(access, from, bytes, each)| Span {
                pu,
                thread,
                access,
                from,
                bytes,
                each,
            }));
        }
        self.memory.warm(&spans);
    }

    fn run(
        &mut self,
        from: Ps,
        until: Ps,
        threads: &mut [Thread],
        finished: &mut Vec<Finished>,
    ) -> Ps {
        let mut streams = Streams(threads);
        let mut now = from;
        while now < until && finished.is_empty() {
            now = (now + QUANTUM).min(until);
            let (before, from_first) = self.cores.split_at_mut(self.first);
            for core in from_first.iter_mut().chain(before) {
                core.run(now, &mut streams, &mut self.memory, |thread| {
                    finished.push(thread);
                });
            }
            self.first = (self.first + 1) % self.cores.len().max(1);
        }
        now
    }

    fn occupancy(&self, level: u8) -> Vec<Occupancy> {
        self.memory.occupancy(level)
    }

    fn watch(&mut self, from: u64, bytes: u64) {
        self.memory.watch(from, bytes);
    }

    fn take_shared(&mut self, _: &[Thread]) -> Vec<Shared> {
        self.memory.take_shared()
    }
}
