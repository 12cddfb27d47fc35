//! Bounded queues of an out-of-order core: schedulers, load and store buffers, and misses of the first level.
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

/// Lines on their way that are remembered beyond need before they are looked through.
const REMEMBERED: usize = 64;

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

/// A line that a first-level cache waits for.
#[derive(Debug, Clone, Copy)]
struct Fill {
    line: u64,
    from: u64,
    until: u64,
    /// The context whose it is, if it is one of those that are bounded.
    of: Option<u16>,
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
    /// What one context has at most if several have a thread, and now.
    watermark: usize,
    most_of_one: usize,
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
    /// At most `most` at a time, 0: without limit; `watermark` of them of one context if several have a thread.
    pub fn new(most: u32, watermark: Option<u32>) -> Self {
        Self {
            most: match most {
                0 => usize::MAX,
                most => most as usize,
            },
            watermark: watermark.map_or(usize::MAX, |most| most as usize),
            most_of_one: usize::MAX,
            fills: Vec::new(),
            last: 0,
            many: REMEMBERED,
            arrivals: Box::new([Arrival { line: 0, until: 0 }; PLACES]),
            crowded: 0,
        }
    }

    /// Sets the watermark for this many contexts with a thread.
    pub fn share(&mut self, busy: usize) {
        self.most_of_one = if busy > 1 { self.watermark } else { usize::MAX };
    }

    /// The first cycle from `from` on in which another miss of a context can be under way. What was there before `now` is
    /// forgotten.
    #[inline]
    pub fn free(&mut self, now: u64, from: u64, context: usize) -> u64 {
        if self.last <= now {
            self.fills.clear();
        }
        let few = self.most.min(self.most_of_one);
        if self.fills.len() < few.min(self.many) {
            return from;
        }
        self.fills.retain(|fill| fill.until > now);
        self.many = (2 * self.fills.len()).max(REMEMBERED);
        if self.fills.len() < few {
            return from;
        }
        let mut at = from;
        loop {
            // How many are under way, and when the first of them is there: of all, and of the context.
            let (mut all, mut own) = ((0, u64::MAX), (0, u64::MAX));
            let busy = |fill: &&Fill| fill.from <= at && at < fill.until;
            for fill in self.fills.iter().filter(busy) {
                let Some(of) = fill.of else { continue };
                all = (all.0 + 1, fill.until.min(all.1));
                if usize::from(of) == context {
                    own = (own.0 + 1, fill.until.min(own.1));
                }
            }
            at = if all.0 >= self.most {
                all.1
            } else if own.0 >= self.most_of_one {
                own.1
            } else {
                return at;
            };
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

    /// A line is on its way, of a context if it is one of those that are bounded. What was there before `now` is of no
    /// interest.
    #[inline]
    pub fn fill(&mut self, now: u64, line: u64, [from, until]: [u64; 2], of: Option<usize>) {
        let of = of.map(|context| context as u16);
        self.fills.push(Fill {
            line,
            from,
            until,
            of,
        });
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
        /// No more misses at a time than there may be, of all and of a context, and none waits while there may be another.
        #[test]
        fn misses_are_bounded_and_none_waits_for_nothing(
            most in 1u32..6,
            watermark in proptest::option::of(1u32..6),
            wishes in proptest::collection::vec((0u64..6, 0u64..30, 1u64..40, 0usize..3), 1..150),
        ) {
            let watermark = watermark.map(|its| its.min(most));
            let mut misses = Misses::new(most, watermark);
            misses.share(2);
            let mut all: Vec<(u64, u64, usize)> = Vec::new();
            let mut lines: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (number, (step, ahead, takes, context)) in wishes.into_iter().enumerate() {
                now += step;
                let from = now + ahead;
                // The third is not bounded.
                let of = (context < 2).then_some(context);
                let at = if of.is_some() { misses.free(now, from, context) } else { from };
                let full = |at: u64| {
                    let under_way = all.iter().filter(|(from, until, _)| *from <= at && at < *until);
                    let own = under_way.clone().filter(|(.., of)| *of == context).count();
                    under_way.count() >= most as usize
                        || watermark.is_some_and(|most| own >= most as usize)
                };
                if of.is_some() {
                    prop_assert!(!full(at));
                    for earlier in from..at {
                        prop_assert!(full(earlier), "waits in {}", earlier);
                    }
                }
                // Lines come again, and several have the same place.
                let line = (number as u64 * number as u64) % 11 * (PLACES as u64 / 4);
                misses.fill(now, line, [at, at + takes], of);
                if of.is_some() {
                    all.push((at, at + takes, context));
                }
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
