//! The parts of a machine that threads share, and how loaded each is.

use crate::{
    frame::{Frame, RUNS},
    view::text::bytes,
};
use perch_core::{PuSet, ShareLevel, Topology};
use rustc_hash::FxHashMap;

/// How many of the threads that run on a unit are named.
pub const NAMED: usize = 3;

/// What kind of part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// A logical CPU.
    Pu,
    /// A core, whose PUs share its execution units.
    Core,
    /// The PUs below one L2 cache.
    L2,
    /// The PUs below one last-level cache.
    Llc,
    /// The PUs near to one memory.
    Node,
    /// A processor package.
    Package,
}

impl Level {
    /// Its name for one, and for several.
    pub fn noun(self) -> (&'static str, &'static str) {
        match self {
            Self::Pu => ("PU", "PUs"),
            Self::Core => ("core", "cores"),
            Self::L2 => ("L2 cache", "L2 caches"),
            Self::Llc => ("last-level cache", "last-level caches"),
            Self::Node => ("NUMA node", "NUMA nodes"),
            Self::Package => ("package", "packages"),
        }
    }
}

/// One part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// A short label, such as `core 7`.
    pub label: String,
    /// Its PUs.
    pub pus: PuSet,
    /// The caches that these PUs share, and no others, from the second level on: `L2 1 MiB, L3 32 MiB`. Empty for a
    /// single PU.
    pub caches: String,
}

/// All parts of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Units {
    /// The kind.
    pub level: Level,
    /// The parts, by rising lowest PU.
    pub units: Vec<Unit>,
    /// The part of each of the topology's PUs, by the PU's place there.
    of: Vec<Option<u32>>,
}

/// A line of the machine as a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branch {
    /// How deep it stands, from 0.
    pub depth: u16,
    /// Place in [`Layout::levels`].
    pub level: usize,
    /// Place in [`Units::units`].
    pub unit: usize,
}

/// The parts of a machine at every level at which something is shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The levels, from PUs up. A level with the same parts as the one below is left out.
    pub levels: Vec<Units>,
    /// All parts, each above those within it.
    pub tree: Vec<Branch>,
}

/// How loaded a part is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Load {
    /// Mean share of time in which its online PUs were not idle, 0 to 1.
    pub busy: f32,
    /// How many of its PUs are online.
    pub pus: u32,
    /// Threads that run there.
    pub running: u32,
    /// How much the threads there waited for a PU, as a sum of shares.
    pub waiting: f32,
    /// The threads that run there most, by place in [`Frame::threads`], the busiest first.
    pub top: [Option<u32>; NAMED],
}

impl Layout {
    /// That of a topology.
    pub fn new(topology: &Topology) -> Self {
        let caches = caches(topology);
        let sets = |level: ShareLevel| -> Vec<PuSet> {
            let domains = topology.domains(level);
            domains.into_iter().map(|domain| domain.pus).collect()
        };
        let llc = topology.llc_level().unwrap_or(3);
        let mut nodes: Vec<&_> = topology.numa_nodes.iter().collect();
        nodes.retain(|node| !node.pus.is_empty());
        let mut levels = vec![
            units(
                topology,
                Level::Pu,
                sets(ShareLevel::Pu),
                "PU",
                &caches,
                |pus, _| pus.first().unwrap_or(0),
            ),
            units(
                topology,
                Level::Core,
                sets(ShareLevel::Core),
                "core",
                &caches,
                |_, n| n,
            ),
            units(
                topology,
                Level::L2,
                sets(ShareLevel::L2),
                "L2",
                &caches,
                |_, n| n,
            ),
            units(
                topology,
                Level::Llc,
                sets(ShareLevel::Llc),
                &format!("L{llc}"),
                &caches,
                |_, n| n,
            ),
            units(
                topology,
                Level::Node,
                nodes.iter().map(|node| node.pus.clone()).collect(),
                "node",
                &caches,
                |_, n| nodes.get(n as usize).map_or(n, |node| node.os),
            ),
            units(
                topology,
                Level::Package,
                sets(ShareLevel::Package),
                "package",
                &caches,
                |_, n| topology.packages.get(n as usize).map_or(n, |of| of.os),
            ),
        ];
        // Of levels with the same parts one says it all: the upper one of cores and caches, as PUs are always shown.
        levels.dedup_by(|upper, lower| upper.of == lower.of && upper.level != Level::Package);
        if let [.., below, package] = &levels[..]
            && package.of == below.of
            && below.level != Level::Pu
        {
            let at = levels.len() - 2;
            levels.remove(at);
        }
        levels.retain(|level| !level.units.is_empty());
        let tree = tree(&levels, topology.pus.len());
        Self { levels, tree }
    }

    /// The finest level that has at most so many parts; else the coarsest.
    pub fn fitting(&self, most: usize) -> usize {
        let fits = |units: &Units| units.units.len() <= most;
        let coarsest = self.levels.len().saturating_sub(1);
        self.levels.iter().position(fits).unwrap_or(coarsest)
    }
}

/// The shared caches of each set of PUs that has some.
fn caches(topology: &Topology) -> FxHashMap<&PuSet, String> {
    let mut shared: Vec<_> = topology.caches.iter().collect();
    shared.retain(|cache| cache.level > 1 && cache.pus.len() > 1);
    shared.sort_by_key(|cache| cache.level);
    let mut texts: FxHashMap<&PuSet, String> = FxHashMap::default();
    for cache in shared {
        let text = texts.entry(&cache.pus).or_default();
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&format!("L{}", cache.level));
        if cache.size > 0 {
            text.push_str(&format!(" {}", bytes(cache.size as f64)));
        }
    }
    texts
}

fn units(
    topology: &Topology,
    level: Level,
    sets: Vec<PuSet>,
    name: &str,
    caches: &FxHashMap<&PuSet, String>,
    number: impl Fn(&PuSet, u32) -> u32,
) -> Units {
    let mut of = vec![None; topology.pus.len()];
    for (unit, set) in sets.iter().enumerate() {
        for pu in set.iter() {
            if let Ok(place) = topology.pus.binary_search_by_key(&pu, |of| of.os) {
                of[place] = Some(unit as u32);
            }
        }
    }
    let unit = |(n, pus): (usize, PuSet)| Unit {
        label: format!("{name} {}", number(&pus, n as u32)),
        caches: caches.get(&pus).cloned().unwrap_or_default(),
        pus,
    };
    Units {
        level,
        units: sets.into_iter().enumerate().map(unit).collect(),
        of,
    }
}

/// The parts with those within them, for as many PUs.
fn tree(levels: &[Units], pus: usize) -> Vec<Branch> {
    let path = |pu: usize| -> Vec<(usize, u32)> {
        let upper = levels.iter().enumerate().rev();
        upper
            .filter_map(|(at, units)| Some((at, units.of[pu]?)))
            .collect()
    };
    let mut paths: Vec<Vec<(usize, u32)>> = (0..pus).map(path).collect();
    paths.sort();
    let mut tree = Vec::new();
    let mut before: &[(usize, u32)] = &[];
    for path in &paths {
        let same = path.iter().zip(before).take_while(|(a, b)| a == b).count();
        for (depth, (level, unit)) in path.iter().enumerate().skip(same) {
            tree.push(Branch {
                depth: depth as u16,
                level: *level,
                unit: *unit as usize,
            });
        }
        before = path;
    }
    tree
}

/// The loads of all parts of a level. Linear in threads and PUs.
pub fn loads(frame: &Frame, units: &Units) -> Vec<Load> {
    let topology = &frame.topology;
    let mut loads = vec![Load::default(); units.units.len()];
    let place = |pu: u32| {
        let place = topology.pus.binary_search_by_key(&pu, |of| of.os).ok()?;
        units.of.get(place).copied().flatten().map(|at| at as usize)
    };
    match frame.pus.is_empty() {
        false => {
            for pu in &frame.pus {
                if let Some(at) = place(pu.pu) {
                    loads[at].busy += pu.busy;
                    loads[at].pus += 1;
                }
            }
        }
        true => {
            for pu in topology.online().iter() {
                if let Some(at) = place(pu) {
                    loads[at].pus += 1;
                }
            }
        }
    }
    for (number, thread) in frame.threads.iter().enumerate() {
        let Some(at) = thread.pu.and_then(place) else {
            continue;
        };
        let load = &mut loads[at];
        if frame.pus.is_empty() {
            load.busy += thread.cpu;
        }
        load.waiting += thread.waiting;
        if thread.cpu >= RUNS {
            load.running += 1;
            enter(&mut load.top, number as u32, frame);
        }
    }
    for load in &mut loads {
        load.busy = (load.busy / load.pus.max(1) as f32).clamp(0.0, 1.0);
    }
    loads
}

/// Enters a thread among the busiest, of equal ones the first.
fn enter(top: &mut [Option<u32>; NAMED], number: u32, frame: &Frame) {
    let cpu = |number: u32| frame.threads[number as usize].cpu;
    let mut new = number;
    for place in top {
        match place {
            None => {
                *place = Some(new);
                return;
            }
            Some(old) if cpu(new) > cpu(*old) => std::mem::swap(old, &mut new),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        check::tests::machine,
        frame::{PuLoad, Thread},
    };
    use perch_core::ThreadId;

    fn thread(tid: i32, pu: u32, cpu: f32) -> Thread {
        Thread {
            id: ThreadId { tid, start: 0 },
            pid: 1,
            name: format!("t{tid}").into(),
            process: "p".into(),
            cpu,
            waiting: 0.25,
            pu: Some(pu),
            switches: None,
            migrations: None,
            bound: None,
        }
    }

    #[test]
    fn levels_that_say_the_same_are_left_out() {
        // Each core has an L2 of its own, each package is a node with one L3.
        let layout = Layout::new(&machine(2, 2, 2));
        let levels: Vec<Level> = layout.levels.iter().map(|of| of.level).collect();
        assert_eq!(levels, [Level::Pu, Level::Core, Level::Package]);
        // Without SMT the PUs are the cores.
        let layout = Layout::new(&machine(1, 4, 1));
        let levels: Vec<Level> = layout.levels.iter().map(|of| of.level).collect();
        assert_eq!(levels, [Level::Pu, Level::Package]);
        let layout = Layout::new(&machine(1, 1, 1));
        assert_eq!(layout.levels.len(), 2);
        assert_eq!(layout.fitting(0), 1);
    }

    #[test]
    fn the_tree_has_every_part_once_below_its_own() {
        let layout = Layout::new(&machine(2, 2, 2));
        let text: Vec<String> = layout
            .tree
            .iter()
            .map(|of| {
                let label = &layout.levels[of.level].units[of.unit].label;
                format!("{}{label}", " ".repeat(of.depth.into()))
            })
            .collect();
        assert_eq!(
            text,
            [
                "package 0",
                " core 0",
                "  PU 0",
                "  PU 1",
                " core 1",
                "  PU 2",
                "  PU 3",
                "package 1",
                " core 2",
                "  PU 4",
                "  PU 5",
                " core 3",
                "  PU 6",
                "  PU 7",
            ]
        );
    }

    #[test]
    fn loads_are_means_over_pus_and_name_the_busiest() {
        let layout = Layout::new(&machine(2, 2, 2));
        let mut frame = Frame::empty(machine(2, 2, 2));
        frame.threads = vec![
            thread(1, 0, 0.25),
            thread(2, 1, 0.5),
            thread(3, 1, 0.001),
            thread(4, 1, 0.5),
            thread(5, 0, 0.1),
        ];
        // By the threads alone.
        let cores = loads(&frame, &layout.levels[1]);
        assert_eq!(cores[0].busy, (0.25 + 0.5 + 0.001 + 0.5 + 0.1) / 2.0);
        assert_eq!((cores[0].running, cores[0].waiting), (4, 1.25));
        assert_eq!(cores[0].top, [Some(1), Some(3), Some(0)]);
        assert_eq!(
            cores[1],
            Load {
                pus: 2,
                ..Load::default()
            }
        );
        // What PUs say counts more.
        frame.pus = (0..8)
            .map(|pu| PuLoad {
                pu,
                busy: if pu == 1 { 1.0 } else { 0.0 },
                interrupts: 0.0,
            })
            .collect();
        assert_eq!(loads(&frame, &layout.levels[1])[0].busy, 0.5);
        assert_eq!(loads(&frame, &layout.levels[2])[0].busy, 0.25);
        assert_eq!(loads(&frame, &layout.levels[0])[1].busy, 1.0);
    }
}
