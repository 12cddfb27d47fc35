//! A simulated machine by itself, without any policy: microbenchmarks on it beside what others measured on the real one.

mod file;
mod probe;

pub use file::{Bandwidth, Gain, Instruction, Latency, Measurements, Range, Source, Threads, Walk};

use crate::parallel::{each, host_threads};
use perch_sim::model::MachineModel;
use probe::Probe;
use serde::Serialize;
use std::sync::Arc;

/// A value counts as right if it is no farther than this part from what was measured: an aim of our own.
pub const NEAR: f64 = 0.1;

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The machine's file has that number, from a source of its own: an input.
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

/// One thing to measure.
enum Wanted<'a> {
    Latency(&'a Latency),
    Chain(&'a Instruction, Range),
    Every(&'a Instruction, Range),
    Bandwidth(&'a Bandwidth),
    Gain(&'a Gain),
}

/// Compares a machine with what was measured. Reports to `done` how many values are done, of how many.
///
/// # Errors
/// In words: a simulation that cannot go on.
pub fn validate(
    machine: &Arc<MachineModel>,
    measurements: &Measurements,
    mut done: impl FnMut(usize, usize),
) -> Result<Vec<Row>, String> {
    let mut wanted: Vec<Wanted<'_>> = measurements.latencies.iter().map(Wanted::Latency).collect();
    for one in &measurements.instructions {
        wanted.extend(one.latency.map(|range| Wanted::Chain(one, range)));
        wanted.extend(one.every.map(|range| Wanted::Every(one, range)));
    }
    wanted.extend(measurements.bandwidths.iter().map(Wanted::Bandwidth));
    wanted.extend(measurements.gains.iter().map(Wanted::Gain));
    let probe = Probe::new(machine);
    let count = wanted.len();
    let row = |at: usize| wanted[at].row(&probe).map_err(|error| error.to_string());
    each(count, host_threads(), row, |at| done(at, count)).map_err(|(_, error)| error)
}

impl Wanted<'_> {
    fn row(&self, probe: &Probe<'_>) -> Result<Row, perch_sim::system::SimError> {
        Ok(match self {
            Self::Latency(one) => {
                let cycles = probe.chase(one.bytes, one.walk)?;
                let (unit, measured, simulated) = match (one.cycles, one.ns) {
                    (Some(range), _) => ("cycles", range, cycles),
                    (None, range) => {
                        let range = range.unwrap_or_default();
                        ("ns", range, probe.nanoseconds(cycles))
                    }
                };
                Row {
                    what: format!("load: {}", one.of),
                    unit,
                    measured,
                    simulated,
                    kind: Kind::Input,
                    source: one.source.clone(),
                }
            }
            Self::Chain(one, range) => Row {
                what: format!("{}: each needs the one before", one.op.name()),
                unit: "cycles",
                measured: *range,
                simulated: probe.latency(one.op)?,
                kind: Kind::Input,
                source: one.source.clone(),
            },
            Self::Every(one, range) => Row {
                what: format!("{}: independent", one.op.name()),
                unit: "cycles",
                measured: *range,
                simulated: probe.every(one.op)?,
                kind: Kind::Input,
                source: one.source.clone(),
            },
            Self::Bandwidth(one) => Row {
                what: format!("reads: {}", one.of),
                unit: "GB/s",
                measured: one.gb_per_second,
                simulated: probe.bandwidth(one.bytes, one.threads)? * 1e-9,
                kind: Kind::Prediction,
                source: one.source.clone(),
            },
            Self::Gain(one) => Row {
                what: format!("second context: {}", one.of),
                unit: "times",
                measured: one.gain,
                simulated: probe.gain(one.read)?,
                kind: Kind::Prediction,
                source: one.source.clone(),
            },
        })
    }
}
