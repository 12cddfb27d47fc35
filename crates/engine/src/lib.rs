//! The loop that makes perch: it observes a machine, lets a policy decide, checks, journals and applies the plan, and
//! puts everything back. Also recording, replay, and the numbers of the report.
//!
//! ```text
//! wait ─▶ observe ─▶ characterise ─▶ decide ─▶ check ─▶ difference ─▶ journal ─▶ apply ─▶ outcomes
//! ```
#![forbid(unsafe_code)]

mod act;
pub mod characterise;
pub mod irq;
pub mod journal;
pub mod observer;
pub mod ownership;
mod plan_check;
mod processor;
pub mod recording;
pub mod replay;
pub mod report;
pub mod restore;
mod said;
pub mod session;

pub use characterise::Processor;
pub use irq::IrqKeeper;
pub use journal::{
    Journal,
    state_dir::{StateDir, StateDirError},
};
pub use observer::{Cause, Move, Observer, Period, SessionEnd, Start};
pub use recording::{Reader, Recorder, Recording, RecordingError};
pub use replay::RecordedMachine;
pub use report::{Collector, Report};
pub use restore::{IrqReport, Recovery, RestoreReport, recover_all, recover_one, restore};
pub use session::{Acting, Options, Session, SessionError};
