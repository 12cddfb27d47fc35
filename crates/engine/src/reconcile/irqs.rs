//! Interrupts: journaled before their masks are changed, and restored.

use super::Reconciler;
use crate::{
    irqs::KnownIrqs,
    journal::{IrqRecord, Record, file::JournalFile},
    observer::IrqMove,
    restore::{RestoreReport, restore_irqs},
};
use perch_core::{Affinity, IrqChange, PuSet, Remark};

/// Interrupts belong to no target: their journal has a number that no target gets.
const TARGET: u32 = u32::MAX;

impl Reconciler {
    /// Journals and makes changes of interrupts, and fills in what became of them. Moves of interrupts that must be left
    /// alone by now are taken out.
    pub fn apply_irqs(
        &mut self,
        known: &KnownIrqs,
        affinity: &mut dyn Affinity,
        moves: &mut Vec<IrqMove>,
        remarks: &mut Vec<Remark>,
    ) {
        let mut changes = Vec::new();
        moves.retain(|made| {
            let change = known.change(made);
            let free = change.is_some();
            changes.extend(change);
            free
        });
        let Some(irqs) = affinity.irqs().filter(|_| !changes.is_empty()) else {
            return;
        };
        if let Err(why) = self.log_intent_of_irqs(&changes) {
            remarks.push(Remark::error("journal", why));
            return;
        }
        let mut done = Vec::new();
        for ((change, _), made) in changes.iter().zip(moves) {
            made.outcome = irqs.change_irq(change);
            done.push(Record::IrqDone {
                irq: made.irq,
                outcome: made.outcome,
            });
        }
        if let Some(file) = &mut self.irqs
            && let Err(error) = file.log_outcome(&done)
        {
            let text = format!("{}: {error}", file.path().display());
            remarks.push(Remark::error("journal", text));
        }
    }

    /// Writes to the journal what is about to be changed, each with the mask that it goes back to.
    fn log_intent_of_irqs(&mut self, changes: &[(IrqChange, PuSet)]) -> Result<(), String> {
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        let records: Vec<Record> = changes
            .iter()
            .map(|(change, before)| {
                Record::Irq(IrqRecord {
                    irq: change.irq,
                    device: change.device.clone(),
                    before: before.clone(),
                    from: change.expect.clone(),
                    set: change.set.clone(),
                })
            })
            .collect();
        let mut header = self.header.clone();
        // No thread has this journal's default mask.
        (header.target, header.default) = (TARGET, PuSet::new());
        let file = match self.irqs.take() {
            Some(file) => Ok(file),
            None => JournalFile::create(&self.dir, header),
        };
        let announced = file.and_then(|file| self.irqs.insert(file).log_intent(&records));
        announced.map_err(|error| self.fail(&error))
    }

    /// Gives every interrupt back that still has the mask which it was given.
    pub(crate) fn give_back_irqs(&mut self, affinity: &mut dyn Affinity) -> RestoreReport {
        let mut report = RestoreReport::default();
        let Some(file) = self.irqs.take() else {
            return report;
        };
        report.irqs = restore_irqs(affinity.irqs(), file.journal());
        // With something left to restore the journal stays, for `perch restore`.
        if !report.irqs.failed.is_empty() {
            self.irqs = Some(file);
            return report;
        }
        let path = file.path().display().to_string();
        if let Err(error) = file.remove() {
            report.irqs.fail_all(format!("{path}: {error}"));
        }
        report
    }
}
