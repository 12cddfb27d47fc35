//! What it costs a thread to begin somewhere with cold caches, measured: how much slower it is in its first periods there
//! than afterwards.

use super::SETTLE;

/// Weight of a new ramp in the mean.
const NEW: f64 = 0.2;

/// How long a move has to pay off, in nanoseconds: a minute.
const HORIZON: f64 = 60e9;

/// A thread's first periods on a unit.
#[derive(Debug, Clone, Default)]
pub(super) struct Ramp {
    unit: Option<u32>,
    /// Its speeds there, the first first; no more than are needed.
    speeds: Vec<f64>,
}

impl Ramp {
    /// Takes in a period: on which unit, and how fast. Once it is warm: how many periods' work it has lost.
    pub fn take(&mut self, unit: u32, speed: f64) -> Option<f64> {
        let warm = SETTLE as usize + 1;
        if self.unit.replace(unit) != Some(unit) {
            self.speeds.clear();
        }
        if self.speeds.len() >= warm {
            return None;
        }
        self.speeds.push(speed);
        let (last, first) = self.speeds.split_last()?;
        let lost = |speed: &f64| (1.0 - speed / last).max(0.0);
        (self.speeds.len() == warm && *last > 0.0).then(|| first.iter().map(lost).sum())
    }

    /// The thread does something else: what follows tells nothing of caches.
    pub fn spoil(&mut self) {
        self.speeds.resize(SETTLE as usize + 1, 0.0);
    }
}

/// The mean of all threads.
#[derive(Debug, Clone, Default)]
pub(super) struct ColdCost {
    /// Nanoseconds of work that a thread loses by beginning somewhere.
    lost: Option<f64>,
}

impl ColdCost {
    /// Another thread has become warm: it lost `periods` periods of `interval` nanoseconds.
    pub fn take(&mut self, periods: f64, interval: u64) {
        let lost = periods * interval as f64;
        let mean = self.lost.get_or_insert(lost);
        *mean += NEW * (lost - *mean);
    }

    /// The part of its speed in the next minute.
    pub fn part(&self) -> f64 {
        self.lost.unwrap_or(0.0) / HORIZON
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_counts_what_is_lost_once() {
        let mut ramp = Ramp::default();
        let mut all = |unit, speeds: &[f64]| -> Vec<Option<f64>> {
            speeds.iter().map(|speed| ramp.take(unit, *speed)).collect()
        };
        assert_eq!(
            all(0, &[0.5, 0.75, 1.0, 1.0]),
            [None, None, Some(0.75), None]
        );
        // Another unit, another ramp; who is faster at first has lost nothing.
        assert_eq!(all(1, &[2.0, 0.5, 1.0]), [None, None, Some(0.5)]);
        ramp.take(2, 0.1);
        ramp.spoil();
        assert_eq!(ramp.take(2, 1.0), None);
    }
}
