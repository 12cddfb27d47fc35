//! What sharing costs on a machine, measured with small kernels in isolation and co-running (MASA, section 4.1).
//!
//! ```text
//! topology ──▶ Sites ──runs──▶ measure ──visits──▶ judge ──▶ Measurements ──▶ Calibration
//!                                 │ windows
//!                                Rig
//! ```
//!
//! A [`Rig`] is a machine on which kernels run: the simulated one here ([`simulated`]), the live one in the command.

mod case;
mod evaluate;
mod judge;
pub mod kernels;
mod measure;
mod measured;
mod notes;
mod plan;
mod simulated;
mod transfers;
mod watch;

pub use evaluate::Measurements;
pub use judge::{Judged, LEVEL, judge};
pub use kernels::Kind;
pub use measure::{Effort, Outcome, Rig, Sample, measure};
pub use measured::Measured;
pub use plan::{Level, Run, Seat, Sites};
pub use simulated::{How, simulated};
