//! What `SoloCpi` infers, held against a core that is simulated cycle by cycle and shares nothing with its model.

use perch_policy::cpi::{Running, SoloCpi};
use proptest::{
    prelude::RngExt,
    test_runner::{RngAlgorithm, TestRng},
};

/// How long an instruction keeps its thread from the next one: random, at least 1 cycle, of a given mean.
#[derive(Debug, Clone, Copy)]
enum Latency {
    Geometric,
    Uniform,
    /// One cycle or a long one, as an ALU instruction or a miss.
    TwoKinds(f64),
}

impl Latency {
    fn draw(self, mean: f64, rng: &mut TestRng) -> u64 {
        let chance: f64 = rng.random_range(0.0..1.0);
        match self {
            _ if mean <= 1.0 => 1,
            Self::Geometric => 1 + ((1.0 - chance).ln() / (1.0 - 1.0 / mean).ln()) as u64,
            // Rounded up or down at random, so that the mean is kept.
            Self::Uniform => {
                (1.0 + chance * (2.0 * mean - 2.0) + rng.random_range(0.0..1.0)) as u64
            }
            Self::TwoKinds(long) if chance < (mean - 1.0) / (long - 1.0) => long as u64,
            Self::TwoKinds(_) => 1,
        }
    }
}

/// A core that issues one instruction a cycle, in turn over the threads that are ready. Returns instructions a cycle.
fn simulate(means: &[f64], latency: Latency, cycles: u64, rng: &mut TestRng) -> Vec<f64> {
    let mut ready_at = vec![0u64; means.len()];
    let mut issued = vec![0u64; means.len()];
    let mut last = 0;
    for now in 0..cycles {
        let turns = (1..=means.len()).map(|turn| (last + turn) % means.len());
        if let Some(thread) = turns.into_iter().find(|thread| ready_at[*thread] <= now) {
            ready_at[thread] = now + latency.draw(means[thread], rng);
            issued[thread] += 1;
            last = thread;
        }
    }
    issued.iter().map(|n| *n as f64 / cycles as f64).collect()
}

/// Mean relative errors of the CPI alone: of the measured CPI as it is, and of the inferred one.
fn errors(latency: Latency, threads: usize, sets: usize, rng: &mut TestRng) -> (f64, f64) {
    let (mut naive, mut inferred) = (0.0, 0.0);
    for _ in 0..sets {
        let means: Vec<f64> = (0..threads).map(|_| rng.random_range(1.0..20.0)).collect();
        let ipc = simulate(&means, latency, 20_000, rng);
        let running: Vec<Running> = (ipc.iter())
            .map(|ipc| Running {
                ipc: *ipc,
                presence: 1.0,
            })
            .collect();
        let core = SoloCpi {
            width: 1.0,
            contexts: threads,
        };
        for ((mean, ipc), solo) in means.iter().zip(&ipc).zip(core.infer(&running)) {
            naive += (1.0 / ipc / mean - 1.0).abs();
            inferred += (1.0 / solo.demand / mean - 1.0).abs();
        }
    }
    let count = (sets * threads) as f64;
    (naive / count, inferred / count)
}

#[test]
fn the_inferred_cpi_has_at_most_half_the_error_of_the_measured_one() {
    let mut rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    for latency in [
        Latency::Geometric,
        Latency::Uniform,
        Latency::TwoKinds(24.0),
    ] {
        let (mut naive, mut inferred) = (0.0, 0.0);
        for threads in 2..=8 {
            let (a, b) = errors(latency, threads, 40, &mut rng);
            println!("{latency:?}, {threads} threads: measured {a:.3}, inferred {b:.3}");
            // However few they are, it is no worse than what was measured.
            assert!(b <= a, "{latency:?}, {threads} threads: {b} > {a}");
            naive += a / 7.0;
            inferred += b / 7.0;
        }
        println!("{latency:?}: measured {naive:.3}, inferred {inferred:.3}");
        assert!(
            inferred <= 0.5 * naive,
            "{latency:?}: {inferred} of {naive}"
        );
    }
}

#[test]
fn the_simulated_core_gives_a_lone_thread_its_mean() {
    let mut rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    for latency in [
        Latency::Geometric,
        Latency::Uniform,
        Latency::TwoKinds(24.0),
    ] {
        for mean in [1.0, 1.5, 6.0, 16.0] {
            let ipc = simulate(&[mean], latency, 200_000, &mut rng)[0];
            assert!((ipc * mean - 1.0).abs() < 0.03, "{latency:?} {mean}: {ipc}");
        }
    }
}

#[test]
fn a_saturated_core_of_equals_is_told_by_low_confidence() {
    // Four threads that ask for everything get a quarter each, and so do four that ask for half of it.
    let mut rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    for mean in [1.0, 2.0] {
        let ipc = simulate(&[mean; 4], Latency::Geometric, 20_000, &mut rng);
        let running = ipc.iter().map(|ipc| Running {
            ipc: *ipc,
            presence: 1.0,
        });
        let core = SoloCpi {
            width: 1.0,
            contexts: 4,
        };
        for solo in core.infer(&running.collect::<Vec<_>>()) {
            assert!(solo.confidence < 0.6, "{solo:?}");
            // Bounded from above by the truth or more, give or take the noise.
            assert!(solo.demand > 0.8 / mean, "{solo:?}");
        }
    }
}
