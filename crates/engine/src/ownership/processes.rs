//! The processes, and the PUs that each of them may use, by which their threads' masks are judged.

use super::{Ownership, owned::Place};
use perch_core::{Observation, ProcessId, ProcessState, PuSet, ThreadId};
use rustc_hash::FxHashSet;

/// Observations for which a change of a CPU set may explain a mask that was read before or after it.
const FRESH: u64 = 2;

/// A process, as last reported.
#[derive(Debug)]
pub(super) struct Process {
    state: ProcessState,
    /// The last observation for which the change to this state is news.
    fresh_until: u64,
}

impl Ownership {
    /// The default has changed. True if it is another.
    pub fn set_default(&mut self, default: PuSet) -> bool {
        if default == self.default || default.is_empty() {
            return false;
        }
        self.default = default;
        self.fresh_until = self.observations + FRESH;
        let place = self.fallback();
        let told = &self.processes;
        for owned in self.threads.values_mut() {
            if !told.contains_key(&owned.pid) {
                owned.set_default(&place);
            }
        }
        true
    }

    /// The target of a process: the number under which it was given to perch.
    pub fn target(&self, pid: i32) -> u32 {
        let process = self.processes.get(&pid);
        process.map_or(0, |process| process.state.target)
    }

    /// The mask of a process's threads whose affinity was not set, and whether it is all that the CPU set allows.
    pub fn default_of(&self, pid: i32) -> (&PuSet, bool) {
        match self.processes.get(&pid) {
            Some(process) => (&process.state.default, process.state.whole),
            None => (&self.default, true),
        }
    }

    pub(super) fn take_in_places(&mut self, observation: &Observation, usable: &PuSet) {
        if *usable != self.usable {
            let before = std::mem::replace(&mut self.usable, usable.clone());
            if !before.is_empty() {
                self.fresh_until = self.observations + FRESH;
            }
        }
        let mut changed = FxHashSet::default();
        for state in &observation.processes {
            let pid = state.process.pid;
            let known = self.processes.get(&pid);
            let told = Process {
                state: state.clone(),
                // That it is new is no change.
                fresh_until: known.map_or(0, |_| self.observations + FRESH),
            };
            let same_default = |old: &Process| {
                (&old.state.default, old.state.whole) == (&told.state.default, told.state.whole)
            };
            if known.is_some_and(|old| !same_default(old)) {
                changed.insert(pid);
            }
            self.processes.insert(pid, told);
        }
        if changed.is_empty() {
            return;
        }
        let mut threads = std::mem::take(&mut self.threads);
        for owned in threads.values_mut() {
            if changed.contains(&owned.pid) {
                owned.set_default(&self.place(owned.pid));
            }
        }
        self.threads = threads;
    }

    /// Forgets a process that has ended.
    pub fn forget_process(&mut self, process: ProcessId) {
        let pid = process.pid;
        if self
            .processes
            .get(&pid)
            .is_some_and(|known| known.state.process == process)
        {
            self.processes.remove(&pid);
        }
    }

    /// Forgets the threads of a target that is no longer followed.
    pub fn forget_target(&mut self, target: u32) {
        let gone: Vec<ThreadId> = self
            .threads
            .iter()
            .filter(|(_, owned)| self.target(owned.pid) == target)
            .map(|(thread, _)| *thread)
            .collect();
        for thread in gone {
            self.threads.remove(&thread);
            self.doubted.remove(&thread);
        }
    }

    pub(super) fn place(&self, pid: i32) -> Place {
        match self.processes.get(&pid) {
            Some(process) => Place {
                default: process.state.default.clone(),
                whole: process.state.whole,
                allowed: process.state.allowed.clone(),
                fresh: process.fresh_until >= self.observations,
            },
            None => self.fallback(),
        }
    }

    fn fallback(&self) -> Place {
        Place {
            default: self.default.clone(),
            whole: true,
            allowed: self.default.and(&self.usable),
            fresh: self.fresh_until >= self.observations,
        }
    }
}
