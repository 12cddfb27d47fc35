//! What a machine's operating system does of itself.

use crate::workload::Gaps;
use serde::{Deserialize, Serialize};

/// Ticks, interrupts, and what it costs to change something. Times are nanoseconds of the operating system.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OsModel {
    /// Whether each PU has its ticks a little after the PU before it, rather than all at the same moment.
    pub skew_tick: bool,
    /// Interrupts that PUs get.
    pub irqs: Vec<IrqModel>,
    /// What changes cost.
    pub costs: CostModel,
}

impl OsModel {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Interrupts of one sort.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IrqModel {
    /// The PUs that get them, each by itself.
    pub pus: Vec<u32>,
    /// Mean time from one to the next of a PU.
    pub gap: f64,
    /// How these times vary.
    pub gaps: Gaps,
    /// For how long one takes its PU.
    pub time: u64,
}

/// For how long PUs do nothing else when something is changed from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CostModel {
    /// A running thread has to leave its PU because its mask changed: that PU, and the one that it goes to.
    pub migrate: u64,
    /// The clock of a core changes: all its PUs.
    pub set_clock: u64,
}
