//! Placements that differ are all found, each once.

use perch_lab::placement::{
    Placement, Slot, every, random, respect_pins, shuffled, slots as slots_of,
};
use perch_sim::{
    config::{find_machine, find_workload},
    model::MachineModel,
    stream::Random,
    workload::WorkloadModel,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A chip of `cores` cores of `contexts` contexts: all cores alike.
fn flat(cores: usize, contexts: u32) -> MachineModel {
    let mut machine = find_machine("cmt-4x4").unwrap();
    machine.kinds[0].contexts = contexts;
    machine.cores = vec![machine.cores[0]; cores];
    let own: Vec<Vec<u32>> = (0..cores as u32)
        .map(|core| (core * contexts..(core + 1) * contexts).collect())
        .collect();
    for cache in &mut machine.caches {
        cache.shared_by = match cache.level {
            1 => own.clone(),
            _ => vec![own.concat()],
        };
    }
    machine
}

/// The same, in which each two cores share a second level.
fn pairs(cores: usize, contexts: u32) -> MachineModel {
    let mut machine = flat(cores, contexts);
    let pair = |pair: usize| {
        (0..2 * contexts)
            .map(|pu| pair as u32 * 2 * contexts + pu)
            .collect()
    };
    for cache in machine.caches.iter_mut().filter(|cache| cache.level == 2) {
        cache.shared_by = (0..cores / 2).map(pair).collect();
    }
    machine
}

fn slots(classes: &[usize]) -> Vec<Slot> {
    let slot = |class: &usize| Slot {
        kind: class.to_string(),
        class: *class,
        program: 0,
        thread: *class,
        pus: Vec::new(),
    };
    classes.iter().map(slot).collect()
}

/// All ways to put threads on PUs of their own, one by one.
fn all(pus: usize, threads: usize) -> Vec<Placement> {
    let mut found = vec![Vec::new()];
    for _ in 0..threads {
        let longer = found.into_iter().flat_map(|placed: Placement| {
            let free: Vec<u32> = (0..pus as u32).filter(|pu| !placed.contains(pu)).collect();
            free.into_iter()
                .map(move |pu| [placed.clone(), vec![pu]].concat())
        });
        found = longer.collect();
    }
    found
}

/// What placements have in common that do not differ: classes sorted on each core, cores in each pair, pairs.
fn canonical(
    placement: &Placement,
    classes: &[usize],
    contexts: usize,
    cores: usize,
    paired: bool,
) -> Vec<Vec<Vec<usize>>> {
    let mut by_core = vec![Vec::new(); cores];
    for (thread, pu) in placement.iter().enumerate() {
        by_core[*pu as usize / contexts].push(classes[thread]);
    }
    by_core
        .iter_mut()
        .for_each(|core: &mut Vec<usize>| core.sort_unstable());
    let group = if paired { 2 } else { cores };
    let mut groups: Vec<Vec<Vec<usize>>> = by_core.chunks(group).map(<[_]>::to_vec).collect();
    groups.iter_mut().for_each(|group| group.sort());
    groups.sort();
    groups
}

fn compare(machine: &MachineModel, contexts: usize, paired: bool, classes: &[usize]) {
    let cores = machine.cores.len();
    let canonical = |placement: &Placement| canonical(placement, classes, contexts, cores, paired);
    let wanted: BTreeSet<_> = all(cores * contexts, classes.len())
        .iter()
        .map(canonical)
        .collect();
    let found = every(machine, &slots(classes), 100_000).unwrap();
    let distinct: BTreeSet<_> = found.iter().map(canonical).collect();
    assert_eq!(distinct.len(), found.len(), "one was found twice");
    assert_eq!(distinct, wanted);
    for placement in &found {
        let pus: BTreeSet<u32> = placement.iter().copied().collect();
        assert_eq!(pus.len(), placement.len(), "two threads on one PU");
    }
    // One fewer than there are is too few.
    assert!(every(machine, &slots(classes), found.len() - 1).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn those_that_differ_are_found_once_where_all_cores_are_alike(
        (cores, contexts) in prop_oneof![Just((2, 2)), Just((3, 2)), Just((2, 3)), Just((4, 1))],
        classes in proptest::collection::vec(0usize..3, 1..6),
    ) {
        let classes = &classes[..classes.len().min(cores * contexts)];
        compare(&flat(cores, contexts as u32), contexts, false, classes);
    }

    #[test]
    fn those_that_differ_are_found_once_where_pairs_of_cores_share_a_cache(
        contexts in 1usize..=2,
        classes in proptest::collection::vec(0usize..3, 1..5),
    ) {
        let classes = &classes[..classes.len().min(4 * contexts)];
        compare(&pairs(4, contexts as u32), contexts, true, classes);
    }

    #[test]
    fn chance_gives_each_pu_as_many_threads_give_or_take_one(pus in 1usize..12, threads in 1usize..40, seed: u64) {
        let placed = random(pus, threads, &mut Random::new(seed));
        prop_assert_eq!(placed.len(), threads);
        let count = |pu: usize| placed.iter().filter(|other| **other == pu as u32).count();
        let counts: Vec<usize> = (0..pus).map(count).collect();
        prop_assert_eq!(counts.iter().sum::<usize>(), threads);
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
    }
}

#[test]
fn more_threads_than_contexts_cannot_all_be_tried() {
    assert!(every(&flat(2, 1), &slots(&[0, 0, 0]), 1000).is_none());
}

#[test]
fn cores_of_two_kinds_are_told_apart() {
    let mut machine = flat(2, 1);
    assert_eq!(every(&machine, &slots(&[0, 1]), 10).unwrap().len(), 1);
    let mut other = machine.kinds[0].clone();
    other.name = "other".to_owned();
    machine.kinds.push(other);
    machine.cores[1].kind = 1;
    assert_eq!(every(&machine, &slots(&[0, 1]), 10).unwrap().len(), 2);
}

#[test]
fn numa_nodes_are_told_apart() {
    let mut machine = flat(2, 1);
    machine.cores[1].numa_node = 1;
    assert_eq!(every(&machine, &slots(&[0, 1]), 10).unwrap().len(), 2);
}

/// Which programs' threads start one after the other.
fn in_order(workload: &WorkloadModel) -> Vec<String> {
    let slots = slots_of(workload);
    let name = |slot: &Slot| workload.programs[slot.program].name.clone();
    slots.iter().map(name).collect()
}

#[test]
fn copies_of_a_program_start_in_any_order_among_the_others() {
    // Two of each.
    let workload = find_workload("masa-int-fp").unwrap();
    let mut seen: BTreeMap<Vec<String>, u32> = BTreeMap::new();
    for seed in 0..600 {
        let order = in_order(&shuffled(&workload, &mut Random::new(seed)));
        let mut sorted = order.clone();
        sorted.sort();
        assert_eq!(sorted, ["fp", "fp", "int", "int"]);
        *seen.entry(order).or_default() += 1;
    }
    // All six ways, each about as often as any other.
    assert_eq!(seen.len(), 6, "{seen:?}");
    assert!(
        seen.values().all(|times| (60..150).contains(times)),
        "{seen:?}"
    );
}

#[test]
fn copies_that_serve_requests_are_told_together() {
    let mut workload = find_workload("web-server").unwrap();
    let served = |workload: &WorkloadModel| {
        let programs = workload.programs.iter();
        programs
            .filter(|program| program.requests.is_some())
            .count()
    };
    let before = served(&workload);
    assert!(before > 0);
    workload
        .programs
        .iter_mut()
        .for_each(|program| program.count = 3);
    let after = shuffled(&workload, &mut Random::new(1));
    assert_eq!(served(&after), before);
    assert_eq!(slots_of(&after).len(), slots_of(&workload).len());
}

/// Pinned threads stay where they are pinned, and the others where they were drawn.
#[test]
fn drawn_placements_respect_pins() {
    let machine = find_machine("cmt-4x4").unwrap();
    let mut slots = slots(&[0, 0, 1, 1]);
    assert!(every(&machine, &slots, 1_000).is_some());
    slots[1].pus = vec![3, 7];
    slots[2].pus = vec![0];
    assert!(every(&machine, &slots, 1_000).is_none());
    let mut chance = Random::new(1);
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        let before = random(machine.pus(), slots.len(), &mut chance);
        let mut placed = before.clone();
        respect_pins(&mut placed, &slots, &mut chance);
        assert_eq!((placed[0], placed[3]), (before[0], before[3]));
        assert_eq!(placed[2], 0);
        seen.insert(placed[1]);
    }
    assert_eq!(seen, BTreeSet::from([3, 7]));
}
