//! Giving interrupts back the masks that they had before perch.

use super::report::{Refusals, RestoreCounts};
use crate::journal::Journal;
use perch_core::{IrqChange, Irqs, MaskError, Outcome};

const REFUSALS: Refusals = Refusals {
    not_permitted: "not permitted: run it as root",
    failed: "the system lacks file descriptors or memory",
    no_usable_pu: "none of the PUs that it had is online now",
    not_applied: "this machine does not change masks of interrupts",
};

/// Gives each interrupt of a journal the mask that it had before perch, if it still has one that perch may have set.
/// `irqs` is `None` on a machine that has none.
pub fn restore_irqs(mut irqs: Option<&mut dyn Irqs>, journal: &Journal) -> RestoreCounts<u32> {
    let mut report = RestoreCounts::default();
    for record in journal.irqs() {
        let Some(irqs) = irqs.as_deref_mut() else {
            report.gone += 1;
            continue;
        };
        let outcome = match irqs.irq(record.irq) {
            Ok(state) if !state.may_be_of(&record.device) => Outcome::Gone,
            Ok(state) if state.mask == record.before => {
                report.already += 1;
                continue;
            }
            Ok(state) if state.mask == record.set || state.mask == record.from => {
                irqs.change_irq(&IrqChange {
                    irq: record.irq,
                    device: state.device,
                    expect: state.mask,
                    set: record.before.clone(),
                })
            }
            Ok(_) => Outcome::ChangedByOthers,
            Err(MaskError::Gone) => Outcome::Gone,
            Err(MaskError::Hidden) => Outcome::NotPermitted,
            Err(MaskError::Other(why)) => {
                report.fail(record.irq, why);
                continue;
            }
        };
        report.count(record.irq, outcome, &REFUSALS);
    }
    report
}
