//! Which live threads belong to the session's processes?

use crate::journal::Journal;
use perch_core::{Affinity, MaskError, ProcessId, ThreadId, affinity::Descendant};
use std::collections::HashSet;

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
