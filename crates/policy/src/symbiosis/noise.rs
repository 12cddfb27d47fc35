//! How much the speed of all threads varies from period to period though no thread moved: a smaller gain cannot be
//! distinguished from chance.

use super::{
    SETTLE,
    scene::{Runner, Scene},
};

/// Weight of a new period in the exponential average of the noise.
const NEW: f64 = 0.2;

/// What was seen of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Noise {
    /// Speeds and units of the busy threads in the period before; none after something changed.
    before: Option<(Vec<f64>, Vec<usize>)>,
    /// No period before this one counts: caches fill.
    from: u64,
    /// Mean square of relative changes.
    square: Option<f64>,
}

impl Noise {
    /// What comes in the next periods is no chance.
    pub fn pause(&mut self, until: u64) {
        self.before = None;
        self.from = until;
    }

    /// Takes in how fast each busy thread was in a period, and would be alone.
    pub fn take(&mut self, period: u64, scene: &Scene, alone: &[f64], now: &[f64]) {
        let units: Vec<usize> = scene.runners.iter().map(|runner| runner.unit).collect();
        let known = self.before.take();
        if period < self.from {
            return;
        }
        if let Some((before, there)) = known {
            if there == units {
                let square = changed(scene, alone, &before, now, |_| true).powi(2);
                let known = self.square.get_or_insert(square);
                *known += NEW * (square - *known);
            } else {
                self.pause(period + SETTLE);
                return;
            }
        }
        self.before = Some((now.to_vec(), units));
    }

    /// Whether two periods in a row were alike enough to tell.
    pub fn is_known(&self) -> bool {
        self.square.is_some()
    }

    /// Root mean square of the relative change of all together; 0 before anything is known.
    pub fn level(&self) -> f64 {
        self.square.unwrap_or(0.0).sqrt()
    }
}

/// By how much those busy threads that count are together faster than before, as a part of their speed; each weighs as it
/// is alone.
pub(super) fn changed(
    scene: &Scene,
    alone: &[f64],
    before: &[f64],
    now: &[f64],
    counts: impl Fn(&Runner) -> bool,
) -> f64 {
    let (mut then, mut after) = (0.0, 0.0);
    for (at, runner) in scene.runners.iter().enumerate() {
        if let (Some(before), true) = (before.get(at), alone[at] > 0.0 && counts(runner)) {
            then += runner.present * before / alone[at];
            after += runner.present * now[at] / alone[at];
        }
    }
    if then > 0.0 { after / then - 1.0 } else { 0.0 }
}
