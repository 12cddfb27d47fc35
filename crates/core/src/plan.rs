//! What a policy asks for, and what became of it.

use crate::{CacheWays, IrqBinding, MetricName, PuSet, Remark, SettingBinding, ThreadId, Weight};
use serde::{Deserialize, Serialize};

/// Why, in a sentence and in the numbers behind it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// One short sentence, such as `FP rank 2 of 8: own FPU of core 1`.
    pub text: String,
    /// The numbers that decided, by name. Names of [metrics](crate::metric::names) have the metric's unit. Others:
    ///
    /// | name | policy | unit |
    /// | --- | --- | --- |
    /// | `activity` | all | share of the period on a PU, 0 to 1 |
    /// | `fp_rank` | `workover` | rank by FP share, from 1 |
    /// | `pu` | `workover` | number of the PU, as the operating system counts |
    /// | `fp_heavy_in_domain` | `workover` | FP-heavy threads in the FP sharing domain |
    /// | `demand` | `cpi` | instructions per cycle in isolation |
    /// | `measured_ipc` | `cpi` | instructions per cycle as measured, next to co-running threads |
    /// | `confidence` | `cpi` | confidence of the demand, 0 to 1 |
    /// | `core_demand` | `cpi` | sum of the demands on the core, instructions per cycle |
    /// | `load`, `limit` | `masa` | unit of the load metric: events per second, or a share |
    /// | `highest before`, `lowest before`, `highest after`, `lowest after` | `masa` | loads of the two groups of a swap, as `load` |
    /// | `swaps`, `came back` | `masa` | numbers of swaps so far, and of those that returned a thread |
    /// | `predicted loss` | `symbiosis` | predicted share of the speed in isolation that is lost, 0 to 1 |
    /// | `class` | `symbiosis` | index of the thread's class, with more than 256 threads |
    /// | `highest_before`, `lowest_before`, `highest_after`, `lowest_after` | `irq` | interrupts per second |
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
    /// The reason for this placement, for the user.
    pub reason: Reason,
}

/// A change to a thread other than a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionKind {
    /// It gets this CPU weight.
    CpuWeight(Weight),
    /// It may fill only these ways of its caches of a level. It finds lines in all ways, and what it has elsewhere stays.
    CacheWays(CacheWays),
}

/// A thread, what is done to it, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// The thread, by TID and start time.
    pub thread: ThreadId,
    /// The kind of action, with its value.
    pub what: ActionKind,
    /// Why, for the user.
    pub reason: Reason,
}

/// The desired state: the masks of threads without a binding are restored to those before perch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The bindings of threads, at most one per thread.
    pub bindings: Vec<Binding>,
    /// The bindings of interrupts, at most one per interrupt; the masks of those without one are restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irqs: Vec<IrqBinding>,
    /// What else is done to threads, at most one action of a kind a thread; ways of caches of another level are another
    /// kind. What is not in the plan is undone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<Action>,
    /// Settings of the machine, each at most once; those without a binding are restored to the values before perch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingBinding>,
    /// Where perch itself shall run; `None` for wherever it ran before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<PuSet>,
    /// Reasons for releasing threads that were bound; optional, for explanation.
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
    /// The change is in force.
    Applied,
    /// Decided but not applied (`--dry-run`, replay).
    NotApplied,
    /// The thread exited before the change.
    Gone,
    /// Its mask was no longer the one that perch knew: another process set it. Left alone.
    ChangedByOthers,
    /// The kernel refused the change (EPERM).
    NotPermitted,
    /// It could not be tried now (no file descriptor or memory left); it may work later.
    Failed,
    /// None of the PUs is usable any more (offline, or out of the cpuset).
    NoUsablePu,
}
