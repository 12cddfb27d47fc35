//! Bounded queues of an out-of-order core: schedulers, load and store buffers.
//!
//! Instructions enter them in program order. Where a queue is full, its thread's next instruction for it waits in the
//! front end, and so do all behind it: a thread whose operations wait for memory takes the entries of a queue that it
//! shares, and slows its sibling even where units are free. A watermark bounds how many it takes.

use super::{entries::Entries, occupancy::Occupancy, units::Calendar};
use crate::{
    counters::Counters,
    model::{CoreKind, Op, Parts, Queue, QueueSharing, Until},
};

/// Queues of an operation at most: a scheduler and a buffer.
pub(crate) const MOST: usize = 2;

/// What it takes an entry of in these at most: the queue, and what its context may have of it.
const TAKEN: usize = 2 * MOST;

/// No queue.
const NONE: u16 = u16::MAX;

/// The cycles in which an operation reaches its stages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// Its execution begins.
    pub start: u64,
    /// Its result is there.
    pub complete: u64,
    /// It is complete, and all before it.
    pub retired: u64,
    /// The line of a load or store is there.
    pub there: u64,
}

/// A queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full {
    /// The first cycle in which it has room, as things are.
    pub until: u64,
    /// Whether the context alone has filled it.
    pub own: bool,
}

/// One queue, of a core or of one context; or what one context may have of a shared one.
#[derive(Debug, Clone)]
struct One {
    entries: Entries,
    until: Until,
    /// The number by which they are counted; `None` if another one counts them.
    number: Option<u8>,
    /// Whether floating-point operations wait in it for a unit.
    fp: bool,
}

/// Of each context and operation, the queues that it needs an entry of, the first in front.
type OfOp = Box<[[[u16; TAKEN]; Op::COUNT]]>;

/// How queues are divided among the parts of a core.
#[derive(Debug, Clone)]
struct Divided {
    /// Whether they are now.
    divided: bool,
    /// What [`Queues::of_op`] is at other times.
    other: OfOp,
    /// The numbers of queues: of all, and of each part.
    queues: Vec<(usize, Vec<usize>)>,
}

/// Notes a queue of which these operations need an entry.
fn need(of_op: &mut [[u16; TAKEN]; Op::COUNT], ops: &[Op], number: usize) {
    for op in ops {
        let free = of_op[*op as usize].iter_mut().find(|of| **of == NONE);
        if let Some(free) = free {
            *free = number as u16;
        }
    }
}

/// The queues of a core.
#[derive(Debug, Clone)]
pub(super) struct Queues {
    all: Box<[One]>,
    of_op: OfOp,
    /// Those whose size depends on how many contexts have a thread, by number.
    sized: Box<[(usize, Queue)]>,
    parts: Option<Box<Divided>>,
    /// Contexts that have a thread.
    busy: usize,
    /// Of each context, when its last store has left its buffer: stores are written in program order.
    written: Box<[u64]>,
    /// What each first-level data cache takes of them in each cycle: one for all contexts, or one for each.
    commits: Box<[Calendar]>,
    occupancy: Occupancy,
}

impl Queues {
    /// Those of a kind of core; `None` if it bounds none.
    pub fn new(kind: &CoreKind) -> Option<Self> {
        if kind.queues.is_empty() || kind.in_order {
            return None;
        }
        let contexts = kind.contexts as usize;
        let mut of_op: OfOp = vec![[[NONE; TAKEN]; Op::COUNT]; contexts].into();
        let mut other = of_op.clone();
        let (mut all, mut sized) = (Vec::new(), Vec::new());
        let mut in_parts = Vec::new();
        for queue in &kind.queues {
            let one = |of: Option<usize>, part: u32| One {
                entries: Entries::new((queue.entries / part).max(1) as usize, of),
                until: queue.until,
                // What a context may have of a shared queue is in that one too.
                number: (of.is_none() || queue.sharing != QueueSharing::Shared)
                    .then_some(queue.number),
                fp: queue.is_fp_scheduler(),
            };
            let shared = queue.sharing == QueueSharing::Shared;
            if shared {
                all.push(one(None, 1));
            }
            let whole = all.len().wrapping_sub(1);
            let mut of_parts = Vec::new();
            if shared && queue.partitioned {
                for _ in 0..kind.parts().number {
                    of_parts.push(all.len());
                    all.push(one(None, kind.parts().number));
                }
                in_parts.push((whole, of_parts.clone()));
            }
            for (context, (of_op, other)) in of_op.iter_mut().zip(&mut other).enumerate() {
                if shared {
                    need(of_op, &queue.ops, whole);
                    let of_part = of_parts.get(kind.parts().of(context));
                    need(other, &queue.ops, *of_part.unwrap_or(&whole));
                    if queue.per_context.is_none() {
                        continue;
                    }
                }
                if shared || queue.sharing == QueueSharing::Split {
                    sized.push((all.len(), queue.clone()));
                }
                need(of_op, &queue.ops, all.len());
                need(other, &queue.ops, all.len());
                all.push(one(Some(context), 1));
            }
        }
        let parts = Divided {
            divided: false,
            other,
            queues: in_parts,
        };
        Some(Self {
            all: all.into(),
            of_op,
            sized: sized.into(),
            parts: (kind.parts().number > 1).then(|| Box::new(parts)),
            busy: 0,
            written: vec![0; contexts].into(),
            commits: match kind.misses_private {
                true => vec![Calendar::new(kind.store_commits); contexts].into(),
                false => [Calendar::new(kind.store_commits)].into(),
            },
            occupancy: Occupancy::new(contexts),
        })
    }

    /// Divides the split queues among this many contexts with a thread, and sets watermarks if there are several.
    pub fn share(&mut self, parts: Parts, busy: usize) {
        self.busy = busy;
        for (number, queue) in &self.sized {
            let parts = if queue.partitioned {
                parts.among(busy)
            } else {
                1
            };
            self.all[*number].entries.size = (queue.of_one(busy as u32) / parts).max(1) as usize;
        }
        let divided = parts.among(busy) > 1;
        let changed = |its: &&mut Box<Divided>| its.divided != divided;
        let Some(its) = self.parts.as_mut().filter(changed) else {
            return;
        };
        its.divided = divided;
        std::mem::swap(&mut self.of_op, &mut its.other);
        for (whole, of_parts) in &its.queues {
            for (nth, part) in of_parts.iter().enumerate() {
                if let Ok([whole, part]) = self.all.get_disjoint_mut([*whole, *part]) {
                    let (whole, part) = (&mut whole.entries, &mut part.entries);
                    match divided {
                        // Those of threads that have left are in the last one.
                        true => part.take_over(whole, |held| match held.context() {
                            Some(context) => parts.of(context) == nth,
                            None => nth + 1 == of_parts.len(),
                        }),
                        false => whole.take_over(part, |_| true),
                    }
                }
            }
        }
    }

    /// Whether an operation of a context can leave the front end in cycle `now`.
    ///
    /// # Errors
    /// A queue that it needs is full.
    #[inline]
    pub fn room(&mut self, op: Op, context: usize, now: u64) -> Result<(), Full> {
        for number in self.of_op[context][op as usize] {
            if number == NONE {
                break;
            }
            let queue = &mut self.all[usize::from(number)];
            if let Err(until) = queue.entries.room(now) {
                let own = queue.entries.of.is_some() || self.busy == 1;
                return Err(Full { until, own });
            }
        }
        Ok(())
    }

    /// An operation leaves the front end.
    #[inline(always)]
    pub fn enter(&mut self, op: Op, context: usize, now: u64, times: Times) {
        let mut end = times.retired;
        if op == Op::Store {
            let last = self.commits.len() - 1;
            let commits = &mut self.commits[context.min(last)];
            end = commits.next(now, end.max(times.there), self.written[context]);
            self.written[context] = end;
        }
        for number in self.of_op[context][op as usize] {
            if number == NONE {
                break;
            }
            let queue = &mut self.all[usize::from(number)];
            let leave = match queue.until {
                Until::Start => times.start,
                Until::Data => times.complete,
                Until::End => end,
            };
            let leave = leave.max(now);
            queue.entries.take(now, leave, context);
            if let Some(number) = queue.number {
                let fp = queue.fp && matches!(op, Op::Fp | Op::FpDivide);
                self.occupancy.enter(context, number, fp, now, leave);
            }
        }
    }

    /// Counts which entries a context has held since this was last called, up to cycle `now`, which is none of the past.
    /// Nothing is counted if those cycles belong to no thread.
    pub fn settle(&mut self, context: usize, now: u64, counters: Option<&mut Counters>) {
        let counted = self.all.iter();
        let counted =
            counted.filter_map(|queue| Some((queue.number?, queue.entries.ahead(context, now))));
        self.occupancy.settle(context, now, counted, counters);
    }

    /// Nothing of a context's is in flight any more: its thread has left it, in cycle `now`. What it shares with others
    /// drains.
    pub fn forget(&mut self, context: usize, now: u64) {
        self.written[context] = 0;
        let mut fp_drains = false;
        for number in self.of_op[context].as_flattened() {
            if *number == NONE {
                continue;
            }
            let shared = self
                .of_op
                .iter()
                .filter(|of| of.as_flattened().contains(number));
            let queue = &mut self.all[usize::from(*number)];
            match shared.count() {
                1 => queue.entries.forget(context),
                _ => {
                    fp_drains |= queue.fp;
                    queue.entries.disown(context);
                }
            }
        }
        self.occupancy.forget(context, now, fp_drains);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::find_machine,
        model::{Partition, QUEUES},
    };
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// An entry, cycle by cycle.
    struct Stay {
        context: Option<usize>,
        queue: Queue,
        fp: bool,
        cycles: std::ops::Range<u64>,
    }

    /// Counts what a context held of each queue in these cycles, and those in which no floating-point operation waited.
    fn count(stays: &[Stay], context: usize, cycles: std::ops::Range<u64>) -> ([u64; QUEUES], u64) {
        let (mut held, mut empty) = ([0; QUEUES], 0);
        for cycle in cycles {
            let there: Vec<_> = stays
                .iter()
                .filter(|stay| stay.cycles.contains(&cycle))
                .collect();
            for stay in there.iter().filter(|stay| stay.context == Some(context)) {
                held[usize::from(stay.queue.number)] += 1;
            }
            empty += u64::from(!there.iter().any(|stay| stay.fp));
        }
        (held, empty)
    }

    fn kinds() -> impl Strategy<Value = CoreKind> {
        let machine = prop_oneof![
            Just("amd-bulldozer"),
            Just("smt2-zen"),
            Just("ibm-power7-smt4"),
        ];
        (machine, 0u32..3, 1u32..3).prop_map(|(machine, contexts, commits)| {
            let mut kind = find_machine(machine).unwrap().kinds[0].clone();
            if contexts > 0 && kind.contexts == 4 {
                kind.partition = Some(Partition { contexts, from: 3 });
                kind.queues[0].partitioned = true;
            }
            // Small ones are full now and then.
            kind.store_commits = commits;
            kind.queues.iter_mut().for_each(|queue| {
                queue.entries /= 4;
                queue.per_context = queue.per_context.map(|most| most / 4);
            });
            kind
        })
    }

    proptest! {
        /// The integrals are what counting cycle by cycle gives, however threads come and go and whenever one asks.
        #[test]
        fn entries_are_counted_as_one_counts_them_cycle_by_cycle(
            kind in kinds(),
            steps in proptest::collection::vec((0usize..4, 0usize..40, 0u64..3, [0u64..60, 0u64..60, 0u64..60], 0u32..20), 1..300),
        ) {
            let contexts = kind.contexts as usize;
            let mut queues = Queues::new(&kind).unwrap();
            let (mut on, mut settled) = (vec![false; contexts], vec![0; contexts]);
            let (mut now, mut written) = (0, vec![0; contexts]);
            // Stores that each first-level cache takes in each cycle.
            let mut commits = vec![BTreeMap::<u64, u32>::new(); contexts];
            let mut stays: Vec<Stay> = Vec::new();
            for (context, op, later, lasts, what) in steps {
                now += later;
                let context = context % contexts;
                let op = Op::ALL[op % Op::COUNT];
                if what <= 1 {
                    let mut counted = Counters::default();
                    let counters = on[context].then_some(&mut counted);
                    queues.settle(context, now, counters);
                    let (held, empty) = match on[context] {
                        true => count(&stays, context, settled[context]..now),
                        false => Default::default(),
                    };
                    prop_assert_eq!(counted.queue_entry_cycles, held);
                    prop_assert_eq!(counted.fp_scheduler_empty_cycles, empty);
                    settled[context] = now;
                }
                if what == 1 {
                    // A thread comes or leaves.
                    let busy = |on: &[bool]| on.iter().filter(|on| **on).count();
                    let own_part = kind.parts().among(busy(&on)) == kind.contexts;
                    on[context] = !on[context];
                    queues.forget(context, now);
                    queues.share(kind.parts(), busy(&on));
                    written[context] = 0;
                    for stay in stays.iter_mut().filter(|stay| stay.context == Some(context)) {
                        stay.context = None;
                        let shared = stay.queue.sharing == QueueSharing::Shared;
                        if !shared || own_part && stay.queue.partitioned {
                            stay.cycles.end = stay.cycles.end.min(now);
                        }
                    }
                }
                if what > 1 && on[context] && queues.room(op, context, now).is_ok() {
                    let start = now + lasts[0];
                    let complete = start + lasts[1];
                    let retired = complete + lasts[2];
                    let times = Times { start, complete, retired, there: complete };
                    let mut end = retired;
                    if op == Op::Store {
                        let cache = if kind.misses_private { context } else { 0 };
                        end = end.max(written[context] + u64::from(kind.store_commits == 1));
                        while commits[cache].get(&end).is_some_and(|taken| *taken >= kind.store_commits) {
                            end += 1;
                        }
                        *commits[cache].entry(end).or_default() += 1;
                        written[context] = end;
                    }
                    for queue in kind.queues.iter().filter(|queue| queue.ops.contains(&op)) {
                        let until = match queue.until {
                            Until::Start => start,
                            Until::Data => complete,
                            Until::End => end,
                        };
                        let is_fp = matches!(op, Op::Fp | Op::FpDivide);
                        stays.push(Stay {
                            context: Some(context),
                            fp: is_fp && queue.is_fp_scheduler(),
                            queue: queue.clone(),
                            cycles: now..until,
                        });
                    }
                    queues.enter(op, context, now, times);
                }
            }
        }
    }
}
