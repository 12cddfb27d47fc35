//! Kernels run with any sizes of caches, and crews run on the PUs that they are given.

use perch_kernels::{Bench, Crew, CrewError, KERNELS, Seat, Sizes, Window, bind, find};
use proptest::prelude::*;
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

const SIZES: Sizes = Sizes {
    l1: 32 << 10,
    l2: 256 << 10,
    llc: 1 << 20,
    share: 512 << 10,
    beyond: true,
    most: 4 << 20,
};

const SHORT: Window = Window {
    warm: Duration::from_millis(1),
    measured: Duration::from_millis(5),
};

fn allowed() -> Vec<u32> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    let pus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|pu| set.is_set(*pu));
    pus.map(|pu| pu as u32).collect()
}

#[test]
fn names_are_told_apart() {
    let names: BTreeSet<&str> = KERNELS.iter().map(|kernel| kernel.name).collect();
    assert_eq!(names.len(), KERNELS.len());
    // A thread's name has room for so much.
    assert!(names.iter().all(|name| name.len() <= 15));
    assert!(find("fp").is_some_and(|kernel| kernel.pure));
    assert!(find("fpp").is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Walks stay within their memory, whatever sizes the caches have; memory from another kernel does as well.
    #[test]
    fn rounds_stay_within_their_memory(l1 in 1usize..100_000, l2 in 1usize..300_000, llc in 1usize..900_000, cores in 1usize..9) {
        let sizes = Sizes { l1, l2, llc, share: llc / cores, beyond: true, most: 1 << 20 };
        let mut room = None;
        for kernel in &KERNELS {
            let mut bench = Bench::new(kernel, &sizes, room.take()).unwrap();
            (0..40).for_each(|_| bench.round(kernel));
            room = Some(bench.into_room());
        }
    }
}

#[test]
fn a_crew_counts_what_each_did() {
    let pus = allowed();
    let mut crew = Crew::new(SIZES);
    for kernel in &KERNELS {
        let seats: Vec<Seat> = pus
            .iter()
            .take(2)
            .map(|pu| Seat { pu: *pu, kernel })
            .collect();
        let rates = crew.run(&seats, SHORT).unwrap();
        assert_eq!(rates.len(), seats.len());
        assert!(
            rates
                .iter()
                .all(|rate| rate.wall > 0.0 && rate.speed >= rate.wall && rate.share <= 1.0),
            "{}: {rates:?}",
            kernel.name
        );
    }
}

/// Others that use the same PUs interrupt it, for milliseconds at a time; the cost of a line stays what it is. Counted by
/// wall time it would be nine times as much with two others on each PU.
///
/// A hypervisor moves PUs between cores of its machine, for seconds at a time: on one of them a line costs 32 ns as long as
/// both PUs share a core, and 160 ns otherwise. So each measurement is compared with those right before and after it.
#[test]
fn a_line_is_handed_over_as_fast_where_others_have_a_part_of_the_pus() {
    let pus = allowed();
    let [a, b, ..] = pus[..] else { return };
    let time = Duration::from_millis(100);
    let mut crew = Crew::new(SIZES);
    let mut alone = crew.hand_over(a, b, time).unwrap();
    for _ in 0..10 {
        let over = AtomicBool::new(false);
        let beside_others = std::thread::scope(|scope| {
            for pu in [a, a, b, b] {
                let over = &over;
                scope.spawn(move || {
                    bind(pu).unwrap();
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let found = crew.hand_over(a, b, time);
            over.store(true, Ordering::Relaxed);
            found.unwrap()
        });
        let before = std::mem::replace(&mut alone, crew.hand_over(a, b, time).unwrap());
        // Where the two hardly met, nothing is told.
        if let (Some(before), Some(beside_others), Some(after)) = (before, beside_others, alone) {
            let most = before.max(after);
            assert!(
                most > 0.0 && beside_others < 4.0 * most,
                "{before} {beside_others} {after}"
            );
        }
    }
}

#[test]
fn a_pu_that_is_not_there_is_named() {
    let mut crew = Crew::new(SIZES);
    let nowhere = 1000;
    let seat = Seat {
        pu: nowhere,
        kernel: find("fp").unwrap(),
    };
    let error = crew.run(&[seat], SHORT).unwrap_err();
    assert!(
        matches!(error, CrewError::Bind(pu, _) if pu == nowhere),
        "{error}"
    );
    assert!(error.to_string().contains("PU 1000"));
}
