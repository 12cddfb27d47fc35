//! Energy and power of the machine's parts over a run.

use perch_core::{MetricKind, MetricName, Observation, Subject};
use std::collections::BTreeMap;

/// Shorter intervals than this (nanoseconds) tell no power: a counter advances about every millisecond.
const SHORTEST: u64 = 20_000_000;

/// What one counter of energy, or one sensor of power, has told about one part of the machine.
#[derive(Debug, Clone, PartialEq)]
pub struct PartPower {
    /// The metric, such as `energy_pkg`.
    pub metric: MetricName,
    /// What it is about.
    pub subject: Subject,
    /// Joules; of a sensor of power, what its values come to over the time.
    pub energy: f64,
    /// Nanoseconds in which it was known.
    pub time: u64,
    /// Watts in the interval in which there were most; `None` if all were too short to tell.
    pub peak: Option<f64>,
    /// Whether it tells power and not energy, so that the energy is a sum of samples.
    pub is_sampled: bool,
}

impl PartPower {
    /// Mean power in watts.
    pub fn mean(&self) -> f64 {
        self.energy * 1e9 / self.time.max(1) as f64
    }

    /// Adds an interval (nanoseconds): its joules, or the watts of a sensor of power.
    fn add(&mut self, interval: u64, value: f64) {
        let seconds = interval as f64 / 1e9;
        let (energy, power) = match self.is_sampled {
            true => (value * seconds, value),
            false => (value, value / seconds),
        };
        self.energy += energy;
        self.time += interval;
        if interval >= SHORTEST || self.is_sampled {
            self.peak = Some(self.peak.map_or(power, |peak| peak.max(power)));
        }
    }
}

/// The power of a run, from metrics whose names begin with `energy_` (joules) or `power_` (watts). Where a metric is about
/// several packages, there is also one part for all of them, about the machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Power {
    parts: BTreeMap<(MetricName, Subject), PartPower>,
    /// How many packages a metric has told about at once.
    packages: BTreeMap<MetricName, usize>,
}

impl Power {
    /// Takes in an interval.
    pub fn take(&mut self, observation: &Observation) {
        let interval = observation.interval;
        let mut sums: BTreeMap<&MetricName, (usize, f64)> = BTreeMap::new();
        for reading in &observation.readings {
            let value = reading.metric.value;
            let is_sampled = match reading.kind {
                MetricKind::Amount if reading.name.starts_with("energy_") => false,
                MetricKind::Level if reading.name.starts_with("power_") => true,
                _ => continue,
            };
            self.part(&reading.name, reading.subject, is_sampled)
                .add(interval, value);
            if matches!(reading.subject, Subject::Package(_)) && !is_sampled {
                let sum = sums.entry(&reading.name).or_default();
                *sum = (sum.0 + 1, sum.1 + value);
            }
        }
        for (name, (packages, value)) in sums.into_iter().filter(|(_, (packages, _))| *packages > 1)
        {
            let known = self.packages.entry(MetricName::clone(name)).or_default();
            *known = packages.max(*known);
            // Without one of them it would be no sum.
            if packages == *known {
                self.part(name, Subject::Machine, false)
                    .add(interval, value);
            }
        }
    }

    fn part(&mut self, name: &MetricName, subject: Subject, is_sampled: bool) -> &mut PartPower {
        let key = (MetricName::clone(name), subject);
        self.parts.entry(key).or_insert_with(|| PartPower {
            metric: MetricName::clone(name),
            subject,
            energy: 0.0,
            time: 0,
            peak: None,
            is_sampled,
        })
    }

    /// All parts, by metric and subject.
    pub fn parts(&self) -> impl Iterator<Item = &PartPower> {
        self.parts.values()
    }

    /// The same part in another run.
    pub fn same(&self, part: &PartPower) -> Option<&PartPower> {
        self.parts
            .get(&(MetricName::clone(&part.metric), part.subject))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::{Metric, MetricSource, Reading};
    use proptest::prelude::*;

    fn reading(name: &str, kind: MetricKind, value: f64) -> Reading {
        Reading {
            subject: Subject::Package(0),
            name: name.into(),
            kind,
            metric: Metric {
                value,
                confidence: 1.0,
                source: MetricSource::Sensor,
            },
        }
    }

    fn power(intervals: &[(u64, Vec<Reading>)]) -> Power {
        let mut power = Power::default();
        for (interval, readings) in intervals {
            power.take(&Observation {
                interval: *interval,
                readings: readings.clone(),
                ..Observation::default()
            });
        }
        power
    }

    #[test]
    fn a_short_last_interval_makes_no_peak() {
        let joules = |value| vec![reading("energy_pkg", MetricKind::Amount, value)];
        let power = power(&[
            (100_000_000, joules(1.0)),
            (100_000_000, joules(3.0)),
            // The counter had advanced just now.
            (1_000_000, joules(0.5)),
        ]);
        let part = power.parts().next().unwrap();
        assert!((part.energy - 4.5).abs() < 1e-12);
        assert!((part.peak.unwrap() - 30.0).abs() < 1e-9);
        assert_eq!(part.time, 201_000_000);
    }

    #[test]
    fn packages_are_summed_where_there_are_several() {
        let joules = |package, value| Reading {
            subject: Subject::Package(package),
            ..reading("energy_pkg", MetricKind::Amount, value)
        };
        let power = power(&[
            (1_000_000_000, vec![joules(0, 10.0), joules(1, 30.0)]),
            (1_000_000_000, vec![joules(0, 25.0), joules(1, 5.0)]),
            // One could not be read.
            (1_000_000_000, vec![joules(0, 10.0)]),
        ]);
        let all = power.parts().last().unwrap();
        assert_eq!(all.subject, Subject::Machine);
        assert!((all.energy - 70.0).abs() < 1e-9 && all.time == 2_000_000_000);
        // The packages had their peaks at different times.
        assert!((all.peak.unwrap() - 40.0).abs() < 1e-9);
    }

    #[test]
    fn only_energy_and_power_are_taken() {
        let readings = vec![
            reading("power_board", MetricKind::Level, 12.0),
            reading("power_factor", MetricKind::Ratio, 0.5),
            reading("llc_occupancy", MetricKind::Level, 1e6),
        ];
        let power = power(&[(500_000_000, readings)]);
        let parts: Vec<_> = power.parts().collect();
        assert_eq!(parts.len(), 1);
        assert!(parts[0].is_sampled && (parts[0].energy - 6.0).abs() < 1e-12);
    }

    proptest! {
        /// Mean power lies between the least and the greatest, and the peak is the greatest.
        #[test]
        fn mean_and_peak(values in prop::collection::vec((20u64..1000, 0.0..500.0f64), 1..30)) {
            let intervals: Vec<_> = values
                .iter()
                .map(|(millis, watts)| {
                    let joules = watts * *millis as f64 / 1e3;
                    (millis * 1_000_000, vec![reading("energy_pkg", MetricKind::Amount, joules)])
                })
                .collect();
            let power = power(&intervals);
            let part = power.parts().next().unwrap();
            let least = values.iter().map(|(_, watts)| *watts).fold(f64::MAX, f64::min);
            let most = values.iter().map(|(_, watts)| *watts).fold(0.0, f64::max);
            prop_assert!(part.mean() >= least - 1e-6 && part.mean() <= most + 1e-6);
            prop_assert!((part.peak.unwrap() - most).abs() < 1e-6);
        }
    }
}
