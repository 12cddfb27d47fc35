//! Giving interrupts back the masks that they had before perch.

use super::report::IrqReport;
use crate::journal::Journal;
use perch_core::{IrqChange, Irqs, MaskError, Outcome};

/// Gives each interrupt of a journal the mask that it had before perch, if it still has one that perch may have set.
/// `irqs` is `None` on a machine that has none.
pub fn restore_irqs(mut irqs: Option<&mut dyn Irqs>, journal: &Journal) -> IrqReport {
    let mut report = IrqReport::default();
    for record in journal.irqs() {
        let Some(irqs) = irqs.as_deref_mut() else {
            report.gone += 1;
            continue;
        };
        let outcome = match irqs.irq(record.irq) {
            Ok(state) if state.device != record.device => Outcome::Gone,
            Ok(state) if state.mask == record.before => {
                report.already += 1;
                continue;
            }
            Ok(state) if state.mask == record.set || state.mask == record.from => {
                irqs.change_irq(&IrqChange {
                    irq: record.irq,
                    device: record.device.clone(),
                    expect: state.mask,
                    set: record.before.clone(),
                })
            }
            Ok(_) => Outcome::ChangedByOthers,
            Err(MaskError::Gone) => Outcome::Gone,
            Err(MaskError::Hidden) => Outcome::NotPermitted,
            Err(MaskError::Other(why)) => {
                report.failed.push((record.irq, why));
                continue;
            }
        };
        match outcome {
            Outcome::Applied => report.restored += 1,
            Outcome::Gone => report.gone += 1,
            Outcome::ChangedByOthers => report.left_alone += 1,
            Outcome::NotPermitted => {
                let why = "not permitted: run it as root".to_owned();
                report.failed.push((record.irq, why));
            }
            Outcome::Failed => {
                let why = "the system lacks file descriptors or memory".to_owned();
                report.failed.push((record.irq, why));
            }
            Outcome::NoUsablePu => {
                let why = "none of the PUs that it had is online now".to_owned();
                report.failed.push((record.irq, why));
            }
            Outcome::NotApplied => {
                let why = "this machine does not change masks of interrupts".to_owned();
                report.failed.push((record.irq, why));
            }
        }
    }
    report
}
