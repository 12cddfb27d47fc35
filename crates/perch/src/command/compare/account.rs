//! What a `perch run` tells `perch compare`, which started it: what was changed, and what the program used without perch.

use anyhow::{Context, Result};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use perch_core::Outcome;
use perch_engine::{Period, SessionSink};
use serde::{Deserialize, Serialize};
use std::{io::Write, path::Path};

/// What a process and its descendants have used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// User time in seconds.
    pub user: f64,
    /// System time in seconds.
    pub system: f64,
    /// Voluntary context switches.
    pub voluntary: u64,
    /// Involuntary context switches.
    pub involuntary: u64,
}

impl Usage {
    /// That of all children so far that have ended and been waited for, with their own.
    ///
    /// # Errors
    /// None that Linux has for this.
    pub fn of_children() -> Result<Self> {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")?;
        let seconds = |time: nix::sys::time::TimeVal| time.num_microseconds() as f64 / 1e6;
        Ok(Self {
            user: seconds(usage.user_time()),
            system: seconds(usage.system_time()),
            voluntary: usage.voluntary_context_switches().max(0) as u64,
            involuntary: usage.involuntary_context_switches().max(0) as u64,
        })
    }

    /// What was used since `before`, or besides it.
    #[must_use]
    pub fn without(self, before: Self) -> Self {
        Self {
            user: (self.user - before.user).max(0.0),
            system: (self.system - before.system).max(0.0),
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
        }
    }
}

/// What was changed in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Threads bound, moved, given a CPU weight; interrupts moved; settings changed.
    pub made: u64,
    /// Whether another perch held what this one was to place, so that it only observed.
    pub observed_only: bool,
}

impl SessionSink for Changes {
    fn period(&mut self, period: &Period) {
        let outcomes = period.moves.iter().map(|made| made.outcome);
        let outcomes = outcomes.chain(period.irq_moves.iter().map(|made| made.outcome));
        let outcomes = outcomes.chain(period.setting_moves.iter().map(|made| made.outcome));
        let outcomes = outcomes.chain(period.actions.iter().map(|taken| taken.outcome));
        let applied = outcomes.filter(|outcome| *outcome == Outcome::Applied);
        self.made += applied.count() as u64;
    }
}

/// The whole account.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// What was changed.
    pub changes: Changes,
    /// What the program used.
    pub program: Usage,
}

/// Writes the account of a run whose program has ended.
///
/// # Errors
/// A file that cannot be written.
pub fn write(path: &Path, changes: Changes) -> Result<()> {
    let account = Account {
        changes,
        program: Usage::of_children()?,
    };
    let wrong = || format!("--account {}: cannot be written", path.display());
    let mut file = perch_files::output(path).with_context(wrong)?;
    file.write_all(&serde_json::to_vec(&account)?)
        .with_context(wrong)
}
