//! A simulated machine's topology, as policies see it.

use crate::model::{Holds, MachineModel};
use perch_core::{
    PuSet, Topology,
    topology::{Cache, Core, CoreKind, NumaNode, Package, Pu, PuState},
};
use std::collections::BTreeMap;

/// The topology of a machine: PU numbers are its contexts', core by core.
pub fn topology(machine: &MachineModel) -> Topology {
    let places = machine.places();
    let mut packages: BTreeMap<u32, PuSet> = BTreeMap::new();
    let mut nodes: BTreeMap<u32, PuSet> = BTreeMap::new();
    let mut kinds: Vec<PuSet> = vec![PuSet::new(); machine.kinds.len()];
    let mut cores: Vec<PuSet> = vec![PuSet::new(); machine.cores.len()];
    for (pu, (number, _)) in places.iter().enumerate() {
        let core = &machine.cores[*number];
        for set in [
            packages.entry(core.package).or_default(),
            nodes.entry(core.numa_node).or_default(),
            &mut kinds[core.kind],
            &mut cores[*number],
        ] {
            set.insert(pu as u32);
        }
    }
    // The slowest kind comes first, as everywhere in perch.
    let speed =
        |kind: usize| f64::from(machine.kinds[kind].width) / machine.kinds[kind].cycle as f64;
    let mut order: Vec<usize> = (0..kinds.len())
        .filter(|kind| !kinds[*kind].is_empty())
        .collect();
    order.sort_by(|a, b| speed(*a).total_cmp(&speed(*b)));
    let place_of = |kind: usize| order.iter().position(|other| *other == kind).unwrap_or(0);
    let mut caches: Vec<Cache> = Vec::new();
    for level in machine
        .caches
        .iter()
        .filter(|level| level.holds != Holds::Instructions)
    {
        caches.extend(level.shared_by.iter().map(|group| Cache {
            level: level.level,
            size: level.size,
            pus: group.iter().copied().collect(),
        }));
    }
    caches.sort_by_key(|cache| (cache.pus.first(), cache.level));
    let numbers: Vec<u32> = nodes.keys().copied().collect();
    Topology {
        source: format!("simulated: {}", machine.name).into(),
        packages: packages
            .into_iter()
            .map(|(os, pus)| Package {
                os,
                pus,
                model: machine.about.clone(),
            })
            .collect(),
        numa_nodes: nodes
            .into_iter()
            .map(|(os, pus)| NumaNode {
                os,
                pus,
                memory: 0,
                distances: distances(machine, os, &numbers),
            })
            .collect(),
        caches,
        cores: machine
            .cores
            .iter()
            .zip(cores)
            .map(|(core, pus)| Core {
                pus,
                package: core.package,
                numa_node: core.numa_node,
                kind: place_of(core.kind),
            })
            .collect(),
        kinds: order
            .iter()
            .map(|kind| CoreKind {
                name: machine.kinds[*kind].name.clone(),
                pus: kinds[*kind].clone(),
            })
            .collect(),
        pus: places
            .iter()
            .enumerate()
            .map(|(pu, (core, _))| Pu {
                os: pu as u32,
                core: *core,
                state: PuState::Usable,
            })
            .collect(),
    }
}

/// The latencies of the memory of these nodes from one node's cores, relative to 10 for the own memory as firmware states
/// them; nothing where there is one node.
fn distances(machine: &MachineModel, from: u32, to: &[u32]) -> Vec<u64> {
    if to.len() < 2 {
        return Vec::new();
    }
    let row = machine.memory.distance.get(from as usize);
    let factor = |to: &u32| row.and_then(|row| row.get(*to as usize));
    let tenths = |factor: &f64| (factor * 10.0).round() as u64;
    let known: Option<Vec<u64>> = to.iter().map(|to| factor(to).map(tenths)).collect();
    known.unwrap_or_default()
}
