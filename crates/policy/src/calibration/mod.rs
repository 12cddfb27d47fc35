//! The calibration file: what sharing a resource costs on one machine, as it was measured there (MASA, section 4.1).
//!
//! A TOML file that names the machine and the day, and for each load metric the order in which it is checked, the
//! **execution resource limit** (what a single thread does at most in isolation, in events per second) and ∆T/∆L: by
//! how many seconds a program takes longer for each event more when it runs next to itself. `docs/policies.md` has an
//! example.

mod closest;
mod file;

pub use closest::Closest;

use perch_core::{PuSet, ShareLevel, SharingDomain, Snapshot, UnitClass, diagnostic::Diagnostic};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path};

/// Whose a resource is: the PUs that share one compete for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// Those that share floating-point units, as the processor's profile says.
    Fp,
    /// The PUs of a core.
    Core,
    /// The PUs below one L2 cache.
    L2,
    /// The PUs below one last-level cache.
    Llc,
    /// The PUs of a NUMA node.
    Node,
    /// The PUs of a package.
    Package,
    /// All of them: nothing closer than the machine's memory.
    Machine,
}

impl Share {
    /// The groups of PUs that share at this level, by rising lowest PU, those included that cannot be used.
    pub fn groups(self, snapshot: &Snapshot) -> Vec<SharingDomain> {
        let topology = &snapshot.topology;
        let of_core = |pus: PuSet| {
            let core = topology.core_of(pus.first()?)?;
            Some(SharingDomain {
                numa_node: core.numa_node,
                package: core.package,
                pus,
            })
        };
        match self {
            Self::Fp => snapshot.units.of(UnitClass::Fp).to_vec(),
            Self::Core => topology.domains(ShareLevel::Core),
            Self::L2 => topology.domains(ShareLevel::L2),
            Self::Llc => topology.domains(ShareLevel::Llc),
            Self::Node => {
                let nodes = topology.numa_nodes.iter().map(|node| node.pus.clone());
                nodes.filter_map(of_core).collect()
            }
            Self::Package => topology.domains(ShareLevel::Package),
            Self::Machine => of_core(topology.all()).into_iter().collect(),
        }
    }
}

/// All levels as a file writes them.
const SHARES: [(&str, Share); 7] = [
    ("fp", Share::Fp),
    ("core", Share::Core),
    ("l2", Share::L2),
    ("llc", Share::Llc),
    ("node", Share::Node),
    ("package", Share::Package),
    ("machine", Share::Machine),
];

/// Limit and cost of one load metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CalibratedMetric {
    /// The metric's name, as profiles give it, such as `fp_load`.
    pub name: String,
    /// Its place in the order of checks, 1 the first; no two metrics have the same.
    pub priority: u32,
    /// The level at which PUs share the resource.
    pub share: Share,
    /// The execution resource limit: what a single thread does at most in isolation in one such group of PUs. In the
    /// metric's unit: events per second for rates.
    pub limit: f64,
    /// ∆T/∆L: seconds by which the program takes longer per additional event when it co-runs with itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Spread of the limit over the repetitions, as a part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Whether sharing it was shown to cost anything; `None` in files of version 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub significant: Option<bool>,
}

impl CalibratedMetric {
    /// Whether a policy may act on it: not if sharing the resource was not shown to slow down any kernel.
    pub fn is_of_use(&self) -> bool {
        self.significant.unwrap_or(true)
    }
}

/// A kernel: a small program that uses one shared resource, as it was alone on the machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Kernel {
    /// Its name, such as `fp` or `llc`.
    pub name: String,
    /// Its metrics alone, by the names of the profile and of sampling.
    pub metrics: BTreeMap<String, f64>,
}

/// The measured slowdown of a kernel by co-running kernels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Coupling {
    /// The closest that it and the others share.
    pub share: Share,
    /// The kernel that is slowed down.
    pub kernel: String,
    /// The kernels that ran next to it, one or more.
    pub beside: Vec<String>,
    /// Its time next to them / its time in isolation.
    pub slowdown: f64,
    /// How far the true slowdown may lie to either side, as a part of it, with 95 % confidence for this slowdown alone. In
    /// files of version 1: by how much the speeds of three repetitions differed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// The lower end of the interval in which the true slowdown lies. With 95 % confidence this holds for all slowdowns
    /// of the file at once, so that the largest of them may be picked. `None` where too little was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The upper end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Whether it is more than noise: the interval lies above 1. `None` in files of version 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub significant: Option<bool>,
}

impl Coupling {
    /// Whether the slowdown is more than noise. Files of version 1 do not tell: there it must be larger than the spread.
    pub fn is_significant(&self) -> bool {
        let by_spread = || self.slowdown > 1.0 + self.spread.unwrap_or(0.0);
        self.significant.unwrap_or_else(by_spread)
    }

    /// The slowdown that a policy may count on: 1, no effect, where none was shown.
    pub fn known(&self) -> f64 {
        match self.is_significant() {
            true => self.slowdown.max(1.0),
            false => 1.0,
        }
    }

    /// Half of the interval for all at once, of the slowdown's logarithm; `None` where it is not known.
    pub fn half(&self) -> Option<f64> {
        Some((self.high? / self.low?).ln() / 2.0)
    }

    /// Whether two measurements of the same slowdown agree: their intervals have a value in common. So do those of which
    /// one is not known.
    pub fn agrees(&self, other: &Self) -> bool {
        let above = |low: Option<f64>, high: Option<f64>| {
            low.zip(high).is_some_and(|(low, high)| low > high)
        };
        !above(self.low, other.high) && !above(other.low, self.high)
    }
}

/// What it costs to hand a line that one PU wrote to another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Transfer {
    /// The closest that the two PUs share.
    pub share: Share,
    /// Seconds a line: the median of all visits.
    pub seconds: f64,
    /// The least that a visit found, in seconds a line; `None` in files before version 3 and of simulated machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The most that a visit found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

impl Transfer {
    /// Whether no visit found it to cost as much as the other does at least.
    pub fn is_cheaper_than(&self, other: &Self) -> bool {
        self.high.unwrap_or(self.seconds) < other.low.unwrap_or(other.seconds)
    }
}

/// From this slowdown on a neighbour counts as contending.
pub const NOTICED: f64 = 1.05;

/// Slowdowns whose interval reaches farther (logarithm) to either side are not known.
pub const TIGHT: f64 = 0.05;

/// The version of the format in which calibrations are written.
pub const VERSION: u32 = 3;

fn is_first(version: &u32) -> bool {
    *version == 1
}

/// A calibration, its metrics in the order in which they are checked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// The version of the file's format: 1 has no intervals, 2 none of what it costs to hand over a line.
    #[serde(skip_serializing_if = "is_first")]
    pub version: u32,
    /// The machine on which it was measured, for people.
    pub machine: String,
    /// The day, such as `2026-11-22`.
    pub date: String,
    /// What a reader should know: turbo, frequency scaling, what did not contend.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The metrics, by priority; at least one.
    #[serde(rename = "metric")]
    pub metrics: Vec<CalibratedMetric>,
    /// The kernels, each once.
    #[serde(rename = "kernel", skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<Kernel>,
    /// The slowdowns of kernels that co-run.
    #[serde(rename = "coupling", skip_serializing_if = "Vec::is_empty")]
    pub couplings: Vec<Coupling>,
    /// What communication costs at each level that was measured.
    #[serde(rename = "transfer", skip_serializing_if = "Vec::is_empty")]
    pub transfers: Vec<Transfer>,
}

/// A calibration that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CalibrationError {
    /// The file cannot be opened or is no text.
    #[error("{path}: {why}; give the path of a calibration file (`perch calibrate` writes one)")]
    Unreadable {
        /// Path of the file as the user gave it.
        path: String,
        /// Error of the operating system.
        why: String,
    },
    /// An error in its text.
    #[error(transparent)]
    Diagnostic(#[from] Diagnostic),
}

impl Calibration {
    /// Whether any slowdown was shown, by which a policy could choose among places.
    pub fn shows_slowdowns(&self) -> bool {
        self.couplings.iter().any(Coupling::is_significant)
    }

    /// Whether it has the slowdowns of co-running kernels, from which others can be predicted.
    pub fn tells_of_kernels(&self) -> bool {
        !self.kernels.is_empty() && !self.couplings.is_empty()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, or [`Calibration::parse`]'s.
    pub fn read(path: &Path) -> Result<Self, CalibrationError> {
        let shown = path.display().to_string();
        let text =
            perch_files::read_to_string(path).map_err(|error| CalibrationError::Unreadable {
                path: shown.clone(),
                why: error.to_string(),
            })?;
        Ok(Self::parse(&text, &shown)?)
    }

    /// The text of a file that [`Calibration::parse`] reads as this calibration.
    ///
    /// # Errors
    /// Never for a calibration that was parsed; a number that TOML cannot say.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}
