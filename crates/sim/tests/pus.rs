//! What simulated PUs did is what threads did on them.

use crate::support::{MIXED, compute, machine, mix, system, workload};
use perch_core::{Count, EventChoice, EventPlan, EventSet, Machine, Wake};
use perch_sim::{machine::SimMachine, model::Multithreading};
use proptest::prelude::*;
use std::time::Duration;

fn plan() -> EventPlan {
    let event = |name: &str| EventChoice {
        alias: name.into(),
        spellings: vec![format!("sim::{name}")],
        pmu: None,
    };
    let set = |name: &str, events: &[&str]| {
        EventSet::new(name, events.iter().map(|name| event(name)).collect())
    };
    EventPlan {
        limits: None,
        // The instructions come twice, as where a set on demand needs them too.
        sets: vec![
            set("core", &["CYCLES", "INSTRUCTIONS", "LOADS"]),
            set("more", &["L2_MISSES", "INSTRUCTIONS"]),
        ],
    }
}

fn run(threads: usize, contexts: u32, seed: u64, watch: bool) -> Vec<perch_core::Observation> {
    let mixes = vec![mix("mixed", MIXED, 64 << 10)];
    let steps = (0..threads as u64).map(|n| vec![compute(0, 20_000 + 5_000 * n)]);
    let machine = machine(2, contexts, Multithreading::Simultaneous);
    let system = system(machine, workload(mixes, steps.collect()), seed);
    let mut machine = SimMachine::new(system, None);
    machine.watch_pus(watch).unwrap();
    machine.configure(&plan()).unwrap();
    let mut seen = Vec::new();
    loop {
        let wake = machine.wait(Duration::from_millis(7)).unwrap();
        seen.push(machine.observe().unwrap());
        if wake != Wake::Period {
            return seen;
        }
    }
}

/// What all samples of a period counted of an event.
fn sum<'a>(counts: impl Iterator<Item = &'a Vec<Count>>, event: &str) -> f64 {
    let counts = counts.flatten().filter(|count| &*count.alias == event);
    counts.map(|count| count.value).sum()
}

#[test]
fn nobody_looks_unless_asked() {
    let seen = run(3, 2, 1, false);
    assert!(seen.iter().all(|observation| observation.pus.is_empty()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn pus_did_in_every_period_what_threads_did(threads in 1usize..7, contexts in 1u32..3, seed: u64) {
        for observation in run(threads, contexts, seed, true) {
            let pus: Vec<u32> = observation.pus.iter().map(|pu| pu.pu).collect();
            prop_assert_eq!(pus, (0..2 * contexts).collect::<Vec<_>>());
            for event in ["CYCLES", "INSTRUCTIONS", "LOADS", "L2_MISSES"] {
                let of_pus = sum(observation.pus.iter().map(|pu| &pu.counts), event);
                let of_threads = sum(observation.threads.iter().map(|thread| &thread.counts), event);
                prop_assert_eq!(of_pus, of_threads, "{}", event);
            }
            let busy: u64 = observation.pus.iter().map(|pu| pu.busy).sum();
            let on_pu: u64 = observation.threads.iter().map(|thread| thread.cpu_time).sum();
            // Each is rounded to whole nanoseconds.
            prop_assert!(busy.abs_diff(on_pu) <= 16, "{} {}", busy, on_pu);
            for pu in &observation.pus {
                prop_assert!(pu.busy <= pu.interval && pu.interrupts == 0);
                prop_assert_eq!(pu.counts.len(), 4);
            }
        }
    }
}
