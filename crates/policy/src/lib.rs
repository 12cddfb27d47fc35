//! Placement policies, one paper a file.
#![forbid(unsafe_code)]

mod domains;
mod error;
pub mod fixed;
mod history;
mod hysteresis;
mod matching;
pub mod observe;
mod ranking;
pub mod registry;
mod spread;
pub mod workover;

pub use error::PolicyError;
pub use fixed::{Fixed, FixedConfig};
pub use observe::Observe;
pub use workover::{WorkOver, WorkOverConfig};
