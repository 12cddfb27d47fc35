//! Execution units: when one of a sort is free.

use crate::model::{CoreKind, Op};

/// Cycles ahead for which units can be booked. No operation waits longer for a unit unless all are booked out.
const AHEAD: usize = 1024;

/// Units of one sort, of a core or of one context.
#[derive(Debug, Clone)]
struct Calendar {
    count: u8,
    /// How many are booked in each cycle, by cycle modulo [`AHEAD`].
    booked: Box<[u8; AHEAD]>,
    /// The first cycle that is not in the past: those before are cleared as time goes on.
    now: u64,
}

impl Calendar {
    fn new(count: u32) -> Self {
        Self {
            count: u8::try_from(count).unwrap_or(u8::MAX),
            booked: Box::new([0; AHEAD]),
            now: 0,
        }
    }

    /// Forgets the cycles before `now`.
    #[inline]
    fn pass(&mut self, now: u64) {
        let gone = now.saturating_sub(self.now);
        if gone >= AHEAD as u64 {
            self.booked.fill(0);
        } else {
            for cycle in self.now..now {
                self.booked[cycle as usize % AHEAD] = 0;
            }
        }
        self.now = self.now.max(now);
    }

    /// The first cycle from `from` on in which one is free for `busy` cycles.
    #[inline]
    fn free(&self, from: u64, busy: u32) -> u64 {
        let last = self.now + AHEAD as u64 - u64::from(busy);
        let mut start = from.max(self.now);
        while start < last {
            let full = |cycle: &u64| self.booked[*cycle as usize % AHEAD] >= self.count;
            match (start..start + u64::from(busy)).rev().find(full) {
                Some(cycle) => start = cycle + 1,
                None => return start,
            }
        }
        // Booked out as far as one can see.
        start
    }

    #[inline]
    fn book(&mut self, start: u64, busy: u32) {
        let end = (start + u64::from(busy)).min(self.now + AHEAD as u64);
        for cycle in start.min(end)..end {
            let booked = &mut self.booked[cycle as usize % AHEAD];
            *booked = booked.saturating_add(1);
        }
    }
}

/// All units of a core.
#[derive(Debug, Clone)]
pub(super) struct Units {
    /// Shared ones first, then those of context 0, of context 1, ….
    calendars: Vec<Calendar>,
    /// The calendar of each operation for context 0; `step` further for each next context if `private`.
    of_op: [(usize, bool); Op::COUNT],
    step: usize,
    busy: [u32; Op::COUNT],
}

impl Units {
    pub(super) fn new(kind: &CoreKind) -> Self {
        let shared = kind.units.iter().filter(|pool| !pool.private);
        let private: Vec<_> = kind.units.iter().filter(|pool| pool.private).collect();
        let mut of_op = [(0, false); Op::COUNT];
        let mut calendars = Vec::new();
        for pool in shared {
            for op in &pool.ops {
                of_op[*op as usize] = (calendars.len(), false);
            }
            calendars.push(Calendar::new(pool.count));
        }
        for (number, pool) in private.iter().enumerate() {
            for op in &pool.ops {
                of_op[*op as usize] = (calendars.len() + number, true);
            }
        }
        for _ in 0..kind.contexts {
            calendars.extend(private.iter().map(|pool| Calendar::new(pool.count)));
        }
        Self {
            calendars,
            of_op,
            step: private.len(),
            busy: kind
                .latencies
                .map(|latency| latency.busy.clamp(1, AHEAD as u32 / 2)),
        }
    }

    #[inline]
    fn calendar(&mut self, op: Op, context: usize) -> &mut Calendar {
        let (first, private) = self.of_op[op as usize];
        &mut self.calendars[first + if private { context * self.step } else { 0 }]
    }

    /// The first cycle from `from` on in which a unit can take the operation.
    #[inline]
    pub(super) fn free(&mut self, op: Op, context: usize, now: u64, from: u64) -> u64 {
        let busy = self.busy[op as usize];
        let calendar = self.calendar(op, context);
        calendar.pass(now);
        calendar.free(from, busy)
    }

    /// Takes it.
    #[inline]
    pub(super) fn book(&mut self, op: Op, context: usize, start: u64) {
        let busy = self.busy[op as usize];
        self.calendar(op, context).book(start, busy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// No cycle has more bookings than units, and none waits while a unit is free.
        #[test]
        fn units_are_never_overbooked_and_never_idle_for_nothing(
            count in 1u32..4,
            wishes in proptest::collection::vec((0u64..8, 0u64..40, 1u32..12), 1..200),
        ) {
            let mut calendar = Calendar::new(count);
            let mut uses = std::collections::HashMap::<u64, u32>::new();
            let mut now = 0;
            for (step, ahead, busy) in wishes {
                now += step;
                calendar.pass(now);
                let start = calendar.free(now + ahead, busy);
                prop_assert!(start >= now + ahead);
                // The first possible one: each earlier start meets a full cycle.
                for earlier in now + ahead..start {
                    prop_assert!((earlier..earlier + u64::from(busy)).any(|c| uses.get(&c) == Some(&count)));
                }
                calendar.book(start, busy);
                for cycle in start..start + u64::from(busy) {
                    let used = uses.entry(cycle).or_default();
                    *used += 1;
                    prop_assert!(*used <= count);
                }
            }
        }
    }
}
