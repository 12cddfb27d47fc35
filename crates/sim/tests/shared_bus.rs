//! A memory that packages share: one node, one channel, no matter which package asks.

use crate::support::{compute, machine, mix, workload};
use perch_core::PuSet;
use perch_sim::{
    config::{find_machine, machine_from_text},
    detail::{Detail, Fidelity},
    model::{CoreAt, MachineModel, Multithreading, Op},
    os::SchedulerModel,
    system::System,
    topology::topology,
};
use std::{path::Path, sync::Arc};

/// Two packages of one core without a common cache, behind one memory or each with its own.
fn packages(shared: bool) -> MachineModel {
    let mut machine = machine(2, 1, Multithreading::FineGrained);
    machine.cores[1] = CoreAt {
        kind: 0,
        package: 1,
        numa_node: u32::from(!shared),
    };
    if !shared {
        machine.memory.distance = vec![vec![1.0; 2]; 2];
    }
    let last = machine.caches.len() - 1;
    machine.caches[last].shared_by = vec![vec![0], vec![1]];
    machine.caches[last].size = 16 << 10;
    // A line in 100 ns, as often as a lone thread asks: it has the channel busy to a large part.
    machine.memory.bandwidth = 64e7;
    machine
}

/// Instructions of each of these threads, one a package, that miss all the time.
fn played(fidelity: Fidelity, machine: &MachineModel, threads: usize) -> Vec<f64> {
    let loads = mix("loads", &[(Op::Alu, 0.5), (Op::Load, 0.5)], 4 << 20);
    let steps = vec![vec![compute(0, u64::MAX)]; threads];
    let (machine, workload) = (
        Arc::new(machine.clone()),
        Arc::new(workload(vec![loads], steps)),
    );
    let detail = Detail::new(fidelity, &machine, &workload);
    let mut system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
    system.run(1).unwrap();
    (0..threads).for_each(|at| system.set_mask(at, PuSet::single(at as u32)));
    system.run(400_000_000).unwrap();
    let threads = system.threads().iter();
    threads
        .map(|thread| thread.counters.instructions() as f64)
        .collect()
}

#[test]
fn packages_slow_each_other_down_by_what_they_fetch_over_one_bus() {
    for fidelity in [Fidelity::Cycle, Fidelity::Interval] {
        let alone = played(fidelity, &packages(true), 1)[0];
        let loss = |shared| {
            let both = played(fidelity, &packages(shared), 2);
            1.0 - (both[0] + both[1]) / 2.0 / alone
        };
        let (shared, own) = (loss(true), loss(false));
        assert!(
            own.abs() < 0.01,
            "{fidelity:?}: {own} with memories of their own"
        );
        assert!(shared > 0.1, "{fidelity:?}: {shared} behind one bus");
        // Two never get more than the channel moves: 4,000 lines in this time, a line for each load.
        let most = 400_000_000.0 / 100_000.0 * 2.0 * 1.05;
        let both = played(fidelity, &packages(true), 2);
        assert!(both[0] + both[1] < most, "{fidelity:?}: {both:?}");
    }
}

#[test]
fn both_levels_agree_on_what_a_shared_bus_costs() {
    let exact = played(Fidelity::Cycle, &packages(true), 2);
    let ours = played(Fidelity::Interval, &packages(true), 2);
    for (exact, ours) in exact.iter().zip(&ours) {
        assert!((ours - exact).abs() < 0.05 * exact, "{ours} {exact}");
    }
}

#[test]
fn policies_see_one_node_around_both_packages() {
    let topology = topology(&find_machine("intel-xeon-ht").unwrap());
    let node: PuSet = (0..4).collect();
    assert_eq!(topology.packages.len(), 2);
    assert_eq!(topology.numa_nodes.len(), 1);
    assert_eq!(topology.numa_nodes[0].pus, node);
}

#[test]
fn nodes_are_counted_over_the_machine() {
    let read = |topology: &str, distance: &str| {
        let text = include_str!("../../../machines/intel-xeon-ht.toml");
        let text = text.replace("packages = 2\nnodes = 1\ncores = 1", topology);
        let machine = machine_from_text(&(text + distance), Path::new("machine.toml")).unwrap();
        let at = |core: &CoreAt| (core.package, core.numa_node);
        machine.cores.iter().map(at).collect::<Vec<_>>()
    };
    let two = "distance = [[1, 1], [1, 1]]\n";
    assert_eq!(
        read("packages = 4\nnodes = 2\ncores = 1", two),
        [(0, 0), (1, 0), (2, 1), (3, 1)]
    );
    assert_eq!(
        read("packages = 1\nnodes = 2\ncores = 2", two),
        [(0, 0), (0, 0), (0, 1), (0, 1)]
    );
    assert_eq!(
        read("packages = 2\nnodes = 2\ncores = 1", two),
        read("packages = 2\nnuma-nodes = 1\ncores = 1", two)
    );
}

/// Cores are simulated one after the other, a short time each. None may be ahead of the others at the channel for that.
#[test]
fn no_core_has_a_shorter_way_to_a_shared_bus() {
    let mut machine = packages(true);
    machine.memory.latency = 30_000;
    machine.memory.bandwidth = 64.0 / 12e-9;
    let loads = mix("loads", &[(Op::Alu, 0.9), (Op::Load, 0.1)], 4 << 20);
    let steps = vec![vec![compute(0, u64::MAX)]; 2];
    let (machine, workload) = (Arc::new(machine), Arc::new(workload(vec![loads], steps)));
    let detail = Detail::new(Fidelity::Cycle, &machine, &workload);
    let mut system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
    system.run(1).unwrap();
    (0..2).for_each(|at| system.set_mask(at, PuSet::single(at as u32)));
    system.run(4_000_000_000).unwrap();
    let waits: Vec<f64> = system
        .threads()
        .iter()
        .map(|thread| {
            let counted = &thread.counters;
            counted.memory_cycles as f64 / counted.ops[Op::Load as usize] as f64
        })
        .collect();
    assert!((waits[0] / waits[1] - 1.0).abs() < 0.005, "{waits:?}");
}
