//! A simulated machine by itself, without any policy: microbenchmarks on it beside what others measured on the real one.

mod file;
mod probe;

pub use file::{
    Bandwidth, Gain, Instruction, Latency, Measurements, Range, Source, Threads, Unit, Walk,
};

use crate::parallel::{each, host_threads};
use perch_sim::model::{MachineModel, Op};
use probe::{Probe, Unfinished};
use serde::Serialize;
use std::sync::Arc;

/// A value counts as right if it is no farther than this part from what was measured: an aim of our own.
pub const NEAR: f64 = 0.1;

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The machine's file has that number, from a source of its own, or one that was read off this value: an input.
    Input,
    /// It follows from how the parts of the machine work together.
    Prediction,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What is compared.
    pub what: String,
    /// In which unit.
    pub unit: &'static str,
    /// What was measured: least and largest.
    pub measured: Range,
    /// What the simulated machine does.
    pub simulated: f64,
    /// Whether the number is an input.
    pub kind: Kind,
    /// The key of the source.
    pub source: String,
}

impl Row {
    /// How far the simulated value is from the range of those that were measured, as a part of the range's nearer end;
    /// negative if it is below.
    pub fn off(&self) -> f64 {
        let [least, most] = self.measured;
        if self.simulated < least {
            self.simulated / least - 1.0
        } else if self.simulated > most {
            self.simulated / most - 1.0
        } else {
            0.0
        }
    }

    /// Whether it is near enough.
    pub fn holds(&self) -> bool {
        self.off().abs() <= NEAR
    }
}

/// A row without its simulated value, and how to get that.
struct Wanted {
    what: String,
    unit: &'static str,
    measured: Range,
    kind: Kind,
    source: String,
    by: Measure,
}

/// What a probe does.
enum Measure {
    Load(u64, Walk, Unit),
    Dependent(Op),
    Independent(Op),
    Read(u64, Threads),
    Gain(u64),
}

/// Compares a machine with what was measured, of that what has `only` in its name. Reports to `done` how many values are
/// done, of how many.
///
/// # Errors
/// In words: a simulation that cannot go on, or whose caches do not settle.
pub fn validate(
    machine: &Arc<MachineModel>,
    measurements: &Measurements,
    only: &str,
    mut done: impl FnMut(usize, usize),
) -> Result<Vec<Row>, String> {
    let mut wanted = wanted(measurements);
    wanted.retain(|one| one.what.contains(only));
    let probe = Probe::new(machine);
    let count = wanted.len();
    let row = |at: usize| {
        let one = &wanted[at];
        let simulated = one.by.on(&probe);
        Ok(Row {
            what: one.what.clone(),
            unit: one.unit,
            measured: one.measured,
            simulated: simulated.map_err(|why| format!("{}: {why}", one.what))?,
            kind: one.kind,
            source: one.source.clone(),
        })
    };
    each(count, host_threads(), row, |at| done(at, count)).map_err(|(_, error)| error)
}

fn wanted(measurements: &Measurements) -> Vec<Wanted> {
    let mut all = Vec::new();
    let mut add = |what: String, unit, measured, kind, source: &String, by| {
        all.push(Wanted {
            what,
            unit,
            measured,
            kind,
            source: source.clone(),
            by,
        });
    };
    for one in &measurements.latencies {
        let unit = match one.unit {
            Unit::Cycles => "cycles",
            Unit::Ns => "ns",
        };
        // In order of lines, a level costs what the file says; else TLB and caches come together.
        let kind = match one.walk {
            _ if one.read_off => Kind::Input,
            Walk::Lines => Kind::Input,
            Walk::Pages | Walk::Random | Walk::Steps(_) => Kind::Prediction,
        };
        let by = Measure::Load(one.bytes, one.walk, one.unit);
        let what = match one.walk {
            Walk::Steps(step) => format!("load: {}, +{step} B", one.of),
            Walk::Lines | Walk::Pages | Walk::Random => format!("load: {}", one.of),
        };
        add(what, unit, one.time, kind, &one.source, by);
    }
    for one in &measurements.instructions {
        let op = one.op.name();
        let ways = [
            ("dependent", one.latency, Measure::Dependent(one.op)),
            ("independent", one.every, Measure::Independent(one.op)),
        ];
        for (how, range, by) in ways {
            if let Some(range) = range {
                add(
                    format!("{op}: {how}"),
                    "cycles",
                    range,
                    Kind::Input,
                    &one.source,
                    by,
                );
            }
        }
    }
    for one in &measurements.bandwidths {
        let by = Measure::Read(one.bytes, one.threads);
        let what = format!("reads: {}", one.of);
        add(
            what,
            "GB/s",
            one.gb_per_second,
            Kind::Prediction,
            &one.source,
            by,
        );
    }
    for one in &measurements.gains {
        let what = format!("second context: {}", one.of);
        add(
            what,
            "times",
            one.gain,
            Kind::Prediction,
            &one.source,
            Measure::Gain(one.read),
        );
    }
    all
}

impl Measure {
    fn on(&self, probe: &Probe<'_>) -> Result<f64, Unfinished> {
        match *self {
            Self::Load(bytes, walk, Unit::Cycles) => probe.chase(bytes, walk),
            Self::Load(bytes, walk, Unit::Ns) => Ok(probe.nanoseconds(probe.chase(bytes, walk)?)),
            Self::Dependent(op) => probe.latency(op),
            Self::Independent(op) => probe.every(op),
            Self::Read(bytes, threads) => Ok(probe.bandwidth(bytes, threads)? * 1e-9),
            Self::Gain(bytes) => probe.gain(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_about_a_machine_and_every_value_has_a_source() {
        let machines = Measurements::machines();
        assert!(machines.len() >= 4, "{machines:?}");
        for name in machines {
            perch_sim::config::find_machine(name).unwrap();
            let measurements = Measurements::of(name).unwrap();
            let wanted = wanted(&measurements);
            for one in &wanted {
                let [least, most] = one.measured;
                assert!(0.0 < least && least <= most, "{name}, {}", one.what);
                let mut keys = measurements.sources.iter().map(|source| &source.key);
                assert!(keys.any(|key| *key == one.source), "{name}: {}", one.source);
            }
            for source in &measurements.sources {
                let used = wanted.iter().any(|one| one.source == source.key);
                assert!(used, "{name}: no value is from {}", source.key);
            }
        }
        assert_eq!(Measurements::of("no-such-machine"), None);
    }

    #[test]
    fn how_far_a_value_is_from_a_range() {
        let row = |simulated| Row {
            what: String::new(),
            unit: "cycles",
            measured: [10.0, 20.0],
            simulated,
            kind: Kind::Input,
            source: String::new(),
        };
        assert_eq!(
            [row(5.0).off(), row(15.0).off(), row(30.0).off()],
            [-0.5, 0.0, 0.5]
        );
        assert!(row(9.1).holds() && !row(8.9).holds() && !row(22.1).holds());
    }
}
