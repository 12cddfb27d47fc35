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

#[test]
fn threads_that_share_pus_do_so_at_real_clocks() {
    let machine = Arc::new(config::find_machine("core2-quad").unwrap());
    let scale = |threads| {
        Comparison::new(Arc::clone(&machine), threads, 1, 1, 7)
            .machine
            .scale
    };
    assert!(machine.scale > 1.0);
    assert_eq!(scale(4), machine.scale);
    assert_eq!(scale(5), 1.0);
}
