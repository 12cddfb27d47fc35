//! What a context counts.

use crate::model::{Op, QUEUES};
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Counts of one thread or context over some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Instructions by [`Op`] number.
    pub ops: [u64; Op::COUNT],
    /// Branches that were predicted wrongly.
    pub mispredicted: u64,
    /// Cycles in which the context issued an instruction or several.
    pub issue_cycles: u64,
    /// Cycles in which it had a thread and issued nothing. With `issue_cycles` these are all cycles of the thread.
    pub stall_cycles: u64,
    /// Of these, cycles in which a load or a fetch was under way that missed level 1, until the next instruction could
    /// issue. Those in neither this nor `contention_cycles` were waits for operands, latencies or the front end.
    pub memory_stall_cycles: u64,
    /// Of these, cycles in which the next instruction could have issued, had a slot and a unit been free.
    pub contention_cycles: u64,
    /// Cycles of the thread in which no floating-point or SIMD instruction of any context was in a unit of the core or
    /// booked on one: all of them if it is alone and has none (WorkOver's event of an empty floating-point scheduler).
    pub fp_empty_cycles: u64,
    /// Cycles of the thread in which no floating-point instruction of any context waited in a scheduler of the core.
    #[serde(default)]
    pub fp_scheduler_empty_cycles: u64,
    /// Cycles of the thread times the entries of each queue that its instructions held, by the queue's number.
    #[serde(default)]
    pub queue_entry_cycles: [u64; QUEUES],
    /// Cycles for which loads were delayed beyond the first level, each load counted by itself.
    pub memory_cycles: u64,
    /// Fetches of lines of code that missed level 1, 2, 3.
    pub fetch_misses: [u64; 3],
    /// Loads and stores that missed level 1, 2, 3.
    pub data_misses: [u64; 3],
    /// Loads and stores whose page was not in the TLB.
    pub tlb_misses: u64,
    /// Lines brought from another core's cache because that core had written them.
    pub coherence_misses: u64,
    /// Lines moved over the memory bus, in and out.
    pub bus_transactions: u64,
    /// Lines that prefetchers brought into their caches because of what the context did.
    #[serde(default)]
    pub prefetches: u64,
}

impl Counters {
    /// Instructions of all sorts.
    pub fn instructions(&self) -> u64 {
        self.ops.iter().sum()
    }

    /// Cycles of the thread.
    pub fn cycles(&self) -> u64 {
        self.issue_cycles + self.stall_cycles
    }

    /// What was counted since an earlier reading.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let minus =
            |now: &[u64; 3], before: &[u64; 3]| std::array::from_fn(|at| now[at] - before[at]);
        Self {
            ops: std::array::from_fn(|at| self.ops[at] - before.ops[at]),
            mispredicted: self.mispredicted - before.mispredicted,
            issue_cycles: self.issue_cycles - before.issue_cycles,
            stall_cycles: self.stall_cycles - before.stall_cycles,
            memory_stall_cycles: self.memory_stall_cycles - before.memory_stall_cycles,
            contention_cycles: self.contention_cycles - before.contention_cycles,
            fp_empty_cycles: self.fp_empty_cycles - before.fp_empty_cycles,
            fp_scheduler_empty_cycles: self.fp_scheduler_empty_cycles
                - before.fp_scheduler_empty_cycles,
            queue_entry_cycles: std::array::from_fn(|at| {
                self.queue_entry_cycles[at] - before.queue_entry_cycles[at]
            }),
            memory_cycles: self.memory_cycles - before.memory_cycles,
            fetch_misses: minus(&self.fetch_misses, &before.fetch_misses),
            data_misses: minus(&self.data_misses, &before.data_misses),
            tlb_misses: self.tlb_misses - before.tlb_misses,
            coherence_misses: self.coherence_misses - before.coherence_misses,
            bus_transactions: self.bus_transactions - before.bus_transactions,
            prefetches: self.prefetches - before.prefetches,
        }
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        let add = |to: &mut [u64], from: &[u64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from)
        };
        add(&mut self.ops, &other.ops);
        add(&mut self.fetch_misses, &other.fetch_misses);
        add(&mut self.data_misses, &other.data_misses);
        add(&mut self.queue_entry_cycles, &other.queue_entry_cycles);
        self.mispredicted += other.mispredicted;
        self.issue_cycles += other.issue_cycles;
        self.stall_cycles += other.stall_cycles;
        self.memory_stall_cycles += other.memory_stall_cycles;
        self.contention_cycles += other.contention_cycles;
        self.fp_empty_cycles += other.fp_empty_cycles;
        self.fp_scheduler_empty_cycles += other.fp_scheduler_empty_cycles;
        self.memory_cycles += other.memory_cycles;
        self.tlb_misses += other.tlb_misses;
        self.coherence_misses += other.coherence_misses;
        self.bus_transactions += other.bus_transactions;
        self.prefetches += other.prefetches;
    }
}
