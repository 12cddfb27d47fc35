//! What the parts of a machine take of energy.

use super::Op;
use serde::{Deserialize, Serialize};

/// Levels of caches.
pub(crate) const LEVELS: usize = 3;

/// What one kind of core takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KindEnergy {
    /// Nanojoules of what the units do for an instruction at the nominal voltage, by [`Op`] number.
    pub ops: [f64; Op::COUNT],
    /// Nanojoules of what it takes besides, from fetching to retiring it: all its micro-operations together.
    #[serde(default)]
    pub issue: [f64; Op::COUNT],
    /// Nanojoules of a look into a cache of level 1, 2, 3, if they are others than the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caches: Option<[f64; LEVELS]>,
    /// Watts of a core that has a thread, whatever that does, at the nominal voltage.
    pub active: f64,
    /// Watts of a core that has none, at the nominal voltage.
    pub idle: f64,
    /// Its voltage / that at which the numbers are given.
    pub voltage: f64,
    /// The same at each of its clocks, in kHz, where clocks have voltages of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub voltages: Vec<(u64, f64)>,
}

impl KindEnergy {
    /// Its voltage at a clock, in kHz, / that at which the numbers are given.
    pub fn voltage_at(&self, clock: u64) -> f64 {
        let mut points = self.voltages.iter();
        let point = points.find(|(of, _)| *of == clock);
        point.map_or(self.voltage, |(_, voltage)| *voltage)
    }
}

/// What a machine takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnergyModel {
    /// By [`MachineModel::kinds`](super::MachineModel::kinds).
    pub kinds: Vec<KindEnergy>,
    /// Nanojoules of a look into a cache of level 1, 2, 3, at the nominal voltage.
    pub caches: [f64; LEVELS],
    /// Nanojoules of a line moved to or from memory.
    pub transfer: f64,
    /// Watts of each NUMA node's memory, whatever is moved: refresh and what its interface takes.
    #[serde(default)]
    pub background: f64,
    /// Watts of each package besides its cores, all the time.
    #[serde(default)]
    pub uncore: f64,
    /// Watts of everything else, all the time: boards, fans, the loss of the power supply.
    pub base: f64,
}
