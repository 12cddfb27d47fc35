//! The machine's caches, TLBs and channels as the interval level sees them.

use super::{eviction::Shape, homes::Home};
use crate::{
    model::{Holds, MachineModel, Prefetcher, PuUses, Wired, wiring},
    units::{Ps, SECOND},
};

/// Levels of caches.
pub(super) const LEVELS: usize = 3;

/// A cache.
#[derive(Debug, Clone)]
pub(super) struct CacheAt {
    pub shape: Shape,
    /// Its level less one.
    pub level: usize,
    /// What a look into it adds to an access; 0 at level 1.
    pub latency: Ps,
    /// What it holds.
    pub holds: Holds,
    /// Its PUs.
    pub pus: Vec<u32>,
    /// What asks for lines before they are needed.
    pub prefetchers: Vec<Prefetcher>,
    /// Whether lines come into it only from the caches before it, which these are.
    pub victim: bool,
    pub before: Vec<usize>,
    /// Time to move a line between it and the caches before it; 0 without limit.
    pub line_transfer: f64,
    /// Of one that is written through, lines of the buffer behind it.
    pub through: Option<f64>,
}

/// Caches and what is behind them.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub caches: Vec<CacheAt>,
    pub pus: Vec<PuUses>,
    /// Bytes of a line.
    pub line: f64,
    /// Bytes of a page.
    pub page: f64,
    /// TLBs, and what a miss in each costs; none if they are not modelled.
    pub tlbs: Vec<(Shape, f64)>,
    /// Time to move a line over a node's channel; 0 without limit.
    pub service: f64,
    /// Time to move a line over a link between nodes; 0 without limit.
    pub link: f64,
    /// Memory's latency by the node of the PU and that of the memory.
    latencies: Vec<f64>,
    pub nodes: usize,
    /// Cores that can stand for each other have the same number.
    pub alike: Vec<usize>,
}

impl Layout {
    pub fn new(machine: &MachineModel) -> Self {
        let (wired, pus) = wiring(machine);
        let cache = |cache: &Wired<'_>| {
            let like = cache.like;
            let lines = |bytes: u64| bytes / u64::from(like.line.max(1));
            CacheAt {
                shape: Shape::new(lines(like.size), like.ways),
                level: cache.level(),
                latency: cache.latency(),
                holds: like.holds,
                pus: cache.pus.to_vec(),
                prefetchers: like.prefetchers.clone(),
                victim: like.victim,
                before: Vec::new(),
                line_transfer: like.line_transfer as f64,
                through: like.write_through.map(|bytes| lines(bytes) as f64),
            }
        };
        let mut caches: Vec<CacheAt> = wired.iter().map(cache).collect();
        let line = machine.caches.first().map_or(64, |level| level.line).max(1);
        let line = f64::from(line.next_power_of_two());
        for (number, cache) in caches.iter_mut().enumerate() {
            let before = |path: &Vec<usize>| {
                let at = path.iter().position(|its| *its == number)?;
                path.get(at.checked_sub(1)?).copied()
            };
            let paths = pus.iter().flat_map(|pu| [&pu.data, &pu.fetch]);
            cache.before = paths.filter_map(before).collect();
            cache.before.sort_unstable();
            cache.before.dedup();
        }
        let nodes = pus.iter().map(|pu| pu.node + 1).max().unwrap_or(1);
        let distance = |from: usize, to: usize| machine.memory.distance.get(from)?.get(to).copied();
        let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        let tlbs = machine.cores.iter().flat_map(|core| {
            let contexts = machine.kind(core).contexts as usize;
            let of_core = machine.tlb_of(core).map(|tlb| {
                let shape = Shape::new(u64::from(tlb.entries), tlb.ways);
                vec![(shape, tlb.miss as f64); if tlb.private { contexts } else { 1 }]
            });
            of_core.unwrap_or_default()
        });
        let time = |bandwidth: f64| match bandwidth > 0.0 {
            true => line / bandwidth * SECOND as f64,
            false => 0.0,
        };
        Self {
            latencies: pairs
                .map(|(from, to)| machine.memory.latency as f64 * distance(from, to).unwrap_or(1.0))
                .collect(),
            service: time(machine.memory.bandwidth),
            link: time(machine.memory.link_bandwidth),
            tlbs: tlbs.collect(),
            page: machine
                .tlb
                .map_or(4096, |tlb| tlb.page)
                .max(1)
                .next_power_of_two() as f64,
            alike: alike(machine, &caches, &pus),
            caches,
            pus,
            line,
            nodes,
        }
    }

    /// The servers at which lines queue, with the time that each takes for a line: the nodes' memory channels, behind
    /// them the ports of the caches, and the links between nodes, if their bandwidth is limited.
    pub fn servers(&self) -> Vec<f64> {
        let memory = std::iter::repeat_n(self.service, self.nodes);
        let ports = self.caches.iter().map(|cache| cache.line_transfer);
        let links = if self.link > 0.0 {
            self.nodes * self.nodes
        } else {
            0
        };
        let links = std::iter::repeat_n(self.link, links);
        memory.chain(ports).chain(links).collect()
    }

    /// The place among the servers of the link from a node to another one, if its bandwidth is limited.
    pub fn link(&self, (from, to): (usize, usize)) -> Option<usize> {
        let between = self.link > 0.0 && from != to;
        between.then(|| self.nodes + self.caches.len() + from * self.nodes + to)
    }

    /// Whether this one of the servers is a link.
    pub fn is_link(&self, server: usize) -> bool {
        server >= self.nodes + self.caches.len()
    }

    /// The nodes of a home, and the part of the lines that lie in each.
    pub fn nodes_of(&self, home: Home) -> (std::ops::Range<usize>, f64) {
        match home {
            Home::Node(of) => {
                let of = of.min(self.nodes - 1);
                (of..of + 1, 1.0)
            }
            Home::All => (0..self.nodes, 1.0 / self.nodes as f64),
        }
    }

    /// The place of a cache's port among the servers.
    pub fn port(&self, cache: usize) -> usize {
        self.nodes + cache
    }

    /// What memory of a home takes for a PU, without a queue: the mean over all nodes if it is theirs.
    pub fn latency(&self, pu: usize, home: Home) -> f64 {
        let row = &self.latencies[self.pus[pu].node * self.nodes..][..self.nodes];
        match home {
            Home::Node(node) => row[node.min(self.nodes - 1)],
            Home::All => row.iter().sum::<f64>() / self.nodes as f64,
        }
    }

    /// The cache (or TLB, counted on from there) on the path of PU `on` that has the place of `cache` on the path of `of`, a PU
    /// of a core that is alike.
    pub fn counterpart(&self, cache: usize, of: usize, on: usize) -> usize {
        let (of, on) = (&self.pus[of], &self.pus[on]);
        if cache >= self.caches.len() {
            return self.caches.len() + on.tlb;
        }
        let paths = [(&of.data, &on.data), (&of.fetch, &on.fetch)];
        let mut places = paths
            .into_iter()
            .filter_map(|(of, on)| Some(on[of.iter().position(|its| *its == cache)?]));
        places.next().unwrap_or(cache)
    }
}

/// Gives the same number to cores of one kind and node that share the same caches with others, and whose own caches are
/// alike.
fn alike(machine: &MachineModel, caches: &[CacheAt], pus: &[PuUses]) -> Vec<usize> {
    let of_core = |core: usize| {
        let shared = |cache: &CacheAt| {
            let cores = || cache.pus.iter().map(|pu| pus[*pu as usize].core);
            cores().any(|other| other == core) && cores().any(|other| other != core)
        };
        let common: Vec<usize> = (0..caches.len())
            .filter(|at| shared(&caches[*at]))
            .collect();
        let mine = |cache: &&CacheAt| {
            let mut cores = cache.pus.iter().map(|pu| pus[*pu as usize].core);
            cores.all(|other| other == core)
        };
        let own = caches.iter().filter(mine).map(|cache| {
            let contexts = cache.pus.len();
            (
                cache.shape,
                cache.level,
                cache.latency,
                cache.holds,
                contexts,
                &cache.prefetchers,
                (cache.victim, cache.line_transfer, cache.through),
            )
        });
        let own: Vec<_> = own.collect();
        let at = &machine.cores[core];
        (at.kind, at.package, at.numa_node, common, own)
    };
    let mut known = Vec::new();
    (0..machine.cores.len())
        .map(|core| {
            let what = of_core(core);
            known
                .iter()
                .position(|other| *other == what)
                .unwrap_or_else(|| {
                    known.push(what);
                    known.len() - 1
                })
        })
        .collect()
}
