//! CPU weights: nice values or, where those could not be restored, control groups; journaled before they are changed.

use super::{Reconciler, groups::group_for};
use crate::{
    control::Control,
    journal::{NiceRecord, Record},
    observer::ActionTaken,
    ways::is_about_ways,
    weights::NiceNoticed,
};
use perch_core::{Affinity, Machine, NiceChange, Outcome, Remark, Scope, ThreadId};

/// A thread's target and process.
pub(super) fn target_of(control: &Control, thread: ThreadId) -> Option<(u32, i32)> {
    let pid = control.nices.get(thread)?.pid;
    Some((control.ownership.target(pid), pid))
}

/// A change of a nice value, made at `at`, with the thread's target.
fn set_record(control: &Control, change: &NiceChange, at: u64) -> Option<(u32, Record)> {
    let thread = change.thread;
    let (target, process) = target_of(control, thread)?;
    let record = NiceRecord {
        thread,
        process,
        before: control.nices.get(thread)?.before,
        from: change.expect,
        set: change.set,
        at,
    };
    Some((target, Record::Nice(record)))
}

impl Reconciler {
    /// What the journal must know of a thread whose nice value was found to be perch's, or another process's, with its
    /// target.
    pub(super) fn nice_record(noticed: NiceNoticed, control: &Control) -> Option<(u32, Record)> {
        let (NiceNoticed::Inherited(thread) | NiceNoticed::Foreign(thread)) = noticed;
        let (target, process) = target_of(control, thread)?;
        let known = control.nices.get(thread)?;
        let record = match noticed {
            NiceNoticed::Inherited(_) => Record::Nice(NiceRecord {
                thread,
                process,
                before: known.before,
                from: known.current,
                set: known.current,
                at: thread.start,
            }),
            NiceNoticed::Foreign(_) => Record::NicePlaced {
                thread,
                process,
                nice: Some(known.current),
            },
        };
        Some((target, record))
    }

    /// Journals and carries out those of actions that are about weights, and fills in what became of them.
    pub fn apply_actions<M: Machine>(
        &mut self,
        control: &mut Control,
        machine: &mut M,
        actions: &mut [ActionTaken],
        remarks: &mut Vec<Remark>,
    ) {
        self.remove_abandoned(control, machine, remarks);
        let mut changes = Vec::new();
        let mut groups = Vec::new();
        for (at, taken) in actions.iter_mut().enumerate() {
            if is_about_ways(taken) {
                continue;
            }
            if let Some(group) = self.group_of(taken.thread) {
                groups.push((at, group.to_owned()));
                continue;
            }
            let Some(change) = control.nices.change(taken) else {
                // It has the value already.
                taken.outcome = Outcome::Applied;
                control.nices.taken(taken, None, false);
                continue;
            };
            // What perch has set it gives back whatever the thread has become meanwhile.
            let may = match taken.to {
                Some(_) => permitted(machine.affinity(), &change),
                None => Ok(()),
            };
            match may {
                Ok(()) => changes.push((at, change)),
                Err(why) => {
                    let why = match group_for(machine.affinity(), control, taken.thread) {
                        Ok(group) => {
                            groups.push((at, group));
                            continue;
                        }
                        Err(Some(also)) => {
                            format!("{why}; nor can a control group do it: {also}")
                        }
                        Err(None) => why,
                    };
                    taken.outcome = Outcome::NotPermitted;
                    control.nices.taken(taken, Some(&change), false);
                    let pid = control.nices.get(taken.thread).map_or(0, |known| known.pid);
                    let remark = Remark::warning("weight-refused", why);
                    remarks.push(remark.about(Scope::Process(pid)));
                }
            }
        }
        if !groups.is_empty() {
            self.apply_groups(groups, control, machine, actions, remarks);
        }
        if changes.is_empty() {
            return;
        }
        let at = (self.clock)();
        let mut others = Vec::new();
        for (change_at, change) in &changes {
            if actions[*change_at].to.is_some() {
                others.extend(control.nices.give(change.set));
            }
        }
        let others = others
            .into_iter()
            .filter_map(|noticed| Self::nice_record(noticed, control));
        let sets = changes
            .iter()
            .filter_map(|(_, change)| set_record(control, change, at));
        let records = others.chain(sets).collect();
        if let Err(why) = self.log_intent(records, control, machine.affinity()) {
            remarks.push(Remark::error("journal", why));
            return;
        }
        let mut records = Vec::new();
        for (at, change) in &changes {
            let Some((target, _)) = target_of(control, change.thread) else {
                continue;
            };
            let weights = machine.affinity().weights();
            let outcome =
                weights.map_or(Outcome::NotPermitted, |weights| weights.change_nice(change));
            let taken = &mut actions[*at];
            taken.outcome = outcome;
            control.nices.taken(taken, Some(change), false);
            let thread = change.thread;
            records.push((target, Record::NiceDone { thread, outcome }));
        }
        self.log_outcome(records, remarks);
    }
}

/// Whether a change may be made: not one that perch could not undo.
fn permitted(affinity: &mut dyn Affinity, change: &NiceChange) -> Result<(), String> {
    match affinity.weights() {
        Some(weights) => weights.permitted(change),
        None => Err("this machine has no CPU weights: leave out --weight".to_owned()),
    }
}
