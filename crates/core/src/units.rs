//! Which PUs share execution units.

use crate::PuSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Class of operations that an execution unit executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnitClass {
    /// Floating point (and vectors, where they share the pipes).
    Fp,
    /// Vectors, where they have pipes of their own.
    Vector,
    /// Integer arithmetic.
    Integer,
    /// Loads.
    Load,
    /// Stores.
    Store,
    /// Loads and stores alike.
    LoadStore,
    /// Branches.
    Branch,
}

impl UnitClass {
    /// All of them, with the names that files use.
    pub const ALL: [(&'static str, Self); 7] = [
        ("fp", Self::Fp),
        ("vector", Self::Vector),
        ("integer", Self::Integer),
        ("load", Self::Load),
        ("store", Self::Store),
        ("load-store", Self::LoadStore),
        ("branch", Self::Branch),
    ];
}

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

/// The PUs that share execution units, by the units' class: by rising lowest PU, each with more than one PU, or all of one
/// PU where nothing is shared. A class of which nothing is known has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitDomains(BTreeMap<UnitClass, Vec<SharingDomain>>);

impl UnitDomains {
    /// The sharing domains of this class; empty if it is unknown.
    pub fn of(&self, class: UnitClass) -> &[SharingDomain] {
        self.0.get(&class).map_or(&[], Vec::as_slice)
    }
}

impl FromIterator<(UnitClass, Vec<SharingDomain>)> for UnitDomains {
    fn from_iter<T: IntoIterator<Item = (UnitClass, Vec<SharingDomain>)>>(iter: T) -> Self {
        Self(iter.into_iter().collect())
    }
}
