//! What the cores of shipped machines divide among their contexts, seen by what threads get.

use super::contexts::{CHAIN, LOADS, Work, close, rates};
use perch_sim::{
    config::find_machine,
    model::{CoreKind, Op},
};

/// The first kind of core of a shipped machine.
fn first_kind(machine: &str) -> CoreKind {
    let machine = find_machine(machine).unwrap_or_else(|error| panic!("{error}"));
    machine.kinds[0].clone()
}

/// One operation a cycle, each of which waits for the one before it.
const STEADY: Work = (&[Op::Alu], 1);

/// Four instructions of a cluster every other cycle are two a cycle, even if the other cluster needs one slot a cycle only.
#[test]
fn bulldozer_s_decoders_alternate() {
    let kind = first_kind("amd-bulldozer");
    let both: Work = (&[Op::Alu, Op::Fp], 0);
    close(&rates(&kind, &[both]), &[4.0]);
    close(&rates(&kind, &[STEADY, both]), &[1.0, 2.0]);
}

/// The trace cache gives three micro-operations to one context, then to the other.
#[test]
fn the_xeon_s_front_end_alternates() {
    let kind = first_kind("intel-xeon-ht");
    let alu: Work = (&[Op::Alu], 0);
    close(&rates(&kind, &[alu]), &[3.0]);
    close(&rates(&kind, &[STEADY, alu]), &[1.0, 1.5]);
}

/// By Little's law: accesses that take 100 cycles and their own latency, as many at a time as a thread has entries.
#[test]
fn split_buffers_of_shipped_machines_are_halved() {
    let entries = |machine: &str, threads: &[Work]| -> Vec<f64> {
        let mut kind = first_kind(machine);
        // The buffers alone are to bound them.
        (kind.misses, kind.misses_per_context) = (0, None);
        let of = |(rate, (ops, _)): (f64, &Work)| {
            let own = kind.latencies[ops[0] as usize].cycles;
            rate * (100.0 + f64::from(own))
        };
        let found = rates(&kind, threads).into_iter().zip(threads);
        found.map(of).collect()
    };
    let stores: Work = (&[Op::Store], 0);
    // Whether or not the sibling uses any.
    let beside = |machine: &str| entries(machine, &[stores, STEADY])[..1].to_vec();
    close(&entries("intel-xeon-ht", &[LOADS]), &[48.0]);
    close(&entries("intel-xeon-ht", &[LOADS, LOADS]), &[24.0, 24.0]);
    close(&entries("intel-xeon-ht", &[CHAIN, LOADS]), &[1.0, 24.0]);
    close(&entries("intel-xeon-ht", &[stores]), &[24.0]);
    close(&beside("intel-xeon-ht"), &[12.0]);
    close(&entries("smt2-zen", &[stores]), &[64.0]);
    close(&beside("smt2-zen"), &[32.0]);
}

/// With four threads, two contexts have half of the fixed-point and load-store units, with two threads all of them.
#[test]
fn power7_divides_its_units_in_halves() {
    let kind = first_kind("ibm-power7-smt4");
    let first_half = |op: Op, of_other: &[Work]| {
        let ops = [op];
        let threads = [&[(&ops[..], 0); 2], of_other].concat();
        rates(&kind, &threads)[..2].iter().sum::<f64>()
    };
    let fp: Work = (&[Op::Fp], 0);
    close(&[first_half(Op::Multiply, &[])], &[2.0]);
    close(&[first_half(Op::Multiply, &[fp, fp])], &[1.0]);
    // Of these, load-store units execute some.
    close(&[first_half(Op::Alu, &[])], &[4.0]);
    close(&[first_half(Op::Alu, &[fp, fp])], &[2.0]);
    // Floating-point units are for both halves.
    let all: f64 = rates(&kind, &[STEADY, STEADY, fp, fp]).iter().sum();
    close(&[all], &[4.0]);
}

/// Two chains of misses fill the issue queue of their own half, and none of the other one.
#[test]
fn power7_divides_its_issue_queue_in_halves() {
    let beside = |kind: &CoreKind| rates(kind, &[CHAIN, CHAIN, (&[Op::Fp], 0), STEADY])[2];
    let mut kind = first_kind("ibm-power7-smt4");
    let own = beside(&kind);
    assert!(own > 1.8, "{own}");
    kind.queues
        .iter_mut()
        .for_each(|queue| queue.partitioned = false);
    let whole = beside(&kind);
    assert!(whole < 0.5, "{whole}: no queue was divided before");
}
