//! Links between NUMA nodes: threads whose data are on the other side get what the link moves, at both levels.

use crate::support::{MIXED, compute, machine, mix, workload};
use perch_core::PuSet;
use perch_sim::{
    counters::Counters,
    detail::{Detail, Fidelity},
    model::{self, CoreAt, MachineModel, Multithreading, Op, Prefetcher},
    os::SchedulerModel,
    system::System,
    workload::{Depends, Mix, Pattern, WorkloadModel},
};
use std::sync::Arc;

/// Cores of each node.
const CORES: u32 = 4;

/// Nanoseconds of a line on a link.
const LINK: f64 = 100.0;

/// The time that is measured: 400 us of the machine.
const LENGTH: u64 = 400_000_000;

/// Lines that a link moves in it.
const MOST: f64 = LENGTH as f64 / 1_000.0 / LINK;

/// Two packages of four cores with caches of their own, and links that take this many nanoseconds for a line; without limit
/// if that is 0. Their memories have bandwidth enough.
fn nodes(link: f64) -> MachineModel {
    let mut machine = machine(2 * CORES as usize, 1, Multithreading::FineGrained);
    for (number, core) in machine.cores.iter_mut().enumerate() {
        let node = number as u32 / CORES;
        *core = CoreAt {
            kind: 0,
            package: node,
            numa_node: node,
        };
    }
    machine.caches[2].shared_by = (0..2 * CORES).map(|pu| vec![pu]).collect();
    machine.caches[2].size = 16 << 10;
    machine.memory.distance = vec![vec![1.0, 1.6], vec![1.6, 1.0]];
    machine.memory.bandwidth = 1e11;
    if link > 0.0 {
        machine.memory.link_bandwidth = 64e9 / link;
    }
    machine
}

/// What a thread did: instructions, and lines over the bus.
#[derive(Debug, Clone, Copy)]
struct Done {
    instructions: f64,
    lines: f64,
}

/// Threads of a mix, each first on the one PU, where its data are then, and on the other while it is measured.
fn run(fidelity: Fidelity, machine: &MachineModel, mix: &Mix, places: &[(u32, u32)]) -> Vec<Done> {
    let steps = vec![vec![compute(0, u64::MAX)]; places.len()];
    play(
        fidelity,
        machine,
        workload(vec![mix.clone()], steps),
        places,
    )
}

fn play(
    fidelity: Fidelity,
    machine: &MachineModel,
    workload: WorkloadModel,
    places: &[(u32, u32)],
) -> Vec<Done> {
    let (machine, workload) = (Arc::new(machine.clone()), Arc::new(workload));
    let detail = Detail::new(fidelity, &machine, &workload);
    let mut system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
    system.run(1).unwrap();
    for (thread, (first, _)) in places.iter().enumerate() {
        system.set_mask(thread, PuSet::single(*first));
    }
    system.run(LENGTH).unwrap();
    for (thread, (_, then)) in places.iter().enumerate() {
        system.set_mask(thread, PuSet::single(*then));
    }
    system.run(2 * LENGTH).unwrap();
    let threads = |system: &System| -> Vec<Counters> {
        let threads = system.threads().iter();
        threads.map(|thread| thread.counters).collect()
    };
    let before = threads(&system);
    system.run(3 * LENGTH).unwrap();
    let both = threads(&system).into_iter().zip(before);
    both.map(|(after, before)| {
        let did = after.since(&before);
        Done {
            instructions: did.instructions() as f64,
            lines: did.bus_transactions as f64,
        }
    })
    .collect()
}

fn lines(done: &[Done]) -> f64 {
    done.iter().map(|done| done.lines).sum()
}

fn instructions(done: &[Done]) -> f64 {
    done.iter().map(|done| done.instructions).sum()
}

fn near(found: f64, expected: f64, part: f64, what: &str) {
    assert!(
        (found / expected - 1.0).abs() < part,
        "{what}: {found}, not {expected}"
    );
}

fn loads() -> Mix {
    mix("loads", &[(Op::Alu, 0.5), (Op::Load, 0.5)], 256 << 10)
}

/// Three threads of node 0 whose data are in node 1, and one in each node whose data are where it runs.
const MIXED_PLACES: [(u32, u32); 5] = [(4, 0), (5, 1), (6, 2), (3, 3), (7, 7)];

#[test]
fn remote_threads_get_what_the_link_moves_and_local_ones_all_they_want() {
    for fidelity in [Fidelity::Cycle, Fidelity::Interval] {
        let free = run(fidelity, &nodes(0.0), &loads(), &MIXED_PLACES);
        let linked = run(fidelity, &nodes(LINK), &loads(), &MIXED_PLACES);
        let what = format!("{fidelity:?}");
        assert!(lines(&free[..3]) > 1.5 * MOST, "{what}: {free:?}");
        near(lines(&linked[..3]), MOST, 0.03, &what);
        for (linked, free) in linked[3..].iter().zip(&free[3..]) {
            near(linked.instructions, free.instructions, 0.01, &what);
        }
    }
}

/// Both levels on all instructions of these threads, which the link slows down by a factor of at least `slower`.
fn agree(mix: &Mix, places: &[(u32, u32)], (link, slower): (f64, f64), part: f64) {
    let both = |link: f64| {
        [Fidelity::Cycle, Fidelity::Interval]
            .map(|fidelity| instructions(&run(fidelity, &nodes(link), mix, places)))
    };
    let ([free, ours_free], [exact, ours]) = (both(0.0), both(link));
    near(ours_free, free, part, "without limit");
    near(ours, exact, part, "with links");
    assert!(free > slower * exact, "{free} {exact}");
}

#[test]
fn both_levels_agree_on_queues_at_links() {
    // One after the other, four threads, and one beside local ones.
    agree(&loads(), &[(4, 0)], (LINK, 0.99), 0.05);
    agree(&loads(), &[(4, 0), (5, 1)], (30.0, 0.99), 0.05);
    agree(
        &loads(),
        &[(4, 0), (5, 1), (6, 2), (7, 3)],
        (LINK, 2.0),
        0.05,
    );
    agree(&loads(), &MIXED_PLACES, (LINK, 1.1), 0.05);
    // Both ways at a time. At the cycle level, two that wait for each of their loads fall into step, and hardly meet; at the
    // interval level, arrivals are independent of each other.
    let ways = [(4, 0), (5, 1), (0, 4), (1, 5)];
    agree(&loads(), &ways, (60.0, 0.99), 0.1);
}

#[test]
fn both_levels_agree_on_lines_that_are_written_back_over_links() {
    let shares = [(Op::Alu, 0.5), (Op::Load, 0.2), (Op::Store, 0.3)];
    let stores = mix("stores", &shares, 256 << 10);
    agree(
        &stores,
        &[(4, 0), (5, 1), (6, 2), (7, 3)],
        (LINK, 1.5),
        0.05,
    );
    // What node 0 writes back to node 1 is in the way of what node 1 reads from node 0.
    agree(
        &stores,
        &[(4, 0), (5, 1), (0, 4), (1, 5)],
        (LINK, 1.5),
        0.05,
    );
}

/// Threads that hide their misses, by far too fast for the link.
#[test]
fn a_link_bounds_threads_that_hide_their_misses() {
    let mut machine = nodes(10.0);
    let kind = &mut machine.kinds[0];
    (kind.in_order, kind.window, kind.misses, kind.width) = (false, 64, 16, 4);
    kind.units[0].count = 4;
    let random = Mix {
        depends: Depends::Always(0),
        ..loads()
    };
    let mut stream = random.clone();
    stream.working_sets[0].pattern = Pattern::Stride;
    let mut prefetching = machine.clone();
    prefetching.caches[1].prefetchers = vec![Prefetcher {
        pattern: model::Pattern::Stream,
        streams: 16,
        after: 2,
        ahead: 8,
        longest: 4,
        page: 4096,
        under_way: u32::MAX,
        backlog: u32::MAX,
    }];
    for (machine, mix) in [
        (&machine, &random),
        (&machine, &stream),
        (&prefetching, &stream),
    ] {
        for places in [&[(4, 0), (5, 1)][..], &MIXED_PLACES] {
            let remote = places.len().min(3);
            for fidelity in [Fidelity::Cycle, Fidelity::Interval] {
                let what = format!("{fidelity:?}");
                let done = run(fidelity, machine, mix, places);
                near(lines(&done[..remote]), MOST * LINK / 10.0, 0.05, &what);
                let mut free = machine.clone();
                free.memory.link_bandwidth = 0.0;
                let free = run(fidelity, &free, mix, places);
                for (done, free) in done.iter().zip(&free).skip(remote) {
                    let (done, free) = (done.instructions, free.instructions);
                    assert!(done > 0.99 * free, "{what}: {done}, {free} without limit");
                }
            }
        }
    }
}

/// Threads of one process in both nodes that write to the same lines, most of which come from the other node's caches.
#[test]
fn lines_that_caches_of_another_node_supply_cross_links_at_both_levels() {
    let mut shared = mix("shared", MIXED, 64 << 10);
    shared.working_sets[0].region = Some("table".into());
    let both = |link: f64| {
        [Fidelity::Cycle, Fidelity::Interval].map(|fidelity| {
            let mut workload = workload(vec![shared.clone()], vec![vec![compute(0, u64::MAX)]]);
            workload.programs[0].threads[0].count = 4;
            // The memory is that of node 0.
            let places = [(0, 0), (1, 1), (2, 4), (3, 5)];
            let mut machine = nodes(link);
            machine.caches[2].size = 256 << 10;
            play(fidelity, &machine, workload, &places)
        })
    };
    let (free, linked) = (both(0.0), both(LINK));
    for [exact, ours] in [&free, &linked] {
        near(instructions(ours), instructions(exact), 0.15, "all");
    }
    // Those in the other node lose, by what they ask of the memory and of the caches beyond the link.
    for (free, linked) in free.iter().zip(&linked) {
        let (free, linked) = (instructions(&free[2..]), instructions(&linked[2..]));
        assert!(linked < 0.7 * free, "{linked} {free}");
    }
}
