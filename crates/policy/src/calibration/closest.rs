//! What two PUs have in common.

use super::Share;
use perch_core::{PuSet, ShareLevel, SharingDomain, Topology};

/// All levels; of several with the same group, the first is named.
const ORDER: [Share; 7] = [
    Share::Core,
    Share::Fp,
    Share::L2,
    Share::Llc,
    Share::Node,
    Share::Package,
    Share::Machine,
];

/// In no group of a level.
const NONE: u32 = u32::MAX;

/// The closest level that any two PUs of a machine share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closest {
    levels: Vec<Level>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Level {
    share: Share,
    /// By PU, its group.
    of: Vec<u32>,
    /// By group, how many PUs it has.
    sizes: Vec<usize>,
}

impl Closest {
    /// Of a machine; `fp_domains` are the PUs that share floating-point units, as the processor's profile says.
    pub fn new(topology: &Topology, fp_domains: &[SharingDomain]) -> Self {
        let pus = topology.all().last().map_or(0, |last| last as usize + 1);
        let level = |share: Share| {
            let groups = share.sets(topology, fp_domains);
            let mut of = vec![NONE; pus];
            for (number, group) in groups.iter().enumerate() {
                for pu in group.iter().filter(|pu| (*pu as usize) < pus) {
                    of[pu as usize] = number as u32;
                }
            }
            let sizes = groups.iter().map(PuSet::len).collect();
            Level { share, of, sizes }
        };
        Self {
            levels: ORDER.into_iter().map(level).collect(),
        }
    }

    /// The level of the smallest group with both; of several levels with that group the first of core, floating-point
    /// units, L2, LLC, node, package, machine.
    pub fn share(&self, a: u32, b: u32) -> Share {
        let group = |level: &Level, pu: u32| level.of.get(pu as usize).copied().unwrap_or(NONE);
        let size = |level: &Level| {
            let (a, b) = (group(level, a), group(level, b));
            (a == b && a != NONE).then(|| level.sizes[a as usize])
        };
        let levels = self.levels.iter();
        let both = levels.filter_map(|level| Some((size(level)?, level.share)));
        // Of equals the first, as `min_by_key` promises.
        let least = both.min_by_key(|(size, _)| *size);
        least.map_or(Share::Machine, |(_, share)| share)
    }
}

impl Share {
    /// The groups of PUs that share at this level on a machine, those included that cannot be used.
    pub fn sets(self, topology: &Topology, fp_domains: &[SharingDomain]) -> Vec<PuSet> {
        let pus = |domains: &[SharingDomain]| -> Vec<PuSet> {
            domains.iter().map(|domain| domain.pus.clone()).collect()
        };
        match self {
            Self::Fp => pus(fp_domains),
            Self::Core => pus(&topology.domains(ShareLevel::Core)),
            Self::L2 => pus(&topology.domains(ShareLevel::L2)),
            Self::Llc => pus(&topology.domains(ShareLevel::Llc)),
            Self::Node => {
                let nodes = topology.numa_nodes.iter();
                nodes.map(|node| node.pus.clone()).collect()
            }
            Self::Package => pus(&topology.domains(ShareLevel::Package)),
            Self::Machine => vec![topology.all()],
        }
    }
}
