//! Cold caches: what a thread misses where it has not run before, at both levels.

use super::{at, both, endless, near};
use crate::support::{MIXED, mix};
use perch_core::PuSet;
use perch_sim::{config::find_machine, counters::Counters, detail::Fidelity};

/// Picoseconds on one core: about 2 million cycles.
const STAY: u64 = 588_000_000;

/// The part of a thread's instructions that is lost if it goes to another core after each [`STAY`], and its misses of the last
/// level by one instruction.
fn wanders(fidelity: Fidelity, bytes: u64) -> (f64, f64) {
    let machine = find_machine("smt2-zen").unwrap();
    let workload = endless(vec![mix("m", MIXED, bytes)], &[0]);
    let mut system = at(fidelity, &machine, &workload, 1);
    system.run(1).unwrap();
    system.set_mask(0, PuSet::single(0));
    system.run(10 * STAY).unwrap();
    let mut pu = 0;
    let mut run = |moves: bool| {
        let before = system.threads()[0].counters;
        for _ in 0..14 {
            if moves {
                pu = (pu + 2) % 16;
                system.set_mask(0, PuSet::single(pu));
            }
            system.run(system.now() + STAY).unwrap();
        }
        let after = system.threads()[0].counters;
        let done = (after.instructions() - before.instructions()) as f64;
        (done, (after.data_misses[2] - before.data_misses[2]) as f64)
    };
    let (stayed, (moved, missed)) = (run(false), run(true));
    (1.0 - moved / stayed.0, missed / moved)
}

/// All cores are alike, and the interval level solves a thread's speed once for all of them. It still finds only the caches
/// warm in which it has run.
#[test]
fn a_move_to_a_core_that_is_alike_costs_what_its_cold_caches_cost() {
    let (exact, missed) = wanders(Fidelity::Cycle, 400 << 10);
    let (ours, our_missed) = wanders(Fidelity::Interval, 400 << 10);
    assert!(exact > 0.02, "nothing to be seen: {exact}");
    assert!((ours - exact).abs() < 0.25 * exact, "{ours} {exact}");
    // All of them are in the last cache, which all cores share.
    let few = missed.max(our_missed);
    assert!(few < 1e-4, "{few} misses of the last level");
}

/// A set that fits into the first level comes from memory at first, past all caches.
#[test]
fn what_is_nowhere_comes_from_memory() {
    let mut machine = find_machine("smt2-zen").unwrap();
    for cache in &mut machine.caches {
        cache.prefetchers.clear();
    }
    for (bytes, length) in [(24 << 10, 29_400_000), (300 << 10, 176_400_000)] {
        let workload = endless(vec![mix("m", MIXED, bytes)], &[0]);
        let [exact, ours] = both(&machine, &workload, &[4], 1, length);
        let missed = |counters: &[Counters]| counters[0].data_misses[2] as f64;
        assert!(missed(&exact) > 50.0, "{exact:?}");
        near(
            missed(&ours),
            missed(&exact),
            0.15,
            "misses of the last level",
        );
        let done = |counters: &[Counters]| counters[0].instructions() as f64;
        near(done(&ours), done(&exact), 0.25, "instructions");
    }
}
