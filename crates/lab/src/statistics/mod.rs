//! Statistics of repeated measurements: how sure a difference is.

mod beyond;
mod interval;
mod rank;
mod spread;

pub use beyond::{Beyond, Runs, Verdict, startup};
pub use interval::{Interval, Noise, trimmed};
pub use rank::{Estimate, fewest, signed_rank};
pub use spread::Spread;
