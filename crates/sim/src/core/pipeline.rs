//! The pipeline: which context issues in which cycle, and when its results are there.
//!
//! A context's instruction issues when the pipeline turns to it (fine-grained: one context a cycle; simultaneous:
//! shared slots), its operand is there, its window has room and a unit is free. Cycles in which nothing can issue are
//! skipped. Out of order, an instruction leaves the front end in program order and is booked on a unit for when its
//! operand comes; in order, it waits and holds up those behind it.

use super::units::Units;
use crate::{
    counters::Counters,
    memory::Access,
    model::{CoreKind, Latency, Multithreading, Op},
    stream::Instruction,
    units::Ps,
};

/// Results of so many instructions back are remembered at least, for dependencies.
const REMEMBERED: usize = 64;

/// No instruction.
const NEVER: u64 = u64::MAX;

/// Where a context's instructions come from.
pub trait Supply {
    /// The thread's next instruction; `None` when it has something else to do, such as waiting at a barrier.
    fn next(&mut self, thread: u32) -> Option<Instruction>;
}

/// Where a core's accesses go: the memory system, or what stands for it.
pub trait Hierarchy {
    /// The number of the line where an address in bytes is.
    fn line_of(&self, address: u64) -> u64;

    /// One access of a thread on a PU at time `now`, which may be somewhat before that of the access before. Counts what
    /// it misses. Returns the time that it takes beyond a hit in the first level: 0 for that.
    fn access(
        &mut self,
        pu: usize,
        thread: u32,
        access: Access,
        address: u64,
        now: Ps,
        counters: &mut Counters,
    ) -> Ps;
}

/// A thread came to the end of its instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Who.
    pub thread: u32,
    /// The context of the core.
    pub context: usize,
    /// When its last instruction completed.
    pub at: Ps,
}

/// One hardware context.
#[derive(Debug, Clone)]
struct Context {
    thread: Option<u32>,
    /// The next instruction, fetched already.
    pending: Option<Instruction>,
    /// The first cycle in which it can issue, as far as the context itself is concerned.
    ready: u64,
    /// Instructions so far.
    count: u64,
    /// When each of the last ones completes, by number modulo the length.
    completion: Box<[u64]>,
    /// The latest completion of all.
    last_completion: u64,
    /// The line of code that was fetched last.
    line: u64,
    counters: Counters,
}

/// A core.
#[derive(Debug, Clone)]
pub struct Core {
    first_pu: usize,
    cycle_time: Ps,
    fine_grained: bool,
    in_order: bool,
    width: u32,
    window: u64,
    window_shared: bool,
    branch_delay: u64,
    mispredict: u64,
    latencies: [Latency; Op::COUNT],
    units: Units,
    contexts: Vec<Context>,
    /// The context that is asked first.
    turn: usize,
    /// The next cycle.
    cycle: u64,
}

impl Core {
    /// A core of this kind, whose first context is PU `first_pu`.
    pub fn new(first_pu: usize, kind: &CoreKind) -> Self {
        let remembered = (kind.window as usize + 1)
            .max(REMEMBERED)
            .next_power_of_two();
        let context = Context {
            thread: None,
            pending: None,
            ready: NEVER,
            count: 0,
            completion: vec![0; remembered].into_boxed_slice(),
            last_completion: 0,
            line: u64::MAX,
            counters: Counters::default(),
        };
        Self {
            first_pu,
            // A throttled clock stands still for a part of each few microseconds: on the whole it is a slower one.
            cycle_time: (kind.cycle as f64 / kind.duty).round() as Ps,
            fine_grained: kind.multithreading == Multithreading::FineGrained,
            in_order: kind.in_order,
            width: kind.width,
            window: u64::from(kind.window.max(1)),
            window_shared: kind.window_shared,
            branch_delay: u64::from(kind.branch_delay),
            mispredict: u64::from(kind.mispredict),
            latencies: kind.latencies,
            units: Units::new(kind),
            contexts: vec![context; kind.contexts as usize],
            turn: 0,
            cycle: 0,
        }
    }

    /// How long a cycle is.
    pub fn cycle_time(&self) -> Ps {
        self.cycle_time
    }

    /// Puts a thread on a context, or takes it off. The newcomer begins at `at` at the earliest. Returns the instruction
    /// that the thread before had fetched and not issued.
    pub fn assign(
        &mut self,
        context: usize,
        thread: Option<u32>,
        at: Ps,
        supply: &mut impl Supply,
        memory: &mut impl Hierarchy,
    ) -> Option<Instruction> {
        let cycle = at.div_ceil(self.cycle_time).max(self.cycle);
        let slot = &mut self.contexts[context];
        slot.thread = thread;
        let returned = slot.pending.take();
        slot.ready = NEVER;
        slot.line = u64::MAX;
        // Whoever comes depends on nothing of whoever went.
        slot.completion.fill(0);
        slot.last_completion = cycle;
        if thread.is_some() {
            self.fetch(context, cycle, supply, memory);
        }
        returned
    }

    /// Who is on a context.
    pub fn thread(&self, context: usize) -> Option<u32> {
        self.contexts[context].thread
    }

    /// What a context has counted since this was last asked.
    pub fn take_counters(&mut self, context: usize) -> Counters {
        std::mem::take(&mut self.contexts[context].counters)
    }

    /// Runs up to a moment. Threads that come to an end are handed over and leave their context idle.
    pub fn run(
        &mut self,
        until: Ps,
        supply: &mut impl Supply,
        memory: &mut impl Hierarchy,
        mut finished: impl FnMut(Finished),
    ) {
        let end = until.div_ceil(self.cycle_time);
        while self.cycle < end {
            if self.fine_grained {
                self.issue_one(supply, memory);
            } else {
                self.issue_shared(supply, memory);
            }
            let mut next = NEVER;
            for context in 0..self.contexts.len() {
                let slot = &mut self.contexts[context];
                if slot.ready == NEVER && slot.thread.is_some() && slot.pending.is_none() {
                    let at = slot.last_completion * self.cycle_time;
                    if let Some(thread) = slot.thread.take() {
                        finished(Finished {
                            thread,
                            context,
                            at,
                        });
                    }
                }
                next = next.min(self.contexts[context].ready);
            }
            self.cycle = next.clamp(self.cycle + 1, end.max(self.cycle + 1));
        }
    }

    /// Fine-grained: the next ready context has the cycle.
    #[inline]
    fn issue_one(&mut self, supply: &mut impl Supply, memory: &mut impl Hierarchy) {
        let contexts = self.contexts.len();
        for step in 0..contexts {
            let context = (self.turn + step) % contexts;
            let mut issued = 0;
            while issued < self.width && self.contexts[context].ready <= self.cycle {
                if !self.issue(context, supply, memory) {
                    break;
                }
                issued += 1;
            }
            if issued > 0 {
                self.turn = (context + 1) % contexts;
                return;
            }
        }
    }

    /// Simultaneous: the contexts share the slots, one instruction each in turn.
    #[inline]
    fn issue_shared(&mut self, supply: &mut impl Supply, memory: &mut impl Hierarchy) {
        let contexts = self.contexts.len();
        let (mut left, mut idle) = (self.width, 0);
        let mut context = self.turn % contexts;
        while left > 0 && idle < contexts {
            if self.contexts[context].ready <= self.cycle && self.issue(context, supply, memory) {
                left -= 1;
                idle = 0;
            } else {
                idle += 1;
            }
            context = (context + 1) % contexts;
        }
        self.turn = (self.turn + 1) % contexts;
    }

    /// Issues the pending instruction of a context in this cycle, if its unit is free (in order) or has room later (out
    /// of order), and fetches the next.
    #[inline]
    fn issue(
        &mut self,
        number: usize,
        supply: &mut impl Supply,
        memory: &mut impl Hierarchy,
    ) -> bool {
        let now = self.cycle;
        let Some(instruction) = self.contexts[number].pending else {
            return false;
        };
        let op = instruction.op;
        let wanted = match self.in_order {
            true => now,
            false => now.max(self.contexts[number].operand(&instruction)),
        };
        let start = self.units.free(op, number, now, wanted);
        if self.in_order && start > now {
            self.contexts[number].ready = start;
            return false;
        }
        self.units.book(op, number, start);
        let context = &mut self.contexts[number];
        let latency = &self.latencies[op as usize];
        let mut complete = start + u64::from(latency.cycles) + u64::from(instruction.extra);
        if matches!(op, Op::Load | Op::Store) {
            let access = match op {
                Op::Load => Access::Load,
                _ => Access::Store,
            };
            let pu = self.first_pu + number;
            let thread = context.thread.unwrap_or(0);
            let beyond = memory.access(
                pu,
                thread,
                access,
                instruction.data,
                start * self.cycle_time,
                &mut context.counters,
            );
            // Stores are buffered: nobody waits for them.
            if op == Op::Load && beyond > 0 {
                let cycles = beyond.div_ceil(self.cycle_time);
                context.counters.memory_cycles += cycles;
                complete += cycles;
            }
        }
        let mask = context.completion.len() - 1;
        context.completion[context.count as usize & mask] = complete;
        context.count += 1;
        context.last_completion = context.last_completion.max(complete);
        context.counters.ops[op as usize] += 1;
        let mut resume = now;
        if op == Op::Branch {
            if instruction.mispredicted {
                context.counters.mispredicted += 1;
                resume = complete + self.mispredict;
            } else if self.branch_delay > 0 {
                resume = start + 1 + self.branch_delay;
            }
        }
        self.fetch(number, resume, supply, memory);
        true
    }

    /// Brings the next instruction of a context, which can leave the front end from cycle `from` on.
    #[inline]
    fn fetch(
        &mut self,
        number: usize,
        from: u64,
        supply: &mut impl Supply,
        memory: &mut impl Hierarchy,
    ) {
        let window = self.window_of_one();
        let context = &mut self.contexts[number];
        context.pending = context.thread.and_then(|thread| supply.next(thread));
        let Some(instruction) = context.pending else {
            context.ready = NEVER;
            return;
        };
        let mut ready = from;
        let line = memory.line_of(instruction.at);
        if line != context.line {
            context.line = line;
            let pu = self.first_pu + number;
            let thread = context.thread.unwrap_or(0);
            let at = from * self.cycle_time;
            let beyond = memory.access(
                pu,
                thread,
                Access::Fetch,
                instruction.at,
                at,
                &mut context.counters,
            );
            ready += beyond.div_ceil(self.cycle_time);
        }
        let mask = context.completion.len() - 1;
        if context.count >= window {
            let oldest = (context.count - window) as usize & mask;
            ready = ready.max(context.completion[oldest]);
        }
        if self.in_order {
            ready = ready.max(context.operand(&instruction));
        }
        context.ready = ready;
    }

    /// How many instructions of one context may be in flight.
    #[inline]
    fn window_of_one(&self) -> u64 {
        if !self.window_shared {
            return self.window;
        }
        let busy = self
            .contexts
            .iter()
            .filter(|context| context.thread.is_some())
            .count();
        (self.window / busy.max(1) as u64).max(1)
    }
}

impl Context {
    /// When the result is there that an instruction needs.
    #[inline]
    fn operand(&self, instruction: &Instruction) -> u64 {
        let back = u64::from(instruction.depends);
        let mask = self.completion.len() - 1;
        if back == 0 || back > self.count || back as usize > mask {
            return 0;
        }
        self.completion[(self.count - back) as usize & mask]
    }
}
