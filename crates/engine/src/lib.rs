//! The loop that makes perch: it observes a machine, lets a policy decide, checks, journals and applies the plan, and
//! puts everything back. Also recording, replay, and the numbers of the report.
//!
//! ```text
//! wait ─▶ observe ─▶ characterise ─▶ decide ─▶ check ─▶ difference ─▶ journal ─▶ apply ─▶ outcomes
//! ```
#![forbid(unsafe_code)]

mod actions;
pub mod characterise;
pub mod command;
mod control;
mod decider;
mod irqs;
pub mod journal;
pub mod limiter;
pub mod observer;
pub mod ownership;
mod plan_check;
mod processor;
mod publish;
mod reconcile;
pub mod recording;
pub mod replay;
pub mod report;
pub mod restore;
pub mod session;
mod settings;
pub mod timeline;
mod ways;
mod weights;

pub use characterise::Processor;
pub use command::{Command, CommandError, Handle, Reply};
pub use decider::Deciding;
pub use journal::{
    Journal,
    state_dir::{StateDir, StateDirError},
};
pub use observer::{
    ActionTaken, Cause, Decision, IrqMove, Move, Period, SessionEnd, SessionSink, SettingMove,
    Start,
};
pub use publish::Published;
pub use recording::{Reader, Recorder, Recording, RecordingError};
pub use replay::RecordedMachine;
pub use report::{Collector, Report};
pub use restore::{Recovery, RestoreCounts, RestoreReport, recover_all, recover_one, restore};
pub use session::{Acting, Options, Session, SessionError};
