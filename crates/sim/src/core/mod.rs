//! A core: contexts that share its pipeline and its units.

mod clock;
mod context;
mod entries;
mod misses;
mod occupancy;
mod pipeline;
mod queues;
mod ready;
mod ring;
mod units;

pub use pipeline::{Core, Finished, Supply};
pub(crate) use queues::MOST as MOST_QUEUES;
pub(crate) use ready::MOST as MOST_CONTEXTS;
pub(crate) use units::MOST_POOLS;
