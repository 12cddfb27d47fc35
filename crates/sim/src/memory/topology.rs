//! Which caches each PU's accesses pass.

use super::{
    bandwidth::Channel,
    cache::{Cache, DIRTY, Entry, SHARED},
    prefetch::Prefetch,
};
use crate::{
    model::{Holds, MachineModel, PuUses, Wired, wiring},
    units::Ps,
};
use std::collections::BTreeMap;

/// No cache.
const NONE: u32 = u32::MAX;

/// Some caches, by rising level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path {
    caches: [u32; 3],
    count: u8,
    /// Whether a hit in the first cache tells nothing of others, as another path has it further down.
    asks: bool,
}

impl Path {
    fn new(caches: &[usize]) -> Self {
        let mut path = Self {
            caches: [NONE; 3],
            count: 0,
            asks: false,
        };
        for (place, cache) in path.caches.iter_mut().zip(caches) {
            *place = *cache as u32;
            path.count += 1;
        }
        path
    }

    /// The first cache, if what hits there is done; else a number that no cache has.
    #[inline]
    pub fn first(&self) -> usize {
        if self.asks {
            NONE as usize
        } else {
            self.caches[0] as usize
        }
    }

    /// All of them.
    #[inline]
    pub fn all(&self) -> &[u32] {
        &self.caches[..usize::from(self.count)]
    }
}

/// What one PU uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Caches that loads and stores pass.
    pub data: Path,
    /// Caches that fetches pass.
    pub fetch: Path,
    /// PUs with the same caches are one group.
    pub group: u32,
    /// The NUMA node.
    pub node: u32,
    /// The TLB, if there are any.
    pub tlb: u32,
}

/// Caches of some PUs, as far as other groups are concerned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    /// Caches of loads and stores.
    pub data: Path,
    /// Caches of fetches.
    pub fetch: Path,
    /// The NUMA node of its first PU.
    pub node: u32,
}

impl Group {
    /// Whether an access of this group may pass a cache.
    pub fn uses(&self, cache: u32) -> bool {
        self.data.all().contains(&cache) || self.fetch.all().contains(&cache)
    }

    /// Its caches that another group does not use.
    pub fn without(&self, other: &Group) -> impl Iterator<Item = usize> {
        let (group, other) = (*self, *other);
        let fetch_only = move |cache: &u32| !group.data.all().contains(cache);
        (0..3)
            .filter_map(move |level| group.data.all().get(level).copied())
            .chain(
                (0..3).filter_map(move |level| {
                    group.fetch.all().get(level).copied().filter(fetch_only)
                }),
            )
            .filter(move |cache| !other.uses(*cache))
            .map(|cache| cache as usize)
    }

    /// The nearest cache for data of both groups.
    pub fn common(&self, other: &Group) -> Option<usize> {
        let mut caches = self.data.all().iter();
        caches
            .find(|cache| other.data.all().contains(cache))
            .map(|cache| *cache as usize)
    }
}

/// A cache at its place.
#[derive(Debug, Clone)]
pub(super) struct CacheAt {
    /// Its tags.
    pub tags: Cache,
    /// Its level less one, as in [`crate::counters::Counters`].
    pub level: usize,
    /// What it holds.
    holds: Holds,
    /// What a look into it adds to an access; 0 at level 1, whose latency is the instruction's.
    pub latency: Ps,
    /// Its PUs.
    pus: Vec<u32>,
    /// Where its dirty lines go; memory if `None`.
    pub below: Option<usize>,
    /// Whether every group uses it, so that coherence is no matter.
    pub everyones: bool,
    /// Its prefetchers.
    pub prefetch: Option<Box<Prefetch>>,
    /// Whether lines come into it only from the caches before it.
    pub victim: bool,
    /// Whether that is so of the cache below: clean lines go there too.
    pub spills: bool,
    /// Moves lines between it and the caches before it.
    pub port: Channel,
    /// Whether stores go on to the cache below, which alone is written to.
    pub through: bool,
    /// The lines of the buffer where stores on their way to it are merged, if there is one.
    pub coalescing: Option<Box<Cache>>,
}

/// The caches and who uses them.
#[derive(Debug, Clone)]
pub(super) struct Topology {
    /// By PU.
    pub places: Vec<Place>,
    /// Groups of PUs with the same caches.
    pub groups: Vec<Group>,
    /// All caches.
    pub caches: Vec<CacheAt>,
}

impl Topology {
    /// Lays out the caches of a machine.
    pub fn new(model: &MachineModel) -> Self {
        let (wired, uses) = wiring(model);
        let caches = wired.iter().map(CacheAt::new).collect();
        let buffers = wired.iter();
        let buffers: Vec<u64> = buffers
            .map(|cache| cache.like.write_through.unwrap_or(0))
            .collect();
        let mut topology = Self {
            places: Vec::new(),
            groups: Vec::new(),
            caches,
        };
        topology.place(&uses);
        for number in 0..topology.caches.len() {
            topology.connect(number);
        }
        for (number, bytes) in buffers.into_iter().enumerate() {
            if let Some(below) = topology.caches[number].below
                && bytes > 0
            {
                let line = model.caches[0].line.max(1);
                let buffer = Cache::new(bytes, line, (bytes / u64::from(line)) as u32);
                topology.caches[below].coalescing = Some(Box::new(buffer));
            }
        }
        let lower = |cache: u32| {
            let below = |path: &Path| path.all().iter().skip(1).any(|its| *its == cache);
            topology
                .groups
                .iter()
                .any(|group| below(&group.data) || below(&group.fetch))
        };
        let asks: Vec<bool> = (0..topology.caches.len() as u32).map(lower).collect();
        for path in topology
            .places
            .iter_mut()
            .flat_map(|place| [&mut place.data, &mut place.fetch])
        {
            path.asks = asks.get(path.first()).is_some_and(|asks| *asks);
        }
        topology
    }

    fn place(&mut self, uses: &[PuUses]) {
        let mut numbers = BTreeMap::new();
        for of_pu in uses {
            let (data, fetch) = (Path::new(&of_pu.data), Path::new(&of_pu.fetch));
            let node = of_pu.node as u32;
            let group = *numbers.entry((data, fetch)).or_insert_with(|| {
                self.groups.push(Group { data, fetch, node });
                self.groups.len() as u32 - 1
            });
            self.places.push(Place {
                data,
                fetch,
                group,
                node,
                tlb: of_pu.tlb as u32,
            });
        }
    }

    /// Finds what is below a cache and whether all use it.
    fn connect(&mut self, number: usize) {
        let cache = number as u32;
        let after = |path: &Path| {
            let at = path.all().iter().position(|its| *its == cache)?;
            path.all().get(at + 1).map(|below| *below as usize)
        };
        let below = self
            .groups
            .iter()
            .find_map(|group| after(&group.data).or_else(|| after(&group.fetch)));
        let everyones = self
            .groups
            .iter()
            .all(|group| group.data.all().contains(&cache));
        self.caches[number].below = below;
        self.caches[number].spills = below.is_some_and(|below| self.caches[below].victim);
        self.caches[number].everyones = everyones;
    }
}

impl CacheAt {
    fn new(cache: &Wired<'_>) -> Self {
        let level = cache.like;
        Self {
            tags: Cache::new(level.size, level.line, level.ways),
            level: cache.level(),
            holds: level.holds,
            latency: cache.latency(),
            pus: cache.pus.to_vec(),
            below: None,
            everyones: false,
            prefetch: Prefetch::new(
                &level.prefetchers,
                level.line.max(1).next_power_of_two().trailing_zeros(),
            ),
            victim: level.victim,
            spills: false,
            port: Channel::with_service(level.line_transfer),
            through: level.write_through.is_some(),
            coalescing: None,
        }
    }

    /// Whether lines only come into it by demand, at once, and stay.
    pub fn is_plain(&self) -> bool {
        let plain_port = self.port.is_unlimited();
        plain_port && self.prefetch.is_none() && !self.victim && !self.through
    }

    /// Looks for a line that is on its way to the caches before this one, and lets it in. A victim cache does not: it gives
    /// the line away, or keeps a copy of one that others may need too. Returns as [`Cache::touch_or_insert`].
    #[inline]
    pub fn pass(&mut self, entry: Entry) -> (Option<Entry>, Option<Entry>) {
        if !self.victim {
            return self.tags.touch_or_insert(entry);
        }
        let line = entry.line();
        let here = match entry.has(SHARED) {
            true => self.tags.touch(line).map(|entry| *entry),
            false => self.tags.remove(line),
        };
        (here, None)
    }

    /// A line that was just let in comes from a victim cache behind, which does not keep it if it is dirty there.
    pub fn keep_dirty(&mut self, from: Entry) {
        if from.has(DIRTY)
            && let Some(entry) = self.tags.find(from.line())
            && !entry.has(SHARED)
        {
            *entry = entry.with(DIRTY);
        }
    }

    /// Who holds how much of it now.
    pub fn occupancy(&self) -> Occupancy {
        let mut lines = BTreeMap::new();
        for entry in self.tags.entries() {
            *lines.entry(entry.thread()).or_insert(0) += 1;
        }
        Occupancy {
            holds: self.holds,
            pus: self.pus.clone(),
            lines,
        }
    }
}

/// How much of a cache each thread holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupancy {
    /// What the cache holds.
    pub holds: Holds,
    /// The PUs that share it.
    pub pus: Vec<u32>,
    /// Lines that each thread brought in and that are still there, by thread. Threads from 131,071 on are counted
    /// together.
    pub lines: BTreeMap<u32, u64>,
}
