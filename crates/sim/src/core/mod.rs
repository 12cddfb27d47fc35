//! A core: contexts that share its pipeline and its units.

mod clock;
mod context;
mod pipeline;
mod units;

pub use pipeline::{Core, Finished, Hierarchy, Supply};
