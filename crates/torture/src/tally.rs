//! What an attack counts.

use crate::perch::Done;
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

/// How many examples of one kind of violation are kept.
const EXAMPLES: usize = 4;

/// Violations of one kind.
#[derive(Debug, Default, Serialize)]
pub struct Fault {
    /// How many.
    pub count: u64,
    /// Some of them.
    pub examples: Vec<String>,
}

/// What an attack counts.
#[derive(Debug, Default, Serialize)]
pub struct Tally {
    /// Tries.
    pub tries: u64,
    /// Masks compared with what they should be, and other findings that could have been violations.
    pub checked: u64,
    /// Violations by kind.
    pub faults: BTreeMap<String, Fault>,
    /// Why it was not made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// What is worth knowing beside that.
    pub notes: Vec<String>,
    /// How long it took.
    pub seconds: f64,
}

impl Tally {
    /// Counts a violation.
    pub fn fault(&mut self, kind: &str, example: impl Into<String>) {
        let fault = self.faults.entry(kind.to_owned()).or_default();
        fault.count += 1;
        if fault.examples.len() < EXAMPLES {
            fault.examples.push(example.into());
        }
    }

    /// Counts one check, and a violation unless it holds.
    pub fn hold(&mut self, holds: bool, kind: &str, example: impl FnOnce() -> String) {
        self.checked += 1;
        if !holds {
            self.fault(kind, example());
        }
    }

    /// Counts a perch that hung or crashed.
    pub fn judge(&mut self, done: &Done, what: &str) {
        self.checked += 1;
        if done.status.is_none() {
            self.fault("perch hung", format!("{what}: {}", done.text()));
        } else if done.crashed() {
            self.fault("perch crashed", format!("{what}: {}", done.text()));
        }
    }

    /// All violations.
    pub fn violations(&self) -> u64 {
        self.faults.values().map(|fault| fault.count).sum()
    }

    /// An attack that checked nothing has shown nothing.
    pub fn is_good(&self) -> bool {
        self.skipped.is_some() || self.violations() == 0 && self.checked > 0
    }

    /// Sets how long it took.
    pub fn took(&mut self, time: Duration) {
        self.seconds = (time.as_secs_f64() * 10.0).round() / 10.0;
    }
}
