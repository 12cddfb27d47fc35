//! What sharing costs on a machine, measured with small kernels alone and beside each other (MASA, section 4.1).
//!
//! ```text
//! topology ──▶ Sites ──runs──▶ whoever measures ──▶ Measurements ──▶ Calibration
//! ```
//!
//! Who measures is the simulated machine here ([`simulated`]), the live one in the command.

mod evaluate;
pub mod kernels;
mod plan;
mod simulated;

pub use evaluate::{Measured, Measurements, NOTICED};
pub use kernels::Kind;
pub use plan::{Level, Run, Seat, Sites};
pub use simulated::{How, simulated};
