//! The way of an access through TLB, caches and memory.

mod coherence;
mod moves;
mod prefetching;

use super::{
    access::{Access, Hierarchy},
    bandwidth::Channel,
    cache::{DIRTY, Entry, LINE_MASK, PREFETCHED, SHARED},
    directory::{Directory, Placement},
    links::Links,
    tlb::Tlb,
    topology::{CacheAt, Occupancy, Place, Topology},
    written::Written,
};
use crate::{counters::Counters, model::MachineModel, sharing::Shared, units::Ps};
use coherence::{Got, Wish};

/// Bytes of a line on a machine without caches.
const LINE: u32 = 64;

/// Bytes of a page on a machine without a TLB.
const PAGE: u64 = 4096;

/// The memory system of a machine.
#[derive(Debug, Clone)]
pub struct Memory {
    pub(super) topology: Topology,
    pub(super) directory: Directory,
    written: Written,
    /// The TLBs, and what a miss in each costs.
    tlbs: Vec<(Tlb, Ps)>,
    line_bits: u32,
    page_bits: u32,
    /// By NUMA node.
    channels: Vec<Channel>,
    links: Links,
    /// By the node of the PU and that of the memory: what memory takes without a queue.
    latencies: Vec<Ps>,
    /// Whether there is anything to know of regions: several groups or nodes.
    tracked: bool,
    /// Whether the bandwidth between any caches is limited.
    ported: bool,
    /// Whether lines only move by demand, at once, and stay where they were brought: no prefetcher, no limited bandwidth
    /// between caches, no victim cache, and no store that is written through.
    plain: bool,
}

/// An access that missed the first cache.
#[derive(Debug, Clone, Copy)]
struct Miss {
    pu: usize,
    thread: u32,
    access: Access,
    line: u64,
    at: Ps,
}

/// A line on its way.
#[derive(Debug, Clone, Copy)]
struct Claim {
    /// As it will be held.
    entry: Entry,
    /// The NUMA node of the PU that asks.
    node: u32,
    /// That of its page.
    home: usize,
    /// That of a cache from which it comes, if one held it dirty.
    from: Option<u32>,
}

/// Lines that caches had to let go and that go somewhere, and where each goes.
struct Gone {
    lines: [(Entry, Option<usize>); 3],
    count: usize,
}

impl Gone {
    /// None yet.
    fn none(any: Entry) -> Self {
        Self {
            lines: [(any, None); 3],
            count: 0,
        }
    }

    /// A cache has let a line go: to the next one if it is dirty, or if that takes all.
    #[inline]
    fn note(&mut self, out: Option<Entry>, cache: &CacheAt) {
        if let Some(out) = out.filter(|out| out.has(DIRTY) || cache.spills) {
            self.lines[self.count] = (out, cache.below);
            self.count += 1;
        }
    }
}

impl Hierarchy for Memory {
    #[inline]
    fn line_of(&self, address: u64) -> u64 {
        address >> self.line_bits
    }

    /// # Panics
    /// If the machine has no such PU.
    #[inline]
    fn access(
        &mut self,
        pu: usize,
        thread: u32,
        access: Access,
        address: u64,
        now: Ps,
        counters: &mut Counters,
    ) -> Ps {
        let line = self.line_of(address) & LINE_MASK;
        let place = &self.topology.places[pu];
        let mut walk = 0;
        let path = match access {
            Access::Fetch => &place.fetch,
            Access::Load | Access::Store => {
                if self.written.may_hold(line) {
                    self.written.note(line, thread, access == Access::Store);
                }
                if let Some((tlb, miss)) = self.tlbs.get_mut(place.tlb as usize)
                    && !tlb.touch(address >> self.page_bits)
                {
                    counters.tlb_misses += 1;
                    walk = *miss;
                }
                &place.data
            }
        };
        if let Some(cache) = self.topology.caches.get_mut(path.first())
            && let Some(entry) = cache.tags.touch(line)
        {
            let mut beyond = walk + cache.latency;
            let first_use = entry.has(PREFETCHED);
            if access == Access::Store {
                let ask = entry.has(SHARED);
                let through = cache.through;
                let written = if through { 0 } else { DIRTY };
                *entry = entry.with(written).without(SHARED);
                if ask {
                    self.take(pu, line, now + beyond, counters);
                }
                if through {
                    beyond += self.write_through(pu, thread, line, now + beyond, counters);
                }
            }
            if first_use {
                let miss = Miss {
                    pu,
                    thread,
                    access,
                    line,
                    at: now + walk,
                };
                return beyond + self.first_use(miss, now + beyond, counters);
            }
            return beyond;
        }
        let at = now + walk;
        walk + self.miss(
            Miss {
                pu,
                thread,
                access,
                line,
                at,
            },
            counters,
        )
    }
}

impl Memory {
    /// The memory system of a machine, all caches empty. Addresses are distinguished up to 2^49 bytes, with lines of 64
    /// bytes. Sizes of lines and pages that are not powers of two are rounded up to the next one. Distances that the
    /// model does not give are 1.
    pub fn new(model: &MachineModel) -> Self {
        let topology = Topology::new(model);
        let line = model.caches.first().map_or(LINE, |level| level.line).max(1);
        let line_bits = line.next_power_of_two().trailing_zeros();
        let page = model.tlb.map_or(PAGE, |tlb| tlb.page);
        let nodes = model
            .cores
            .iter()
            .map(|core| core.numa_node as usize + 1)
            .max()
            .unwrap_or(1);
        let tlbs = model.cores.iter().flat_map(|core| {
            let contexts = model.kind(core).contexts as usize;
            let of_core = model.tlb_of(core).map(|tlb| {
                let count = if tlb.private { contexts } else { 1 };
                vec![(Tlb::new(tlb.entries, tlb.ways), tlb.miss); count]
            });
            of_core.unwrap_or_default()
        });
        let distance = |from: usize, to: usize| model.memory.distance.get(from)?.get(to).copied();
        let latency = |from, to| model.memory.latency as f64 * distance(from, to).unwrap_or(1.0);
        let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        Self {
            tlbs: tlbs.collect(),
            line_bits,
            page_bits: page.max(1).next_power_of_two().trailing_zeros(),
            channels: vec![Channel::new(1 << line_bits, model.memory.bandwidth); nodes],
            links: Links::new(model, nodes, 1 << line_bits),
            latencies: pairs
                .map(|(from, to)| latency(from, to).round() as Ps)
                .collect(),
            ported: model.caches.iter().any(|level| level.line_transfer > 0),
            plain: topology.caches.iter().all(CacheAt::is_plain),
            tracked: topology.groups.len() > 1 || nodes > 1,
            directory: Directory::new(topology.groups.len(), nodes, page, line_bits),
            written: Written::default(),
            topology,
        }
    }

    /// Several threads may use these bytes from now on: who needs what another wrote there is counted.
    pub fn watch(&mut self, from: u64, bytes: u64) {
        let line = |address: u64| self.line_of(address) & LINE_MASK;
        self.written
            .watch(line(from), line(from + bytes.max(1) - 1) + 1);
    }

    /// The lines of watched bytes that threads needed from each other since this was last asked.
    pub fn take_shared(&mut self) -> Vec<Shared> {
        self.written.take()
    }

    /// Bytes of a line.
    pub(crate) fn line(&self) -> u64 {
        1 << self.line_bits
    }

    /// Nothing is under way any more.
    pub(super) fn rest(&mut self) {
        self.channels.iter_mut().for_each(Channel::rest);
        self.links.rest();
        for cache in &mut self.topology.caches {
            cache.prefetch.iter_mut().for_each(|its| its.rest());
            cache.port.rest();
        }
    }

    /// Chooses where pages are placed that no PU has touched yet; at first that is [`Placement::FirstTouch`].
    pub fn set_placement(&mut self, placement: Placement) {
        self.directory.set_placement(placement);
    }

    /// The NUMA node of the page of an address, if anybody has touched it; 0 on a machine with a single node.
    pub fn home(&self, address: u64) -> Option<u32> {
        match self.channels.len() {
            1 => Some(0),
            _ => self.directory.home(self.line_of(address) & LINE_MASK),
        }
    }

    /// Who holds how many lines of each cache of a level, 1 to 3, in the order of the model.
    pub fn occupancy(&self, level: u8) -> Vec<Occupancy> {
        let of_level = self
            .topology
            .caches
            .iter()
            .filter(|cache| cache.level + 1 == usize::from(level));
        of_level.map(|cache| cache.occupancy()).collect()
    }

    /// From now on a thread fills only these ways of the caches of a level, 1 to 3: bit n for way n; all if no bit is set.
    pub fn confine(&mut self, thread: u32, level: u8, ways: u32) {
        for cache in &mut self.topology.caches {
            if cache.level + 1 == usize::from(level) {
                cache.tags.confine(thread, ways);
            }
        }
    }

    /// Makes a line that was just written in the first cache the PU's own. Nothing waits for that.
    #[cold]
    fn take(&mut self, pu: usize, line: u64, at: Ps, counters: &mut Counters) {
        let place = self.topology.places[pu];
        let region = self.directory.touch(line, place.group, place.node);
        let wish = Wish {
            region,
            line,
            group: place.group,
            store: true,
            at,
        };
        self.cohere(wish, counters);
    }

    /// Brings a line that the first cache does not hold. Returns how long that takes.
    #[inline]
    fn miss(&mut self, miss: Miss, counters: &mut Counters) -> Ps {
        match self.plain {
            true => self.bring::<true>(miss, counters),
            false => self.bring::<false>(miss, counters),
        }
    }

    /// The same; `PLAIN`: on a machine that is.
    fn bring<const PLAIN: bool>(&mut self, miss: Miss, counters: &mut Counters) -> Ps {
        let claim = self.claim(&miss, counters);
        let Topology { places, caches, .. } = &mut self.topology;
        let place = &places[miss.pu];
        let (path, misses, mut flags) = match miss.access {
            Access::Fetch => (&place.fetch, &mut counters.fetch_misses, 0),
            Access::Load => (&place.data, &mut counters.data_misses, 0),
            Access::Store => (&place.data, &mut counters.data_misses, DIRTY),
        };
        let mut gone = Gone::none(claim.entry);
        let mut beyond = 0;
        let mut hit = false;
        // The place of the cache that has it, behind all if none has, and the cache before.
        let (mut reached, mut before) = (path.all().len(), 0);
        let mut through = false;
        // Caches whose prefetchers learn from this: by place on the path, and whether they missed.
        let mut learning = [None; 3];
        // In the first cache it is not.
        let mut absent = path.first();
        for (place, number) in path.all().iter().enumerate() {
            let cache = &mut caches[*number as usize];
            beyond += cache.latency;
            if !PLAIN && cache.through && flags == DIRTY {
                // It is written to the next level only, and not brought here.
                through = true;
                misses[cache.level] += 1;
                absent = usize::MAX;
                continue;
            }
            let entry = claim.entry.with(flags);
            let (here, out) = match absent == *number as usize {
                true => (None, cache.tags.insert(entry)),
                false if PLAIN => cache.tags.touch_or_insert(entry),
                false => cache.pass(entry),
            };
            if let Some(here) = here {
                hit = true;
                reached = place;
                if PLAIN {
                    break;
                }
                if here.has(PREFETCHED)
                    && let Some(prefetch) = &cache.prefetch
                {
                    beyond += prefetch.wait(miss.line, miss.at + beyond);
                    learning[place] = Some(false);
                }
                if cache.victim {
                    caches[before].keep_dirty(here);
                }
                break;
            }
            misses[cache.level] += 1;
            if !PLAIN && cache.prefetch.is_some() {
                learning[place] = Some(true);
            }
            gone.note(out, cache);
            (flags, absent, before) = (0, usize::MAX, *number as usize);
        }
        if !hit {
            beyond += self.fetch_line(&claim, miss.at + beyond, counters);
        }
        if !PLAIN && self.ported {
            let path = self.path(&miss);
            let top = usize::from(through);
            beyond += self.move_up(&path, top..reached, miss.at + beyond);
        }
        if !PLAIN && through {
            let at = miss.at + beyond;
            beyond += self.write_through(miss.pu, miss.thread, miss.line, at, counters);
        }
        self.write_back_all(&gone, (claim.node, miss.at + beyond), counters);
        if !PLAIN && learning != [None; 3] && miss.access != Access::Fetch {
            self.learn(miss, learning, counters);
        }
        beyond
    }

    /// The NUMA node of a line that is to be brought, and the line as it will be held.
    #[inline(always)]
    fn claim(&mut self, miss: &Miss, counters: &mut Counters) -> Claim {
        let Place { group, node, .. } = self.topology.places[miss.pu];
        let mut claim = Claim {
            entry: Entry::new(miss.line, miss.thread),
            node,
            home: 0,
            from: None,
        };
        if self.tracked {
            match self.directory.private_home(miss.line, group) {
                Some(its) => claim.home = its,
                None => {
                    let got;
                    (claim.home, got) = self.find_home(miss, counters);
                    claim.from = got.from;
                    if got.shared {
                        claim.entry = claim.entry.with(SHARED);
                    }
                }
            }
        }
        claim
    }

    /// A line comes from memory. Returns how long that takes from `at` on.
    fn fetch_line(&mut self, claim: &Claim, at: Ps, counters: &mut Counters) -> Ps {
        counters.bus_transactions += 1;
        let wait = self.channels[claim.home].request(at);
        // What was dirty comes from where it was, not only from its memory.
        let node = claim.node as usize;
        let row = node * self.channels.len();
        let from = claim.from.map_or(claim.home, |from| from as usize);
        let time = wait + self.latencies[row + claim.home].max(self.latencies[row + from]);
        time + self.links.cross(from, node, at + time)
    }

    /// `node` is that of the caches.
    fn write_back_all(&mut self, gone: &Gone, (node, at): (u32, Ps), counters: &mut Counters) {
        for (out, below) in &gone.lines[..gone.count] {
            self.write_back(*below, *out, (node, at), counters);
        }
    }

    /// The NUMA node of a line that a group does not know as its own, and what became of it after all others that hold it
    /// were asked.
    #[inline(never)]
    fn find_home(&mut self, miss: &Miss, counters: &mut Counters) -> (usize, Got) {
        let place = &self.topology.places[miss.pu];
        let group = place.group;
        let found = self.directory.touch(miss.line, group, place.node);
        let region = self.directory.region(found);
        let home = region.home as usize;
        if region.is_private(group) {
            self.directory.remember_private(found, group);
            let got = Got {
                shared: false,
                from: None,
            };
            return (home, got);
        }
        let wish = Wish {
            region: found,
            line: miss.line,
            group,
            store: miss.access == Access::Store,
            at: miss.at,
        };
        (home, self.cohere(wish, counters))
    }

    /// Moves a line that leaves a cache of a node to the next one, or to memory if it is dirty, and what has to go there
    /// further on.
    pub(super) fn write_back(
        &mut self,
        mut to: Option<usize>,
        entry: Entry,
        (node, at): (u32, Ps),
        counters: &mut Counters,
    ) {
        let mut moving = entry;
        while let Some(number) = to {
            let cache = &mut self.topology.caches[number];
            cache.port.request(at);
            if cache.victim {
                moving = moving.without(PREFETCHED);
            }
            match cache
                .tags
                .touch_or_insert(moving)
                .1
                .filter(|gone| gone.has(DIRTY) || cache.spills)
            {
                Some(gone) => moving = gone,
                None => return,
            }
            to = cache.below;
        }
        counters.bus_transactions += 1;
        let home = match self.channels.len() {
            1 => 0,
            _ => self.directory.home(moving.line()).unwrap_or(0) as usize,
        };
        let wait = self.links.cross(node as usize, home, at);
        self.channels[home].request(at + wait);
    }
}
