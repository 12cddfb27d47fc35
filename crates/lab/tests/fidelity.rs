//! The interval level against the cycle level, on a sample of what `perch lab fidelity` compares.

use perch_lab::fidelity::{Comparison, compare};
use perch_sim::config;
use std::sync::Arc;

fn difference(machine: &str, threads: u32) -> perch_lab::fidelity::Difference {
    let comparison = Comparison {
        machine: Arc::new(config::find_machine(machine).unwrap()),
        threads,
        workloads: 3,
        placements: 3,
        warm: 600_000_000,
        measured: 300_000_000,
        seed: 7,
    };
    compare(&comparison, |_| {}).unwrap()
}

#[test]
fn the_interval_level_is_near_the_cycle_level() {
    for threads in [2, 4, 8] {
        let found = difference("cmt-4x4", threads);
        println!("{found:?}");
    }
}
