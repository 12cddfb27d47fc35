//! At what pace a core's clock goes: how long a cycle is, and when the clock stops.

use crate::units::{MICROSECOND, Ps};

/// For how long modulation stops a clock each time where a file does not say it: 3 µs, whatever the duty cycle, for
/// which the time between two stops is chosen (Intel: Pentium 4 Processor with 512-KB L2 Cache on 0.13 Micron Process,
/// Thermal Design Guidelines, on-demand mode).
pub const STOP: Ps = 3 * MICROSECOND;

/// The pace of a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Picoseconds of a cycle.
    pub cycle: Ps,
    /// Cycles from the end of one stop to the next one; `u64::MAX` if the clock never stops.
    pub run: u64,
    /// From the end of one stop to that of the next.
    pub window: Ps,
}

impl Pace {
    /// A clock that never stops.
    pub fn steady(cycle: Ps) -> Self {
        Self {
            cycle: cycle.max(1),
            run: u64::MAX,
            window: Ps::MAX,
        }
    }

    /// A clock that runs for this share of the time and stops for about `stop` each time, between whole cycles. The
    /// share is exact to a picosecond of each window; of short stops the length gives way.
    pub fn modulated(cycle: Ps, duty: f64, stop: Ps) -> Self {
        let steady = Self::steady(cycle);
        if duty >= 1.0 {
            return steady;
        }
        let cycle = steady.cycle;
        let running = stop as f64 * duty / (1.0 - duty);
        let run = (running / cycle as f64).round().max(1.0) as u64;
        let window = (run as f64 * cycle as f64 / duty).round() as Ps;
        Self {
            cycle,
            run,
            window: window.max(run * cycle),
        }
    }

    /// Whether the clock ever stops.
    pub fn stops(&self) -> bool {
        self.run != u64::MAX
    }

    /// The share of the time in which the clock runs.
    pub fn duty(&self) -> f64 {
        match self.stops() {
            true => self.run as f64 * self.cycle as f64 / self.window as f64,
            false => 1.0,
        }
    }

    /// For how long the clock stops each time.
    pub fn stop(&self) -> Ps {
        match self.stops() {
            true => self.window - self.run * self.cycle,
            false => 0,
        }
    }

    /// Mean time from one cycle to the next, in picoseconds.
    pub fn mean_cycle(&self) -> f64 {
        match self.stops() {
            true => self.window as f64 / self.run as f64,
            false => self.cycle as f64,
        }
    }
}
