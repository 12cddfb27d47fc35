//! The interval level against the cycle level, on a sample of what `perch lab fidelity` compares.

use perch_lab::fidelity::{Comparison, compare};
use perch_sim::config;
use std::sync::Arc;

#[test]
fn the_interval_level_is_near_the_cycle_level() {
    let machine = Arc::new(config::find_machine("cmt-4x4").unwrap());
    for threads in [2, 4, 8] {
        let comparison = Comparison::new(Arc::clone(&machine), threads, 4, 4, 7);
        let found = compare(&comparison, |_| {}).unwrap();
        println!("{found:?}");
        assert!(found.holds(), "{found:?}");
    }
}
