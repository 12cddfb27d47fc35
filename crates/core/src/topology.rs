//! What a machine is made of.

use crate::{PuSet, ShareLevel, SharingDomain};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Whether perch may put threads on a PU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PuState {
    /// Online, and in our cpuset.
    Usable,
    /// The kernel knows it, but it is switched off.
    Offline,
    /// Online, but not in our cpuset.
    Disallowed,
}

/// One hardware thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pu {
    /// The operating system's number.
    pub os: u32,
    /// Index into [`Topology::cores`].
    pub core: usize,
    /// Whether it can be used.
    pub state: PuState,
}

/// One core: PUs that share one pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// Its PUs.
    pub pus: PuSet,
    /// Its package's operating-system number.
    pub package: u32,
    /// Its NUMA node's operating-system number.
    pub numa_node: u32,
    /// Index into [`Topology::kinds`].
    pub kind: usize,
}

/// A kind of core, the most efficient (slowest) first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreKind {
    /// A name, such as `performance`, `efficiency` or `core`.
    pub name: String,
    /// The PUs of this kind.
    pub pus: PuSet,
}

/// A cache that holds data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// Cache level, 1 to 4.
    pub level: u8,
    /// In bytes; 0 if unknown.
    pub size: u64,
    /// The PUs that share it.
    pub pus: PuSet,
}

/// Memory and the PUs near to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// The operating system's number.
    pub os: u32,
    /// The PUs near to it; may be empty.
    pub pus: PuSet,
    /// In bytes; 0 if unknown.
    pub memory: u64,
    /// The latency of the memory of each node of [`Topology::numa_nodes`], in that order, from the PUs of this one. As
    /// firmware states it (ACPI, System Locality Information Table): relative to 10, that of the own memory. Empty if
    /// unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distances: Vec<u64>,
}

/// A processor package (socket).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// The operating system's number.
    pub os: u32,
    /// Its PUs.
    pub pus: PuSet,
    /// The model's name, empty if unknown.
    pub model: String,
}

/// What texts call the machine that perch runs on.
const THIS_MACHINE: &str = "this machine";

/// Where a topology comes from; a text in recordings and reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum TopologySource {
    /// The machine that perch runs on, or on which the recording was made.
    ThisMachine,
    /// A synthetic description, the path of a file, or the name of a simulated machine.
    Described(String),
}

impl TopologySource {
    /// The name that recordings use: `this machine`, or the description.
    pub fn as_str(&self) -> &str {
        match self {
            Self::ThisMachine => THIS_MACHINE,
            Self::Described(text) => text,
        }
    }
}

impl fmt::Display for TopologySource {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.as_str())
    }
}

impl From<String> for TopologySource {
    fn from(text: String) -> Self {
        match text == THIS_MACHINE {
            true => Self::ThisMachine,
            false => Self::Described(text),
        }
    }
}

impl From<&str> for TopologySource {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<TopologySource> for String {
    fn from(source: TopologySource) -> Self {
        source.to_string()
    }
}

/// Packages, NUMA nodes, caches, cores and PUs. The vectors are in rising order of their lowest PU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The source: this machine, a description or a file.
    pub source: TopologySource,
    /// Packages; other members refer to them by index.
    pub packages: Vec<Package>,
    /// NUMA nodes; at least one.
    pub numa_nodes: Vec<NumaNode>,
    /// Data and unified caches.
    pub caches: Vec<Cache>,
    /// Cores; other members refer to them by index.
    pub cores: Vec<Core>,
    /// Core kinds; at least one.
    pub kinds: Vec<CoreKind>,
    /// PUs in rising order of their number.
    pub pus: Vec<Pu>,
}

impl Topology {
    /// The PU with that number.
    pub fn pu(&self, os: u32) -> Option<&Pu> {
        self.pus
            .binary_search_by_key(&os, |pu| pu.os)
            .ok()
            .map(|at| &self.pus[at])
    }

    /// The core of the PU with that number.
    pub fn core_of(&self, os: u32) -> Option<&Core> {
        self.pu(os).map(|pu| &self.cores[pu.core])
    }

    /// PUs that are online and in our cpuset.
    pub fn usable(&self) -> PuSet {
        self.pus
            .iter()
            .filter(|pu| pu.state == PuState::Usable)
            .map(|pu| pu.os)
            .collect()
    }

    /// PUs that are online, ours or not.
    pub fn online(&self) -> PuSet {
        self.pus
            .iter()
            .filter(|pu| pu.state != PuState::Offline)
            .map(|pu| pu.os)
            .collect()
    }

    /// All PUs that the kernel knows.
    pub fn all(&self) -> PuSet {
        self.pus.iter().map(|pu| pu.os).collect()
    }

    /// The level of the last cache that is there, if any.
    pub fn llc_level(&self) -> Option<u8> {
        self.caches.iter().map(|cache| cache.level).max()
    }

    /// The core's number among all, with its last-level cache's where there are several: `core 7, L3 0`.
    pub fn core_label(&self, core: usize) -> String {
        let label = format!("core {core}");
        let Some(pu) = self.cores.get(core).and_then(|core| core.pus.first()) else {
            return label;
        };
        let Some(level) = self.llc_level() else {
            return label;
        };
        match self.cache_of(level, pu) {
            (Some(number), of) if of > 1 => format!("{label}, L{level} {number}"),
            _ => label,
        }
    }

    /// The number, among the caches of its level, of the one that a PU uses; and how many of the level there are.
    pub fn cache_of(&self, level: u8, pu: u32) -> (Option<usize>, usize) {
        let caches = self.caches.iter().filter(|cache| cache.level == level);
        let sets: Vec<&PuSet> = caches.map(|cache| &cache.pus).collect();
        (sets.iter().position(|pus| pus.contains(pu)), sets.len())
    }

    /// The size in bytes of the smallest cache of a level that a PU sees.
    pub fn cache_size(&self, level: u8) -> Option<u64> {
        self.caches
            .iter()
            .filter(|cache| cache.level == level && cache.size > 0)
            .map(|cache| cache.size)
            .min()
    }

    /// The groups of PUs that share at that level, offline and foreign PUs included, by rising lowest PU.
    ///
    /// A machine that does not tell its caches is taken core by core for [`ShareLevel::L2`] and package by package
    /// for [`ShareLevel::Llc`].
    pub fn domains(&self, level: ShareLevel) -> Vec<SharingDomain> {
        let cores = || {
            self.cores
                .iter()
                .map(|core| core.pus.clone())
                .collect::<Vec<_>>()
        };
        let packages = || {
            self.packages
                .iter()
                .map(|package| package.pus.clone())
                .collect::<Vec<_>>()
        };
        let caches = |level: u8| -> Vec<PuSet> {
            self.caches
                .iter()
                .filter(|cache| cache.level == level)
                .map(|cache| cache.pus.clone())
                .collect()
        };
        let sets = match level {
            ShareLevel::Pu => self.pus.iter().map(|pu| PuSet::single(pu.os)).collect(),
            ShareLevel::Core => cores(),
            ShareLevel::L2 => self.or_else_uncovered(caches(2), cores()),
            ShareLevel::Llc => {
                self.or_else_uncovered(self.llc_level().map(caches).unwrap_or_default(), packages())
            }
            ShareLevel::Package => packages(),
        };
        let mut domains: Vec<SharingDomain> = sets
            .into_iter()
            .filter_map(|pus| {
                let core = self.core_of(pus.first()?)?;
                Some(SharingDomain {
                    numa_node: core.numa_node,
                    package: core.package,
                    pus,
                })
            })
            .collect();
        domains.sort_by_key(|domain| domain.pus.first());
        domains
    }

    /// The sets, and for PUs that are in none of them the fallback's.
    fn or_else_uncovered(&self, sets: Vec<PuSet>, fallback: Vec<PuSet>) -> Vec<PuSet> {
        let covered = PuSet::union(&sets);
        let rest = fallback.into_iter().filter(|set| set.is_disjoint(&covered));
        sets.iter().cloned().chain(rest).collect()
    }
}
