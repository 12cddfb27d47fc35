//! CPU weights by control groups, for threads whose nice values perch could not restore.

use super::{Reconciler, weights::target_of};
use crate::{control::Control, journal::Record, observer::ActionTaken};
use perch_core::{
    ActionKind, Affinity, GroupChange, Machine, Outcome, Remark, ThreadId, WeightGroups,
};
use std::time::{Duration, Instant};

/// How long a group is left alone that could not be emptied: each try may take a fifth of a second.
const STUCK: Duration = Duration::from_secs(10);

fn groups(affinity: &mut dyn Affinity) -> Option<&mut dyn WeightGroups> {
    affinity.weights()?.groups()
}

/// The group that a thread would get; without one, why, unless the machine has none at all.
pub(super) fn group_for(
    affinity: &mut dyn Affinity,
    control: &Control,
    thread: ThreadId,
) -> Result<String, Option<String>> {
    let pid = control.nices.get(thread).map_or(0, |known| known.pid);
    match groups(affinity) {
        Some(groups) => groups.group_for(thread, pid).map_err(Some),
        None => Err(None),
    }
}

impl Reconciler {
    /// The group that perch has made for a thread.
    pub(super) fn group_of(&self, thread: ThreadId) -> Option<&str> {
        self.groups.get(&thread).map(|(_, group)| &**group)
    }

    /// Removes the groups of threads that have ended; what these started goes on with the usual weight.
    pub(super) fn remove_abandoned<M: Machine>(
        &mut self,
        control: &Control,
        machine: &mut M,
        remarks: &mut Vec<Remark>,
    ) {
        let ended = |thread: &&ThreadId| control.nices.get(**thread).is_none();
        let ended: Vec<ThreadId> = self.groups.keys().filter(ended).copied().collect();
        let mut records = Vec::new();
        for thread in ended {
            records.extend(self.remove(thread, machine).1);
        }
        self.log_outcome(records, remarks);
    }

    /// Removes a thread's group. One that could not be removed stays in the journal.
    fn remove<M: Machine>(
        &mut self,
        thread: ThreadId,
        machine: &mut M,
    ) -> (Outcome, Option<(u32, Record)>) {
        let Some((target, group)) = self.groups.get(&thread).cloned() else {
            return (Outcome::Gone, None);
        };
        let failed = self.stuck.get(&thread);
        if failed.is_some_and(|failed| failed.elapsed() < STUCK) {
            return (Outcome::Failed, None);
        }
        let groups = groups(machine.affinity());
        let outcome = groups.map_or(Outcome::NotPermitted, |groups| {
            groups.dissolve(&group, None)
        });
        if !matches!(outcome, Outcome::Applied | Outcome::Gone) {
            self.stuck.insert(thread, Instant::now());
            return (outcome, None);
        }
        self.groups.remove(&thread);
        self.stuck.remove(&thread);
        (outcome, Some((target, Record::GroupRemoved { group })))
    }

    /// Gives threads their weights by groups of these names, or undoes that, and fills in what became of it. New groups
    /// are journaled before they are made.
    pub(super) fn apply_groups<M: Machine>(
        &mut self,
        changes: Vec<(usize, String)>,
        control: &mut Control,
        machine: &mut M,
        actions: &mut [ActionTaken],
        remarks: &mut Vec<Remark>,
    ) {
        let mut made = Vec::new();
        for (at, group) in &changes {
            let thread = actions[*at].thread;
            if self.group_of(thread).is_none()
                && let Some((target, _)) = target_of(control, thread)
            {
                let group = group.clone();
                made.push((target, Record::Group { thread, group }));
            }
        }
        if !made.is_empty()
            && let Err(why) = self.log_intent(made, control, machine.affinity())
        {
            remarks.push(Remark::error("journal", why));
            return;
        }
        let mut records = Vec::new();
        for (at, group) in changes {
            let taken = &mut actions[at];
            let thread = taken.thread;
            let Some((target, process)) = target_of(control, thread) else {
                continue;
            };
            self.groups.entry(thread).or_insert((target, group.clone()));
            taken.by_group = true;
            match taken.to {
                Some(ActionKind::CpuWeight(weight)) => {
                    let change = GroupChange {
                        thread,
                        process,
                        group,
                        weight,
                    };
                    let groups = groups(machine.affinity());
                    taken.outcome = groups.map_or(Outcome::NotPermitted, |g| g.enter(&change));
                    if taken.outcome != Outcome::Applied {
                        // What was made of it must not stay.
                        records.extend(self.remove(thread, machine).1);
                    }
                }
                Some(ActionKind::CacheWays(_)) => {}
                None => {
                    let (outcome, record) = self.remove(thread, machine);
                    // The thread has left the group, or the group is empty.
                    taken.outcome = match outcome {
                        Outcome::Gone => Outcome::Applied,
                        other => other,
                    };
                    records.extend(record);
                }
            }
            control.nices.taken(taken, None, false);
        }
        self.log_outcome(records, remarks);
    }
}
