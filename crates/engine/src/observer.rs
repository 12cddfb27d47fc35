//! What a session tells to those who watch it: the table on the terminal, the log, the report.

use crate::restore::RestoreReport;
use perch_core::{
    ActionKind, MaskError, Observation, Outcome, Plan, PuSet, Reason, Remark, Snapshot, ThreadId,
    Topology,
};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// A session that is about to begin.
#[derive(Debug, Clone)]
pub struct Start {
    /// The machine on which threads are placed: the real one, or the what-if topology.
    pub topology: Arc<Topology>,
    /// The machine on which threads run.
    pub machine: Arc<Topology>,
    /// The policy's name.
    pub policy: String,
    /// The profile's name.
    pub profile: String,
    /// The profile's text.
    pub profile_text: String,
    /// How often the policy decides.
    pub period: Duration,
    /// How often the machine is observed.
    pub interval: Duration,
    /// How threads are characterised.
    pub counting: String,
    /// The mask of threads whose affinity was not set.
    pub default_mask: PuSet,
    /// Whether nothing is changed.
    pub dry_run: bool,
    /// Whether threads that others have placed are placed all the same.
    pub take_over: bool,
    /// The PUs to which perch was limited.
    pub pus: Option<PuSet>,
}

/// A change of one thread's placement: that was asked for, with what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// Who.
    pub thread: ThreadId,
    /// Where perch had bound it; `None` if it had not.
    pub from: Option<PuSet>,
    /// Where it is bound now; `None` if it was let go.
    pub to: Option<PuSet>,
    /// Why, in the policy's words and numbers.
    pub reason: Reason,
    /// What became of it.
    pub outcome: Outcome,
    /// Between which two moments of the machine's clock it was made, in nanoseconds since the machine was opened; `None`
    /// where nothing was done or the machine has no clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<(u64, u64)>,
}

/// A change of where an interrupt is delivered: what was asked for, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IrqMove {
    /// The interrupt.
    pub irq: u32,
    /// Where perch had sent it; `None` if it had not.
    pub from: Option<PuSet>,
    /// Where it is sent now; `None` if it was let go.
    pub to: Option<PuSet>,
    /// Why, in the policy's words and numbers.
    pub reason: Reason,
    /// What became of it.
    pub outcome: Outcome,
}

/// An action on a thread: what was asked for, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActionTaken {
    /// The thread.
    pub thread: ThreadId,
    /// What was in force; `None` if perch had done nothing to it.
    pub from: Option<ActionKind>,
    /// What is now; `None` if it was undone.
    pub to: Option<ActionKind>,
    /// Why, in the policy's words and numbers.
    pub reason: Reason,
    /// What became of it.
    pub outcome: Outcome,
    /// Whether a CPU weight was given, or undone, by a control group rather than by a nice value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_group: bool,
}

/// What a policy decided.
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
    /// What the machine saw.
    pub observation: Arc<Observation>,
    /// What is known of it.
    pub snapshot: Arc<Snapshot>,
    /// What was decided in it, if anything was: not in the last period of a session, nor while it is paused, nor in all
    /// periods if the session observes more often than it decides.
    pub decision: Option<Decision>,
    /// What was changed.
    pub moves: Vec<Move>,
    /// What was changed of interrupts.
    pub irq_moves: Vec<IrqMove>,
    /// What else was done to threads.
    pub actions: Vec<ActionTaken>,
    /// What the user should know; none twice within an hour, and no flood of one kind.
    pub remarks: Vec<Remark>,
    /// Whether the session ends with it.
    pub last: bool,
}

impl Period {
    /// What the policy asked for, if it was asked.
    pub fn plan(&self) -> Option<&Plan> {
        self.decision.as_ref().map(|decision| &decision.plan)
    }
}

/// Why a session ended.
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

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEnd {
    /// Why.
    pub cause: Cause,
    /// Periods that were observed.
    pub periods: u64,
    /// How threads were characterised, as known by then.
    pub counting: String,
    /// What came of giving threads their masks back.
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

/// An observer that ignores everything.
impl SessionSink for () {
    fn period(&mut self, _: &Period) {}
}

/// Several watch, in this order.
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
