//! Instruction sampling of real threads.

mod support;

use perch_core::{Module, metric::names::FP_SHARE};
use perch_linux::sampling::{Options, SamplerModule};
use std::time::Duration;
use support::{Periods, Work, Worker, value};

const SECOND: Duration = Duration::from_secs(1);

/// Both ways of sampling, as far as they are permitted here.
fn modules() -> Vec<SamplerModule> {
    let per_thread = Options {
        per_thread: true,
        ..Options::default()
    };
    [Options::default(), per_thread]
        .into_iter()
        .filter_map(|options| SamplerModule::open(options).ok())
        .collect()
}

#[test]
fn floating_point_and_integer_threads_are_told_apart_within_a_second() {
    for module in modules() {
        println!("{}", module.description());
        let mut periods = Periods::new(module);
        let (integer, float) = (Worker::start(Work::Integer), Worker::start(Work::Float));
        let pid = std::process::id() as i32;
        periods.follow(integer.id, pid);
        periods.follow(float.id, pid);
        let metrics = periods.period(SECOND);
        println!("{metrics:?}");
        assert!(value(&metrics, integer.id, FP_SHARE).expect("sampled") < 0.02);
        assert!(value(&metrics, float.id, FP_SHARE).expect("sampled") > 0.2);
        // Roles change: two periods are enough.
        integer.turn_to(Work::Float);
        float.turn_to(Work::Integer);
        periods.period(SECOND);
        let metrics = periods.period(SECOND);
        assert!(value(&metrics, integer.id, FP_SHARE).expect("sampled") > 0.2);
        assert!(value(&metrics, float.id, FP_SHARE).expect("sampled") < 0.02);
        assert!(periods.module.remarks().is_empty());
    }
}
