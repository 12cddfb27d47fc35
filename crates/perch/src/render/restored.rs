//! What came of restoring, in words.

use super::count;
use perch_core::{ThreadId, text::printable};
use perch_engine::{RestoreCounts, RestoreReport};

/// What came of restoring one journal.
pub fn restored(report: &RestoreReport) -> String {
    let masks = Words {
        noun: "thread",
        already: "had their masks already",
        gone: "ended",
        left_alone: "left alone: another process has set their masks since",
    };
    let mut parts =
        vec![
            masks.sentence(&report.masks, |thread: &ThreadId, why| match thread.tid {
                0 => why.to_owned(),
                _ => format!("{thread} failed: {why}"),
            }),
        ];
    if !report.weights.is_empty() {
        let weights = Words {
            noun: "CPU weight",
            already: "as before already",
            gone: "of threads that have ended",
            left_alone: "left alone: another process has set them since, or may have",
        };
        parts.push(weights.sentence(&report.weights, |thread, why| {
            format!("the weight of {thread} failed: {why}")
        }));
    }
    if !report.irqs.is_empty() {
        parts.push(irqs(&report.irqs));
    }
    if !report.settings.is_empty() {
        let settings = Words {
            noun: "setting",
            already: "as before already",
            gone: "no longer present",
            left_alone: "left alone: another process has changed them since",
        };
        parts.push(settings.sentence(&report.settings, |setting, why| {
            printable(&format!("{setting} failed: {why}")).into_owned()
        }));
    }
    parts.join("; ")
}

/// What came of restoring the masks of interrupts.
pub fn irqs(counts: &RestoreCounts<u32>) -> String {
    let irqs = Words {
        noun: "interrupt",
        already: "had their masks already",
        gone: "no longer present",
        left_alone: "left alone: another process has set their masks since",
    };
    irqs.sentence(counts, |irq, why| format!("IRQ {irq} failed: {why}"))
}

/// How the counts of one kind of change are named.
struct Words {
    noun: &'static str,
    already: &'static str,
    gone: &'static str,
    left_alone: &'static str,
}

impl Words {
    fn sentence<Of>(
        &self,
        counts: &RestoreCounts<Of>,
        failed: impl Fn(&Of, &str) -> String,
    ) -> String {
        let mut parts = vec![format!("{} restored", count(counts.restored, self.noun))];
        let others = [
            (counts.already, self.already),
            (counts.gone, self.gone),
            (counts.left_alone, self.left_alone),
        ];
        let others = others.iter().filter(|(number, _)| *number > 0);
        parts.extend(others.map(|(number, what)| format!("{number} {what}")));
        parts.extend(counts.failed.iter().map(|(of, why)| match of {
            Some(of) => failed(of, why),
            None => why.clone(),
        }));
        parts.join("; ")
    }
}
