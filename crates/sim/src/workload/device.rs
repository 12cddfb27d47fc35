//! What threads wait for when they read and write: disks, networks.

use serde::{Deserialize, Serialize};

/// A device. Operations wait for one of `parallel` places in the order in which they were asked for. In its place each
/// takes its latency; the bytes then pass one operation after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceModel {
    /// Its name.
    pub name: String,
    /// How long an operation takes until its first byte, in nanoseconds of the operating system, where the step does
    /// not say.
    pub latency: u64,
    /// Bytes in a second of the operating system; infinite if moving them takes no time.
    pub bandwidth: f64,
    /// Operations in work at a time.
    pub parallel: u32,
}
