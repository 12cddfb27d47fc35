//! What a period costs; printed on demand (`cargo test --release -p perch-linux --test cost -- --ignored --nocapture`).

mod common;

use common::{actor, alone, machine, role};
use perch_core::{Machine, Targets};
use std::time::{Duration, Instant};

/// Not a test by itself: 2,000 threads, 100 of which work now and then.
#[test]
fn actor_role() {
    if role().as_deref() != Some("many") {
        return;
    }
    for number in 0..2000 {
        let work = move || {
            let end = Instant::now() + Duration::from_secs(6);
            while Instant::now() < end {
                if number % 20 == 0 {
                    std::hint::black_box((0..100_000).sum::<u64>());
                    std::thread::sleep(Duration::from_millis(20));
                } else {
                    std::thread::sleep(Duration::from_secs(7));
                }
            }
        };
        std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(work)
            .unwrap();
    }
    std::thread::sleep(Duration::from_secs(6));
    std::process::exit(0);
}

#[test]
#[ignore = "prints times, decides nothing"]
fn cost_of_2000_threads() {
    let _alone = alone();
    let mut machine = machine();
    machine.launch(&actor("many")).unwrap();
    for _ in 0..5 {
        machine.wait(Duration::from_secs(1)).unwrap();
        let start = Instant::now();
        let observation = machine.observe().unwrap();
        let took = start.elapsed();
        let ran = observation
            .threads
            .iter()
            .filter(|t| t.cpu_time > 0)
            .count();
        println!(
            "{} threads, {ran} ran: observed in {took:?}, {:?} on a PU since the last time",
            observation.threads.len(),
            Duration::from_nanos(observation.own_cpu_time)
        );
    }
}
