//! Bounded queues of an out-of-order core: schedulers, load and store buffers.
//!
//! Instructions enter them in program order. Where a queue is full, its thread's next instruction for it waits in the
//! front end, and so do all behind it: a thread whose operations wait for memory takes the entries of a queue that it
//! shares, and slows its sibling even where units are free. A watermark bounds how many it takes.

use crate::model::{CoreKind, Op, Queue, QueueSharing, Until};
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

/// The queues of a core.
#[derive(Debug, Clone)]
pub(super) struct Queues {
    entries: Box<[Entries]>,
    /// Of each context and operation, the queues that it needs an entry of, the first in front.
    of_op: Box<[[[u16; TAKEN]; Op::COUNT]]>,
    /// Those whose size depends on how many contexts have a thread, by number.
    sized: Box<[(usize, Queue)]>,
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
        let mut of_op = vec![[[NONE; TAKEN]; Op::COUNT]; contexts];
        let (mut entries, mut sized) = (Vec::new(), Vec::new());
        for queue in &kind.queues {
            let one = |shared| Entries {
                size: queue.entries.max(1) as usize,
                shared,
                leave: VecDeque::new(),
                until: queue.until,
            };
            let need = |of_op: &mut [[u16; TAKEN]; Op::COUNT], number: usize| {
                for op in &queue.ops {
                    let free = of_op[*op as usize].iter_mut().find(|of| **of == NONE);
                    if let Some(free) = free {
                        *free = number as u16;
                    }
                }
            };
            let shared = queue.sharing == QueueSharing::Shared;
            if shared {
                entries.push(one(true));
            }
            let whole = entries.len().wrapping_sub(1);
            for of_op in &mut of_op {
                if shared {
                    need(of_op, whole);
                    if queue.per_context.is_none() {
                        continue;
                    }
                }
                if shared || queue.sharing == QueueSharing::Split {
                    sized.push((entries.len(), queue.clone()));
                }
                need(of_op, entries.len());
                entries.push(one(false));
            }
        }
        Some(Self {
            entries: entries.into(),
            of_op: of_op.into(),
            sized: sized.into(),
            busy: 0,
            written: vec![0; contexts].into(),
        })
    }

    /// Divides the split queues among this many contexts with a thread, and sets watermarks if there are several.
    pub fn share(&mut self, busy: usize) {
        self.busy = busy;
        for (number, queue) in &self.sized {
            self.entries[*number].size = queue.of_one(busy as u32) as usize;
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
