//! What each followed process may use: its CPU set, and the mask of its threads that have not been placed.

use crate::{
    affinity::cpuset::{Allowed, Cpusets, group_text, process_group_text},
    topology::{online_pus, possible_pus},
};
use perch_core::{ProcessId, ProcessState, PuSet};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A process as it was last reported.
#[derive(Debug)]
struct Known {
    state: ProcessState,
    /// The groups that it is in.
    groups: String,
}

/// The masks with which targets were given to perch.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    /// A program that inherited this mask from perch; whether it is all that perch's own CPU set allows.
    Launched(PuSet, bool),
    Attached,
}

/// Follows the CPU sets of processes: one short read a period for each group that any of them is in.
#[derive(Debug)]
pub(super) struct Places {
    cpusets: Cpusets,
    own_mask: PuSet,
    targets: Vec<Target>,
    known: BTreeMap<i32, Known>,
    /// Processes whose groups are to be read again.
    doubtful: BTreeSet<i32>,
    /// States that were not yet reported.
    news: Vec<ProcessState>,
}

impl Places {
    /// `own_mask` is the mask that perch itself was started with.
    pub fn new(own_mask: PuSet) -> Self {
        Self {
            cpusets: Cpusets::new(),
            own_mask,
            targets: Vec::new(),
            known: BTreeMap::new(),
            doubtful: BTreeSet::new(),
            news: Vec::new(),
        }
    }

    /// A program that perch launches; its target's number.
    pub fn add_launched(&mut self) -> u32 {
        let own = std::process::id() as i32;
        let groups = group_text(own, own).unwrap_or_default();
        let allowed = self
            .cpusets
            .allowed(&groups, &possible_pus(), &online_pus());
        let whole = self.own_mask == allowed.unplaced;
        self.add(Target::Launched(self.own_mask.clone(), whole))
    }

    /// A process that perch is attached to; its target's number.
    pub fn add_attached(&mut self) -> u32 {
        self.add(Target::Attached)
    }

    fn add(&mut self, target: Target) -> u32 {
        self.targets.push(target);
        self.targets.len() as u32 - 1
    }

    /// Masks of these processes' threads have changed: they may be in other groups.
    pub fn look_again(&mut self, pids: impl Iterator<Item = i32>) {
        self.doubtful.extend(pids);
    }

    /// Looks at all processes.
    pub fn look(&mut self, processes: impl Iterator<Item = (ProcessId, u32)>) {
        let (possible, online) = (possible_pus(), online_pus());
        let mut sets = HashMap::<String, Allowed>::new();
        let mut known = std::mem::take(&mut self.known);
        for (process, target) in processes {
            let pid = process.pid;
            let old = known
                .remove(&pid)
                .filter(|old| old.state.process == process);
            let groups = match old {
                Some(ref old) if !self.doubtful.contains(&pid) => old.groups.clone(),
                // If they cannot be read it has ended, and they are not needed; or there is no descriptor.
                _ => process_group_text(pid)
                    .or_else(|| old.as_ref().map(|old| old.groups.clone()))
                    .unwrap_or_default(),
            };
            let allowed = sets
                .entry(groups.clone())
                .or_insert_with(|| self.cpusets.allowed(&groups, &possible, &online));
            let state = self.state(process, target, allowed);
            if old.is_none_or(|old| old.state != state) {
                self.news.push(state.clone());
            }
            self.known.insert(pid, Known { state, groups });
        }
        self.doubtful.clear();
    }

    /// The states of processes that are new or have changed since the last call.
    pub fn take_news(&mut self) -> Vec<ProcessState> {
        std::mem::take(&mut self.news)
    }

    fn state(&self, process: ProcessId, target: u32, allowed: &Allowed) -> ProcessState {
        let (default, whole) = match self.targets.get(target as usize) {
            Some(Target::Launched(mask, false)) => (fitted(mask, &allowed.online), false),
            _ => (allowed.unplaced.clone(), true),
        };
        ProcessState {
            process,
            target,
            default,
            whole,
            allowed: allowed.online.clone(),
        }
    }

    /// The mask of the first target's threads that have not been placed.
    pub fn first_default(&self) -> PuSet {
        let of_first = |known: &&Known| known.state.target == 0;
        let first = self.known.values().find(of_first);
        first.map_or_else(
            || self.own_mask.clone(),
            |first| first.state.default.clone(),
        )
    }
}

/// What is left of a mask in a CPU set that may have shrunk since; all of the set if nothing is.
fn fitted(mask: &PuSet, allowed: &PuSet) -> PuSet {
    if mask.is_disjoint(allowed) {
        allowed.clone()
    } else {
        mask.clone()
    }
}
