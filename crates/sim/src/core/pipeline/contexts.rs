//! Threads come to contexts and leave them, with what they have counted.

use super::{Core, Supply};
use crate::{core::context::NEVER, counters::Counters, memory::Hierarchy, units::Ps};

impl Core {
    /// Puts a thread on a context, or takes it off. The new thread begins at `at` at the earliest. Instructions that
    /// the previous thread had fetched but not issued are returned to it.
    pub fn assign(
        &mut self,
        context: usize,
        thread: Option<u32>,
        at: Ps,
        supply: &mut impl Supply,
        memory: &mut impl Hierarchy,
    ) {
        self.settle(context);
        let now = self.clock.cycle(self.played);
        let cycle = self.clock.cycle(at).max(now);
        let slot = &mut self.contexts[context];
        if let Some(before) = slot.thread {
            supply.give_back(before, slot.rest());
        }
        slot.forget(cycle);
        if let Some(queues) = &mut self.queues {
            queues.forget(context, now);
        }
        slot.taken = thread.is_some();
        slot.thread = thread;
        self.ready.put(context, NEVER);
        self.share(now);
        if thread.is_some() {
            self.fetch::<false>(context, cycle, None, supply, memory);
        }
        // A thread without instructions is noticed at once.
        let next = match self.drained {
            true => now,
            false => self.ready.next(now, self.turn).0,
        };
        self.expect(next);
    }

    /// The thread on a context.
    pub fn thread(&self, context: usize) -> Option<u32> {
        self.contexts[context].thread
    }

    /// What a context has counted since this was last asked.
    pub fn take_counters(&mut self, context: usize) -> Counters {
        self.settle(context);
        std::mem::take(&mut self.contexts[context].counters)
    }

    /// Counts what a context's cycles went to, up to the moment that the simulation has reached.
    pub(super) fn settle(&mut self, context: usize) {
        let now = self.clock.cycle(self.played);
        let fp_cycles = self.fp_cycles_before(now);
        let slot = &mut self.contexts[context];
        if let Some(queues) = &mut self.queues {
            queues.settle(context, now, slot.taken.then_some(&mut slot.counters));
        }
        slot.settle(now, fp_cycles);
    }

    /// How many of the cycles before this one, which is none of the past, had a floating-point instruction in a unit.
    pub(super) fn fp_cycles_before(&self, cycle: u64) -> u64 {
        self.fp_cycles - self.fp_until.saturating_sub(cycle)
    }

    /// Something may issue from this cycle on.
    pub(super) fn expect(&mut self, cycle: u64) {
        self.cycle = cycle;
        self.next_at = match cycle {
            NEVER => Ps::MAX,
            _ => self.clock.time(cycle),
        };
    }
}
