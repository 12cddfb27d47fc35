//! Scheduling domains: the sets of PUs between which load is balanced, from those of a core up to the whole machine
//! (kernel 6.1, `kernel/sched/topology.c`: `sd_init`, `build_sched_domains`).

use super::capacity::capacities;
use crate::model::{Holds, MachineModel};
use rustc_hash::FxHashMap;

/// A level of domains. Each domain of it consists of groups: the domains of the level below, or single PUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::os::scheduler) struct Level {
    pub domains: Vec<Domain>,
    /// The domain of each PU, and its group there.
    pub place: Vec<(usize, usize)>,
    /// Threads are spread over groups also while no thread waits (`SD_PREFER_SIBLING` of the level below).
    pub spreads: bool,
    /// Some of its domains have PUs of different capacities (`SD_ASYM_CPUCAPACITY`).
    pub asymmetric: bool,
    /// Its PUs share a cache (`SD_SHARE_PKG_RESOURCES`).
    pub shares_cache: bool,
    /// Percent of a group's load that another's must exceed (`imbalance_pct`).
    pub percent: u64,
    /// Between NUMA nodes: a node with at most this many threads may have two less than another (`imb_numa_nr`).
    pub numa: Option<u64>,
}

/// PUs between which load is balanced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::os::scheduler) struct Domain {
    pub groups: Vec<Vec<u32>>,
}

impl Domain {
    pub fn pus(&self) -> impl Iterator<Item = u32> {
        self.groups.iter().flatten().copied()
    }

    pub fn weight(&self) -> usize {
        self.groups.iter().map(Vec::len).sum()
    }
}

impl Level {
    /// Of sets of PUs, whose groups are the sets of the level below.
    fn new(sets: &Partition, below: &Partition) -> Self {
        let mut domains = vec![Domain { groups: Vec::new() }; sets.parts.len()];
        let mut place = vec![(0, 0); sets.of.len()];
        for group in &below.parts {
            let domain = sets.of[group[0] as usize];
            for pu in group {
                place[*pu as usize] = (domain, domains[domain].groups.len());
            }
            domains[domain].groups.push(group.clone());
        }
        Self {
            domains,
            place,
            spreads: true,
            asymmetric: false,
            shares_cache: true,
            percent: 117,
            numa: None,
        }
    }

    pub fn domain(&self, pu: usize) -> &Domain {
        &self.domains[self.place[pu].0]
    }

    pub fn group(&self, pu: usize) -> &[u32] {
        let (domain, group) = self.place[pu];
        &self.domains[domain].groups[group]
    }
}

/// The levels of a machine, from cores up: those that join what the level below separates.
pub(in crate::os::scheduler) fn levels(machine: &MachineModel) -> Vec<Level> {
    let places = machine.places();
    let pus = places.len();
    let core = |pu: usize| places[pu].0;
    let node = |pu: usize| machine.cores[core(pu)].numa_node as usize;
    let cores = Partition::of(pus, core);
    let caches = last_caches(machine);
    let nodes = Partition::of(pus, node);
    let mut levels = Vec::new();
    let mut below = Partition::of(pus, |pu| pu);
    if cores != below {
        let mut level = Level::new(&cores, &below);
        (level.spreads, level.percent) = (false, 110);
        levels.push(level);
        below = cores;
    }
    if caches.is_coarser(&below) {
        levels.push(Level::new(&caches, &below));
        below = caches;
    }
    // Last caches of a node: the kernel allows an eighth of a node that has one, else a thread for each of them.
    let in_node = below
        .parts
        .iter()
        .filter(|set| nodes.of[set[0] as usize] == 0);
    let fair = match in_node.count() {
        0 | 1 => nodes.parts[0].len() as u64 / 8,
        several => several as u64,
    };
    let several = nodes.parts.len() > 1;
    if nodes.is_coarser(&below) {
        let mut level = Level::new(&nodes, &below);
        level.shares_cache = false;
        levels.push(level);
        below = nodes;
    }
    let whole = Partition::of(pus, |_| 0);
    if whole.is_coarser(&below) {
        let mut level = Level::new(&whole, &below);
        level.shares_cache = false;
        level.numa = several.then_some(fair.max(1));
        levels.push(level);
    }
    let capacities = capacities(machine);
    for level in &mut levels {
        level.asymmetric = level.domains.iter().any(|domain| {
            let mut all = domain.pus().map(|pu| capacities[pu as usize]);
            let first = all.next();
            all.any(|capacity| Some(capacity) != first)
        });
        // Threads are not spread over groups that differ.
        level.spreads &= !level.asymmetric;
    }
    levels
}

/// The levels that Linux 2.6.11 knows: cores, the cores of a node, the nodes (`arch_init_sched_domains`).
pub(in crate::os::scheduler) fn levels_without_caches(machine: &MachineModel) -> Vec<Level> {
    let places = machine.places();
    let pus = places.len();
    let core = |pu: usize| places[pu].0;
    let mut below = Partition::of(pus, |pu| pu);
    let mut levels = Vec::new();
    for sets in [
        Partition::of(pus, core),
        Partition::of(pus, |pu| machine.cores[core(pu)].numa_node as usize),
        Partition::of(pus, |_| 0),
    ] {
        if sets.is_coarser(&below) {
            levels.push(Level::new(&sets, &below));
            below = sets;
        }
    }
    levels
}

/// The PUs in sets, in the order of their first ones.
#[derive(Debug, PartialEq, Eq)]
struct Partition {
    parts: Vec<Vec<u32>>,
    /// The set of each PU.
    of: Vec<usize>,
}

impl Partition {
    /// PUs by what they belong to.
    fn of(pus: usize, key: impl Fn(usize) -> usize) -> Self {
        let mut known = FxHashMap::default();
        let (mut parts, mut of) = (Vec::<Vec<u32>>::new(), Vec::with_capacity(pus));
        for pu in 0..pus {
            let part = *known.entry(key(pu)).or_insert(parts.len());
            if part == parts.len() {
                parts.push(Vec::new());
            }
            parts[part].push(pu as u32);
            of.push(part);
        }
        Self { parts, of }
    }

    /// Whether each of its sets consists of whole sets of the other, some of several.
    fn is_coarser(&self, other: &Self) -> bool {
        let whole = |set: &Vec<u32>| {
            let part = self.of[set[0] as usize];
            set.iter().all(|pu| self.of[*pu as usize] == part)
        };
        self.parts.len() < other.parts.len() && other.parts.iter().all(whole)
    }
}

/// PUs by the highest cache that each has for data.
fn last_caches(machine: &MachineModel) -> Partition {
    let pus = machine.pus();
    let mut last: Vec<(u8, usize)> = (0..pus).map(|pu| (0, pu)).collect();
    let data = machine
        .caches
        .iter()
        .filter(|cache| cache.holds != Holds::Instructions);
    for (number, cache) in data.enumerate() {
        for group in &cache.shared_by {
            for pu in group {
                // A group's first PU tells which of the level's caches it is.
                let key = pus * (number + 1) + group[0] as usize;
                let known = &mut last[*pu as usize];
                if cache.level >= known.0 {
                    *known = (cache.level, key);
                }
            }
        }
    }
    Partition::of(pus, |pu| last[pu].1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::find_machine;

    /// For each level: how many PUs its first domain has, and how many groups.
    fn shape(machine: &str) -> Vec<(usize, usize)> {
        let levels = levels(&find_machine(machine).unwrap());
        let first = |level: &Level| (level.domains[0].weight(), level.domains[0].groups.len());
        levels.iter().map(first).collect()
    }

    #[test]
    fn levels_are_those_of_the_kernel() {
        // Two caches of two cores each.
        assert_eq!(shape("core2-quad"), [(2, 2), (4, 2)]);
        // Cores of two PUs that share a last cache.
        assert_eq!(shape("smt2-zen"), [(2, 2), (16, 8)]);
        // Two clusters, each with its cache.
        assert_eq!(shape("big-little"), [(4, 4), (8, 2)]);
        let asymmetric = |machine: &str| -> Vec<(bool, bool)> {
            let levels = levels(&find_machine(machine).unwrap()).into_iter();
            levels
                .map(|level| (level.asymmetric, level.spreads))
                .collect()
        };
        // Between clusters that differ, threads are not spread.
        assert_eq!(asymmetric("big-little"), [(false, true), (true, false)]);
        assert_eq!(asymmetric("core2-quad"), [(false, true), (false, true)]);
        let numa = levels(&find_machine("numa-2").unwrap());
        assert!(numa.last().unwrap().numa.is_some());
        assert!(numa.iter().rev().skip(1).all(|level| level.numa.is_none()));
    }

    #[test]
    fn every_pu_has_its_place_in_each_level() {
        for shipped in crate::config::shipped_machines() {
            let name = shipped.name;
            let machine = find_machine(name).unwrap();
            for level in levels(&machine) {
                for pu in 0..machine.pus() {
                    assert!(level.group(pu).contains(&(pu as u32)), "{name}");
                }
                let all: usize = level.domains.iter().map(Domain::weight).sum();
                assert_eq!(all, machine.pus(), "{name}");
            }
        }
    }
}
