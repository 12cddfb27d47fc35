//! Statistics of repeated measurements: how sure a difference is.

mod interval;
mod paired;

pub use interval::{Interval, Noise, trimmed};
pub use paired::{Comparison, Spread, Times, sign_test};
