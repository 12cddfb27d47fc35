//! Bounded queues of an out-of-order core: schedulers, load and store buffers, and misses of the first level.
//!
//! Instructions enter them in program order. Where a queue is full, its thread's next instruction for it waits in the
//! front end, and so do all behind it: a thread whose operations wait for memory takes the entries of a queue that it
//! shares, and slows its sibling even where units are free.

use crate::model::{CoreKind, Op, QueueSharing, Until};
use std::collections::VecDeque;

/// Queues of an operation at most: a scheduler and a buffer.
pub(crate) const MOST: usize = 2;

/// Lines on their way that are remembered beyond need before they are looked through.
const REMEMBERED: usize = 64;

/// No queue.
const NONE: u16 = u16::MAX;

/// A queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full {
    /// The first cycle in which it has room, as things are.
    pub until: u64,
    /// Whether the context alone has filled it.
    pub own: bool,
}

/// One queue, of a core or of one context.
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
    /// Of each context and operation, the queues that it needs an entry of.
    of_op: Box<[[[u16; MOST]; Op::COUNT]]>,
    /// The queues that are divided among the contexts that have a thread: number and size of the whole.
    split: Box<[(usize, u32)]>,
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
        let mut of_op = vec![[[NONE; MOST]; Op::COUNT]; contexts];
        let (mut entries, mut split) = (Vec::new(), Vec::new());
        for queue in &kind.queues {
            let shared = queue.sharing == QueueSharing::Shared;
            for (context, of_op) in of_op.iter_mut().enumerate() {
                if context == 0 || !shared {
                    if queue.sharing == QueueSharing::Split {
                        split.push((entries.len(), queue.entries));
                    }
                    entries.push(Entries {
                        size: queue.entries.max(1) as usize,
                        shared,
                        leave: VecDeque::new(),
                        until: queue.until,
                    });
                }
                for op in &queue.ops {
                    let free = of_op[*op as usize].iter_mut().find(|of| **of == NONE);
                    if let Some(free) = free {
                        *free = (entries.len() - 1) as u16;
                    }
                }
            }
        }
        Some(Self {
            entries: entries.into(),
            of_op: of_op.into(),
            split: split.into(),
            busy: 0,
            written: vec![0; contexts].into(),
        })
    }

    /// Divides the split queues among this many contexts with a thread.
    pub fn share(&mut self, busy: usize) {
        self.busy = busy;
        for (number, whole) in &self.split {
            self.entries[*number].size = (*whole as usize / busy.max(1)).max(1);
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
                continue;
            }
            let entries = &mut self.entries[usize::from(number)];
            if let Err(until) = entries.room(now) {
                let own = !entries.shared || self.busy == 1;
                return Err(Full { until, own });
            }
        }
        Ok(())
    }

    /// An operation leaves the front end. Its execution begins in cycle `start`; it and all before it are complete in cycle
    /// `retired`. If it is a store, its line is there in cycle `there`.
    #[inline]
    pub fn enter(&mut self, op: Op, context: usize, now: u64, [start, retired, there]: [u64; 3]) {
        let mut end = retired;
        if op == Op::Store {
            end = retired.max(there).max(self.written[context] + 1);
            self.written[context] = end;
        }
        for number in self.of_op[context][op as usize] {
            if number == NONE {
                continue;
            }
            let entries = &mut self.entries[usize::from(number)];
            let leave = match entries.until {
                Until::Start => start,
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

/// A line that a first-level cache waits for.
#[derive(Debug, Clone, Copy)]
struct Fill {
    line: u64,
    from: u64,
    until: u64,
}

/// Places in which lines on their way are found at once, a power of two.
const PLACES: usize = 256;

/// When a line is there.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    line: u64,
    until: u64,
}

/// The misses of one first-level cache, bounded by its miss status holding registers (line fill buffers). A line that is on
/// its way is not requested again.
#[derive(Debug, Clone)]
pub(super) struct Misses {
    most: usize,
    fills: Vec<Fill>,
    /// When the last of them is there.
    last: u64,
    /// With this many, those that are there are forgotten.
    many: usize,
    /// The same by the lowest bits of their lines.
    arrivals: Box<[Arrival; PLACES]>,
    /// When the last is there of those that have no place of their own, since another line has it.
    crowded: u64,
}

impl Misses {
    /// At most `most` at a time; 0: without limit.
    pub fn new(most: u32) -> Self {
        Self {
            most: match most {
                0 => usize::MAX,
                most => most as usize,
            },
            fills: Vec::new(),
            last: 0,
            many: REMEMBERED,
            arrivals: Box::new([Arrival { line: 0, until: 0 }; PLACES]),
            crowded: 0,
        }
    }

    /// The first cycle from `from` on in which another miss can be under way. What was there before `now` is forgotten.
    #[inline]
    pub fn free(&mut self, now: u64, from: u64) -> u64 {
        if self.last <= now {
            self.fills.clear();
        }
        if self.fills.len() < self.most.min(self.many) {
            return from;
        }
        self.fills.retain(|fill| fill.until > now);
        self.many = (2 * self.fills.len()).max(REMEMBERED);
        if self.fills.len() < self.most {
            return from;
        }
        let mut at = from;
        loop {
            let busy = |fill: &&Fill| fill.from <= at && at < fill.until;
            let under_way = self.fills.iter().filter(busy);
            let (mut count, mut first) = (0, u64::MAX);
            for fill in under_way {
                count += 1;
                first = first.min(fill.until);
            }
            if count < self.most {
                return at;
            }
            at = first;
        }
    }

    /// When a line is there that is on its way in cycle `at`; `at` if it is not on its way.
    #[inline]
    pub fn there(&self, line: u64, at: u64) -> u64 {
        if self.last <= at {
            return at;
        }
        if at < self.crowded {
            let of_line = self.fills.iter().filter(|fill| fill.line == line);
            return of_line.map(|fill| fill.until).fold(at, u64::max);
        }
        let arrival = self.arrivals[line as usize % PLACES];
        match arrival.line == line {
            true => arrival.until.max(at),
            false => at,
        }
    }

    /// A line is on its way. What was there before `now` is of no interest.
    #[inline]
    pub fn fill(&mut self, now: u64, line: u64, from: u64, until: u64) {
        self.fills.push(Fill { line, from, until });
        self.last = self.last.max(until);
        let arrival = &mut self.arrivals[line as usize % PLACES];
        if arrival.line == line {
            arrival.until = arrival.until.max(until);
        } else if arrival.until <= now {
            *arrival = Arrival { line, until };
        } else {
            self.crowded = self.crowded.max(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// No more misses at a time than there may be, and none waits while there may be another.
        #[test]
        fn misses_are_bounded_and_none_waits_for_nothing(
            most in 1u32..6,
            wishes in proptest::collection::vec((0u64..6, 0u64..30, 1u64..40), 1..150),
        ) {
            let mut misses = Misses::new(most);
            let mut all: Vec<(u64, u64)> = Vec::new();
            let mut lines: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (number, (step, ahead, takes)) in wishes.into_iter().enumerate() {
                now += step;
                let from = now + ahead;
                let at = misses.free(now, from);
                let under_way = |at: u64| {
                    all.iter().filter(|(from, until)| *from <= at && at < *until).count()
                };
                prop_assert!(under_way(at) < most as usize);
                for earlier in from..at {
                    prop_assert!(under_way(earlier) >= most as usize, "waits in {}", earlier);
                }
                // Lines come again, and several have the same place.
                let line = (number as u64 * number as u64) % 11 * (PLACES as u64 / 4);
                misses.fill(now, line, at, at + takes);
                all.push((at, at + takes));
                lines.push((line, at + takes));
                for (line, _) in &lines {
                    let of_line = lines.iter().filter(|(its, _)| its == line);
                    let there = of_line.map(|(_, until)| *until).fold(now, u64::max);
                    prop_assert_eq!(misses.there(*line, now), there);
                }
            }
        }
    }

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
