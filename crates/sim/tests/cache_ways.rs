//! Threads that may fill only some ways of a shared cache: what they find, what they leave to others, at both levels.

use crate::support::{compute, machine, mix, workload};
use perch_core::{Affinity, CacheWays, Machine, MaskError, Outcome, PuSet, WayMask, WaysChange};
use perch_sim::{
    detail::{Detail, Fidelity},
    machine::SimMachine,
    model::{MachineModel, Multithreading, Op},
    os::SchedulerModel,
    system::System,
    workload::{Mix, Pattern},
};
use std::{sync::Arc, time::Duration};

const LOADS: [(Op, f64); 2] = [(Op::Alu, 0.9), (Op::Load, 0.1)];

/// Cores with a second level of 64 KiB in 16 ways for all.
fn shared(cores: usize) -> MachineModel {
    let mut machine = machine(cores, 1, Multithreading::FineGrained);
    machine.caches[2].size = 64 << 10;
    machine.caches[2].ways = 16;
    machine
}

/// Comes back to its lines, at random.
fn walker(kib: u64) -> Mix {
    mix("walker", &LOADS, kib << 10)
}

/// Comes back to no line while that is in any cache.
fn streamer() -> Mix {
    let mut mix = mix("streamer", &LOADS, 4 << 20);
    mix.working_sets[0].pattern = Pattern::Stride;
    mix
}

fn ways(bits: u32) -> Option<WayMask> {
    WayMask::new(bits).ok()
}

/// What a thread did.
#[derive(Debug, Clone, Copy)]
struct Did {
    instructions: f64,
    /// Misses of the second level by one instruction.
    misses: f64,
}

struct Bench {
    machine: MachineModel,
    /// Each thread's mix, PU, and ways of the second level.
    threads: Vec<(Mix, u32, u32)>,
}

impl Bench {
    fn system(&self, fidelity: Fidelity) -> System {
        let mixes: Vec<Mix> = self.threads.iter().map(|(mix, ..)| mix.clone()).collect();
        let steps = (0..mixes.len()).map(|mix| vec![compute(mix, u64::MAX)]);
        let workload = Arc::new(workload(mixes, steps.collect()));
        let machine = Arc::new(self.machine.clone());
        let detail = Detail::new(fidelity, &machine, &workload);
        let mut system = System::at(&detail, machine, workload, SchedulerModel::default(), 1);
        system.run(1).unwrap();
        for (thread, (_, pu, bits)) in self.threads.iter().enumerate() {
            system.set_mask(thread, PuSet::single(*pu));
            system.set_ways(thread, 2, ways(*bits));
        }
        system
    }

    /// Threads on their PUs in 1 s, after as long a time in which caches fill.
    fn run(&self, fidelity: Fidelity) -> Vec<Did> {
        let mut system = self.system(fidelity);
        system.run(1_000_000_000).unwrap();
        measure(&mut system, 1_000_000_000)
    }

    /// The same at both levels, of which the instructions of each thread differ by less than this part. Returns what the
    /// cycle level says.
    fn agree(&self, part: f64) -> Vec<Did> {
        let (exact, ours) = (self.run(Fidelity::Cycle), self.run(Fidelity::Interval));
        for (exact, ours) in exact.iter().zip(&ours) {
            let apart = ours.instructions / exact.instructions - 1.0;
            assert!(apart.abs() < part, "{ours:?}, {exact:?} at the cycle level");
        }
        exact
    }
}

/// What threads do in a time.
fn measure(system: &mut System, time: u64) -> Vec<Did> {
    let counters = |system: &System| -> Vec<_> {
        let threads = system.threads().iter();
        threads.map(|thread| thread.counters).collect()
    };
    let before = counters(system);
    system.run(system.now() + time).unwrap();
    let did = counters(system).into_iter().zip(before);
    did.map(|(now, before)| {
        let done = now.since(&before);
        Did {
            instructions: done.instructions() as f64,
            misses: done.data_misses[1] as f64 / done.instructions() as f64,
        }
    })
    .collect()
}

/// A walker beside a streamer that may fill these ways of their cache.
fn beside(of_walker: u32, of_streamer: u32) -> Bench {
    Bench {
        machine: shared(2),
        threads: vec![(walker(44), 0, of_walker), (streamer(), 1, of_streamer)],
    }
}

#[test]
fn a_streamer_in_a_way_or_two_leaves_a_neighbour_its_hits() {
    let alone = Bench {
        machine: shared(1),
        threads: vec![(walker(44), 0, 0)],
    };
    alone.agree(0.05);
    for fidelity in [Fidelity::Cycle, Fidelity::Interval] {
        let (free, alone) = (beside(0, 0).run(fidelity)[0], alone.run(fidelity)[0]);
        // The test says something: the streamer does take lines away.
        assert!(free.misses > alone.misses + 0.01, "{free:?} {alone:?}");
        for of_streamer in [0x1, 0x3, 0xc000] {
            let confined = beside(0, of_streamer).run(fidelity)[0];
            let (lost, back) = (free.misses - alone.misses, free.misses - confined.misses);
            assert!(back > 0.95 * lost, "{free:?} {confined:?} {alone:?}");
            assert!(confined.instructions > 1.4 * free.instructions);
        }
        // To be confined is no good to the walker, although it may hit everywhere.
        let wrong = beside(0x3, 0).run(fidelity)[0];
        assert!(wrong.misses > 2.0 * free.misses, "{wrong:?} {free:?}");
    }
    for (of_walker, of_streamer) in [(0, 0x1), (0, 0x3), (0, 0xc000), (0x3, 0)] {
        beside(of_walker, of_streamer).agree(0.1);
    }
}

#[test]
fn threads_with_ways_of_their_own_do_not_know_of_each_other() {
    for (ours, theirs) in [(0x00ff, 0xff00), (0xfff0, 0x000f)] {
        let both = beside(ours, theirs).agree(0.05);
        // As if it had a cache of these ways to itself.
        let mut small = shared(1);
        small.caches[2].ways = ours.count_ones();
        small.caches[2].size = u64::from(ours.count_ones()) * (4 << 10);
        let alone = Bench {
            machine: small,
            threads: vec![(walker(44), 0, 0)],
        };
        let alone = alone.agree(0.05)[0];
        assert!(
            (both[0].misses / alone.misses - 1.0).abs() < 0.02 || alone.misses < 0.001,
            "{both:?} {alone:?}"
        );
    }
}

#[test]
fn levels_agree_where_masks_overlap() {
    // Without masks they differ by 7 % here: each thread that misses more is slower, and so loses more lines.
    let masks = [
        (0x00ff, 0x0ff0),
        (0x0fff, 0xfff0),
        (0xffff, 0x00ff),
        (0x00ff, 0xffff),
        (0x0fff, 0xff00),
    ];
    for (ours, theirs) in masks {
        let bench = Bench {
            machine: shared(2),
            threads: vec![(walker(44), 0, ours), (walker(60), 1, theirs)],
        };
        bench.agree(0.2);
    }
}

/// They run in turns, and each finds what the other has left.
#[test]
fn ways_go_with_the_thread_from_turn_to_turn() {
    let bench = |of_streamer| Bench {
        machine: shared(1),
        threads: vec![(walker(44), 0, 0), (streamer(), 0, of_streamer)],
    };
    for fidelity in [Fidelity::Cycle, Fidelity::Interval] {
        let (free, confined) = (bench(0).run(fidelity)[0], bench(0x3).run(fidelity)[0]);
        assert!(confined.misses < 0.1 * free.misses, "{free:?} {confined:?}");
    }
    bench(0x3).agree(0.1);
}

#[test]
fn lines_stay_where_they_are_until_others_need_the_place() {
    for fidelity in [Fidelity::Cycle, Fidelity::Interval] {
        let bench = Bench {
            machine: shared(1),
            threads: vec![(walker(44), 0, 0)],
        };
        let mut system = bench.system(fidelity);
        system.run(1_000_000_000).unwrap();
        let before = measure(&mut system, 200_000_000)[0];
        if fidelity == Fidelity::Cycle {
            // It has all its lines, and finds them in ways that it may not fill any more.
            system.set_ways(0, 2, ways(0x1));
            let after = measure(&mut system, 200_000_000)[0];
            assert!(after.misses < before.misses + 0.002, "{before:?} {after:?}");
        }
        // From the beginning it gets no more than a way, and all of them when it is released.
        let confined = Bench {
            threads: vec![(walker(44), 0, 0x1)],
            ..bench
        };
        let mut system = confined.system(fidelity);
        let after = measure(&mut system, 500_000_000)[0];
        assert!(after.misses > 0.05, "{after:?}");
        system.set_ways(0, 2, None);
        system.run(system.now() + 1_000_000_000).unwrap();
        let released = measure(&mut system, 200_000_000)[0];
        assert!(
            (released.instructions / before.instructions - 1.0).abs() < 0.02,
            "{before:?} {released:?}"
        );
    }
}

/// Every way is the same as no mask, and nothing else changes anything either.
#[test]
fn all_ways_are_as_good_as_no_mask() {
    for fidelity in [Fidelity::Cycle, Fidelity::Interval] {
        let (none, all) = (
            beside(0, 0).run(fidelity),
            beside(0xffff, 0xffff).run(fidelity),
        );
        for (none, all) in none.iter().zip(&all) {
            assert_eq!(
                (none.instructions, none.misses),
                (all.instructions, all.misses)
            );
        }
    }
}

#[test]
fn perch_changes_ways_only_from_what_it_expects_and_as_the_machine_has_them() {
    let bench = beside(0, 0x3);
    let mut machine = SimMachine::new(
        bench.system(Fidelity::Interval),
        Some(Duration::from_secs(9)),
    );
    machine.wait(Duration::from_secs(1)).unwrap();
    let threads = machine.observe().unwrap().threads;
    let [walker, streamer] = [0, 1].map(|at| threads[at].info.id);
    let allocation = machine.cache_allocation().unwrap();
    assert_eq!(allocation.ways(walker, 2), Ok(None));
    assert_eq!(allocation.ways(streamer, 2), Ok(ways(0x3)));
    let change = |thread, expect, set| WaysChange {
        thread,
        level: 2,
        expect,
        set,
    };
    // What another program has set stays.
    assert_eq!(
        allocation.change_ways(&change(streamer, None, ways(0x1))),
        Outcome::ChangedByOthers
    );
    assert_eq!(
        allocation.change_ways(&change(walker, None, ways(0xf0))),
        Outcome::Applied
    );
    assert_eq!(allocation.ways(walker, 2), Ok(ways(0xf0)));
    assert_eq!(allocation.ways(walker, 3), Ok(None));
    // Ways that are not there.
    let fits = |level, bits| {
        let of = CacheWays::new(level, WayMask::new(bits).unwrap()).unwrap();
        allocation.fits(walker, of)
    };
    assert_eq!(fits(2, 0xffff), Ok(()));
    let why = fits(2, 0x1_0000).unwrap_err();
    assert!(why.contains("17 ways") && why.contains("only 16"), "{why}");
    let why = fits(3, 1).unwrap_err();
    assert!(why.contains("no cache of level 3"), "{why}");
    assert_eq!(
        allocation.change_ways(&change(walker, ways(0xf0), ways(0x1_0000))),
        Outcome::NotPermitted
    );
    let gone = perch_core::ThreadId { tid: 99, start: 0 };
    assert_eq!(allocation.ways(gone, 2), Err(MaskError::Gone));
    assert_eq!(
        allocation.change_ways(&change(gone, None, None)),
        Outcome::Gone
    );
}
