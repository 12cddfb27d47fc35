//! What a journal knows of nice values, and of the control groups that stand in for them.

use super::{Journal, NiceRecord, NiceSetRecord};
use perch_core::{Outcome, ThreadId};

/// What is to be done with a thread's nice value on restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NiceKept {
    /// It is perch's doing, or is about to be.
    Held(NiceRecord),
    /// It has it not from perch, or no longer.
    Placed {
        /// PID of its process.
        process: i32,
        /// The value, as far as it is known.
        nice: Option<i32>,
    },
}

impl Journal {
    pub(super) fn add_nice(&mut self, record: &NiceRecord) {
        if record.set != record.before && record.at != u64::MAX {
            self.add_nice_set(&NiceSetRecord {
                process: record.process,
                set: record.set,
                before: record.before,
                at: record.at,
            });
        }
        // A thread that has inherited from perch the very value that it would have without perch keeps it.
        let kept = match record.from == record.set && record.set == record.before {
            true => NiceKept::Placed {
                process: record.process,
                nice: Some(record.before),
            },
            false => NiceKept::Held(*record),
        };
        self.nices.insert(record.thread, kept);
    }

    pub(super) fn add_nice_set(&mut self, set: &NiceSetRecord) {
        let key = (set.process, set.set, set.before);
        let at = self.nice_sets.entry(key).or_insert(set.at);
        *at = set.at.min(*at);
    }

    pub(super) fn add_nice_outcome(&mut self, thread: ThreadId, outcome: Outcome) {
        let Some(NiceKept::Held(record)) = self.nices.get_mut(&thread) else {
            return;
        };
        match outcome {
            Outcome::Applied => record.from = record.set,
            Outcome::NotApplied | Outcome::NotPermitted | Outcome::Failed | Outcome::NoUsablePu => {
                record.set = record.from;
            }
            Outcome::Gone => {
                self.nices.remove(&thread);
                return;
            }
            Outcome::ChangedByOthers => {
                let (process, nice) = (record.process, None);
                self.nices
                    .insert(thread, NiceKept::Placed { process, nice });
                return;
            }
        }
        if record.set == record.before {
            // Whatever it has from now on it has not from perch.
            let (process, nice) = (record.process, Some(record.before));
            self.nices
                .insert(thread, NiceKept::Placed { process, nice });
        }
    }

    /// The control groups that were made, with the thread that each was made for.
    pub fn groups(&self) -> impl Iterator<Item = (&str, ThreadId)> {
        self.groups
            .iter()
            .map(|(group, thread)| (&**group, *thread))
    }

    /// The threads whose nice values it knows.
    pub fn nices(&self) -> impl Iterator<Item = (ThreadId, &NiceKept)> {
        self.nices.iter().map(|(thread, kept)| (*thread, kept))
    }

    /// The state of a thread's nice value; `None` if it has no record.
    pub fn nice(&self, thread: ThreadId) -> Option<&NiceKept> {
        self.nices.get(&thread)
    }

    /// The nice values that the session has set.
    pub fn nice_sets(&self) -> impl Iterator<Item = NiceSetRecord> {
        self.nice_sets
            .iter()
            .map(|((process, set, before), at)| NiceSetRecord {
                process: *process,
                set: *set,
                before: *before,
                at: *at,
            })
    }
}
