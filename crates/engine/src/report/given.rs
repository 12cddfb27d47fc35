//! What perch gave a thread besides a place.

use crate::observer::ActionTaken;
use perch_core::{ActionKind, CacheWays, Outcome, Weight};

/// The last ones that were given.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub weight: Option<Weight>,
    /// By level.
    pub ways: Vec<CacheWays>,
}

impl Given {
    /// Takes in an action on the thread.
    pub fn note(&mut self, taken: &ActionTaken) {
        if !matches!(taken.outcome, Outcome::Applied | Outcome::NotApplied) {
            return;
        }
        match taken.to {
            Some(ActionKind::CpuWeight(weight)) => self.weight = Some(weight),
            Some(ActionKind::CacheWays(ways)) => {
                self.ways.retain(|other| other.level() != ways.level());
                self.ways.push(ways);
                self.ways.sort_unstable();
            }
            None => {}
        }
    }
}
