//! What came of restoring.

use perch_core::{Outcome, Setting, ThreadId};
use serde::{Deserialize, Serialize};

/// The result of a restore: numbers of threads by outcome, and the failures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreReport {
    /// The masks of threads.
    #[serde(flatten)]
    pub masks: RestoreCounts,
    /// The masks of interrupts; none but after the policy `irq` (`perch irq --apply`).
    #[serde(default, skip_serializing_if = "RestoreCounts::is_empty")]
    pub irqs: RestoreCounts<u32>,
    /// Settings of the machine; none but after a policy that changes them.
    #[serde(default, skip_serializing_if = "RestoreCounts::is_empty")]
    pub settings: RestoreCounts<Setting>,
    /// CPU weights, by nice values or control groups; none but after `--weight`.
    #[serde(default, skip_serializing_if = "RestoreCounts::is_empty")]
    pub weights: RestoreCounts,
    /// Records of the journal that were damaged or missing.
    pub damaged: usize,
}

/// What came of restoring one thing, such as the mask, of all that perch had changed: threads, or `Of` = `u32`,
/// interrupts by their number, or settings of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreCounts<Of = ThreadId> {
    /// They have the value again that they had before perch.
    pub restored: usize,
    /// Of these, threads that had inherited a value which perch set on another.
    #[serde(default)]
    pub inherited: usize,
    /// They had it already.
    pub already: usize,
    /// Threads that have exited; interrupts that were removed or belong to another device now; settings that
    /// the machine has no more.
    pub gone: usize,
    /// Left alone because another process has set the value since, or may have.
    pub left_alone: usize,
    /// What could not be restored, and why; without a thread or an interrupt where it is about no single one.
    pub failed: Vec<(Option<Of>, String)>,
}

/// Why a change was refused, for the user: the sentences for one kind of change.
pub(super) struct Refusals {
    pub not_permitted: &'static str,
    pub failed: &'static str,
    pub no_usable_pu: &'static str,
    pub not_applied: &'static str,
}

impl<Of> Default for RestoreCounts<Of> {
    fn default() -> Self {
        Self {
            restored: 0,
            inherited: 0,
            already: 0,
            gone: 0,
            left_alone: 0,
            failed: Vec::new(),
        }
    }
}

impl<Of> RestoreCounts<Of> {
    /// Whether there was nothing to restore.
    pub fn is_empty(&self) -> bool {
        self.restored + self.already + self.gone + self.left_alone == 0 && self.failed.is_empty()
    }

    /// Adds what came of restoring once more: what was counted before had its value then.
    fn and_then(&mut self, again: Self) {
        self.restored += again.restored;
        self.inherited += again.inherited;
        self.left_alone = again.left_alone;
        self.failed = again.failed;
    }

    /// Adds what came of looking for threads once more, which tells of some for the second time.
    pub(super) fn add_late(&mut self, late: Self)
    where
        Of: PartialEq,
    {
        self.restored += late.restored;
        self.inherited += late.inherited;
        for failed in late.failed {
            if !self.failed.contains(&failed) {
                self.failed.push(failed);
            }
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.restored += other.restored;
        self.inherited += other.inherited;
        self.already += other.already;
        self.gone += other.gone;
        self.left_alone += other.left_alone;
        self.failed.extend(other.failed);
    }

    pub(super) fn count(&mut self, of: Of, outcome: Outcome, refusals: &Refusals) {
        match outcome {
            Outcome::Applied => self.restored += 1,
            Outcome::Gone => self.gone += 1,
            Outcome::ChangedByOthers => self.left_alone += 1,
            Outcome::NotPermitted => self.fail(of, refusals.not_permitted),
            Outcome::Failed => self.fail(of, refusals.failed),
            Outcome::NoUsablePu => self.fail(of, refusals.no_usable_pu),
            Outcome::NotApplied => self.fail(of, refusals.not_applied),
        }
    }

    pub(super) fn fail(&mut self, of: Of, why: impl Into<String>) {
        self.failed.push((Some(of), why.into()));
    }

    /// A failure that is not about one thread or interrupt.
    pub(crate) fn fail_all(&mut self, why: impl Into<String>) {
        self.failed.push((None, why.into()));
    }
}

impl RestoreReport {
    /// Whether something could not be restored that should have been.
    pub fn has_failed(&self) -> bool {
        let Self {
            masks,
            irqs,
            settings,
            weights,
            ..
        } = self;
        !(masks.failed.is_empty()
            && irqs.failed.is_empty()
            && settings.failed.is_empty()
            && weights.failed.is_empty())
    }

    /// Adds what came of restoring threads once more: threads that were counted before had their mask then.
    pub(crate) fn and_then(&mut self, again: Self) {
        self.masks.and_then(again.masks);
        self.weights.and_then(again.weights);
    }

    /// Adds what came of restoring another target.
    pub(crate) fn add(&mut self, other: Self) {
        self.masks.add(other.masks);
        self.irqs.add(other.irqs);
        self.settings.add(other.settings);
        self.weights.add(other.weights);
        self.damaged += other.damaged;
    }
}
