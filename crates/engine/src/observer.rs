//! What a session reports to its sinks: the table on the terminal, the log, the report.

use crate::restore::RestoreReport;
use perch_core::{
    ActionKind, MaskError, Observation, Outcome, Plan, PuSet, Reason, Remark, Setting,
    SettingValue, Snapshot, ThreadId, Topology,
};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// The settings and machine of a session that is about to begin.
#[derive(Debug, Clone)]
pub struct Start {
    /// The machine on which threads are placed: the real one, or the what-if topology.
    pub topology: Arc<Topology>,
    /// The machine on which threads run.
    pub machine: Arc<Topology>,
    /// Name of the policy, such as `workover`.
    pub policy: String,
    /// Name of the profile, such as `zen5`.
    pub profile: String,
    /// The whole TOML text of the profile.
    pub profile_text: String,
    /// Time between two decisions.
    pub period: Duration,
    /// Time between two observations.
    pub interval: Duration,
    /// Source of thread metrics in words: counters or sampling, with rates.
    pub counting: String,
    /// The mask of threads that had not been placed before.
    pub default_mask: PuSet,
    /// Whether this is a dry run, which changes nothing.
    pub dry_run: bool,
    /// Whether threads that were placed before perch saw them are placed too (`--take-over`).
    pub take_over: bool,
    /// The PUs to which perch was limited.
    pub pus: Option<PuSet>,
}

/// A change of one thread's placement: that was asked for, with what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// The thread, by TID and start time.
    pub thread: ThreadId,
    /// The PUs to which perch had bound it; `None` if it had not.
    pub from: Option<PuSet>,
    /// The PUs to which it is bound now; `None` if it was released.
    pub to: Option<PuSet>,
    /// The policy's reason: a sentence and the numbers behind it.
    pub reason: Reason,
    /// Whether the change was applied, and if not, why.
    pub outcome: Outcome,
    /// Between which two moments of the machine's clock it was made, in nanoseconds since the machine was opened; `None`
    /// where nothing was done or the machine has no clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<(u64, u64)>,
    /// The PUs of its mask that were online and in its CPU set just after it was released, if those were not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<PuSet>,
}

/// A change of where an interrupt is delivered: what was asked for, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IrqMove {
    /// Interrupt number, as in `/proc/irq/N`.
    pub irq: u32,
    /// PUs to which perch had bound it; `None` if it had not.
    pub from: Option<PuSet>,
    /// PUs to which it is delivered now; `None` if its mask was restored.
    pub to: Option<PuSet>,
    /// The policy's reason: a sentence and the numbers behind it.
    pub reason: Reason,
    /// Whether the change was applied, and if not, why.
    pub outcome: Outcome,
}

/// A change of a setting of the machine: what was asked for, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettingMove {
    /// Which setting.
    pub setting: Setting,
    /// The value that perch had given it; `None` if it had not.
    pub from: Option<SettingValue>,
    /// The value that it has now; `None` if it got the value back that it had before perch.
    pub to: Option<SettingValue>,
    /// The policy's reason: a sentence and the numbers behind it.
    pub reason: Reason,
    /// Whether the change was applied, and if not, why.
    pub outcome: Outcome,
    /// What the kernel made of the value, if it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<SettingValue>,
}

/// An action on a thread: what was asked for, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActionTaken {
    /// The thread, by TID and start time.
    pub thread: ThreadId,
    /// The action in force before; `None` if there was none.
    pub from: Option<ActionKind>,
    /// The action in force now; `None` if it was undone.
    pub to: Option<ActionKind>,
    /// The policy's reason: a sentence and the numbers behind it.
    pub reason: Reason,
    /// Whether the change was applied, and if not, why.
    pub outcome: Outcome,
    /// Whether a CPU weight was given, or undone, by a control group rather than by a nice value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_group: bool,
}

/// A decision of a policy, with the snapshot that it is based on.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What it knew: the period's snapshot, or one of several observations together, or an earlier one if the policy
    /// needed longer than a period.
    pub basis: Arc<Snapshot>,
    /// The period in which it was asked.
    pub asked_in: u64,
    /// What it asked for, without bindings that were invalid.
    pub plan: Plan,
}

/// One observed interval, finished: it never changes again.
#[derive(Debug, Clone, PartialEq)]
pub struct Period {
    /// The raw measurements of the interval.
    pub observation: Arc<Observation>,
    /// The state derived from them, as a policy sees it.
    pub snapshot: Arc<Snapshot>,
    /// What was decided in it, if anything was: not in the last period of a session, nor while it is paused, nor in all
    /// periods if the session observes more often than it decides.
    pub decision: Option<Decision>,
    /// Changes of threads' bindings, with their outcomes.
    pub moves: Vec<Move>,
    /// Changes of interrupts' bindings, with their outcomes.
    pub irq_moves: Vec<IrqMove>,
    /// Changes of settings of the machine, with their outcomes.
    pub setting_moves: Vec<SettingMove>,
    /// Other changes to threads (CPU weights), with their outcomes.
    pub actions: Vec<ActionTaken>,
    /// What the user should know; none twice within an hour, and no flood of one kind.
    pub remarks: Vec<Remark>,
    /// Whether the session ends with it.
    pub last: bool,
}

impl Period {
    /// The plan of the policy; `None` if it was not asked in this period.
    pub fn plan(&self) -> Option<&Plan> {
        self.decision.as_ref().map(|decision| &decision.plan)
    }
}

/// The reason why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The program or all processes have ended; with the launched program's wait status (wait(2)), if it is known.
    Ended(Option<i32>),
    /// The user asked for it (a signal's number).
    Stopped(i32),
    /// A command asked for it ([`Command::Stop`](crate::command::Command::Stop)).
    Commanded,
}

/// The end of a session: cause, length, and what was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEnd {
    /// Why the session ended.
    pub cause: Cause,
    /// Number of periods that were observed.
    pub periods: u64,
    /// Source of thread metrics in words, as known at the end.
    pub counting: String,
    /// How many masks were restored, and which could not be.
    pub restored: RestoreReport,
}

/// Watches a session. An observer handles its own errors: they must not disturb the threads.
pub trait SessionSink: Send {
    /// The session begins.
    fn start(&mut self, _start: &Start) {}

    /// A period is over.
    fn period(&mut self, period: &Period);

    /// The session has ended.
    fn end(&mut self, _end: &SessionEnd) {}
}

/// A sink that ignores everything.
impl SessionSink for () {
    fn period(&mut self, _: &Period) {}
}

/// Several sinks, called in this order.
impl SessionSink for Vec<&mut dyn SessionSink> {
    fn start(&mut self, start: &Start) {
        self.iter_mut().for_each(|observer| observer.start(start));
    }

    fn period(&mut self, period: &Period) {
        self.iter_mut().for_each(|observer| observer.period(period));
    }

    fn end(&mut self, end: &SessionEnd) {
        self.iter_mut().for_each(|observer| observer.end(end));
    }
}

/// The outcome that a mask which cannot be read leads to.
pub(crate) fn unread(error: &MaskError) -> Outcome {
    match error {
        MaskError::Gone => Outcome::Gone,
        MaskError::Hidden => Outcome::NotPermitted,
        MaskError::Other(_) => Outcome::Failed,
    }
}
