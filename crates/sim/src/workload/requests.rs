//! Requests that come to a program.

use serde::{Deserialize, Serialize};

/// How the times between events vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gaps {
    /// Each is drawn from an exponential distribution: independent customers (a Poisson process).
    #[default]
    Poisson,
    /// All are the same.
    Constant,
}

/// Where requests come from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// From outside, whether the earlier ones were served or not: an open system.
    Open {
        /// Mean nanoseconds of the operating system from one to the next.
        gap: f64,
        /// How they vary.
        gaps: Gaps,
    },
    /// From a number of clients, each of which sends its next request some time after the reply to its last: a closed
    /// system.
    Closed {
        /// How many.
        clients: u32,
        /// Mean nanoseconds of the operating system from a reply, or a refusal, to the next request.
        think: f64,
        /// How they vary.
        gaps: Gaps,
    },
}

/// The requests of a program.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RequestsModel {
    /// Where they come from.
    pub arrivals: Arrivals,
    /// How many may wait at a time; those beyond are refused. `u64::MAX`: any number.
    pub queue: u64,
    /// How many come, the refused ones among them; then the serving threads end. `u64::MAX`: they never cease.
    pub count: u64,
}
