//! What sharing costs on a machine, measured with small kernels in isolation and co-running (MASA, section 4.1).
//!
//! ```text
//! topology ──▶ Sites ──runs──▶ measuring ──▶ Measurements ──▶ Calibration
//! ```
//!
//! Measuring runs on the simulated machine here ([`simulated`]), and on the live one in the command.

mod evaluate;
pub mod kernels;
mod plan;
mod simulated;
mod transfers;
mod watch;

pub use evaluate::{Measured, Measurements, contends};
pub use kernels::Kind;
pub use plan::{Level, Run, Seat, Sites};
pub use simulated::{How, simulated};
