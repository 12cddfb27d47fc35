//! How long queues are occupied, and by which contexts.
//!
//! An operation's whole stay is added when it enters, so that nothing is done when it leaves. When counts are read, what
//! lies ahead is taken off again.

use super::ready::MOST as MOST_CONTEXTS;
use crate::{counters::Counters, model::QUEUES};

/// Bits for the number of a context, or for none.
const BITS: u32 = MOST_CONTEXTS.ilog2() + 1;

/// No context.
const NONE: u64 = (1 << BITS) - 1;

/// An entry that is taken: until when, and by which context.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held(u64);

impl Held {
    #[inline]
    pub fn new(until: u64, context: usize) -> Self {
        Self(until << BITS | context as u64)
    }

    #[inline]
    pub fn until(self) -> u64 {
        self.0 >> BITS
    }

    #[inline]
    pub fn is_of(self, context: usize) -> bool {
        self.0 & NONE == context as u64
    }

    /// The context, unless the thread that took it has left.
    pub fn context(self) -> Option<usize> {
        let context = self.0 & NONE;
        (context != NONE).then_some(context as usize)
    }

    /// The thread that took it has left its context.
    pub fn disown(&mut self) {
        self.0 |= NONE;
    }
}

/// What a context holds.
#[derive(Debug, Clone, Copy, Default)]
struct Stays {
    /// Entry-cycles of each queue, with those ahead, since its thread came.
    booked: [u64; QUEUES],
    /// Those of them that have been counted.
    counted: [u64; QUEUES],
    /// When they were counted last, and in how many cycles before that a floating-point operation waited in the core.
    settled: u64,
    settled_fp: u64,
    /// Its floating-point operations wait before this cycle.
    fp_until: u64,
}

/// The occupancy of a core's queues.
#[derive(Debug, Clone)]
pub(super) struct Occupancy {
    stays: Box<[Stays]>,
    /// Floating-point operations wait in each cycle from the last one that entered to before this one.
    fp_until: u64,
    /// The cycles before that in which one waited.
    fp_cycles: u64,
    /// Those of threads that have left wait before this cycle.
    drained: u64,
}

impl Occupancy {
    pub fn new(contexts: usize) -> Self {
        Self {
            stays: vec![Stays::default(); contexts].into(),
            fp_until: 0,
            fp_cycles: 0,
            drained: 0,
        }
    }

    /// A context takes an entry of a queue from cycle `now` to before `leave`; `fp`: a floating-point operation waits in
    /// it for a unit.
    #[inline]
    pub fn enter(&mut self, context: usize, number: u8, fp: bool, now: u64, leave: u64) {
        let stays = &mut self.stays[context];
        stays.booked[usize::from(number)] += leave - now;
        if fp {
            stays.fp_until = stays.fp_until.max(leave);
            self.fp_cycles += leave.saturating_sub(now.max(self.fp_until));
            self.fp_until = self.fp_until.max(leave);
        }
    }

    /// Counts up to cycle `now`, if that belongs to a thread. `ahead` are the entry-cycles that lie ahead, by queue.
    pub fn settle(
        &mut self,
        context: usize,
        now: u64,
        ahead: impl Iterator<Item = (u8, u64)>,
        counters: Option<&mut Counters>,
    ) {
        let fp_cycles = self.fp_cycles - self.fp_until.saturating_sub(now);
        let stays = &mut self.stays[context];
        let mut so_far = stays.booked;
        for (number, cycles) in ahead {
            so_far[usize::from(number)] -= cycles;
        }
        if let Some(counters) = counters {
            let sums = counters.queue_entry_cycles.iter_mut();
            for (sum, (now, before)) in sums.zip(so_far.iter().zip(stays.counted)) {
                *sum += now - before;
            }
            let waiting = fp_cycles - stays.settled_fp;
            counters.fp_scheduler_empty_cycles += now - stays.settled - waiting;
        }
        stays.counted = so_far;
        (stays.settled, stays.settled_fp) = (now, fp_cycles);
    }

    /// A context's thread leaves in cycle `now`, up to which it was counted. What it holds belongs to no thread from then
    /// on; its floating-point operations wait no longer, or `fp_drains`.
    pub fn forget(&mut self, context: usize, now: u64, fp_drains: bool) {
        let stays = &mut self.stays[context];
        (stays.booked, stays.counted) = Default::default();
        let fp_until = std::mem::take(&mut stays.fp_until);
        if fp_drains {
            self.drained = self.drained.max(fp_until);
            return;
        }
        let others = self.stays.iter().map(|stays| stays.fp_until);
        let until = others.fold(self.drained, u64::max);
        self.fp_cycles -= self.fp_until.saturating_sub(now) - until.saturating_sub(now);
        self.fp_until = until.max(now.min(self.fp_until));
    }
}
