//! What a policy asks for, and what became of it.

use crate::{IrqBinding, MetricName, PuSet, Remark, ThreadId, Weight};
use serde::{Deserialize, Serialize};

/// Why, in a sentence and in the numbers behind it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// One short sentence, such as `FP rank 2 of 8: own FPU of core 1`.
    pub text: String,
    /// The metrics that decided, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<(MetricName, f64)>,
}

impl Reason {
    /// A reason without numbers.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            numbers: Vec::new(),
        }
    }

    /// The same reason with one more number.
    #[must_use]
    pub fn with(mut self, name: &str, value: f64) -> Self {
        self.numbers.push((name.into(), value));
        self
    }

    /// The same reason with more numbers; for many reasons, which share the names.
    #[must_use]
    pub fn with_all(mut self, names: &[MetricName], values: impl IntoIterator<Item = f64>) -> Self {
        self.numbers.extend(names.iter().cloned().zip(values));
        self
    }
}

/// A thread, where it shall run, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Binding {
    /// The thread that is bound.
    pub thread: ThreadId,
    /// Where: never empty, always within the thread's allowed PUs.
    pub pus: PuSet,
    /// Why it is bound there, for the user.
    pub reason: Reason,
}

/// What can be done to a thread besides binding it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionKind {
    /// It gets this CPU weight.
    CpuWeight(Weight),
}

/// A thread, what is done to it, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// The thread.
    pub thread: ThreadId,
    /// What is done.
    pub what: ActionKind,
    /// Why, for the user.
    pub reason: Reason,
}

/// The desired state: threads without a binding get back the mask that they had before perch touched them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Who goes where, at most one a thread.
    pub bindings: Vec<Binding>,
    /// Which interrupts are delivered where, at most one binding an interrupt; those without one get back the mask that
    /// they had before perch touched them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irqs: Vec<IrqBinding>,
    /// What else is done to threads, at most one action of a kind a thread. What is not in the plan is undone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
    /// Why threads that were bound are let go; optional, for explanation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<(ThreadId, Reason)>,
    /// What the user should know, such as why nothing is bound on this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
}

/// The outcome of one change of one thread or interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Done.
    Applied,
    /// Only decided (`--dry-run`, replay).
    NotApplied,
    /// The thread exited before the change.
    Gone,
    /// Its mask was no longer the one that perch knew: another process set it. Left alone.
    ChangedByOthers,
    /// The kernel refused.
    NotPermitted,
    /// It could not be tried now (no file descriptor or memory left); it may work later.
    Failed,
    /// None of the PUs is usable any more (offline, or out of the cpuset).
    NoUsablePu,
}
