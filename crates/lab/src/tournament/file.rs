//! The rules of a tournament: a file.

use serde::Deserialize;

const FILE: &str = include_str!("../../tournament.toml");

/// Who plays on what, and for how long. Times are in seconds of the operating system.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rules {
    /// The seed of all that is drawn.
    pub seed: u64,
    /// Seeds with which the default scheduler plays each workload.
    pub default_seeds: u64,
    /// Seeds with which each policy does.
    pub policy_seeds: u64,
    /// Before anything is counted.
    pub warm_up: u64,
    /// While it is.
    pub length: u64,
    /// How many results are judged again at the cycle level.
    pub judged_again: u64,
    /// The machines.
    #[serde(rename = "machine")]
    pub machines: Vec<Entry>,
    /// The policies.
    #[serde(rename = "contestant")]
    pub contestants: Vec<Contestant>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name, or its file.
    pub name: String,
    /// How many workloads are drawn for it.
    pub workloads: u64,
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contestant {
    /// What it is called in tables.
    pub name: String,
    /// The policy's name.
    pub policy: String,
    /// Its options.
    #[serde(default)]
    pub options: toml::Table,
    /// Whether it is given the machine's calibration.
    #[serde(default)]
    pub calibrated: bool,
    /// Whether it sees only what instruction sampling tells.
    #[serde(default)]
    pub sampled: bool,
}

impl Rules {
    /// The shipped rules.
    ///
    /// # Panics
    /// Never with the file of this source tree: a test reads it.
    pub fn shipped() -> Self {
        toml::from_str(FILE).unwrap_or_else(|error| panic!("crates/lab/tournament.toml: {error}"))
    }
}
