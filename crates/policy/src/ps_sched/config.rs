//! Options of the policies `ps-sched-1` and `ps-sched-2`.

use super::search::Goal;
use perch_core::{PuSet, Topology};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The highest clock of the PUs that are slowed down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clock {
    /// Clocks stay as they are.
    Keep,
    /// The clock of least cost is looked for while the programs run.
    Search,
    /// This part (0 to 1) of the highest clock that the PU offers.
    Share(f64),
    /// This clock in kHz.
    KiloHertz(f64),
}

/// Options of the policies `ps-sched-1` and `ps-sched-2`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PsSchedConfig {
    /// The PUs for the work of the operating system: `pu` (the first PU that can be used, as in the paper), `core` (all
    /// PUs of its core), or a list of PUs such as `0,4`.
    pub system: String,
    /// The highest clock of the PUs that are slowed down: a part of the highest one such as `75%`, a clock such as
    /// `2.1GHz` or `900MHz`, `keep`, or `search` for the one of least cost, which needs counters of energy and of
    /// instructions. Empty: the best one of the paper for the policy (section 8), 75 % for ps-sched-1 and 86 % for
    /// ps-sched-2.
    pub clock: String,
    /// What `clock = "search"` makes small for each instruction: `energy`, `ed` (energy-delay product) or `ed2` (ED²P).
    pub goal: String,
    /// Part of the instructions a second at full speed (0 to 1) that `clock = "search"` may lose.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_slowdown: f64,
    /// Share of the period (0 to 1) from which on a thread of a program counts as busy, running or waiting for a PU. One
    /// that shares a PU with the operating system stays busy down to half of this.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_activity: f64,
}

impl Default for PsSchedConfig {
    fn default() -> Self {
        Self {
            system: "pu".to_owned(),
            clock: String::new(),
            goal: "ed".to_owned(),
            max_slowdown: 1.0,
            min_activity: 0.1,
        }
    }
}

impl PsSchedConfig {
    /// Whether the values make sense.
    ///
    /// # Errors
    /// The first that does not, and what it may be.
    pub fn check(&self) -> Result<(), String> {
        if !matches!(self.system.as_str(), "pu" | "core") && self.given_pus().is_none() {
            return Err(format!(
                "system = \"{}\": write `pu`, `core`, or PUs such as `0,4`",
                self.system
            ));
        }
        let clock = self.clock()?;
        let default = Self::default();
        let of_search = self.goal != default.goal || self.max_slowdown != default.max_slowdown;
        if of_search && clock != Some(Clock::Search) {
            return Err("goal and max_slowdown are for clock = \"search\"".to_owned());
        }
        self.goal()?;
        crate::error::check_shares(&[
            ("min_activity", self.min_activity),
            ("max_slowdown", self.max_slowdown),
        ])
    }

    /// What the search makes small.
    pub(super) fn goal(&self) -> Result<Goal, String> {
        let found = Goal::NAMES.iter().find(|(name, _)| *name == self.goal);
        found.map(|(_, goal)| *goal).ok_or_else(|| {
            format!(
                "goal = \"{}\": write `energy`, `ed` (energy-delay product) or `ed2` (ED²P)",
                self.goal
            )
        })
    }

    fn given_pus(&self) -> Option<PuSet> {
        let pus: PuSet = self.system.parse().ok()?;
        (!pus.is_empty()).then_some(pus)
    }

    /// The PUs for the work of the operating system, those that can be used.
    pub(super) fn system_pus(&self, topology: &Topology) -> PuSet {
        let usable = topology.usable();
        if let Some(pus) = self.given_pus() {
            return pus.and(&usable);
        }
        let Some(first) = usable.first() else {
            return PuSet::new();
        };
        match topology.core_of(first) {
            Some(core) if self.system == "core" => core.pus.and(&usable),
            _ => PuSet::single(first),
        }
    }

    /// The clock that is asked for; `None` if the policy's own is to be used.
    pub(super) fn clock(&self) -> Result<Option<Clock>, String> {
        let text = self.clock.trim();
        let wrong = || {
            format!(
                "clock = \"{}\": write a part of the highest clock such as `75%`, a clock such as `2.1GHz`, `keep` \
                 or `search`",
                self.clock
            )
        };
        if text.is_empty() {
            return Ok(None);
        }
        match text {
            "keep" => return Ok(Some(Clock::Keep)),
            "search" => return Ok(Some(Clock::Search)),
            _ => {}
        }
        let number = |text: &str| text.trim_end().parse::<f64>().map_err(|_| wrong());
        let units = [("GHz", 1e6), ("MHz", 1e3), ("kHz", 1.0)];
        let clock = match text.strip_suffix('%') {
            Some(text) => Clock::Share(number(text)? / 100.0),
            None => {
                let mut units = units.iter();
                let (text, factor) = units
                    .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))
                    .ok_or_else(wrong)?;
                Clock::KiloHertz(number(text)? * factor)
            }
        };
        match clock {
            Clock::Share(share) if share > 0.0 && share <= 1.0 => Ok(Some(clock)),
            Clock::KiloHertz(clock_rate) if clock_rate > 0.0 && clock_rate.is_finite() => {
                Ok(Some(clock))
            }
            _ => Err(wrong()),
        }
    }
}
