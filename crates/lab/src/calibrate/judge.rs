//! Which slowdowns are more than noise.
//!
//! Hundreds of slowdowns are measured, and people and policies look for the worst: without correction some would seem
//! to be large by noise alone. So the intervals hold for all slowdowns of a calibration at once (Bonferroni's
//! inequality; Dunn, *Journal of the American Statistical Association* 56, 1961): with the stated probability none of
//! them is wrong, whichever is picked. A slowdown is significant if its interval lies above 1.

use super::{measured::Measured, plan::Run};
use crate::statistics::{Interval, Noise};
use std::collections::BTreeMap;

/// The probability that any interval of a calibration is wrong.
pub const LEVEL: f64 = 0.05;

/// No window resolves a slowdown less than this (logarithm).
const RESOLVED: f64 = 1e-3;

/// What is known of a slowdown, in logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// The interval that holds for this slowdown alone.
    pub own: Interval,
    /// That which holds for all at once.
    pub all: Interval,
}

impl Judged {
    /// Whether there is a slowdown.
    pub fn is_significant(&self) -> bool {
        self.all.low() > RESOLVED
    }
}

/// The slowdowns of each seat of each run that has one. `level` is the probability that an interval is wrong.
///
/// Noise is that of all visits of a kernel on a PU at one level of sharing, whatever ran next to it: of a single pair
/// there are too few to show what is rare.
pub fn judge(runs: &[Run], measured: &[Vec<Measured>], level: f64) -> Vec<Vec<Option<Judged>>> {
    let mut draws: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    let key = |run: &Run, seat: usize| (run.level, run.seats[seat]);
    let mut cells = 0usize;
    for (run, measured) in runs.iter().zip(measured) {
        for (seat, measured) in measured.iter().enumerate() {
            if !measured.slowdowns.is_empty() {
                cells += 1;
                let draws = draws.entry(key(run, seat)).or_default();
                draws.extend_from_slice(&measured.noise);
            }
        }
    }
    let noise: BTreeMap<_, Noise> = draws
        .into_iter()
        .map(|(key, draws)| (key, Noise::new(&draws)))
        .collect();
    let of_seat = |run: &Run, seat: usize, measured: &Measured| {
        let noise = noise.get(&key(run, seat))?;
        let values = &measured.slowdowns;
        (!values.is_empty()).then(|| Judged {
            own: Interval::new(values, noise, level),
            all: Interval::new(values, noise, level / cells as f64),
        })
    };
    let of_run = |(run, measured): (&Run, &Vec<Measured>)| {
        let seats = measured.iter().enumerate();
        seats
            .map(|(seat, measured)| of_seat(run, seat, measured))
            .collect()
    };
    runs.iter().zip(measured).map(of_run).collect()
}
