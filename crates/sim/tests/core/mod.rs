//! What a core counts, and its clock.

mod contexts;
mod parts;
mod shipped;
mod throughput;

use crate::support;
use perch_sim::{
    core::{Core, Supply},
    counters::Counters,
    memory::{Access, Hierarchy},
    model::{CoreKind, Latency, Multithreading, Op, Pace, UnitPool},
    stream::{Instruction, Random},
    units::Ps,
};
use proptest::prelude::*;

/// Threads of random instructions of some operations. Each ends after a given number of them.
struct Threads {
    ops: Vec<Op>,
    random: Random,
    left: Vec<u64>,
}

impl Supply for Threads {
    fn fill(&mut self, thread: u32, into: &mut [Instruction]) -> usize {
        let left = &mut self.left[thread as usize];
        let count = (*left)
            .min(into.len() as u64)
            .min(1 + self.random.below(16));
        *left -= count;
        for instruction in &mut into[..count as usize] {
            *instruction = Instruction {
                op: self.ops[self.random.below(self.ops.len() as u64) as usize],
                depends: self.random.below(4) as u16,
                extra: 0,
                mispredicted: false,
                at: 64 * self.random.below(4),
                data: 8,
            };
        }
        count as usize
    }

    fn give_back(&mut self, thread: u32, rest: &[Instruction]) {
        self.left[thread as usize] += rest.len() as u64;
    }
}

/// Memory that takes a random time.
struct Chance(Random);

impl Hierarchy for Chance {
    fn line_of(&self, address: u64) -> u64 {
        address / 64
    }

    fn access(&mut self, _: usize, _: u32, _: Access, _: u64, _: Ps, _: &mut Counters) -> Ps {
        match self.0.below(4) {
            0 => self.0.below(300_000),
            _ => 0,
        }
    }
}

/// A core with one unit for integers and memory and one for floating point.
fn kind(contexts: u32, multithreading: Multithreading, in_order: bool, window: u32) -> CoreKind {
    let machine = support::machine(1, contexts, multithreading);
    let mut kind = machine.kinds[0].clone();
    kind.in_order = in_order;
    kind.window = window;
    kind.window_shared = window > 16;
    kind.latencies[Op::Divide as usize] = Latency {
        cycles: 20,
        busy: 20,
    };
    kind.latencies[Op::Fp as usize] = Latency { cycles: 5, busy: 1 };
    let is_fp = |op: &Op| matches!(op, Op::Fp | Op::FpDivide);
    let (fp, rest): (Vec<Op>, Vec<Op>) = Op::ALL.into_iter().partition(is_fp);
    kind.units = [fp, rest]
        .map(|ops| UnitPool {
            name: "unit".into(),
            ops,
            count: 1,
            private: false,
            partitioned: false,
        })
        .into();
    kind
}

fn threads(ops: &[Op], left: Vec<u64>, seed: u64) -> (Threads, Chance) {
    let ops = ops.to_vec();
    let random = Random::new(seed);
    (Threads { ops, random, left }, Chance(Random::new(!seed)))
}

/// Any core, for threads that come and go.
fn kinds() -> impl Strategy<Value = CoreKind> {
    let multithreading = prop_oneof![
        Just(Multithreading::FineGrained),
        Just(Multithreading::Simultaneous)
    ];
    let window = prop_oneof![Just(1u32), Just(8), Just(64)];
    (1u32..5, multithreading, any::<bool>(), window)
        .prop_map(|(contexts, how, in_order, window)| kind(contexts, how, in_order, window))
}

const ALL: &[Op] = &[Op::Alu, Op::Divide, Op::Fp, Op::Load, Op::Store, Op::Branch];

proptest! {
    /// However threads come and go, and however often one asks: each cycle of a thread on a context is counted once, as
    /// one in which it issued or as one in which it stalled; and all its instructions are executed once.
    #[test]
    fn cycles_of_a_context_add_up(
        kind in kinds(),
        steps in proptest::collection::vec((1u64..200, 0usize..4, any::<bool>(), any::<bool>()), 1..60),
        seed in any::<u64>(),
    ) {
        let contexts = kind.contexts as usize;
        let work: Vec<u64> = (0..contexts as u64).map(|thread| 300 * thread + 50).collect();
        let (mut supply, mut memory) = threads(ALL, work.clone(), seed);
        let mut core = Core::new(0, &kind);
        let mut seen = vec![Counters::default(); contexts];
        let mut spent = vec![0; contexts];
        let mut on = vec![false; contexts];
        let mut now = 0;
        for (cycles, context, there, ask) in steps {
            let context = context % contexts;
            now += cycles * core.cycle_time();
            core.run(now, &mut supply, &mut memory, |_| ());
            for (spent, _) in spent.iter_mut().zip(&on).filter(|(_, on)| **on) {
                *spent += cycles;
            }
            if there != on[context] {
                on[context] = there;
                core.assign(context, there.then_some(context as u32), now + 500, &mut supply, &mut memory);
            }
            if ask {
                seen[context] += core.take_counters(context);
            }
        }
        for context in 0..contexts {
            core.assign(context, None, now, &mut supply, &mut memory);
            seen[context] += core.take_counters(context);
            let seen = &seen[context];
            prop_assert_eq!(seen.cycles(), spent[context]);
            prop_assert!(seen.memory_stall_cycles + seen.contention_cycles <= seen.stall_cycles);
            prop_assert!(seen.issue_cycles <= seen.instructions());
            prop_assert!(seen.instructions() <= seen.issue_cycles * u64::from(kind.width));
            prop_assert!(seen.fp_empty_cycles <= spent[context]);
            prop_assert_eq!(seen.instructions() + supply.left[context], work[context]);
        }
    }

    /// A thread that is alone and leaves floating point be finds its units empty all the time; one that has
    /// nothing else does not.
    #[test]
    fn floating_point_units_are_empty_without_floating_point(how in prop_oneof![Just(Multithreading::FineGrained), Just(Multithreading::Simultaneous)], in_order in any::<bool>(), seed in any::<u64>()) {
        let empty = |ops: &[Op]| {
            let (mut supply, mut memory) = threads(ops, vec![u64::MAX; 2], seed);
            let mut core = Core::new(0, &kind(2, how, in_order, 1));
            core.assign(0, Some(0), 0, &mut supply, &mut memory);
            core.run(1_000_000, &mut supply, &mut memory, |_| ());
            let counters = core.take_counters(0);
            (counters.fp_empty_cycles, counters.cycles(), counters.contention_cycles)
        };
        prop_assert_eq!(empty(&[Op::Alu, Op::Load, Op::Store, Op::Divide]), (1000, 1000, 0));
        let (idle, cycles, _) = empty(&[Op::Fp]);
        prop_assert_eq!(cycles, 1000);
        // The first instruction comes within 300 cycles.
        prop_assert!(idle <= 995, "{}", idle);
    }

    /// One instruction a cycle, whatever the clock does: as many as cycles have begun, counted one by one.
    #[test]
    fn the_clock_changes_at_once_and_exactly(changes in proptest::collection::vec((1u64..50_000, 300u64..4_000), 1..30)) {
        struct Plain;
        impl Supply for Plain {
            fn fill(&mut self, _: u32, into: &mut [Instruction]) -> usize {
                into.fill(Instruction { op: Op::Alu, depends: 1, extra: 0, mispredicted: false, at: 0, data: 0 });
                into.len()
            }
            fn give_back(&mut self, _: u32, _: &[Instruction]) {}
        }
        struct Near;
        impl Hierarchy for Near {
            fn line_of(&self, _: u64) -> u64 {
                0
            }
            fn access(&mut self, _: usize, _: u32, _: Access, _: u64, _: Ps, _: &mut Counters) -> Ps {
                0
            }
        }
        let mut core = Core::new(0, &kind(1, Multithreading::FineGrained, true, 1));
        core.assign(0, Some(0), 0, &mut Plain, &mut Near);
        let (mut now, mut begins, mut period, mut cycles) = (0, 0, core.cycle_time(), 0);
        for (span, next_period) in changes {
            now += span;
            while begins < now {
                begins += period;
                cycles += 1;
            }
            core.run(now, &mut Plain, &mut Near, |_| ());
            core.set_pace(now, Pace::steady(next_period));
            prop_assert_eq!(core.cycle_time(), next_period);
            period = next_period;
        }
        let counted = core.take_counters(0);
        prop_assert_eq!(counted.instructions(), cycles);
        prop_assert_eq!(counted.cycles(), cycles);
    }
}
