//! How the contexts of a core divide its queues and the cycles of its front end.

use super::{
    kind,
    throughput::{CYCLES, executed_of, queue},
};
use perch_sim::model::{CoreKind, Multithreading, Op, QueueSharing, Until};

/// What a thread executes, and how far back each of its operations depends.
pub type Work<'a> = (&'a [Op], u16);

/// Instructions per cycle of threads on contexts 0, 1, …; each access misses for 100 cycles.
pub fn rates(kind: &CoreKind, threads: &[Work]) -> Vec<f64> {
    let of = |(ops, depends): &Work| (ops.to_vec(), *depends);
    let executed = executed_of(kind, threads.iter().map(of).collect());
    let rate = |executed: &u64| *executed as f64 / CYCLES as f64;
    executed.iter().map(rate).collect()
}

pub fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (one, other) in found.iter().zip(expected) {
        let far = (one / other - 1.0).abs();
        assert!(far < 0.02, "{found:?}, expected {expected:?}");
    }
}

/// Loads that do not depend on each other, and a chain of loads each of which waits for the one before it.
pub const LOADS: Work = (&[Op::Load], 0);
pub const CHAIN: Work = (&[Op::Load], 1);

/// Little's law: a thread has all entries of a split queue in isolation, and its half beside another one. What the other
/// one does with its own half makes no difference.
#[test]
fn a_split_queue_gives_each_busy_context_its_part() {
    let mut kind = kind(2, Multithreading::Simultaneous, false, 128);
    (kind.window_shared, kind.width) = (false, 8);
    kind.units.iter_mut().for_each(|pool| pool.count = 8);
    kind.queues = vec![queue(&[Op::Load], 16, QueueSharing::Split, Until::End)];
    let takes = 100.0 + f64::from(kind.latencies[Op::Load as usize].cycles);
    let (all, half) = (16.0 / takes, 8.0 / takes);
    close(&rates(&kind, &[LOADS]), &[all]);
    close(&rates(&kind, &[LOADS, LOADS]), &[half, half]);
    // The chain fills its half with loads that wait, and moves one per miss.
    close(&rates(&kind, &[CHAIN, LOADS]), &[1.0 / takes, half]);
    // A sibling that uses no entry has its part as well.
    close(&rates(&kind, &[LOADS, (&[Op::Alu], 0)])[..1], &[half]);
}

/// The contexts of a fine-grained front end alternate cycle by cycle, each with the full width: two that could fill it get
/// half of it each, and what a context does not use of its cycle is lost.
#[test]
fn contexts_of_a_wide_fine_grained_front_end_alternate() {
    let beside = |multithreading, in_order, threads: &[Work]| {
        let mut kind = kind(2, multithreading, in_order, 64);
        kind.width = 3;
        kind.units.iter_mut().for_each(|pool| pool.count = 8);
        rates(&kind, threads)
    };
    let (fine, shared) = (Multithreading::FineGrained, Multithreading::Simultaneous);
    let (alu, fp_chain) = ((&[Op::Alu][..], 0), (&[Op::Fp][..], 1));
    for in_order in [false, true] {
        close(&beside(fine, in_order, &[alu]), &[3.0]);
        close(&beside(fine, in_order, &[alu, alu]), &[1.5, 1.5]);
    }
    // In order, one addition in five cycles has a cycle for itself. Otherwise it has one of the slots.
    close(&beside(fine, true, &[fp_chain, alu]), &[0.2, 2.4]);
    close(&beside(shared, true, &[fp_chain, alu]), &[0.2, 2.8]);
    // A chain of one operation a cycle: every other cycle is its own, in which it issues two of three.
    let chain = (&[Op::Alu][..], 1);
    close(&beside(fine, false, &[chain, alu]), &[1.0, 1.5]);
    close(&beside(shared, false, &[chain, alu]), &[1.0, 2.0]);
}
