//! Options of the policy `masa`.

use crate::{calibration::Share, error::check_shares};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The paper's rules to the letter, or generalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// Between the groups of PUs that share the resource, several swaps a period, and threads that keep coming back wait.
    #[default]
    Perch,
    /// Between packages, one swap a period, and no limit may be exceeded after it. Needs a calibration.
    Paper,
}

/// The value of [`MasaConfig::calibration`] that asks for the built-in metrics and learned limits.
pub const BUILT_IN: &str = "built-in";

/// A load metric with its limit, written among the options instead of in a calibration file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenLimit {
    /// The metric's name, as profiles give it, such as `fp_load`.
    pub metric: String,
    /// The level at which PUs share the resource.
    pub share: Share,
    /// What a single thread does at most in isolation in one such group of PUs, in the metric's unit (events per
    /// second).
    #[schemars(range(min = 0.0))]
    pub limit: f64,
}

/// Options of the policy `masa`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MasaConfig {
    /// The paper's rules (`paper`), or the same with fewer assumptions about the machine (`perch`).
    pub variant: Variant,
    /// Path of a calibration file, as `perch calibrate` writes it: which load metrics are checked, in which order, with
    /// which limits. `built-in`: the built-in metrics, with limits learned from what single threads are seen to do.
    pub calibration: String,
    /// Instead of a file: the load metrics in the order in which they are checked, with their limits.
    pub limits: Vec<GivenLimit>,
    /// A pair of groups is balanced if (highest load - lowest load) / 2 is at least this part (0 to 1) of the highest
    /// (section 4.2, step 4c).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub imbalance: f64,
    /// A thread is outstanding if its load is more than the machine's load / (this · PUs) (section 4.2, step 3).
    #[schemars(range(min = 0.01))]
    pub outstanding: f64,
    /// With `calibration = "built-in"`: a limit is this many times the highest load that one thread was seen to have.
    #[schemars(range(min = 1.0))]
    pub headroom: f64,
    /// A swap must lower what its two groups have above the limit (squared) by at least this part (0 to 1).
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gain: f64,
    /// Share of the period (0 to 1) from which on a thread counts as busy, running or waiting for a PU; the others are
    /// released. A bound thread stays busy down to half of this.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_activity: f64,
    /// Metrics with a confidence (0 to 1) below this are ignored.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_confidence: f64,
}

impl Default for MasaConfig {
    fn default() -> Self {
        Self {
            variant: Variant::default(),
            calibration: String::new(),
            limits: Vec::new(),
            imbalance: 0.25,
            outstanding: 4.0,
            headroom: 1.25,
            gain: 0.05,
            min_activity: 0.1,
            min_confidence: 0.15,
        }
    }
}

impl MasaConfig {
    /// Whether all values are in their ranges and go together.
    ///
    /// # Errors
    /// An option that is out of range; the message gives the range.
    pub fn check(&self) -> Result<(), String> {
        check_shares(&[
            ("imbalance", self.imbalance),
            ("gain", self.gain),
            ("min_activity", self.min_activity),
            ("min_confidence", self.min_confidence),
        ])?;
        if !(self.outstanding.is_finite() && self.outstanding >= 0.01) {
            return Err(format!(
                "outstanding = {}: give a number from 0.01 on",
                self.outstanding
            ));
        }
        if !(self.headroom.is_finite() && self.headroom >= 1.0) {
            return Err(format!(
                "headroom = {}: give a number from 1 on",
                self.headroom
            ));
        }
        if let Some(given) = self.limits.iter().find(|given| {
            given.metric.trim().is_empty() || !(given.limit.is_finite() && given.limit > 0.0)
        }) {
            return Err(format!(
                "limits: `{}` = {}: give each metric its name and a limit above 0",
                given.metric, given.limit
            ));
        }
        match (self.calibration.as_str(), self.limits.is_empty()) {
            (BUILT_IN, true) if self.variant == Variant::Paper => Err(
                "variant = \"paper\" needs measured limits: let `perch calibrate` write a file and give calibration = \
                 \"FILE\", or take variant = \"perch\", which can learn limits"
                    .to_owned(),
            ),
            (_, true) | ("", false) => Ok(()),
            (_, false) => Err(
                "either `calibration` or `limits`: both say which metrics are checked".to_owned(),
            ),
        }
    }
}
