//! Simulations of a machine of several nodes, at the same time and with what they find out in common.

use crate::support::{MIXED, compute, machine, mix, state, workload};
use perch_sim::{
    detail::{Detail, Fidelity},
    model::Multithreading,
    os::SchedulerModel,
    system::System,
};
use std::sync::Arc;

/// Which job finds something out first makes no difference, also where memory is near for some and far for others.
#[test]
fn parallel_jobs_on_several_nodes_give_the_same_bits_as_one_alone() {
    let mut machine = machine(4, 2, Multithreading::Simultaneous);
    (machine.cores[2].numa_node, machine.cores[3].numa_node) = (1, 1);
    machine.memory.distance = vec![vec![1.0, 4.0], vec![3.0, 1.5]];
    (machine.kinds[0].window, machine.kinds[0].in_order) = (64, false);
    let machine = Arc::new(machine);
    let mixes = [64 << 10, 4 << 20, 64 << 20];
    let mixes = mixes.map(|bytes| mix("m", MIXED, bytes)).to_vec();
    // More threads than PUs: they change places, and leave their memory behind.
    let steps = (0..11).map(|at| vec![compute(at % 3, u64::MAX)]);
    let workload = Arc::new(workload(mixes, steps.collect()));
    let play = |detail: &Detail, seed| {
        let (machine, workload) = (Arc::clone(&machine), Arc::clone(&workload));
        let mut system = System::at(detail, machine, workload, SchedulerModel::default(), seed);
        system.run(200_000_000).unwrap();
        state(&system)
    };
    let fresh = || Detail::new(Fidelity::Interval, &machine, &workload);
    let alone: Vec<_> = (0..6).map(|seed| play(&fresh(), seed)).collect();
    assert!(alone.iter().any(|state| *state != alone[0]));
    let shared = fresh();
    let together: Vec<_> = std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..6)
            .map(|seed| {
                scope.spawn({
                    let (play, shared) = (&play, &shared);
                    move || play(shared, seed)
                })
            })
            .collect();
        jobs.into_iter().map(|job| job.join().unwrap()).collect()
    });
    assert_eq!(together, alone);
}

/// A time slice of some milliseconds lets a thread fill its caches. With a scale of 1,000 it lasts for microseconds of the
/// machine's time, and threads that share a PU never find their data in its caches.
#[test]
fn a_scale_makes_threads_that_share_a_pu_permanently_cold() {
    let done = |scale: f64, threads: usize| {
        let mut machine = machine(1, 1, Multithreading::FineGrained);
        machine.scale = scale;
        let steps = (0..threads).map(|at| vec![compute(at, u64::MAX)]);
        let mixes = (0..threads).map(|_| mix("m", MIXED, 700 << 10));
        let workload = Arc::new(workload(mixes.collect(), steps.collect()));
        let machine = Arc::new(machine);
        let detail = Detail::new(Fidelity::Interval, &machine, &workload);
        let model = SchedulerModel::default();
        let time = machine.machine_time(1_000_000_000);
        let mut system = System::at(&detail, machine, workload, model, 1);
        system.run(time).unwrap();
        let threads = system.threads().iter();
        let done: u64 = threads.map(|thread| thread.counters.instructions()).sum();
        done as f64 / time as f64
    };
    let alone = done(1.0, 1);
    let (real, scaled) = (done(1.0, 2) / alone, done(1_000.0, 2) / alone);
    assert!(real > 1.2 * scaled, "{real} {scaled}");
    assert!((0.5..1.01).contains(&real), "{real}");
}
