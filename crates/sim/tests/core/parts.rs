//! Cores in parts that divide units and queues among their contexts.

use super::{
    ALL, kind, threads,
    throughput::{CYCLES, executed_of, queue},
};
use perch_sim::core::Core;
use perch_sim::model::{CoreKind, Multithreading, Op, Partition, QueueSharing, Until};
use proptest::prelude::*;

/// Two units and four contexts, in halves from three threads on. `fp` has a pool of its own for all of the core.
fn in_halves(in_order: bool) -> CoreKind {
    let mut kind = kind(4, Multithreading::Simultaneous, in_order, 64);
    kind.window_shared = false;
    kind.partition = Some(Partition {
        contexts: 2,
        from: 3,
    });
    for pool in &mut kind.units {
        pool.count = 2;
        pool.partitioned = !pool.ops.contains(&Op::Fp);
    }
    kind
}

/// Instructions a cycle of threads of these operations on contexts 0, 1, …; none on a context without operations.
fn rates(kind: &CoreKind, ops: &[&[Op]]) -> Vec<f64> {
    let of = |ops: &&[Op]| (ops.to_vec(), 0);
    let executed = executed_of(kind, ops.iter().map(of).collect());
    let rate = |executed: &u64| *executed as f64 / CYCLES as f64;
    executed.iter().map(rate).collect()
}

/// Threads of one half share its unit; a thread that has a half to itself has one unit, no more. With two threads, both have
/// all units, wherever they are.
#[test]
fn a_core_in_parts_divides_units_among_them() {
    for in_order in [false, true] {
        let kind = in_halves(in_order);
        // Of each half: contexts that compete for a unit in program order need not get the same.
        let halves = |ops: &[&[Op]]| -> Vec<f64> {
            rates(&kind, ops)
                .chunks(2)
                .map(|half| half.iter().sum())
                .collect()
        };
        let close = |found: Vec<f64>, expected: &[f64]| {
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (found - expected).abs() < 0.02,
                    "in order: {in_order}, {found} {expected}"
                );
            }
        };
        close(halves(&[&[Op::Alu], &[Op::Alu]]), &[2.0]);
        close(halves(&[&[Op::Alu][..]; 3]), &[1.0, 1.0]);
        close(halves(&[&[Op::Alu][..]; 4]), &[1.0, 1.0]);
        // Who has no use for the own half's unit leaves it to the neighbour, but not to the other half.
        let mixed = [&[Op::Alu][..], &[Op::Fp], &[Op::Alu], &[Op::Alu]];
        close(rates(&kind, &mixed), &[1.0, 2.0]);
        // What is not divided belongs to all.
        let all: f64 = rates(&kind, &[&[Op::Fp][..]; 4]).iter().sum();
        assert!((all - 2.0).abs() < 0.02, "in order: {in_order}, {all}");
    }
}

/// Operations that wait for memory take the entries of their half's queue only.
#[test]
fn a_core_in_parts_divides_queues_among_them() {
    let sibling = |partitioned: bool, of_parts: bool| {
        let mut kind = in_halves(false);
        kind.units
            .iter_mut()
            .for_each(|pool| pool.partitioned = false);
        let mut scheduler = queue(&Op::ALL, 32, QueueSharing::Shared, Until::Start);
        scheduler.partitioned = partitioned;
        kind.queues = vec![scheduler];
        // A chain of misses on context 0; the last thread is in the other half, or in the same one.
        let waiting = (vec![Op::Load], 1);
        let (idle, fp) = ((vec![Op::Alu], 1), (vec![Op::Fp], 0));
        let threads = match of_parts {
            true => vec![waiting, idle.clone(), fp],
            false => vec![waiting, fp, idle],
        };
        let executed = executed_of(&kind, threads);
        if of_parts { executed[2] } else { executed[1] }
    };
    let (own, same, whole) = (
        sibling(true, true),
        sibling(true, false),
        sibling(false, true),
    );
    assert!(own > CYCLES * 9 / 10, "{own}");
    assert!(same < CYCLES / 20, "{same}");
    assert!(whole < CYCLES / 20, "{whole}");
}

proptest! {
    /// Threads that come and go divide the core and put it together again: all instructions are executed once.
    #[test]
    fn a_core_falls_into_parts_and_comes_together(
        steps in proptest::collection::vec((1u64..300, 0usize..4), 1..60),
        in_order: bool,
        seed in any::<u64>(),
    ) {
        let mut kind = in_halves(in_order);
        if !in_order {
            let mut scheduler = queue(&Op::ALL, 16, QueueSharing::Shared, Until::Start);
            (scheduler.partitioned, scheduler.per_context) = (true, Some(12));
            kind.queues = vec![scheduler];
        }
        let work = vec![2_000; 4];
        let (mut supply, mut memory) = threads(ALL, work.clone(), seed);
        let mut core = Core::new(0, &kind);
        let mut now = 0;
        let mut on = [false; 4];
        for (cycles, context) in steps {
            on[context] = !on[context] && core.thread(context).is_none();
            let thread = on[context].then_some(context as u32);
            core.assign(context, thread, now, &mut supply, &mut memory);
            now += cycles * core.cycle_time();
            core.run(now, &mut supply, &mut memory, |_| ());
        }
        for context in 0..4 {
            core.assign(context, Some(context as u32), now, &mut supply, &mut memory);
        }
        core.run(now + 10_000_000 * core.cycle_time(), &mut supply, &mut memory, |_| ());
        for (context, work) in work.iter().enumerate() {
            prop_assert_eq!(core.thread(context), None);
            prop_assert_eq!(core.take_counters(context).instructions(), *work);
        }
    }
}
