//! Execution units: when one of a sort is free.

use crate::model::{CoreKind, Op};

/// Cycles ahead for which units can be booked. An operation for which no unit has room within them stays in the front end.
const AHEAD: usize = 1024;

/// Units of one sort, of a core or of one context.
#[derive(Debug, Clone)]
pub(super) struct Calendar {
    count: u8,
    /// How many are booked in each cycle, by cycle modulo [`AHEAD`].
    booked: Box<[u8; AHEAD]>,
    /// The first cycle that is not in the past: those before are cleared as time goes on.
    now: u64,
}

impl Calendar {
    pub fn new(count: u32) -> Self {
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
        } else if gone > 0 {
            let (from, to) = (self.now as usize % AHEAD, now as usize % AHEAD);
            if from < to {
                self.booked[from..to].fill(0);
            } else {
                self.booked[from..].fill(0);
                self.booked[..to].fill(0);
            }
        }
        self.now = self.now.max(now);
    }

    /// The first cycle from `from` on in which one is free for `busy` cycles; `None` if all are booked out as far as one
    /// can see. An operation whose operands come later than that finds units free: it is not known which others want them.
    #[inline]
    fn free(&self, from: u64, busy: u32) -> Option<u64> {
        let last = self.now + AHEAD as u64 - u64::from(busy);
        let mut start = from.max(self.now);
        if start >= last {
            return Some(start);
        }
        while start < last {
            let full = |cycle: &u64| self.booked[*cycle as usize % AHEAD] >= self.count;
            match (start..start + u64::from(busy)).rev().find(full) {
                Some(cycle) => start = cycle + 1,
                None => return Some(start),
            }
        }
        None
    }

    /// Books one for a cycle, in the first from `from` on that has one, and not before `last`, which is that of the one
    /// before. Beyond what is covered, others do not matter.
    #[inline]
    pub fn next(&mut self, now: u64, from: u64, last: u64) -> u64 {
        self.pass(now);
        let from = from.max(last + u64::from(self.count == 1));
        let end = self.now + AHEAD as u64;
        let at = self.free(from, 1).unwrap_or(end);
        if at + 1 >= end {
            return from.max(last + 1);
        }
        self.book(at, 1);
        at
    }

    /// The same in cycle `now`; else the cycle in which to ask again.
    #[inline]
    fn ask(&mut self, now: u64, from: u64, busy: u32) -> Result<u64, u64> {
        self.pass(now);
        let again = || now + u64::from(busy.div_ceil(u32::from(self.count)));
        self.free(from, busy).ok_or_else(again)
    }

    /// Takes over what is booked in another one from the present cycle on, as far as there are units for it here.
    fn take_over(&mut self, other: &mut Self) {
        for (own, its) in self.booked.iter_mut().zip(other.booked.iter_mut()) {
            let room = self.count.saturating_sub(*own);
            let moved = room.min(*its);
            *own += moved;
            *its -= moved;
        }
    }

    /// Books one for an operation that begins in cycle `at` or not at all.
    #[inline]
    fn book_at(&mut self, now: u64, at: u64, busy: u32) -> bool {
        self.pass(now);
        let full = |cycle: u64| self.booked[cycle as usize % AHEAD] >= self.count;
        let free = at + u64::from(busy) <= self.now + AHEAD as u64
            && !(at..at + u64::from(busy)).any(full);
        if free {
            self.book(at, busy);
        }
        free
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

/// Units of one sort where operations begin in order: nothing is booked ahead, so it is enough to know when each has
/// done what it does now. Takes the unit that is free first, if it is by now; else says when it will be.
#[inline]
fn take(units: &mut [u64], now: u64, busy: u32) -> Result<(), u64> {
    let mut first = 0;
    for unit in 1..units.len() {
        if units[unit] < units[first] {
            first = unit;
        }
    }
    if units[first] > now {
        return Err(units[first]);
    }
    units[first] = now + u64::from(busy);
    Ok(())
}

/// The units of one sort, of those of a core.
#[derive(Debug, Clone, Copy, Default)]
struct Pool {
    /// Its number.
    number: u16,
    /// Its first unit in an in-order core, and the one behind its last.
    first: u16,
    end: u16,
}

/// Pools that may do an operation, at most.
pub(crate) const MOST_POOLS: usize = 2;

/// The pools that may do an operation: the second is asked where the first is busy.
type Pools = [Option<Pool>; MOST_POOLS];

/// The pools of each operation, by context.
type OfOp = Box<[[Pools; Op::COUNT]]>;

/// All units of a core.
#[derive(Debug, Clone)]
pub(super) struct Units {
    /// In an out-of-order core, by the number of the pool.
    calendars: Box<[Calendar]>,
    /// In an in-order core: the first cycle in which each unit is free, pool by pool.
    free: Box<[u64]>,
    of_op: OfOp,
    /// In an in-order core, by context and operation: the place in `free` of the unit that does it if there is only one; else
    /// a place that none has.
    only: Box<[[u16; Op::COUNT]]>,
    busy: [u32; Op::COUNT],
    parts: Option<Box<Divided>>,
}

/// The place of the only unit of these pools, or one that none has.
fn only_unit(pools: &Pools) -> u16 {
    match pools {
        [Some(pool), None] if pool.end - pool.first == 1 => pool.first,
        _ => u16::MAX,
    }
}

/// How units are divided among the parts of a core.
#[derive(Debug, Clone)]
struct Divided {
    /// Whether they are now.
    divided: bool,
    /// What [`Units::of_op`] is at other times.
    other: OfOp,
    /// Numbers of pools: of all units, and of those of each part.
    pools: Vec<(u16, Vec<u16>)>,
}

/// Notes a pool that does these operations.
fn enter(of_op: &mut [Pools; Op::COUNT], ops: &[Op], pool: Pool) {
    for op in ops {
        let free = of_op[*op as usize].iter_mut().find(|pool| pool.is_none());
        if let Some(free) = free {
            *free = Some(pool);
        }
    }
}

impl Divided {
    /// `whole` has the pool of each context while the core is in one, by sort of units; `other` has none yet; `counts` is
    /// how many units each pool has.
    fn new(kind: &CoreKind, whole: &[Vec<Pool>], mut other: OfOp, counts: &mut Vec<u32>) -> Self {
        let number = kind.parts().number as u16;
        let mut pools = Vec::new();
        for (units, of_contexts) in kind.units.iter().zip(whole) {
            let mut of_parts = Vec::new();
            if units.partitioned && !units.private {
                let all = of_contexts[0];
                let each = (all.end - all.first) / number;
                for part in 0..number {
                    let first = all.first + part * each;
                    of_parts.push(Pool {
                        number: counts.len() as u16,
                        first,
                        end: first + each,
                    });
                    counts.push(u32::from(each));
                }
                pools.push((
                    all.number,
                    of_parts.iter().map(|pool| pool.number).collect(),
                ));
            }
            for (context, (of_op, own)) in other.iter_mut().zip(of_contexts).enumerate() {
                let of_part = of_parts.get(kind.parts().of(context));
                enter(of_op, &units.ops, *of_part.unwrap_or(own));
            }
        }
        Self {
            divided: false,
            other,
            pools,
        }
    }
}

impl Units {
    pub(super) fn new(kind: &CoreKind) -> Self {
        let mut counts = Vec::new();
        let mut units = 0;
        let mut add = |count: u32| {
            let count = count.clamp(1, u32::from(u8::MAX)) as u16;
            let pool = Pool {
                number: counts.len() as u16,
                first: units,
                end: units + count,
            };
            counts.push(u32::from(count));
            units += count;
            pool
        };
        let none: OfOp = vec![[[None; MOST_POOLS]; Op::COUNT]; kind.contexts as usize].into();
        let mut of_op = none.clone();
        // Of each sort of units, the pool of each context.
        let mut pools: Vec<Vec<Pool>> = Vec::new();
        for units in &kind.units {
            let mut shared = None;
            let of_contexts = of_op.iter_mut().map(|of_op| {
                let pool = match units.private {
                    true => add(units.count),
                    false => *shared.get_or_insert_with(|| add(units.count)),
                };
                enter(of_op, &units.ops, pool);
                pool
            });
            pools.push(of_contexts.collect());
        }
        let parts = (kind.parts().number > 1)
            .then(|| Box::new(Divided::new(kind, &pools, none, &mut counts)));
        let calendars = match kind.in_order {
            true => Box::default(),
            false => counts.iter().map(|count| Calendar::new(*count)).collect(),
        };
        Self {
            calendars,
            free: vec![0; usize::from(units)].into(),
            only: of_op
                .iter()
                .map(|of_op| of_op.each_ref().map(only_unit))
                .collect(),
            of_op,
            parts,
            busy: kind
                .latencies
                .map(|latency| latency.busy.clamp(1, AHEAD as u32 / 2)),
        }
    }

    /// Divides the units among the core's parts, or not any more, from cycle `now` on. What is booked stays booked.
    pub(super) fn divide(&mut self, divided: bool, now: u64) {
        let Some(parts) = self.parts.as_mut().filter(|parts| parts.divided != divided) else {
            return;
        };
        parts.divided = divided;
        std::mem::swap(&mut self.of_op, &mut parts.other);
        for (only, of_op) in self.only.iter_mut().zip(&self.of_op) {
            *only = of_op.each_ref().map(only_unit);
        }
        self.calendars.iter_mut().for_each(|its| its.pass(now));
        for (whole, of_parts) in &parts.pools {
            for part in of_parts {
                let pair = [usize::from(*whole), usize::from(*part)];
                if let Ok([whole, part]) = self.calendars.get_disjoint_mut(pair) {
                    match divided {
                        true => part.take_over(whole),
                        false => whole.take_over(part),
                    }
                }
            }
        }
    }

    /// In an in-order core: takes a unit for an operation that begins now.
    ///
    /// # Errors
    /// The cycle in which a unit is free, if none is now.
    #[inline(always)]
    pub(super) fn take(&mut self, op: Op, context: usize, now: u64) -> Result<(), u64> {
        let only = self.only[context][op as usize];
        let Some(unit) = self.free.get_mut(usize::from(only)) else {
            return self.take_any(op, context, now);
        };
        let free = *unit;
        if free > now {
            return Err(free);
        }
        *unit = now + u64::from(self.busy[op as usize]);
        Ok(())
    }

    /// The same where several units may do it.
    fn take_any(&mut self, op: Op, context: usize, now: u64) -> Result<(), u64> {
        let mut first = u64::MAX;
        for pool in self.of_op[context][op as usize].iter().flatten() {
            let units = &mut self.free[usize::from(pool.first)..usize::from(pool.end)];
            match take(units, now, self.busy[op as usize]) {
                Ok(()) => return Ok(()),
                Err(free) => first = first.min(free),
            }
        }
        Err(first)
    }

    /// An operation is sent to its unit in cycle `from` and every `again` cycles until its operand is there, for nothing.
    pub(super) fn replay(
        &mut self,
        op: Op,
        context: usize,
        (now, from): (u64, u64),
        operand: u64,
        again: u32,
    ) {
        let (busy, again) = (self.busy[op as usize], u64::from(again.max(1)));
        let end = operand.min(now + AHEAD as u64);
        let pools = self.of_op[context][op as usize];
        let mut sent = |at: u64| {
            let mut pools = pools.iter().flatten();
            pools.any(|pool| self.calendars[usize::from(pool.number)].book_at(now, at, busy))
        };
        // Where others are sent in each of these cycles, this one waits: a loop of that length has room for no more.
        let Some(first) = (from..end.min(from + again)).find(|at| sent(*at)) else {
            return;
        };
        let mut at = first + again;
        while at < end {
            // Without a free unit at that moment, nothing is lost.
            sent(at);
            at += again;
        }
    }

    /// In an out-of-order core: takes a unit for an operation as soon as one is free from cycle `from` on. Returns when
    /// that is.
    ///
    /// # Errors
    /// The cycle in which to ask again, if all are booked out: a unit has room again for each operation that it has done.
    #[inline]
    pub(super) fn book(&mut self, op: Op, context: usize, now: u64, from: u64) -> Result<u64, u64> {
        let busy = self.busy[op as usize];
        let [Some(first), second] = self.of_op[context][op as usize] else {
            return Err(u64::MAX);
        };
        let mut number = usize::from(first.number);
        let mut begins = self.calendars[number].ask(now, from, busy);
        if let Some(second) = second
            && begins != Ok(from)
        {
            let other = usize::from(second.number);
            let there = self.calendars[other].ask(now, from, busy);
            let better = match (begins, there) {
                (Ok(here), Ok(there)) | (Err(here), Err(there)) => there < here,
                (here, _) => here.is_err(),
            };
            if better {
                (number, begins) = (other, there);
            }
        }
        let start = begins?;
        self.calendars[number].book(start, busy);
        Ok(start)
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
                let Some(start) = calendar.free(now + ahead, busy) else {
                    // Booked out: more than these few units can do is asked for.
                    continue;
                };
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

        /// Where operations begin at once, both ways to keep units say the same.
        #[test]
        fn units_taken_in_order_are_a_calendar_without_future(
            count in 1u32..4,
            wishes in proptest::collection::vec((0u64..8, 1u32..12), 1..200),
        ) {
            let mut calendar = Calendar::new(count);
            let mut units = vec![0; count as usize];
            let mut now = 0;
            for (step, busy) in wishes {
                now += step;
                calendar.pass(now);
                let free = calendar.free(now, 1);
                match take(&mut units, now, busy) {
                    Ok(()) => {
                        prop_assert_eq!(free, Some(now));
                        calendar.book(now, busy);
                    }
                    Err(later) => prop_assert_eq!(Some(later), free),
                }
            }
        }
    }
}
