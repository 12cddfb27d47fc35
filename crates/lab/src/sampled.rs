//! What a policy sees where no counters are: shares of instructions and a footprint from some samples, with the error
//! that so few have, and no speed.

use crate::processor::SimProcessor;
use perch_core::{
    Count, EventPlan, Metric, MetricName, MetricSource, Metrics, Thresholds, Topology, UnitDomains,
    metric::names,
};
use perch_engine::Processor;
use perch_sim::stream::Random;

/// Samples of a second on a PU, as perch takes them live.
const RATE: f64 = 250.0;

/// The footprint's error: a factor of up to this, either way.
const FOOTPRINT: f64 = 2.0;

/// The shares that sampling gives.
const SHARES: [&str; 5] = [
    names::FP_SHARE,
    names::LOAD_SHARE,
    names::STORE_SHARE,
    names::BRANCH_SHARE,
    names::DIVIDE_SHARE,
];

/// A simulated machine's processor seen by sampling. The same counts always give the same errors.
#[derive(Debug, Clone)]
pub struct Sampled(pub SimProcessor);

impl Processor for Sampled {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn text(&self) -> &str {
        self.0.text()
    }

    fn event_plan(&self) -> EventPlan {
        self.0.event_plan()
    }

    fn metrics(&self, counts: &[Count], cpu_time: u64) -> (Metrics, Vec<String>) {
        let (exact, remarks) = self.0.metrics(counts, cpu_time);
        let seed = counts.iter().fold(cpu_time, |seed, count| {
            seed.rotate_left(7) ^ count.value.to_bits()
        });
        let mut random = Random::new(seed);
        let samples = (RATE * cpu_time as f64 * 1e-9).floor();
        if samples < 1.0 {
            return (Metrics::default(), remarks);
        }
        let metric = |value: f64| Metric {
            value,
            confidence: samples / (samples + 10.0),
            source: MetricSource::Sampling,
        };
        let mut seen: Vec<(MetricName, Metric)> = Vec::new();
        for name in SHARES {
            let Some(share) = exact.value(name) else {
                continue;
            };
            let hits = (0..samples as u64)
                .filter(|_| random.unit() < share)
                .count();
            seen.push((name.into(), metric(hits as f64 / samples)));
        }
        if let Some(bytes) = exact.value(names::FOOTPRINT) {
            let factor = FOOTPRINT.powf(2.0 * random.unit() - 1.0);
            seen.push((names::FOOTPRINT.into(), metric(bytes * factor)));
        }
        (seen.into_iter().collect(), remarks)
    }

    fn unit_domains(&self, topology: &Topology) -> UnitDomains {
        self.0.unit_domains(topology)
    }

    fn thresholds(&self, source: MetricSource) -> Thresholds {
        self.0.thresholds(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::CountQuality;
    use perch_sim::config;

    #[test]
    fn samples_are_near_the_truth_always_the_same_and_tell_no_speed() {
        let exact = SimProcessor::new(&config::find_machine("cmt-4x4").unwrap());
        let sampled = Sampled(exact);
        let count = |alias: &str, value: f64| Count {
            alias: alias.into(),
            value,
            quality: CountQuality::Exact,
        };
        let counts = [
            count("cycles", 6e6),
            count("instructions", 3e6),
            count("fp_instructions", 9e5),
        ];
        let (one, _) = sampled.metrics(&counts, 40_000_000_000);
        let (again, _) = sampled.metrics(&counts, 40_000_000_000);
        assert_eq!(one, again);
        assert_eq!(one.value(names::IPC), None);
        // 10,000 samples: five standard deviations.
        let share = one.value(names::FP_SHARE).unwrap();
        assert!((share - 0.3).abs() < 0.023, "{share}");
        let (none, _) = sampled.metrics(&counts, 1_000_000);
        assert!(none.is_empty());
    }
}
