//! Options of the policy `symbiosis`.

use crate::error::check_shares;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Options of the policy `symbiosis`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SymbiosisConfig {
    /// Path of the calibration file that `perch calibrate` wrote on this machine. Empty: what sharing costs is not known,
    /// and threads are placed as by `workover`.
    pub calibration: String,
    /// Threads move if all together are predicted to be faster by at least this part (0 to 1), and by more than they
    /// vary randomly. After a gain that did not come true it takes more.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gain: f64,
    /// Part of its speed (0 to 1) that a thread loses in the next minute by moving once, at least: cold caches. Where speeds
    /// are counted and learned from, it is more if more was seen.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub move_cost: f64,
    /// Whether the speeds that were seen correct what the calibration predicts.
    pub learn: bool,
    /// Share of the period (0 to 1) from which on a thread counts as busy, running or waiting for a PU; the others are
    /// released. A bound thread stays busy down to half of this.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_activity: f64,
    /// Metrics with a confidence (0 to 1) below this are ignored.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_confidence: f64,
}

impl Default for SymbiosisConfig {
    fn default() -> Self {
        Self {
            calibration: String::new(),
            gain: 0.003,
            move_cost: 0.001,
            learn: true,
            min_activity: 0.1,
            min_confidence: 0.15,
        }
    }
}

impl SymbiosisConfig {
    /// Whether all values are in their ranges.
    ///
    /// # Errors
    /// An option that is out of range; the message gives the range.
    pub fn check(&self) -> Result<(), String> {
        check_shares(&[
            ("gain", self.gain),
            ("move_cost", self.move_cost),
            ("min_activity", self.min_activity),
            ("min_confidence", self.min_confidence),
        ])
    }
}
