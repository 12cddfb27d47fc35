//! How contexts share the issue slots of a cycle. An instruction of several micro-operations takes as many slots, of the
//! next cycle if there are not enough left in this one.

use super::{Core, Supply};
use crate::{memory::Hierarchy, model::Op};

impl Core {
    /// Fine-grained: the first in turn of the ready contexts has the cycle, if its unit is free. Returns the cycle to look
    /// at next.
    #[inline]
    pub(super) fn issue_several<const SERIAL: bool>(
        &mut self,
        cycle: u64,
        context: usize,
        supply: &mut impl Supply,
        memory: &mut impl Hierarchy,
    ) -> u64 {
        let Some(mut slots) = self.slots(cycle) else {
            return cycle + 1;
        };
        let mut issued = false;
        loop {
            let needed = self.slots_of(context);
            if !self.issue::<SERIAL>(cycle, context, supply, memory) {
                break;
            }
            issued = true;
            if !self.use_slots(&mut slots, needed, cycle) || self.ready.at(context) > cycle {
                break;
            }
        }
        if !issued {
            // Another one may have it.
            return cycle;
        }
        self.turn = self.after(context);
        cycle + 1
    }

    /// The issue slots of a cycle; `None` if instructions of the cycle before take them all.
    #[inline]
    fn slots(&mut self, cycle: u64) -> Option<u32> {
        let (of, owed) = self.owed;
        if of != cycle || owed == 0 {
            return Some(self.width);
        }
        if owed < self.width {
            return Some(self.width - owed);
        }
        self.owed = (cycle + 1, owed - self.width);
        None
    }

    /// How many slots a context's next instruction takes.
    #[inline]
    pub(super) fn slots_of(&self, context: usize) -> u32 {
        let of =
            |micro_ops: &[u32; Op::COUNT]| micro_ops[self.contexts[context].pending().op as usize];
        self.micro_ops.as_ref().map_or(1, of)
    }

    /// An instruction takes slots, of the next cycle if there are not enough left. Returns whether there are any more.
    #[inline]
    fn use_slots(&mut self, left: &mut u32, needed: u32, cycle: u64) -> bool {
        if needed > *left {
            self.owed = (cycle + 1, needed - *left);
        }
        *left = left.saturating_sub(needed);
        *left > 0
    }

    /// Simultaneous: the ready contexts share the slots, one instruction each in turn. Returns the cycle to look at next.
    #[inline]
    pub(super) fn issue_shared<const SERIAL: bool>(
        &mut self,
        cycle: u64,
        first: usize,
        supply: &mut impl Supply,
        memory: &mut impl Hierarchy,
    ) -> u64 {
        let Some(mut slots) = self.slots(cycle) else {
            return cycle + 1;
        };
        let mut context = first;
        loop {
            let needed = self.slots_of(context);
            if self.issue::<SERIAL>(cycle, context, supply, memory)
                && !self.use_slots(&mut slots, needed, cycle)
            {
                break;
            }
            let next;
            (next, context) = self.ready.next(cycle, self.after(context));
            if next > cycle {
                break;
            }
        }
        // Whichever was first is the last one next time: contexts without work do not shift the turns of the others.
        self.turn = self.after(first);
        cycle + 1
    }

    /// The context behind another, in turn.
    #[inline]
    pub(super) fn after(&self, context: usize) -> usize {
        if context + 1 < self.contexts.len() {
            context + 1
        } else {
            0
        }
    }
}
