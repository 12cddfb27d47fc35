//! Changing the masks of interrupts: journaled before, put back after, whatever happens.

use crate::{
    journal::{
        IrqRecord, Record,
        file::JournalFile,
        state_dir::{self, StateDir, StateDirError},
    },
    restore::{IrqReport, restore_irqs},
};
use perch_core::{Affinity, IrqChange, IrqState, Outcome, PuSet};
use std::collections::BTreeMap;

/// Holds interrupts where they were put; gives them back when it is dropped.
pub struct IrqKeeper<A: Affinity> {
    affinity: A,
    dir: StateDir,
    file: Option<JournalFile>,
    /// Interrupts that another process has placed since.
    foreign: BTreeMap<u32, PuSet>,
}

impl<A: Affinity> IrqKeeper<A> {
    /// A keeper that holds nothing yet; the journal is made before the first change.
    pub fn new(affinity: A, dir: StateDir) -> Self {
        Self {
            affinity,
            dir,
            file: None,
            foreign: BTreeMap::new(),
        }
    }

    /// The PUs to which this interrupt may go: those of the mask that it had before perch moved it. `None` if the
    /// kernel does not let its mask be changed, or if another process has changed it since perch moved it.
    pub fn allowed(&mut self, irq: u32, state: &IrqState) -> Option<PuSet> {
        if !state.movable || self.foreign.contains_key(&irq) {
            return None;
        }
        let held = self.file.as_ref().and_then(|file| file.journal().irq(irq));
        match held.filter(|held| held.device == state.device) {
            None => Some(state.mask.clone()),
            Some(held) if held.set == state.mask => Some(held.before.clone()),
            Some(_) => {
                self.foreign.insert(irq, state.mask.clone());
                None
            }
        }
    }

    /// Sends interrupts to single PUs. `moves` are interrupts as they were found, and where each shall go.
    ///
    /// # Errors
    /// A journal that cannot be written: then nothing is changed.
    pub fn apply(
        &mut self,
        moves: &[(u32, IrqState, u32)],
    ) -> Result<Vec<(u32, Outcome)>, StateDirError> {
        if moves.is_empty() {
            return Ok(Vec::new());
        }
        let fail = |dir: &StateDir, error| StateDirError::Io {
            path: dir.path().to_owned(),
            error,
        };
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                // This session places no threads, so their default mask is never used.
                let header = state_dir::header(PuSet::new())?;
                JournalFile::create(&self.dir, header).map_err(|error| fail(&self.dir, error))?
            }
        };
        let file = self.file.insert(file);
        let records = moves.iter().map(|(irq, state, to)| {
            let held = file.journal().irq(*irq);
            let held = held.filter(|held| held.device == state.device);
            Record::Irq(IrqRecord {
                irq: *irq,
                device: state.device.clone(),
                before: held.map_or_else(|| state.mask.clone(), |held| held.before.clone()),
                from: state.mask.clone(),
                set: PuSet::single(*to),
            })
        });
        let records: Vec<Record> = records.collect();
        file.announce(&records)
            .map_err(|error| fail(&self.dir, error))?;
        let mut outcomes = Vec::new();
        let mut done = Vec::new();
        for (irq, state, to) in moves {
            let outcome = self.affinity.change_irq(&IrqChange {
                irq: *irq,
                device: state.device.clone(),
                expect: state.mask.clone(),
                set: PuSet::single(*to),
            });
            if outcome == Outcome::ChangedByOthers {
                self.foreign.insert(*irq, state.mask.clone());
            }
            outcomes.push((*irq, outcome));
            done.push(Record::IrqDone { irq: *irq, outcome });
        }
        file.conclude(&done)
            .map_err(|error| fail(&self.dir, error))?;
        Ok(outcomes)
    }

    /// Gives every interrupt back that still has the mask which it was given.
    pub fn give_back(&mut self) -> IrqReport {
        let Some(file) = self.file.take() else {
            return IrqReport::default();
        };
        let report = restore_irqs(&mut self.affinity, file.journal());
        // With something left to restore the journal stays, for `perch restore`.
        if report.failed.is_empty() {
            let _ = file.remove();
        }
        report
    }
}

/// An error or a panic must not leave masks behind.
impl<A: Affinity> Drop for IrqKeeper<A> {
    fn drop(&mut self) {
        self.give_back();
    }
}
