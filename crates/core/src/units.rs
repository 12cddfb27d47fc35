//! Which PUs share execution units.

use crate::PuSet;
use serde::{Deserialize, Serialize};

/// The kind of object whose PUs share something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShareLevel {
    /// Nothing is shared: each PU has its own.
    Pu,
    /// The PUs of a core (SMT).
    Core,
    /// The PUs below one L2 cache (a Bulldozer module).
    L2,
    /// The PUs below one last-level cache.
    Llc,
    /// The PUs of a package.
    Package,
}

/// PUs that share execution units, caches or bandwidth: a core, a module, an LLC domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingDomain {
    /// The PUs that share.
    pub pus: PuSet,
    /// The NUMA node (operating-system number) of these PUs.
    pub numa_node: u32,
    /// The package (operating-system number) of these PUs.
    pub package: u32,
}
