//! Options of the policy `sos`.

use crate::error::check_shares;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// From which schedules the sampled ones are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Candidates {
    /// All of them.
    #[default]
    Random,
    /// Those for which the CPI model predicts nearly the best throughput (Fedorova et al., section 2).
    Cpi,
}

/// How a sampled schedule is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Score {
    /// By the sum of the threads' instructions a cycle.
    #[default]
    Throughput,
    /// By the sum of the threads' instructions a cycle, each over the most that it was seen to do.
    Speedup,
}

/// Options of the policy `sos`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SosConfig {
    /// From which schedules the sampled ones are drawn: `random` or `cpi`.
    pub candidates: Candidates,
    /// How a sampled schedule is judged: `throughput` or `speedup`.
    pub score: Score,
    /// Schedules that are tried, one after the other.
    #[schemars(range(min = 1))]
    pub samples: u32,
    /// Periods for which each is tried.
    #[schemars(range(min = 1))]
    pub sample_periods: u32,
    /// Periods for which the best one is kept before the next search.
    #[schemars(range(min = 1))]
    pub steady_periods: u32,
    /// With `cpi`: schedules within this part (0 to 1) of the best predicted throughput are candidates.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub within: f64,
    /// With `cpi`: random schedules that the model judges in each search.
    #[schemars(range(min = 1))]
    pub tries: u32,
    /// With `cpi`: instructions that a core can issue in a cycle. 0: the largest sum of the IPC of a core's threads seen
    /// so far, and at least 1.
    #[schemars(range(min = 0.0))]
    pub width: f64,
    /// Share of the period (0 to 1) from which on a thread counts as busy, running or waiting for a PU; the others are
    /// released. A bound thread stays busy down to half of this.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_activity: f64,
    /// Where the random schedules start: the same seed and the same snapshots give the same plans.
    pub seed: u32,
}

impl Default for SosConfig {
    fn default() -> Self {
        Self {
            candidates: Candidates::default(),
            score: Score::default(),
            samples: 10,
            sample_periods: 1,
            steady_periods: 100,
            within: 0.05,
            tries: 200,
            width: 0.0,
            min_activity: 0.1,
            seed: 1,
        }
    }
}

impl SosConfig {
    /// Whether all values are in their ranges.
    ///
    /// # Errors
    /// An option that is out of range; the message gives the range.
    pub fn check(&self) -> Result<(), String> {
        let counts = [
            ("samples", self.samples, "schedules"),
            ("sample_periods", self.sample_periods, "periods"),
            ("steady_periods", self.steady_periods, "periods"),
            ("tries", self.tries, "schedules"),
        ];
        for (name, value, unit) in counts {
            if value == 0 {
                return Err(format!("{name} = 0: give 1 or more {unit}"));
            }
        }
        check_shares(&[("within", self.within), ("min_activity", self.min_activity)])?;
        crate::cpi::check_width(self.width)
    }
}
