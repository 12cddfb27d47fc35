//! What modules know about processes, PUs, packages and the machine, as rows show it.
//!
//! A row may be about a part of what a value is about: a thread on a package. It shows the value of the whole then, and
//! says so ([`Readings::wider`]): nothing tells how much of it belongs to the part.

use crate::{By, Entity};
use perch_core::{
    Metric, MetricKind, MetricName, MetricScope, Observation, PuSet, Reading, Subject, Topology,
};
use std::collections::{BTreeMap, BTreeSet};

/// One metric of one row, over one interval or several.
#[derive(Debug, Clone, PartialEq)]
struct Series {
    kind: MetricKind,
    /// Of an amount, the sum; of others, the sum of value × nanoseconds.
    sum: f64,
    /// Nanoseconds of intervals in which it was known.
    time: u64,
    /// What the value is about, if that is more than the row.
    wider: Option<MetricScope>,
    metric: Metric,
}

/// The metrics of one row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Readings(BTreeMap<MetricName, Series>);

impl Readings {
    /// A metric; an amount is that of all the time, others are means over it.
    pub fn get(&self, name: &str) -> Option<Metric> {
        let series = self.0.get(name)?;
        let value = match series.kind {
            MetricKind::Amount => series.sum,
            MetricKind::Level | MetricKind::Ratio => series.sum / series.time.max(1) as f64,
        };
        Some(Metric {
            value,
            ..series.metric
        })
    }

    /// What a metric's value is about, if that is more than the row: all processes on the machine, not this one.
    pub fn wider(&self, name: &str) -> Option<MetricScope> {
        self.0.get(name)?.wider
    }

    /// Whether an amount is a lower bound, since it was known for a part of this time (nanoseconds) only.
    pub fn is_partial(&self, name: &str, interval: u64) -> bool {
        let series = self.0.get(name);
        series.is_some_and(|series| {
            series.kind == MetricKind::Amount && (series.time as f64) < 0.98 * interval as f64
        })
    }

    /// Adds what the same row had later.
    pub fn add(&mut self, later: &Self) {
        for (name, series) in &later.0 {
            match self.0.get_mut(name) {
                Some(sum) => {
                    sum.sum += series.sum;
                    sum.time += series.time;
                    sum.wider = sum.wider.max(series.wider);
                    sum.metric = series.metric;
                }
                None => {
                    self.0.insert(MetricName::clone(name), series.clone());
                }
            }
        }
    }

    /// Combines the values of several subjects in one interval.
    fn combine(&mut self, interval: u64, values: &[&Reading], wider: Option<MetricScope>) {
        let Some(first) = values.first() else { return };
        let sum: f64 = values.iter().map(|reading| reading.metric.value).sum();
        let confidences = values.iter().map(|reading| reading.metric.confidence);
        let value = match first.kind {
            MetricKind::Amount => sum,
            MetricKind::Level => sum * interval as f64,
            MetricKind::Ratio => sum / values.len() as f64 * interval as f64,
        };
        let series = Series {
            kind: first.kind,
            sum: value,
            time: interval,
            wider,
            metric: Metric {
                confidence: confidences.fold(1.0, f64::min),
                ..first.metric
            },
        };
        self.0.insert(MetricName::clone(&first.name), series);
    }
}

/// What was read about whom in one interval.
pub(crate) struct Interval<'a> {
    length: u64,
    by_name: BTreeMap<&'a str, BTreeMap<Subject, &'a Reading>>,
    topology: &'a Topology,
}

impl<'a> Interval<'a> {
    /// Linear in readings.
    pub(crate) fn new(observation: &'a Observation, topology: &'a Topology) -> Self {
        let mut by_name: BTreeMap<&str, BTreeMap<Subject, &Reading>> = BTreeMap::new();
        for reading in &observation.readings {
            if reading.metric.value.is_finite() {
                let of_name = by_name.entry(&reading.name).or_default();
                of_name.insert(reading.subject, reading);
            }
        }
        Self {
            length: observation.interval,
            by_name,
            topology,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The metrics of a row that has threads of these processes, if it is about threads.
    pub(crate) fn of(&self, entity: &Entity, processes: &BTreeSet<i32>) -> Readings {
        let mut readings = Readings::default();
        if self.is_empty() {
            return readings;
        }
        let wanted = self.pus(entity);
        for by_subject in self.by_name.values() {
            let scope = by_subject.keys().next().map(|subject| subject.scope());
            let (values, wider): (Vec<&Reading>, _) = match scope {
                Some(MetricScope::Process) => {
                    let known = processes.iter().filter_map(|pid| {
                        let subject = Subject::Process(*pid);
                        by_subject.get(&subject).copied()
                    });
                    let exact = matches!(entity, Entity::Process(_) | Entity::All);
                    (known.collect(), (!exact).then_some(MetricScope::Process))
                }
                Some(MetricScope::Pu) => {
                    part(by_subject, wanted.as_ref(), |subject| match subject {
                        Subject::Pu(pu) => Some(PuSet::single(pu)),
                        _ => None,
                    })
                }
                Some(MetricScope::Package) => {
                    part(by_subject, wanted.as_ref(), |subject| match subject {
                        Subject::Package(os) => self.package(os),
                        _ => None,
                    })
                }
                Some(MetricScope::Machine) => {
                    let exact = matches!(entity, Entity::Machine);
                    let wider = (!exact).then_some(MetricScope::Machine);
                    (by_subject.values().copied().collect(), wider)
                }
                Some(MetricScope::Thread) | None => continue,
            };
            readings.combine(self.length, &values, wider);
        }
        readings
    }

    /// The PUs of a row; none for the whole machine; `None` for rows about threads.
    fn pus(&self, entity: &Entity) -> Option<PuSet> {
        let pus = self.topology.pus.iter().map(|pu| pu.os);
        let within = |by: By| {
            pus.filter(|pu| Entity::of_pu(by, *pu, self.topology).as_ref() == Some(entity))
                .collect()
        };
        match entity {
            Entity::Pu(pu) => Some(PuSet::single(*pu)),
            Entity::Core(_) => Some(within(By::Core)),
            Entity::Package(_) => Some(within(By::Package)),
            Entity::Node(_) => Some(within(By::Node)),
            Entity::Machine => Some(PuSet::new()),
            Entity::Thread(_) | Entity::Process(_) | Entity::Command(_) | Entity::All => None,
        }
    }

    fn package(&self, os: u32) -> Option<PuSet> {
        let mut packages = self.topology.packages.iter();
        let package = packages.find(|package| package.os == os)?;
        Some(package.pus.clone())
    }
}

/// The values about parts of the machine that a row covers; else those about the part that it is in; for rows about
/// threads, which may run anywhere, those of all parts.
fn part<'a>(
    by_subject: &BTreeMap<Subject, &'a Reading>,
    wanted: Option<&PuSet>,
    pus: impl Fn(Subject) -> Option<PuSet>,
) -> (Vec<&'a Reading>, Option<MetricScope>) {
    let all = || by_subject.values().copied().collect();
    let Some(wanted) = wanted else {
        return (all(), Some(MetricScope::Machine));
    };
    if wanted.is_empty() {
        // Of the machine, whatever the topology knows.
        return (all(), None);
    }
    let parts = by_subject
        .iter()
        .filter_map(|(subject, reading)| Some((*subject, *reading, pus(*subject)?)));
    let parts: Vec<(Subject, &Reading, PuSet)> = parts.collect();
    let inside: Vec<&Reading> = parts
        .iter()
        .filter(|(_, _, pus)| !pus.is_empty() && pus.is_subset(wanted))
        .map(|(_, reading, _)| *reading)
        .collect();
    if !inside.is_empty() {
        return (inside, None);
    }
    let around = parts
        .iter()
        .find(|(_, _, pus)| wanted.is_subset(pus))
        .map(|(subject, reading, _)| (vec![*reading], Some(subject.scope())));
    around.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::MetricSource;
    use perch_core::topology::{Core, Package, Pu, PuState};
    use proptest::prelude::*;

    fn reading(subject: Subject, name: &str, kind: MetricKind, value: f64) -> Reading {
        Reading {
            subject,
            name: name.into(),
            kind,
            metric: Metric {
                value,
                confidence: 1.0,
                source: MetricSource::Sensor,
            },
        }
    }

    /// Two packages of two PUs each.
    fn topology() -> Topology {
        let package = |os: u32| Package {
            os,
            pus: (2 * os..2 * os + 2).collect(),
            model: String::new(),
        };
        let core = |pu: u32| Core {
            package: pu / 2,
            pus: PuSet::single(pu),
            numa_node: 0,
            kind: 0,
        };
        let pu = |os: u32| Pu {
            os,
            core: os as usize,
            state: PuState::Usable,
        };
        Topology {
            source: "test".into(),
            packages: (0..2).map(package).collect(),
            numa_nodes: Vec::new(),
            caches: Vec::new(),
            cores: (0..4).map(core).collect(),
            kinds: Vec::new(),
            pus: (0..4).map(pu).collect(),
        }
    }

    fn observation(readings: Vec<Reading>) -> Observation {
        Observation {
            interval: 1_000,
            readings,
            ..Observation::default()
        }
    }

    fn value(readings: &Readings, name: &str) -> (f64, Option<MetricScope>) {
        (readings.get(name).unwrap().value, readings.wider(name))
    }

    #[test]
    fn the_energy_of_packages_by_row() {
        let joules = |os, value| {
            let subject = Subject::Package(os);
            reading(subject, "energy_pkg", MetricKind::Amount, value)
        };
        let observation = observation(vec![joules(0, 5.0), joules(1, 7.0)]);
        let topology = topology();
        let interval = Interval::new(&observation, &topology);
        let none = BTreeSet::new();
        let of = |entity| value(&interval.of(&entity, &none), "energy_pkg");
        assert_eq!(of(Entity::Package(1)), (7.0, None));
        assert_eq!(of(Entity::Machine), (12.0, None));
        assert_eq!(of(Entity::Pu(3)), (7.0, Some(MetricScope::Package)));
        assert_eq!(of(Entity::Core(0)), (5.0, Some(MetricScope::Package)));
        assert_eq!(of(Entity::All), (12.0, Some(MetricScope::Machine)));
        assert_eq!(of(Entity::Process(4)), (12.0, Some(MetricScope::Machine)));
    }

    #[test]
    fn the_occupancy_of_processes_by_row() {
        let bytes = |pid, value| {
            let subject = Subject::Process(pid);
            reading(subject, "llc_occupancy", MetricKind::Level, value)
        };
        let observation = observation(vec![bytes(10, 100.0), bytes(11, 50.0)]);
        let topology = topology();
        let interval = Interval::new(&observation, &topology);
        let of = |entity, pids: &[i32]| interval.of(&entity, &pids.iter().copied().collect());
        let name = "llc_occupancy";
        assert_eq!(value(&of(Entity::Process(10), &[10]), name), (100.0, None));
        assert_eq!(value(&of(Entity::All, &[10, 11, 12]), name), (150.0, None));
        let thread = Entity::Command("worker".into());
        let wider = Some(MetricScope::Process);
        assert_eq!(value(&of(thread, &[11]), name), (50.0, wider));
        assert_eq!(of(Entity::Process(12), &[12]), Readings::default());
        assert_eq!(of(Entity::Machine, &[]), Readings::default());
    }

    #[test]
    fn a_value_that_is_missing_for_a_while_shows() {
        let joules = reading(Subject::Machine, "energy_psys", MetricKind::Amount, 2.0);
        let with = observation(vec![joules]);
        let topology = topology();
        let of = |observation: &Observation| {
            Interval::new(observation, &topology).of(&Entity::Machine, &BTreeSet::new())
        };
        let mut sum = of(&with);
        assert!(!sum.is_partial("energy_psys", 1_000));
        sum.add(&of(&observation(Vec::new())));
        assert_eq!(value(&sum, "energy_psys").0, 2.0);
        assert!(sum.is_partial("energy_psys", 2_000));
    }

    proptest! {
        /// Amounts add up over time; levels are means between the least and the greatest.
        #[test]
        fn over_time(values in prop::collection::vec((1u64..1000, 0.0..100.0f64), 1..20)) {
            let topology = topology();
            let mut sum = Readings::default();
            for (interval, value) in &values {
                let observation = Observation {
                    interval: *interval,
                    readings: vec![
                        reading(Subject::Machine, "amount", MetricKind::Amount, *value),
                        reading(Subject::Machine, "level", MetricKind::Level, *value),
                    ],
                    ..Observation::default()
                };
                sum.add(&Interval::new(&observation, &topology).of(&Entity::All, &BTreeSet::new()));
            }
            let all: f64 = values.iter().map(|(_, value)| value).sum();
            let least = values.iter().map(|(_, value)| *value).fold(f64::MAX, f64::min);
            let most = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
            prop_assert!((sum.get("amount").unwrap().value - all).abs() <= 1e-9 * all.max(1.0));
            let level = sum.get("level").unwrap().value;
            prop_assert!(level >= least - 1e-9 && level <= most + 1e-9);
        }
    }
}
