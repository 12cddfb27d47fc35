//! What a session tells to those who watch it: the table on the terminal, the log, the report.

use crate::restore::RestoreReport;
use perch_core::{
    MaskError, Observation, Outcome, Plan, PuSet, Reason, Snapshot, ThreadId, Topology,
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
    /// The period.
    pub period: Duration,
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
}

/// One period.
#[derive(Debug)]
pub struct Period<'a> {
    /// What the machine saw.
    pub observation: &'a Observation,
    /// What the policy knew.
    pub snapshot: &'a Snapshot,
    /// What it asked for, without bindings that were invalid. The last period of a session has an empty one.
    pub plan: &'a Plan,
    /// What was changed.
    pub moves: &'a [Move],
    /// What the user should know; each said once in a session.
    pub remarks: &'a [String],
    /// Whether no plan was made, because the session ends.
    pub last: bool,
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The program or all processes have ended; with the launched program's wait status (wait(2)), if it is known.
    Ended(Option<i32>),
    /// The user asked for it (a signal's number).
    Stopped(i32),
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
pub trait Observer {
    /// The session begins.
    fn start(&mut self, _start: &Start) {}

    /// A period is over.
    fn period(&mut self, period: &Period<'_>);

    /// The session has ended.
    fn end(&mut self, _end: &SessionEnd) {}
}

/// An observer that ignores everything.
impl Observer for () {
    fn period(&mut self, _: &Period<'_>) {}
}

/// Several watch, in this order.
impl Observer for Vec<&mut dyn Observer> {
    fn start(&mut self, start: &Start) {
        self.iter_mut().for_each(|observer| observer.start(start));
    }

    fn period(&mut self, period: &Period<'_>) {
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
