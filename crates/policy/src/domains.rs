//! The domains that share floating-point units, cut down to the PUs that can be used now.

use perch_core::{PuSet, Snapshot, Topology, UnitClass, topology::PuState};

const NOWHERE: u32 = u32::MAX;

/// PUs that share floating-point units and that threads can be put on.
#[derive(Debug, Clone)]
pub(crate) struct Domain {
    /// The usable PUs, rising; never empty.
    pub pus: Vec<u32>,
    /// Operating-system number of its NUMA node.
    pub node: u32,
    /// All its PUs, those included that cannot be used.
    all: PuSet,
}

/// All domains with at least one usable PU, and the way back from a PU to its domain.
#[derive(Debug, Clone)]
pub(crate) struct Domains {
    list: Vec<Domain>,
    of_pu: Vec<u32>,
}

impl Domains {
    /// The snapshot's domains within `reachable` (the PUs on which at least one candidate may run).
    ///
    /// A usable PU that is in no domain (the small cores of a hybrid processor) shares nothing and is a domain of its
    /// own.
    pub fn new(snapshot: &Snapshot, reachable: &PuSet) -> Self {
        let topology = &snapshot.topology;
        let shared = snapshot.units.of(UnitClass::Fp);
        let highest = topology.pus.last().map_or(0, |pu| pu.os as usize + 1);
        let mut usable = vec![false; highest];
        for pu in &topology.pus {
            usable[pu.os as usize] = pu.state == PuState::Usable && reachable.contains(pu.os);
        }
        let mut found = Self {
            list: Vec::with_capacity(shared.len()),
            of_pu: vec![NOWHERE; highest],
        };
        for domain in shared {
            let pus = domain.pus.iter().filter(|&pu| {
                usable.get(pu as usize) == Some(&true) && found.of_pu[pu as usize] == NOWHERE
            });
            let pus: Vec<u32> = pus.collect();
            found.push(pus, domain.numa_node, domain.pus.clone());
        }
        for pu in &topology.pus {
            if usable[pu.os as usize] && found.of_pu[pu.os as usize] == NOWHERE {
                let node = topology.cores.get(pu.core).map_or(0, |core| core.numa_node);
                found.push(vec![pu.os], node, PuSet::single(pu.os));
            }
        }
        found
    }

    fn push(&mut self, pus: Vec<u32>, node: u32, all: PuSet) {
        if pus.is_empty() {
            return;
        }
        for &pu in &pus {
            self.of_pu[pu as usize] = self.list.len() as u32;
        }
        self.list.push(Domain { pus, node, all });
    }

    /// The domain (its index) of a PU, if the PU can be used.
    pub fn of(&self, pu: u32) -> Option<usize> {
        let at = self.of_pu.get(pu as usize).copied()?;
        (at != NOWHERE).then_some(at as usize)
    }

    /// Whether any two usable PUs share floating-point units.
    pub fn share_anything(&self) -> bool {
        self.list.iter().any(|domain| domain.pus.len() > 1)
    }

    /// How many PUs there are in all domains.
    pub fn pus(&self) -> usize {
        self.list.iter().map(|domain| domain.pus.len()).sum()
    }

    /// PUs in the largest domain: how many groups there are.
    pub fn width(&self) -> usize {
        self.list.iter().map(|d| d.pus.len()).max().unwrap_or(0)
    }
}

impl std::ops::Deref for Domains {
    type Target = [Domain];

    fn deref(&self) -> &[Domain] {
        &self.list
    }
}

impl Domain {
    /// How reasons call it: `core 1` or `PUs 2-3`.
    pub fn label(&self, topology: &Topology) -> String {
        let core = self.pus.first().and_then(|pu| topology.pu(*pu));
        let core = core.and_then(|pu| Some((pu.core, topology.cores.get(pu.core)?)));
        match core {
            Some((index, core)) if core.pus == self.all => format!("core {index}"),
            _ if self.all.len() == 1 => format!("PU {}", self.all),
            _ => format!("PUs {}", self.all),
        }
    }
}
