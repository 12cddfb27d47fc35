//! Which live threads belong to the session's processes?

use super::family::fits;
use crate::journal::Journal;
use perch_core::{Affinity, MaskError, ProcessId, ThreadId, affinity::Descendant};
use std::collections::{BTreeSet, HashSet};

/// Why a thread is left as it is that may be unrelated.
pub(super) const STRANGER: &str = "it was found by the number of a process that had ended before it started, and that may \
                                   be another's by now";

pub(super) struct Relatives {
    pub all: Vec<Descendant>,
    strangers: HashSet<ProcessId>,
}

impl Relatives {
    /// Those that are not `known`.
    pub fn find(
        affinity: &dyn Affinity,
        journal: &Journal,
        known: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Self, MaskError> {
        let session = &journal.header.session;
        let processes: Vec<ProcessId> = journal.processes().collect();
        let mut relatives = Self {
            all: affinity.descendants(session, &processes, known)?,
            strangers: HashSet::new(),
        };
        // An ended process leads the group of what it has started. But once that group is gone too, its number may be
        // given out again. The group of one that was started before its end is its own.
        let ended = |id: &ProcessId| journal.process(*id)?.ended;
        let Some(last) = processes.iter().filter_map(ended).max() else {
            return Ok(relatives);
        };
        let (late, early): (Vec<ProcessId>, Vec<ProcessId>) = relatives
            .all
            .iter()
            .map(|relative| relative.process)
            .partition(|process| process.start > last);
        if late.is_empty() {
            return Ok(relatives);
        }
        let lasting = processes.into_iter().filter(|id| ended(id).is_none());
        let lasting: Vec<ProcessId> = lasting.chain(early).collect();
        let sure = affinity.descendants(session, &lasting, known)?;
        let sure: HashSet<ProcessId> = sure.into_iter().map(|relative| relative.process).collect();
        relatives.strangers = late.into_iter().filter(|id| !sure.contains(id)).collect();
        Ok(relatives)
    }

    /// Whether only the number of a process that had ended before speaks for it.
    pub fn may_be_strange(&self, relative: &Descendant) -> bool {
        self.strangers.contains(&relative.process)
    }
}

/// Whether a process may have a mask or a nice value from a thread that perch has changed, by what its first thread has.
pub(crate) fn may_have_inherited(
    affinity: &mut dyn Affinity,
    journal: &Journal,
    process: ProcessId,
) -> bool {
    let first = ThreadId {
        tid: process.pid,
        start: process.start,
    };
    let mask = match affinity.mask(first) {
        Ok(mask) => mask,
        Err(error) => return error != MaskError::Gone,
    };
    let allowed = affinity.allowed(first);
    let mut masks = journal.masks();
    if masks.any(|record| fits(&record.set, &mask, allowed.as_ref())) {
        return true;
    }
    let nices: BTreeSet<i32> = journal.nice_sets().map(|record| record.set).collect();
    let Some(weights) = affinity.weights().filter(|_| !nices.is_empty()) else {
        return false;
    };
    match weights.nice(first) {
        Ok(nice) => nices.contains(&nice),
        Err(error) => error != MaskError::Gone,
    }
}
