//! Interrupts: journaled before their masks are changed, and restored.

use super::Reconciler;
use crate::{
    irqs::KnownIrqs,
    journal::{IrqRecord, Journal, Record},
    observer::IrqMove,
    restore::{RestoreReport, restore_irqs},
};
use perch_core::{Affinity, IrqChange, Outcome, PuSet, Remark};

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
        self.irqs.log_outcome(&done, remarks);
    }

    /// Journals which interrupts' masks are not perch's doing any more: should another process give one the very mask that
    /// perch gave it, it is left alone all the same.
    pub(super) fn release_irqs(&mut self, released: &[(u32, Outcome)], remarks: &mut Vec<Remark>) {
        let records = released.iter().map(|(irq, outcome)| Record::IrqDone {
            irq: *irq,
            outcome: *outcome,
        });
        let records: Vec<Record> = records.collect();
        self.irqs.log_outcome(&records, remarks);
        for (irq, outcome) in released {
            if *outcome == Outcome::ChangedByOthers {
                let text = format!(
                    "another process has changed the mask of interrupt {irq}: perch leaves it alone"
                );
                remarks.push(Remark::note("irq-changed-by-others", text));
            }
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
        let announced = self.irqs.log_intent(&self.dir, &self.header, &records);
        announced.map_err(|error| self.fail(&error))
    }

    /// Gives every interrupt back that still has the mask which it was given.
    pub(crate) fn give_back_irqs(&mut self, affinity: &mut dyn Affinity) -> RestoreReport {
        let restore = |journal: &Journal| restore_irqs(affinity.irqs(), journal);
        RestoreReport {
            irqs: self.irqs.give_back(restore),
            ..RestoreReport::default()
        }
    }
}
