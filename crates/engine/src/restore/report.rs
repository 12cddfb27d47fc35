//! What came of restoring.

use perch_core::{Outcome, ThreadId};
use serde::{Deserialize, Serialize};

/// What came of restoring.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreReport {
    /// Threads that have the mask again that they had before perch.
    pub restored: usize,
    /// Of these, threads that had inherited a mask which perch set on another.
    pub inherited: usize,
    /// Threads that had it already.
    pub already: usize,
    /// Threads that have ended.
    pub gone: usize,
    /// Threads left alone because another process has changed their mask since.
    pub left_alone: usize,
    /// Threads that could not be restored, and why.
    pub failed: Vec<(ThreadId, String)>,
    /// Interrupts; none but after the policy `irq` (`perch irq --apply`).
    #[serde(default, skip_serializing_if = "IrqReport::is_empty")]
    pub irqs: IrqReport,
    /// Nice values, by which threads have their CPU weights; none but after `--weight`.
    #[serde(default, skip_serializing_if = "WeightReport::is_empty")]
    pub weights: WeightReport,
    /// Records of the journal that were damaged or missing.
    pub damaged: usize,
}

/// What came of restoring the nice values of threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightReport {
    /// Threads that have the value again that they had before perch.
    pub restored: usize,
    /// Of these, threads that had inherited a value which perch set on another.
    pub inherited: usize,
    /// Threads that had it already.
    pub already: usize,
    /// Threads that have ended.
    pub gone: usize,
    /// Threads left alone because another process has set their value since, or may have.
    pub left_alone: usize,
    /// Threads that could not be restored, and why.
    pub failed: Vec<(ThreadId, String)>,
}

impl WeightReport {
    /// Whether there was nothing to restore.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn and_then(&mut self, again: Self) {
        self.restored += again.restored;
        self.inherited += again.inherited;
        self.left_alone = again.left_alone;
        self.failed = again.failed;
    }

    fn add(&mut self, other: Self) {
        self.restored += other.restored;
        self.inherited += other.inherited;
        self.already += other.already;
        self.gone += other.gone;
        self.left_alone += other.left_alone;
        self.failed.extend(other.failed);
    }
}

/// What came of restoring the masks of interrupts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrqReport {
    /// Interrupts that have the mask again that they had before perch.
    pub restored: usize,
    /// Interrupts that had it already.
    pub already: usize,
    /// Interrupts that were removed or belong to another device now.
    pub gone: usize,
    /// Interrupts left alone because another process has changed their mask since.
    pub left_alone: usize,
    /// Interrupts that could not be restored, and why.
    pub failed: Vec<(u32, String)>,
}

impl IrqReport {
    /// Whether there was nothing to restore.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn add(&mut self, other: Self) {
        self.restored += other.restored;
        self.already += other.already;
        self.gone += other.gone;
        self.left_alone += other.left_alone;
        self.failed.extend(other.failed);
    }
}

impl RestoreReport {
    /// Whether something could not be restored that should have been.
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty() || !self.irqs.failed.is_empty() || !self.weights.failed.is_empty()
    }

    /// Adds what came of restoring once more: threads that were counted before had their mask then.
    pub(crate) fn and_then(&mut self, again: Self) {
        self.restored += again.restored;
        self.inherited += again.inherited;
        self.left_alone = again.left_alone;
        self.failed = again.failed;
        self.weights.and_then(again.weights);
    }

    /// Adds what came of restoring another target.
    pub(crate) fn add(&mut self, other: Self) {
        self.restored += other.restored;
        self.inherited += other.inherited;
        self.already += other.already;
        self.gone += other.gone;
        self.left_alone += other.left_alone;
        self.failed.extend(other.failed);
        self.irqs.add(other.irqs);
        self.weights.add(other.weights);
        self.damaged += other.damaged;
    }

    pub(super) fn count(&mut self, thread: ThreadId, outcome: Outcome) {
        match outcome {
            Outcome::Applied => self.restored += 1,
            Outcome::Gone => self.gone += 1,
            Outcome::ChangedByOthers => self.left_alone += 1,
            Outcome::NotPermitted => {
                self.fail(thread, "not permitted: run `perch restore` as root");
            }
            Outcome::Failed => self.fail(
                thread,
                "the system lacks file descriptors or memory: run `perch restore` when it has some",
            ),
            Outcome::NoUsablePu => self.fail(
                thread,
                "none of the PUs that it had is usable now (offline, or out of the cpuset)",
            ),
            Outcome::NotApplied => self.fail(thread, "this machine does not change masks"),
        }
    }

    pub(super) fn fail(&mut self, thread: ThreadId, why: impl Into<String>) {
        self.failed.push((thread, why.into()));
    }
}
