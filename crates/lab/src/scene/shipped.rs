//! The machines and workloads that come with perch.

use perch_sim::config::{self, ConfigError};
use serde::Serialize;

/// A shipped file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it is, in a sentence.
    pub about: String,
}

/// What is shipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shipped {
    /// The machines.
    pub machines: Vec<Entry>,
    /// The workloads.
    pub workloads: Vec<Entry>,
}

impl Shipped {
    /// Reads all.
    ///
    /// # Errors
    /// A shipped file with a mistake.
    pub fn new() -> Result<Self, ConfigError> {
        let entry = |name: &str, about: String| Entry {
            name: name.to_owned(),
            about,
        };
        let machines = config::shipped_machines().into_iter();
        let workloads = config::shipped_workloads().into_iter();
        Ok(Self {
            machines: machines
                .map(|file| Ok(entry(file.name, config::find_machine(file.name)?.about)))
                .collect::<Result<_, ConfigError>>()?,
            workloads: workloads
                .map(|file| Ok(entry(file.name, config::find_workload(file.name)?.about)))
                .collect::<Result<_, ConfigError>>()?,
        })
    }
}
