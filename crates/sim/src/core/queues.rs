//! Bounded queues of an out-of-order core: schedulers, load and store buffers.
//!
//! Instructions enter them in program order. Where a queue is full, its thread's next instruction for it waits in the
//! front end, and so do all behind it: a thread whose operations wait for memory takes the entries of a queue that it
//! shares, and slows its sibling even where units are free. A watermark bounds how many it takes.

use crate::model::{CoreKind, Op, Parts, Queue, QueueSharing, Until};
use std::collections::VecDeque;

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
struct Entries {
    size: usize,
    /// Whether several contexts take entries of it.
    shared: bool,
    /// When each that is in it leaves, the first in front. Most that enter leave last: a sorted list is cheaper than a heap.
    leave: VecDeque<u64>,
    until: Until,
}

impl Entries {
    /// Whether there is room in cycle `now`.
    ///
    /// # Errors
    /// The first cycle in which there is, as things are.
    #[inline]
    fn room(&mut self, now: u64) -> Result<(), u64> {
        while self.leave.len() >= self.size {
            match self.leave.front() {
                Some(first) if *first <= now => self.leave.pop_front(),
                // More entries are taken than there are: it was just divided among more contexts.
                Some(first) => return Err(*first),
                None => return Ok(()),
            };
        }
        Ok(())
    }

    /// Takes over every `nth` of the entries of another one, or all with 1.
    fn take_over(&mut self, other: &mut Self, nth: usize) {
        let mut place = 0;
        other.leave.retain(|leave| {
            let moved = place % nth == 0;
            place += 1;
            if moved {
                self.enter(*leave);
            }
            !moved
        });
    }

    /// One more, which leaves then.
    #[inline]
    fn enter(&mut self, leave: u64) {
        match self.leave.back() {
            Some(last) if *last > leave => {
                let place = self.leave.partition_point(|its| *its <= leave);
                self.leave.insert(place, leave);
            }
            _ => self.leave.push_back(leave),
        }
    }
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
    entries: Box<[Entries]>,
    of_op: OfOp,
    /// Those whose size depends on how many contexts have a thread, by number.
    sized: Box<[(usize, Queue)]>,
    parts: Option<Box<Divided>>,
    /// Contexts that have a thread.
    busy: usize,
    /// Of each context, when its last store has left its buffer: stores are written in program order.
    written: Box<[u64]>,
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
        let (mut entries, mut sized) = (Vec::new(), Vec::new());
        let mut in_parts = Vec::new();
        for queue in &kind.queues {
            let one = |shared, part: u32| Entries {
                size: (queue.entries / part).max(1) as usize,
                shared,
                leave: VecDeque::new(),
                until: queue.until,
            };
            let shared = queue.sharing == QueueSharing::Shared;
            if shared {
                entries.push(one(true, 1));
            }
            let whole = entries.len().wrapping_sub(1);
            let mut of_parts = Vec::new();
            if shared && queue.partitioned {
                for _ in 0..kind.parts().number {
                    of_parts.push(entries.len());
                    entries.push(one(true, kind.parts().number));
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
                    sized.push((entries.len(), queue.clone()));
                }
                need(of_op, &queue.ops, entries.len());
                need(other, &queue.ops, entries.len());
                entries.push(one(false, 1));
            }
        }
        let parts = Divided {
            divided: false,
            other,
            queues: in_parts,
        };
        Some(Self {
            entries: entries.into(),
            of_op,
            sized: sized.into(),
            parts: (kind.parts().number > 1).then(|| Box::new(parts)),
            busy: 0,
            written: vec![0; contexts].into(),
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
            self.entries[*number].size = (queue.of_one(busy as u32) / parts).max(1) as usize;
        }
        let divided = parts.among(busy) > 1;
        let Some(parts) = self.parts.as_mut().filter(|parts| parts.divided != divided) else {
            return;
        };
        parts.divided = divided;
        std::mem::swap(&mut self.of_op, &mut parts.other);
        for (whole, of_parts) in &parts.queues {
            for (nth, part) in of_parts.iter().enumerate() {
                if let Ok([whole, part]) = self.entries.get_disjoint_mut([*whole, *part]) {
                    match divided {
                        // Evenly: it is not remembered whose they are.
                        true => part.take_over(whole, of_parts.len() - nth),
                        false => whole.take_over(part, 1),
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
            let entries = &mut self.entries[usize::from(number)];
            if let Err(until) = entries.room(now) {
                let own = !entries.shared || self.busy == 1;
                return Err(Full { until, own });
            }
        }
        Ok(())
    }

    /// An operation leaves the front end.
    #[inline]
    pub fn enter(&mut self, op: Op, context: usize, now: u64, times: Times) {
        let mut end = times.retired;
        if op == Op::Store {
            end = end.max(times.there).max(self.written[context] + 1);
            self.written[context] = end;
        }
        for number in self.of_op[context][op as usize] {
            if number == NONE {
                break;
            }
            let entries = &mut self.entries[usize::from(number)];
            let leave = match entries.until {
                Until::Start => times.start,
                Until::Data => times.complete,
                Until::End => end,
            };
            if leave > now {
                entries.enter(leave);
            }
        }
    }

    /// Nothing of a context's is in flight any more: its thread has left it. What it shares with others drains.
    pub fn forget(&mut self, context: usize) {
        self.written[context] = 0;
        for number in self.of_op[context].as_flattened() {
            let shared = self
                .of_op
                .iter()
                .filter(|of| of.as_flattened().contains(number));
            if *number != NONE && shared.count() == 1 {
                self.entries[usize::from(*number)].leave.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_has_room_when_the_first_leaves() {
        let mut entries = Entries {
            size: 2,
            shared: true,
            leave: VecDeque::new(),
            until: Until::Start,
        };
        entries.enter(9);
        entries.enter(7);
        assert_eq!(entries.room(5), Err(7));
        assert_eq!(entries.room(7), Ok(()));
        assert_eq!(entries.leave.len(), 1);
    }
}
