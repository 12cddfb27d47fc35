//! The cores whose PUs share a pipeline, cut down to the PUs that can be used now.

use perch_core::{PuSet, Topology, topology::PuState};

const NOWHERE: u32 = u32::MAX;

/// A core with at least one PU that can be used.
#[derive(Debug, Clone)]
pub(crate) struct Core {
    /// Its index in `Topology::cores`.
    pub index: usize,
    /// The PUs that can be used, rising; never empty.
    pub pus: Vec<u32>,
    /// The same PUs as a set.
    pub set: PuSet,
    /// Index of its kind of core in the topology (`Topology::kinds`).
    pub kind: usize,
}

/// All such cores, and the way back from a PU.
#[derive(Debug, Clone)]
pub(crate) struct Cores {
    list: Vec<Core>,
    of_pu: Vec<u32>,
}

impl Cores {
    /// The cores within `reachable`.
    pub fn new(topology: &Topology, reachable: &PuSet) -> Self {
        let highest = topology.pus.last().map_or(0, |pu| pu.os as usize + 1);
        let mut at_core: Vec<Vec<u32>> = vec![Vec::new(); topology.cores.len()];
        for pu in &topology.pus {
            if pu.state == PuState::Usable && reachable.contains(pu.os) {
                at_core[pu.core].push(pu.os);
            }
        }
        let mut found = Self {
            list: Vec::with_capacity(topology.cores.len()),
            of_pu: vec![NOWHERE; highest],
        };
        for (index, pus) in at_core.into_iter().enumerate() {
            if pus.is_empty() {
                continue;
            }
            for &pu in &pus {
                found.of_pu[pu as usize] = found.list.len() as u32;
            }
            found.list.push(Core {
                index,
                set: pus.iter().copied().collect(),
                pus,
                kind: topology.cores[index].kind,
            });
        }
        found
    }

    /// The core (its place here) of a PU, if the PU can be used.
    pub fn of(&self, pu: u32) -> Option<usize> {
        let at = self.of_pu.get(pu as usize).copied()?;
        (at != NOWHERE).then_some(at as usize)
    }

    /// The one core to which all of these PUs belong.
    pub fn of_all(&self, pus: &PuSet) -> Option<usize> {
        let first = self.of(pus.first()?)?;
        pus.iter()
            .all(|pu| self.of(pu) == Some(first))
            .then_some(first)
    }

    /// PUs of all cores.
    pub fn pus(&self) -> usize {
        self.list.iter().map(|core| core.pus.len()).sum()
    }
}

impl std::ops::Deref for Cores {
    type Target = [Core];

    fn deref(&self) -> &[Core] {
        &self.list
    }
}

/// Which of the different sets of cores each mask reaches, and these sets.
pub(crate) fn reaches<'a>(
    cores: &Cores,
    masks: impl Iterator<Item = &'a PuSet>,
) -> (Vec<usize>, Vec<Vec<bool>>) {
    let mut sets: Vec<&PuSet> = Vec::new();
    let of = masks.map(|mask| {
        sets.iter()
            .rposition(|set| *set == mask)
            .unwrap_or_else(|| {
                sets.push(mask);
                sets.len() - 1
            })
    });
    let of = of.collect();
    let reach = |set: &&PuSet| {
        let reached = cores
            .iter()
            .map(|core| core.pus.iter().any(|pu| set.contains(*pu)));
        reached.collect()
    };
    (of, sets.iter().map(reach).collect())
}
