//! What only some cores have is the same at both levels.

use super::{both, endless};
use crate::support::{ALU, MIXED, machine, mix};
use perch_sim::{
    counters::Counters,
    model::{KindTlb, MachineModel, Multithreading, Op, Partition, TlbModel},
};

/// A core of two halves: a thread that has a half to itself is faster, at both levels, and by about as much.
#[test]
fn parts_of_a_core_are_the_same_at_both_levels() {
    let mut machine = machine(1, 4, Multithreading::Simultaneous);
    let kind = &mut machine.kinds[0];
    kind.partition = Some(Partition {
        contexts: 2,
        from: 3,
    });
    (kind.in_order, kind.window) = (false, 32);
    kind.units[0].count = 2;
    kind.units[0].partitioned = true;
    let workload = endless(vec![mix("alu", ALU, 64)], &[0, 0, 0]);
    let [cycle, interval] = both(&machine, &workload, &[0, 1, 2], 20_000_000, 100_000_000);
    for found in [cycle, interval] {
        let speeds: Vec<f64> = found.iter().map(|of| of.instructions() as f64).collect();
        let together = (speeds[0] + speeds[1]) / 2.0;
        assert!((speeds[0] / speeds[1] - 1.0).abs() < 0.02, "{speeds:?}");
        assert!((speeds[2] / together - 2.0).abs() < 0.1, "{speeds:?}");
    }
    // Two threads have the whole core, wherever they are.
    let workload = endless(vec![mix("alu", ALU, 64)], &[0, 0]);
    let speed = |places: [u32; 2]| {
        let found = both(&machine, &workload, &places, 20_000_000, 100_000_000);
        found.map(|found| found[0].instructions() as f64)
    };
    for (near, far) in speed([0, 1]).into_iter().zip(speed([0, 2])) {
        assert!((near / far - 1.0).abs() < 0.02, "{near} {far}");
    }
}

/// Kinds of cores may have different TLBs: the same thread misses in the smaller one only, at both levels.
#[test]
fn tlbs_are_those_of_the_kind_of_core() {
    let mut machine = machine(2, 1, Multithreading::Simultaneous);
    machine.tlb = Some(TlbModel {
        entries: 64,
        ways: 64,
        page: 4096,
        miss: 20_000,
        private: false,
    });
    let mut small = machine.kinds[0].clone();
    small.tlb = Some(KindTlb {
        entries: 16,
        ways: 16,
        miss: 50_000,
    });
    machine.kinds.push(small);
    machine.cores[1].kind = 1;
    // 32 pages.
    let mixes = vec![mix("pages", MIXED, 128 << 10)];
    let workload = endless(mixes, &[0, 0]);
    let [cycle, interval] = both(&machine, &workload, &[0, 1], 20_000_000, 100_000_000);
    let misses = |found: &[Counters]| {
        let of = |of: &Counters| of.tlb_misses as f64 / of.instructions() as f64;
        [of(&found[0]), of(&found[1])]
    };
    let (cycle, interval) = (misses(&cycle), misses(&interval));
    assert!(
        cycle[0] < 1e-3 && interval[0] < 1e-3,
        "{cycle:?} {interval:?}"
    );
    assert!(cycle[1] > 0.01, "{cycle:?}");
    assert!(
        (interval[1] / cycle[1] - 1.0).abs() < 0.2,
        "{cycle:?} {interval:?}"
    );
}

/// Two threads that fill the two issue slots of their core execute half as much if each instruction is of two
/// micro-operations, at both levels.
#[test]
fn micro_operations_take_slots_at_both_levels() {
    let mut machine = machine(1, 2, Multithreading::Simultaneous);
    let kind = &mut machine.kinds[0];
    (kind.in_order, kind.window, kind.width) = (false, 64, 2);
    let workload = endless(vec![mix("alu", ALU, 64)], &[0, 0]);
    let speeds = |machine: &MachineModel| {
        let found = both(machine, &workload, &[0, 1], 20_000_000, 100_000_000);
        found.map(|found| found.iter().map(|of| of.instructions() as f64).sum::<f64>())
    };
    let one_each = speeds(&machine);
    machine.kinds[0].micro_ops = [2; Op::COUNT];
    let two_each = speeds(&machine);
    for (one, two) in one_each.into_iter().zip(two_each) {
        assert!((one / two - 2.0).abs() < 0.1, "{one_each:?} {two_each:?}");
    }
}
