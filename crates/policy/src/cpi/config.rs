//! Options of the policy `cpi`.

use crate::error::check_shares;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How closely the paper is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// To the letter (section 5): balances 1/CPI as it was measured, every period, whatever is to be gained.
    Paper,
    /// Balances the demand that each thread would have alone, and only where the model predicts a gain.
    #[default]
    Perch,
}

/// Options of the policy `cpi`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CpiConfig {
    /// How closely the paper is followed: `paper` or `perch`.
    pub variant: Variant,
    /// Share of the period (0 to 1) from which on a thread counts as busy, running or waiting for a PU; the others are
    /// released. A bound thread stays busy down to half of this.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_activity: f64,
    /// Metrics with a lower confidence (0 to 1) are ignored: the thread stays where it is until more is known.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_confidence: f64,
    /// Instructions that a core can issue in a cycle, all its PUs together. 0: learned, for each kind of core the
    /// largest sum of its threads' IPC seen so far, and at least 1.
    #[schemars(range(min = 0.0))]
    pub width: f64,
    /// Threads move only if the predicted throughput grows by more than this part. Only `perch`.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gain: f64,
    /// A predicted gain above this many times `gain` is taken at once. Only `perch`.
    #[schemars(range(min = 1.0))]
    pub large: f64,
    /// A smaller one when it was predicted for this many periods in a row; a thread's demand follows a change of phase
    /// as late. Only `perch`.
    #[schemars(range(min = 1))]
    pub patience: u32,
    /// Weight of the last period in the prediction of the next one (above 0, 1: only the last). Only `perch`.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub smoothing: f64,
    /// Cycles by which a load that hits the first cache delays the thread's next instruction (paper: 4). Used where
    /// cycles cannot be counted, as the three below.
    #[schemars(range(min = 0.0))]
    pub load_delay: f64,
    /// Cycles by which a branch delays the next instruction (paper: 2).
    #[schemars(range(min = 0.0))]
    pub branch_delay: f64,
    /// Cycles by which a division or square root delays the next instruction.
    #[schemars(range(min = 0.0))]
    pub divide_delay: f64,
    /// Cycles by which another floating-point instruction delays the next instruction.
    #[schemars(range(min = 0.0))]
    pub fp_delay: f64,
}

impl Default for CpiConfig {
    fn default() -> Self {
        Self {
            variant: Variant::default(),
            min_activity: 0.1,
            min_confidence: 0.15,
            width: 0.0,
            gain: 0.03,
            large: 3.0,
            patience: 2,
            smoothing: 0.5,
            load_delay: 4.0,
            branch_delay: 2.0,
            divide_delay: 20.0,
            fp_delay: 3.0,
        }
    }
}

impl CpiConfig {
    /// Whether all values are in their ranges.
    ///
    /// # Errors
    /// An option that is out of range; the message gives the range.
    pub fn check(&self) -> Result<(), String> {
        check_shares(&[
            ("min_activity", self.min_activity),
            ("min_confidence", self.min_confidence),
            ("gain", self.gain),
        ])?;
        if !(self.smoothing > 0.0 && self.smoothing <= 1.0) {
            return Err(format!(
                "smoothing = {}: give a weight above 0 and up to 1",
                self.smoothing
            ));
        }
        check_width(self.width)?;
        if !(self.large >= 1.0 && self.large.is_finite()) {
            return Err(format!("large = {}: give 1 or more gains", self.large));
        }
        if self.patience == 0 {
            return Err("patience = 0: give 1 or more periods".to_owned());
        }
        let delays = [
            ("load_delay", self.load_delay),
            ("branch_delay", self.branch_delay),
            ("divide_delay", self.divide_delay),
            ("fp_delay", self.fp_delay),
        ];
        for (name, value) in delays {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(format!("{name} = {value}: give 0 or more cycles"));
            }
        }
        Ok(())
    }
}

/// Whether an issue width makes sense; 0 stands for a learned one.
pub(crate) fn check_width(width: f64) -> Result<(), String> {
    if width == 0.0 || (width > 0.0 && width.is_finite()) {
        return Ok(());
    }
    Err(format!(
        "width = {width}: give the instructions that a core issues in a cycle, or 0 to have it learned"
    ))
}
