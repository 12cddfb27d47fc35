//! What was measured of a thread.

use std::collections::BTreeMap;

/// What was measured of one thread of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// Work done a second: instructions, or rounds of a kernel.
    pub speed: f64,
    /// The distance of its quartiles over all windows, as a part of it; `None` if it was measured once or cannot differ.
    pub spread: Option<f64>,
    /// Of a thread with neighbours, by visit the logarithm of its slowdown.
    pub slowdowns: Vec<f64>,
    /// By visit what that would be without a slowdown: noise.
    pub noise: Vec<f64>,
    /// Its metrics, as a policy sees them; empty where they were not read.
    pub metrics: BTreeMap<String, f64>,
}
