//! Counters of a PU at the interval level: expected numbers, handed out as whole ones.

use super::{demand::Demand, layout::LEVELS, play::InQueues, settle::Speed};
use crate::{
    counters::Counters,
    model::{Op, QUEUES},
};

/// What was counted and not yet handed out.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    /// Whole instructions that are not in `ops` yet.
    instructions: u64,
    ops: [f64; Op::COUNT],
    mispredicted: f64,
    /// Cycles on the PU, and what they went to.
    cycles: f64,
    memory_stall: f64,
    contention: f64,
    fp_empty: f64,
    fp_scheduler_empty: f64,
    queues: [f64; QUEUES],
    memory_cycles: f64,
    fetch: [f64; LEVELS],
    data: [f64; LEVELS],
    tlb: f64,
    coherence: f64,
    transfers: f64,
    prefetches: f64,
}

impl Tally {
    /// A thread executes instructions in some cycles; `whole` instructions came to their end.
    pub fn add(&mut self, done: f64, whole: u64, cycles: f64, demand: &Demand, speed: &Speed) {
        self.cycles += cycles;
        self.memory_stall += speed.memory_stall * done;
        self.contention += speed.contention * done;
        self.fp_empty += (1.0 - speed.fp_busy) * cycles;
        let InQueues {
            entries,
            fp_waiting,
        } = &speed.in_queues;
        self.fp_scheduler_empty += (1.0 - fp_waiting) * cycles;
        for (sum, entries) in self.queues.iter_mut().zip(entries) {
            *sum += entries * cycles;
        }
        self.instructions += whole;
        for (sum, share) in self.ops.iter_mut().zip(demand.ops) {
            *sum += share * whole as f64;
        }
        let fate = &speed.fate;
        self.mispredicted += demand.mispredicted * done;
        self.memory_cycles += speed.memory_cycles * done;
        self.tlb += fate.tlb * done;
        self.coherence += fate.coherence * done;
        self.transfers += fate.transfers * done;
        self.prefetches += fate.prefetches * done;
        for level in 0..LEVELS {
            self.fetch[level] += fate.fetch[level] * done;
            self.data[level] += fate.data[level] * done;
        }
    }

    /// It misses further lines of a cache of a level, or pages of a TLB if there is none.
    pub fn bring(&mut self, level: Option<usize>, code: bool, lines: f64) {
        match level {
            None => self.tlb += lines,
            Some(level) if code => self.fetch[level] += lines,
            Some(level) => self.data[level] += lines,
        }
    }

    /// Further lines are moved over the bus.
    pub fn transfer(&mut self, lines: f64) {
        self.transfers += lines;
    }

    /// Hands out whole numbers; the rest is for the next time. All instructions are handed out.
    pub fn take(&mut self) -> Counters {
        let whole = |sum: &mut f64| {
            // Most have nothing to hand out, such as those of queues on a machine without any.
            if *sum < 1.0 {
                return 0;
            }
            let whole = *sum as u64;
            *sum -= whole as f64;
            whole
        };
        let mut ops = [0; Op::COUNT];
        let mut left = std::mem::take(&mut self.instructions);
        for (op, sum) in ops.iter_mut().zip(&mut self.ops) {
            *op = whole(sum).min(left);
            left -= *op;
        }
        // Those that no class has as a whole yet go to the one that is nearest to it.
        for _ in 0..left {
            let nearest = (0..Op::COUNT).max_by(|a, b| self.ops[*a].total_cmp(&self.ops[*b]));
            let nearest = nearest.unwrap_or(0);
            ops[nearest] += 1;
            self.ops[nearest] -= 1.0;
        }
        let cycles = whole(&mut self.cycles);
        let issue_cycles = ops.iter().sum::<u64>().min(cycles);
        let stall_cycles = cycles - issue_cycles;
        let memory_stall_cycles = whole(&mut self.memory_stall).min(stall_cycles);
        Counters {
            issue_cycles,
            stall_cycles,
            memory_stall_cycles,
            contention_cycles: whole(&mut self.contention).min(stall_cycles - memory_stall_cycles),
            fp_empty_cycles: whole(&mut self.fp_empty).min(cycles),
            fp_scheduler_empty_cycles: whole(&mut self.fp_scheduler_empty).min(cycles),
            queue_entry_cycles: self.queues.each_mut().map(whole),
            ops,
            mispredicted: whole(&mut self.mispredicted),
            memory_cycles: whole(&mut self.memory_cycles),
            fetch_misses: self.fetch.each_mut().map(whole),
            data_misses: self.data.each_mut().map(whole),
            tlb_misses: whole(&mut self.tlb),
            coherence_misses: whole(&mut self.coherence),
            bus_transactions: whole(&mut self.transfers),
            prefetches: whole(&mut self.prefetches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::demand::Lines;
    use proptest::prelude::*;

    proptest! {
        /// Every instruction is handed out once, and each class gets its share.
        #[test]
        fn no_instruction_is_lost(
            shares in proptest::array::uniform8(0.0f64..1.0),
            parts in proptest::collection::vec(0u64..1000, 1..50),
        ) {
            let total: f64 = shares.iter().sum();
            prop_assume!(total > 0.1);
            let demand = Demand {
                ops: shares.map(|share| share / total),
                mispredicted: 0.0,
                lines: Vec::<Lines>::new(),
                sample: Box::new([]),
            };
            let (mut tally, mut sum) = (Tally::default(), Counters::default());
            let mut all = 0;
            for part in parts {
                tally.add(part as f64, part, 3.0 * part as f64, &demand, &Speed::default());
                sum += tally.take();
                all += part;
                prop_assert_eq!(sum.instructions(), all);
                prop_assert_eq!(sum.cycles(), 3 * all);
            }
            for (count, share) in sum.ops.iter().zip(demand.ops) {
                prop_assert!((*count as f64 - share * all as f64).abs() <= 8.0);
            }
        }
    }
}
