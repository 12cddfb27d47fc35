//! The level of detail at which a machine is simulated.

use crate::{interval::Knowledge, model::MachineModel, workload::WorkloadModel};
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// The level of detail at which a machine is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fidelity {
    /// Every instruction and every access by itself.
    #[default]
    Cycle,
    /// Threads go on at steady speeds between events of the operating system: far faster, and somewhat wrong.
    Interval,
}

impl Fidelity {
    /// Both, by the names that files and flags use.
    pub const ALL: [(&'static str, Self); 2] =
        [("cycle", Self::Cycle), ("interval", Self::Interval)];
}

/// The same, with what the interval level has found out: simulations of the same machine and mixes share it.
#[derive(Clone, Default)]
pub enum Detail {
    /// The cycle level.
    #[default]
    Cycle,
    /// The interval level.
    Interval(Arc<Knowledge>),
}

impl Detail {
    /// For simulations of a machine and the mixes of a workload.
    pub fn new(fidelity: Fidelity, machine: &Arc<MachineModel>, workload: &WorkloadModel) -> Self {
        match fidelity {
            Fidelity::Cycle => Self::Cycle,
            Fidelity::Interval => {
                Self::Interval(Arc::new(Knowledge::new(Arc::clone(machine), workload)))
            }
        }
    }
}

impl fmt::Debug for Detail {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Cycle => "Cycle",
            Self::Interval(_) => "Interval",
        })
    }
}
