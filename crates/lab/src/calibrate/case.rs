//! A thread beside its neighbours.

use super::{judge::Judged, measured::Measured, plan::Seat};
use perch_policy::Share;

/// One thread of a run, with how it was alone on that PU.
#[derive(Debug, Clone)]
pub(super) struct Case<'m> {
    /// The closest that it shares with its neighbours.
    pub share: Share,
    /// Where it ran, and what.
    pub seat: Seat,
    /// Its neighbours' kernels.
    pub beside: Vec<usize>,
    /// What was measured of it with them.
    pub coupled: &'m Measured,
    /// What was measured of it without them.
    pub alone: &'m Measured,
    /// Its slowdown.
    pub judged: Judged,
}

impl Case<'_> {
    /// Its time with its neighbours / its time alone.
    pub fn slowdown(&self) -> f64 {
        self.judged.all.middle.exp()
    }

    /// The same as far as a policy may count on it: 1 if it is not significant.
    pub fn known(&self) -> f64 {
        match self.judged.is_significant() {
            true => self.slowdown(),
            false => 1.0,
        }
    }
}
