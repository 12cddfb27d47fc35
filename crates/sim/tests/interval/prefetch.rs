//! Prefetchers do at both levels what they do to speeds, to misses and to other data.

use super::{both, endless, near};
use crate::support::mix;
use perch_sim::{
    config::find_machine,
    model::{self, MachineModel, Op, Prefetcher},
    workload::{Pattern, WorkingSet},
};

#[test]
fn prefetchers_save_as_much_as_at_the_cycle_level() {
    // With so small a window that a single stream leaves most of the memory's bandwidth unused.
    let mut plain = find_machine("smt2-zen").unwrap();
    (plain.kinds[0].window, plain.kinds[0].window_shared) = (16, false);
    plain
        .caches
        .iter_mut()
        .for_each(|cache| cache.prefetchers.clear());
    let mut machine = plain.clone();
    let second = machine.caches.iter_mut().find(|cache| cache.level == 2);
    second.unwrap().prefetchers = vec![Prefetcher {
        pattern: model::Pattern::Stream,
        streams: 16,
        after: 2,
        ahead: 8,
        longest: 8,
        page: 4096,
        under_way: u32::MAX,
        backlog: u32::MAX,
    }];
    // In order through much memory, by words and by lines; at random; both.
    let ops = &[(Op::Alu, 0.6), (Op::Load, 0.3), (Op::Branch, 0.1)];
    let mut mixes = vec![mix("m", ops, 64 << 20); 4];
    for (mix, stride) in mixes.iter_mut().zip([8, 64]) {
        let set = &mut mix.working_sets[0];
        (set.pattern, set.stride) = (Pattern::Stride, stride);
    }
    let both_sets = [0, 2].map(|of| mixes[of].working_sets[0].clone());
    mixes[3].working_sets = both_sets.to_vec();
    for threads in [&[0][..], &[1], &[2], &[3], &[0, 2], &[1; 4], &[1; 8]] {
        let workload = endless(mixes.clone(), threads);
        let places: Vec<u32> = (0..threads.len() as u32).map(|core| 2 * core).collect();
        let speeds = |machine| {
            let both = both(machine, &workload, &places, 400_000_000, 200_000_000);
            let [exact, ours] = both
                .each_ref()
                .map(|counters| counters[0].prefetches as f64);
            if *threads == [2] {
                // At random: a few for what looks like a stream and is none.
                for counters in &both {
                    assert!(100 * counters[0].prefetches < counters[0].data_misses[1]);
                }
            } else {
                near(ours, exact, 0.15, &format!("prefetches of {threads:?}"));
            }
            both.map(|counters| counters[0].instructions() as f64)
        };
        let [exact, ours] = speeds(&machine);
        let [without, _] = speeds(&plain);
        near(ours, exact, 0.15, &format!("{threads:?}"));
        // Of the fourth mix, half of the lines come in order.
        assert_eq!(exact > 3.0 * without, ![2, 3].contains(&threads[0]));
    }
}

fn prefetcher(pattern: model::Pattern) -> Prefetcher {
    Prefetcher {
        pattern,
        streams: 0,
        after: 1,
        ahead: 1,
        longest: 64,
        page: 4096,
        under_way: u32::MAX,
        backlog: u32::MAX,
    }
}

/// The machine with these prefetchers in its second level, and none elsewhere.
fn with(machine: &MachineModel, prefetchers: Vec<Prefetcher>) -> MachineModel {
    let mut machine = machine.clone();
    for cache in &mut machine.caches {
        cache.prefetchers = match cache.level {
            2 => prefetchers.clone(),
            _ => Vec::new(),
        };
    }
    machine
}

#[test]
fn lines_that_pairs_bring_in_vain_evict_others_at_both_levels() {
    let machine = find_machine("intel-xeon-noht").unwrap();
    let ops = &[
        (Op::Alu, 0.5),
        (Op::Load, 0.3),
        (Op::Store, 0.1),
        (Op::Branch, 0.1),
    ];
    // Half of the second level is needed again soon; eight megabytes are not.
    let mut both_sets = mix("m", ops, 256 << 10);
    let far = WorkingSet {
        bytes: 8 << 20,
        ..both_sets.working_sets[0].clone()
    };
    both_sets.working_sets[0].share = 2.0;
    both_sets.working_sets.push(far);
    let workload = endless(vec![both_sets], &[0]);
    let misses = |machine: &MachineModel| {
        let counters = both(machine, &workload, &[0], 6_000_000_000, 4_000_000_000);
        counters.map(|of| of[0].data_misses[1] as f64 / of[0].instructions() as f64)
    };
    let [exact, ours] = misses(&with(&machine, Vec::new()));
    let pairs = vec![prefetcher(model::Pattern::AdjacentLine)];
    let [exact_paired, ours_paired] = misses(&with(&machine, pairs));
    near(ours, exact, 0.05, "without prefetchers");
    near(ours_paired, exact_paired, 0.05, "with pairs of lines");
    assert!(exact_paired > 1.1 * exact, "{exact_paired} {exact}");
}

#[test]
fn prefetchers_save_what_streams_miss_while_caches_fill() {
    let machine = find_machine("smt2-zen").unwrap();
    let stream = Prefetcher {
        streams: 16,
        after: 2,
        ahead: 8,
        ..prefetcher(model::Pattern::Stream)
    };
    let ops = &[(Op::Alu, 0.6), (Op::Load, 0.3), (Op::Branch, 0.1)];
    let mut walk = mix("m", ops, 4 << 20);
    (walk.working_sets[0].pattern, walk.working_sets[0].stride) = (Pattern::Stride, 64);
    let workload = endless(vec![walk], &[0]);
    let done = |machine: &MachineModel| {
        let counters = both(machine, &workload, &[0], 1, 20_000_000);
        counters.map(|of| of[0].instructions() as f64)
    };
    let [without, _] = done(&with(&machine, Vec::new()));
    let [exact, ours] = done(&with(&machine, vec![stream]));
    near(ours, exact, 0.15, "the first 20 us");
    assert!(exact > 2.0 * without, "{exact} {without}");
}

#[test]
fn random_accesses_look_like_streams_now_and_then() {
    let machine = find_machine("smt2-zen").unwrap();
    let stream = |streams| Prefetcher {
        streams,
        after: 2,
        ahead: 8,
        longest: 8,
        ..prefetcher(model::Pattern::Stream)
    };
    // Twice what the second level holds, in 256 pages.
    let ops = &[(Op::Alu, 0.6), (Op::Load, 0.3), (Op::Branch, 0.1)];
    let workload = endless(vec![mix("m", ops, 1 << 20)], &[0]);
    for streams in [16, 64, 256] {
        let machine = with(&machine, vec![stream(streams)]);
        let counted = both(&machine, &workload, &[0], 2_000_000_000, 1_000_000_000);
        let [exact, ours] = counted.map(|of| {
            let done = of[0].instructions() as f64;
            (
                of[0].prefetches as f64 / done,
                of[0].data_misses[1] as f64 / done,
            )
        });
        near(
            ours.0,
            exact.0,
            0.2,
            &format!("prefetches, {streams} streams"),
        );
        near(ours.1, exact.1, 0.1, &format!("misses, {streams} streams"));
    }
}
