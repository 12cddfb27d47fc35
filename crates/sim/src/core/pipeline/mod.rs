//! The pipeline: which context issues in which cycle, and when its results are there.
//!
//! A context's instruction issues when the pipeline turns to it (fine-grained: one context a cycle; simultaneous:
//! shared slots), its operand is there, its window has room and a unit is free. Cycles in which nothing can issue are
//! skipped. Out of order, an instruction leaves the front end in program order, if the queues that it needs have room,
//! and is booked on a unit for when its operand comes; in order, it waits and holds up those behind it.

mod contexts;
mod slots;

use super::{
    clock::Clock,
    context::{Context, NEVER},
    misses::Misses,
    queues::{Queues, Times},
    ready::Ready,
    units::Units,
};
use crate::{
    memory::{Access, Hierarchy},
    model::{CoreKind, Latency, Multithreading, Op, Pace, Parts},
    stream::Instruction,
    units::Ps,
};

/// Results of at least this many instructions back are remembered, for dependencies.
const REMEMBERED: usize = 64;

/// Where a context's instructions come from.
pub trait Supply {
    /// The thread's next instructions: as many as it has and as there is room for. Returns how many; none when it has
    /// something else to do, such as waiting at a barrier.
    fn fill(&mut self, thread: u32, into: &mut [Instruction]) -> usize;

    /// The thread leaves its context before it has executed these, the last of those that it was asked for: it gets
    /// them first when it is asked again.
    fn give_back(&mut self, thread: u32, rest: &[Instruction]);
}

/// A thread came to the end of its instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// The number of the thread.
    pub thread: u32,
    /// The context of the core.
    pub context: usize,
    /// When its last instruction completed.
    pub at: Ps,
}

/// The part of the cycles between two stops of its clock that is over when a core begins: modulation stops each core at
/// another moment. Multiples of the golden ratio are spread evenly, however many there are.
fn part(first_pu: usize) -> f64 {
    (first_pu as f64 * 0.618_033_988_749_895).fract()
}

/// A core.
#[derive(Debug, Clone)]
pub struct Core {
    clock: Clock,
    /// The next cycle in which anything may issue.
    cycle: u64,
    /// When it begins, or the end of time.
    next_at: Ps,
    /// What came before this moment has been simulated.
    played: Ps,
    /// The context that is asked first.
    turn: usize,
    /// When each context can issue.
    ready: Ready,
    contexts: Box<[Context]>,
    units: Units,
    queues: Option<Queues>,
    /// Of the core's first-level data cache, or of each context's own; none where a context has one instruction in flight,
    /// so that no line is on its way when the next one needs it.
    misses: Box<[Misses]>,
    misses_of_stores: bool,
    latencies: [Latency; Op::COUNT],
    first_pu: usize,
    fine_grained: bool,
    in_order: bool,
    /// Whether a thread came to the end of its instructions, and that is not reported yet.
    drained: bool,
    width: u32,
    /// Micro-operations by instruction, if some are of several.
    micro_ops: Option<[u32; Op::COUNT]>,
    /// Slots of a cycle that instructions of the one before it take.
    owed: (u64, u32),
    /// Cycles after which an operation is replayed; 0: none is.
    replay: u32,
    /// Whether each instruction waits for the one before it, on any number of contexts.
    serial: bool,
    /// Instructions of one context in flight.
    window: u64,
    /// Instructions of all contexts in flight, if they share that.
    window_shared: Option<u64>,
    parts: Parts,
    /// By operation: how many cycles after it began the next one comes, 0 if that may be at once.
    delays: [u64; Op::COUNT],
    /// By operation: all bits for those in floating-point units, none for others.
    fp_mask: [u64; Op::COUNT],
    mispredict: u64,
    /// Cycles before this one may have a floating-point instruction in a unit, those from it on have none yet.
    fp_until: u64,
    /// How many of the cycles before that have one.
    fp_cycles: u64,
}

impl Core {
    /// A core of this kind, whose first context is PU `first_pu`.
    pub fn new(first_pu: usize, kind: &CoreKind) -> Self {
        // With one instruction in flight, whatever an earlier one brings is there.
        let remembered = match kind.window {
            0 | 1 => 0,
            window => (window as usize + 1).max(REMEMBERED).next_power_of_two(),
        };
        let contexts = kind.contexts as usize;
        let window = u64::from(kind.window.max(1));
        Self {
            clock: Clock::new(kind.pace(), part(first_pu)),
            cycle: NEVER,
            next_at: Ps::MAX,
            played: 0,
            turn: 0,
            ready: Ready::new(contexts),
            contexts: vec![Context::new(kind, remembered); contexts].into(),
            units: Units::new(kind),
            queues: Queues::new(kind),
            misses: match remembered {
                0 => Box::default(),
                _ if kind.misses_private => vec![Misses::new(kind.misses, None); contexts].into(),
                _ => [Misses::new(kind.misses, kind.misses_per_context)].into(),
            },
            misses_of_stores: kind.misses_of_stores,
            latencies: kind.latencies,
            first_pu,
            fine_grained: kind.multithreading == Multithreading::FineGrained,
            in_order: kind.in_order,
            drained: false,
            width: kind.width,
            micro_ops: (kind.micro_ops != [1; Op::COUNT]).then_some(kind.micro_ops),
            owed: (0, 0),
            replay: kind.replay,
            serial: remembered == 0,
            window,
            window_shared: kind.window_shared.then_some(window),
            parts: kind.parts(),
            delays: Op::ALL.map(|op| match (op, kind.branch_delay) {
                (Op::Branch, 1..) => u64::from(kind.branch_delay) + 1,
                _ => 0,
            }),
            fp_mask: Op::ALL.map(|op| match op {
                Op::Fp | Op::FpDivide => u64::MAX,
                _ => 0,
            }),
            mispredict: u64::from(kind.mispredict),
            fp_until: 0,
            fp_cycles: 0,
        }
    }

    /// How long a cycle is while the clock runs.
    pub fn cycle_time(&self) -> Ps {
        self.pace().cycle
    }

    /// At what pace its clock goes.
    pub fn pace(&self) -> Pace {
        self.clock.pace()
    }

    /// From the first cycle on that begins at `now` or later, cycles come at this pace. `now` is the moment up to which
    /// the core has run. Instructions in flight keep their cycles.
    pub fn set_pace(&mut self, now: Ps, pace: Pace) {
        self.played = self.played.max(now);
        let cycle = self.clock.cycle(self.played);
        self.clock.change(cycle, pace, part(self.first_pu));
        self.expect(self.cycle);
    }

    /// When something may next issue; the end of time if no context has instructions. Nothing happens before that
    /// unless a thread comes.
    #[inline]
    pub fn next_at(&self) -> Ps {
        self.next_at
    }

    /// Runs up to a moment. Threads that come to an end are handed over and leave their context idle.
    #[inline]
    pub fn run(
        &mut self,
        until: Ps,
        supply: &mut impl Supply,
        memory: &mut impl Hierarchy,
        finished: impl FnMut(Finished),
    ) {
        self.played = self.played.max(until);
        if self.next_at >= until {
            return;
        }
        // Made for each sort of core, as simple ones need to ask and remember less.
        let single = self.fine_grained && self.width == 1;
        match (self.serial && self.in_order, single) {
            (true, true) => self.play::<true, true>(until, supply, memory, finished),
            (true, false) => self.play::<true, false>(until, supply, memory, finished),
            (false, true) => self.play::<false, true>(until, supply, memory, finished),
            (false, false) => self.play::<false, false>(until, supply, memory, finished),
        }
    }

    /// Runs up to a moment; `SERIAL`: on a core that is in order and serial; `SINGLE`: that issues one instruction of one
    /// context a cycle.
    fn play<const SERIAL: bool, const SINGLE: bool>(
        &mut self,
        until: Ps,
        supply: &mut impl Supply,
        memory: &mut impl Hierarchy,
        mut finished: impl FnMut(Finished),
    ) {
        let end = self.clock.cycle(until);
        let (mut cycle, mut context) = self.ready.next(self.cycle, self.turn);
        if self.drained {
            self.drain(end.min(cycle), &mut finished);
        }
        while cycle < end {
            let after = if SINGLE {
                // If the unit is not free, another context may have the cycle.
                let slots = self.slots_of(context);
                let issued = self.issue::<SERIAL>(cycle, context, supply, memory);
                if issued {
                    self.turn = self.after(context);
                }
                cycle + if issued { u64::from(slots) } else { 0 }
            } else if self.fine_grained {
                self.issue_several::<SERIAL>(cycle, context, supply, memory)
            } else {
                self.issue_shared::<SERIAL>(cycle, context, supply, memory)
            };
            if self.drained {
                self.drain(cycle, &mut finished);
            }
            (cycle, context) = self.ready.next(after, self.turn);
        }
        self.expect(cycle);
    }

    /// Hands over the threads that have no instructions left.
    #[cold]
    fn drain(&mut self, now: u64, finished: &mut impl FnMut(Finished)) {
        self.drained = false;
        for (context, slot) in self.contexts.iter_mut().enumerate() {
            if slot.able != NEVER {
                continue;
            }
            if let Some(thread) = slot.thread.take() {
                finished(Finished {
                    thread,
                    context,
                    at: self.clock.time(slot.last_completion),
                });
            }
        }
        self.share(now);
    }

    /// Issues the pending instruction of a context in this cycle, if its unit is free (in order) or has room later (out
    /// of order), and fetches the next.
    #[inline(always)]
    fn issue<const SERIAL: bool>(
        &mut self,
        now: u64,
        number: usize,
        supply: &mut impl Supply,
        memory: &mut impl Hierarchy,
    ) -> bool {
        let context = &mut self.contexts[number];
        let Instruction {
            op,
            depends,
            extra,
            mispredicted,
            data,
            ..
        } = *context.pending();
        // When its result would be there if all loads hit the first level.
        let mut expected = 0;
        let latency = u64::from(self.latencies[op as usize].cycles) + u64::from(extra);
        let start = if SERIAL || self.in_order {
            if let Err(free) = self.units.take(op, number, now) {
                self.ready.put(number, free);
                return false;
            }
            now
        } else {
            if let Some(queues) = &mut self.queues
                && let Err(full) = queues.room(op, number, now)
            {
                if full.own {
                    // No other context has taken the room.
                    context.able = context.able.max(full.until);
                }
                self.ready.put(number, full.until);
                return false;
            }
            let operand = context.back(u64::from(depends));
            let start = match self.units.book(op, number, now, now.max(operand)) {
                Ok(start) => start,
                Err(later) => {
                    self.ready.put(number, later);
                    return false;
                }
            };
            if self.replay > 0 {
                let sent = now.max(context.expected(u64::from(depends)));
                expected = if sent < operand { sent } else { start } + latency;
                self.units
                    .replay(op, number, (now, sent), operand, self.replay);
            }
            start
        };
        context.count_issue(now);
        let mut complete = start + latency;
        // When the line of a load or store is there.
        let mut there = 0;
        if matches!(op, Op::Load | Op::Store) {
            let access = match op {
                Op::Load => Access::Load,
                _ => Access::Store,
            };
            let last = self.misses.len().wrapping_sub(1);
            let mut misses = match SERIAL {
                true => None,
                false => self.misses.get_mut(number.min(last)),
            };
            let bounded = op == Op::Load || self.misses_of_stores;
            let at = match &mut misses {
                Some(misses) if bounded => misses.free(now, start, number),
                _ => start,
            };
            let missed = context.counters.data_misses[0];
            let beyond = memory.access(
                self.first_pu + number,
                context.thread.unwrap_or(0),
                access,
                data,
                self.clock.time(at),
                &mut context.counters,
            );
            let mut cycles = self.clock.cycles(at, beyond);
            if let Some(misses) = misses {
                let line = memory.line_of(data);
                if context.counters.data_misses[0] != missed {
                    // Until another one is there if as many as can be are under way.
                    cycles += at - start;
                    let of = bounded.then_some(number);
                    misses.fill(now, line, [at, complete + cycles], of);
                } else {
                    // A line that is on its way is not there yet, though the cache has a place for it.
                    let there = misses.there(line, start);
                    cycles = cycles.max(there.saturating_sub(complete));
                }
            }
            there = complete + cycles;
            // Stores are buffered: nothing waits for their lines but the buffer.
            let cycles = if op == Op::Load { cycles } else { 0 };
            context.counters.memory_cycles += cycles;
            complete += cycles;
            let until = if cycles > 0 { complete } else { 0 };
            context.memory_until = context.memory_until.max(until);
        }
        if !SERIAL && let Some(queues) = &mut self.queues {
            let retired = complete.max(context.last_completion);
            let times = Times {
                start,
                complete,
                retired,
                there,
            };
            queues.enter(op, number, now, times);
        }
        // For the host, choices are cheaper here than other ways to go.
        let busy_until = complete & self.fp_mask[op as usize];
        self.fp_cycles += busy_until.saturating_sub(now.max(self.fp_until));
        self.fp_until = busy_until.max(self.fp_until);
        let delay = self.delays[op as usize];
        let mut resume = if delay > 0 { start + delay } else { now };
        if mispredicted {
            context.counters.mispredicted += 1;
            resume = complete + self.mispredict;
        }
        if SERIAL || self.serial {
            context.last_completion = context.last_completion.max(complete);
        } else {
            context.expect(expected);
            context.complete(complete);
        }
        context.counters.ops[op as usize] += 1;
        self.fetch::<SERIAL>(number, resume, Some(op), supply, memory);
        true
    }

    /// Brings the next instruction of a context, which can leave the front end from cycle `from` on; `last` is what has
    /// left it.
    #[inline(always)]
    fn fetch<const SERIAL: bool>(
        &mut self,
        number: usize,
        from: u64,
        last: Option<Op>,
        supply: &mut impl Supply,
        memory: &mut impl Hierarchy,
    ) {
        let context = &mut self.contexts[number];
        let Some(thread) = context.thread else {
            self.ready.put(number, NEVER);
            return;
        };
        if !context.advance(|buffer| supply.fill(thread, buffer)) {
            context.able = NEVER;
            self.ready.put(number, NEVER);
            self.drained = true;
            return;
        }
        let (at, depends) = (context.pending().at, context.pending().depends);
        let mut ready = from;
        let line = memory.line_of(at);
        if line != context.line {
            context.line = line;
            let beyond = memory.access(
                self.first_pu + number,
                thread,
                Access::Fetch,
                at,
                self.clock.time(from),
                &mut context.counters,
            );
            if beyond > 0 {
                ready += self.clock.cycles(from, beyond);
                context.memory_until = context.memory_until.max(ready);
            }
        }
        if SERIAL || self.serial {
            // One after the other: operands are there.
            ready = ready.max(context.last_completion);
        } else {
            ready = ready.max(match (&self.micro_ops, last) {
                (Some(of), Some(last)) => {
                    let next = of[context.pending().op as usize];
                    context.room(self.window, of[last as usize], next)
                }
                _ => context.back(self.window),
            });
            if self.in_order {
                ready = ready.max(context.back(u64::from(depends)));
            }
        }
        context.able = ready;
        self.ready.put(number, ready);
    }

    /// Divides what contexts share in a way that depends on how many have a thread: the window, queues, units in parts.
    fn share(&mut self, now: u64) {
        let with_thread = |context: &&Context| context.thread.is_some();
        let busy = self.contexts.iter().filter(with_thread).count();
        if let Some(queues) = &mut self.queues {
            queues.share(self.parts, busy);
        }
        self.units.divide(self.parts.among(busy) > 1, now);
        for misses in &mut self.misses {
            misses.share(busy);
        }
        if let Some(window) = self.window_shared {
            self.window = (window / busy.max(1) as u64).max(1);
        }
    }
}
