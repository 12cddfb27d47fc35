//! The processes of a control group: those that are there, and those that come.

use anyhow::{Context, Result, bail};
use perch_linux::cgroup::Cgroup;
use std::collections::BTreeSet;

/// A control group whose processes are followed.
#[derive(Debug)]
pub struct Group {
    group: Cgroup,
    known: BTreeSet<i32>,
}

impl Group {
    /// The group of that name (see [`Cgroup::open`]).
    ///
    /// # Errors
    /// There is none, or no process in it.
    pub fn open(name: &str) -> Result<Self> {
        let group = Cgroup::open(name)?;
        let place = || format!("{}", group.directory().display());
        let known: BTreeSet<i32> = group.processes().with_context(place)?.into_iter().collect();
        if known.is_empty() {
            bail!(
                "{}: no process is in this control group, or below it",
                place()
            );
        }
        Ok(Self { group, known })
    }

    /// Those that were there when this was last asked.
    pub fn known(&self) -> Vec<i32> {
        self.known.iter().copied().collect()
    }

    /// Those that have come since then; none of a group that cannot be read any more.
    pub fn newcomers(&mut self) -> Vec<i32> {
        let Ok(pids) = self.group.processes() else {
            return Vec::new();
        };
        let pids: BTreeSet<i32> = pids.into_iter().collect();
        let new = pids.difference(&self.known).copied().collect();
        // PIDs are used again.
        self.known = pids;
        new
    }
}
