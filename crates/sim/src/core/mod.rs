//! A core: contexts that share its pipeline and its units.

mod clock;
mod context;
mod pipeline;
mod units;
mod wheel;

pub use pipeline::{Core, Finished, Hierarchy, Supply};
pub(crate) use wheel::MOST as MOST_CONTEXTS;
