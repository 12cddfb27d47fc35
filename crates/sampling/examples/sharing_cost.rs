//! What it takes to find out who shares memory: `cargo run -p perch-sampling --example sharing_cost`.

use perch_sampling::{Access, Accesses, Toucher, common};
use std::time::Instant;

fn main() {
    for (threads, each, lines) in [
        (2u64, 1024u64, 1024u64),
        (64, 1024, 1024),
        (64, 1024, 1 << 18),
        (1000, 100, 1024),
        (10_000, 10, 1024),
    ] {
        let mut state = 1u64;
        let mut draw = |end: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % end
        };
        let accesses: Vec<Accesses> = (0..threads)
            .map(|thread| {
                let mut accesses = Accesses::default();
                for at in 0..each {
                    // Half of them in a region that two share, a few in one that all do.
                    let region = match at % 8 {
                        0 => 0,
                        1..=4 => 1 + thread / 2,
                        _ => 1 << 20 | thread,
                    };
                    let line = region << 24 | draw(lines);
                    let write = at % 2 == 0;
                    accesses.add(Access {
                        address: 64 * line,
                        write,
                    });
                }
                accesses
            })
            .collect();
        let touchers: Vec<Toucher<'_>> = accesses
            .iter()
            .map(|accesses| Toucher {
                accesses,
                busy: 0.5,
            })
            .collect();
        // The least of several: others use the machine too.
        let (mut found, mut took) = (0, f64::INFINITY);
        for _ in 0..20 {
            let begun = Instant::now();
            found = common(&touchers).len();
            took = took.min(begun.elapsed().as_secs_f64() * 1e3);
        }
        println!(
            "{threads} threads, {each} accesses each, {lines} lines: {found} pairs in {took:.1} ms"
        );
    }
}
