//! WorkOver's options.

use crate::error::check_shares;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How closely the paper is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// To the letter (sections 4.2 and 5.3): every period the ranking is cut into groups, whatever the noise and
    /// whether anything is to be gained.
    Paper,
    /// Moves as few threads as spread the FP-heavy ones evenly, none for noise, and none where nothing is to be gained.
    #[default]
    Perch,
}

/// Options of the policy `workover`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkOverConfig {
    /// How closely the paper is followed: `paper` or `perch`.
    pub variant: Variant,
    /// Share of the period (0 to 1) from which on a thread counts as busy; the others are released. With `perch` time
    /// spent waiting for a PU counts too, and a bound thread stays busy down to half of this.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_activity: f64,
    /// FP shares with a lower confidence (0 to 1) are ignored: the thread stays where it is until more is known.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_confidence: f64,
    /// Two FP shares that differ by no more than this part of the larger one (or of the profile's FP threshold, if
    /// that is larger) count as equal; more where few samples or a low confidence stand behind them. Only `perch`.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub margin: f64,
    /// Differences above this many margins are followed at once. Only `perch`.
    #[schemars(range(min = 1.0))]
    pub large: f64,
    /// Smaller differences are followed when they have been there for this many periods. Only `perch`.
    #[schemars(range(min = 1))]
    pub patience: u32,
}

impl Default for WorkOverConfig {
    fn default() -> Self {
        Self {
            variant: Variant::default(),
            min_activity: 0.1,
            min_confidence: 0.15,
            margin: 0.2,
            large: 3.0,
            patience: 2,
        }
    }
}

impl WorkOverConfig {
    /// Whether all values are in their ranges.
    ///
    /// # Errors
    /// An option that is out of range; the message gives the range.
    pub fn check(&self) -> Result<(), String> {
        check_shares(&[
            ("min_activity", self.min_activity),
            ("min_confidence", self.min_confidence),
            ("margin", self.margin),
        ])?;
        if !(self.large >= 1.0 && self.large.is_finite()) {
            return Err(format!("large = {}: give 1 or more margins", self.large));
        }
        if self.patience == 0 {
            return Err("patience = 0: give 1 or more periods".to_owned());
        }
        Ok(())
    }
}
