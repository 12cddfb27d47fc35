//! A memory system that is as simple as can be: all lists, every other cache asked at every access.

use perch_sim::{
    counters::Counters,
    memory::Access,
    model::{Holds, MachineModel},
    units::Ps,
};
use std::collections::HashMap;

struct List {
    level: u8,
    holds: Holds,
    pus: Vec<u32>,
    latency: Ps,
    ways: usize,
    /// Lines and whether they are dirty, by set, the most recently used first.
    sets: Vec<Vec<(u64, bool)>>,
}

impl List {
    fn set(&mut self, line: u64) -> &mut Vec<(u64, bool)> {
        let count = self.sets.len() as u64;
        &mut self.sets[(line % count) as usize]
    }

    fn remove(&mut self, line: u64) -> Option<(u64, bool)> {
        let set = self.set(line);
        let place = set.iter().position(|(here, _)| *here == line)?;
        Some(set.remove(place))
    }

    /// Whether the line was here, and the dirty line that it drove out.
    fn use_line(&mut self, line: u64, dirty: bool) -> (bool, Option<u64>) {
        let old = self.remove(line);
        let ways = self.ways;
        let set = self.set(line);
        set.insert(0, (line, dirty || old.is_some_and(|(_, dirty)| dirty)));
        let out = if set.len() > ways { set.pop() } else { None };
        (
            old.is_some(),
            out.filter(|(_, dirty)| *dirty).map(|(line, _)| line),
        )
    }
}

/// The naive memory system, without bandwidth.
pub struct Naive {
    model: MachineModel,
    caches: Vec<List>,
    tlbs: HashMap<usize, Vec<Vec<u64>>>,
    homes: HashMap<u64, u32>,
}

impl Naive {
    pub fn new(model: &MachineModel) -> Self {
        let list = |level: &perch_sim::model::CacheLevel, pus: &Vec<u32>| {
            let lines = (level.size / u64::from(level.line)) as usize;
            let ways = (level.ways as usize).min(lines);
            List {
                level: level.level,
                holds: level.holds,
                pus: pus.clone(),
                latency: level.latency,
                ways,
                sets: vec![Vec::new(); lines / ways],
            }
        };
        let lists = model
            .caches
            .iter()
            .flat_map(|level| level.shared_by.iter().map(move |pus| list(level, pus)));
        Self {
            model: model.clone(),
            caches: lists.collect(),
            tlbs: HashMap::new(),
            homes: HashMap::new(),
        }
    }

    fn path(&self, pu: u32, not: Holds) -> Vec<usize> {
        let its = |number: &usize| {
            self.caches[*number].pus.contains(&pu) && self.caches[*number].holds != not
        };
        (0..self.caches.len()).filter(its).collect()
    }

    fn write_back(&mut self, mut to: Option<usize>, mut line: u64, counters: &mut Counters) {
        while let Some(number) = to {
            match self.caches[number].use_line(line, true).1 {
                Some(out) => line = out,
                None => return,
            }
            to = self.below(number);
        }
        counters.bus_transactions += 1;
    }

    fn below(&self, number: usize) -> Option<usize> {
        let path = self.path(self.caches[number].pus[0], Holds::Instructions);
        path.into_iter()
            .find(|other| self.caches[*other].level > self.caches[number].level)
    }

    /// Cleans or empties all caches that the PU does not use. Returns the node of the one that was dirty.
    fn cohere(&mut self, pu: u32, line: u64, store: bool, counters: &mut Counters) -> Option<u32> {
        let mut holder = None;
        for number in 0..self.caches.len() {
            if self.caches[number].pus.contains(&pu) {
                continue;
            }
            let set = self.caches[number].set(line);
            let Some(place) = set.iter().position(|(here, _)| *here == line) else {
                continue;
            };
            if set[place].1 {
                holder = Some(number);
            }
            set[place].1 = false;
            if store {
                set.remove(place);
            }
        }
        if let Some(holder) = holder {
            counters.coherence_misses += 1;
            let pus = self.caches[holder].pus.clone();
            let own = self.path(pu, Holds::Instructions);
            let meets = |number: &usize| pus.iter().any(|pu| self.caches[*number].pus.contains(pu));
            let common = own.into_iter().find(meets);
            self.write_back(common, line, counters);
        }
        holder.map(|holder| self.node(self.caches[holder].pus[0] as usize))
    }

    fn node(&self, pu: usize) -> u32 {
        self.model.cores[self.model.places()[pu].0].numa_node
    }

    fn translate(&mut self, pu: usize, address: u64, counters: &mut Counters) -> Ps {
        let Some(tlb) = self.model.tlb else {
            return 0;
        };
        let number = if tlb.private {
            pu
        } else {
            self.model.places()[pu].0
        };
        let count = (tlb.entries / tlb.ways) as usize;
        let page = address / tlb.page;
        let sets = self
            .tlbs
            .entry(number)
            .or_insert_with(|| vec![Vec::new(); count]);
        let set = &mut sets[page as usize % count];
        let before = set.len();
        set.retain(|here| *here != page);
        let hit = set.len() < before;
        set.insert(0, page);
        set.truncate(tlb.ways as usize);
        if hit {
            return 0;
        }
        counters.tlb_misses += 1;
        tlb.miss
    }

    /// One access: what it counts is added, what it takes beyond the first level returned.
    pub fn access(
        &mut self,
        pu: usize,
        access: Access,
        address: u64,
        counters: &mut Counters,
    ) -> Ps {
        let line = address / 64;
        let store = access == Access::Store;
        let mut beyond = 0;
        if access != Access::Fetch {
            beyond += self.translate(pu, address, counters);
        }
        let node = self.node(pu);
        let page = address / self.model.tlb.map_or(4096, |tlb| tlb.page);
        let home = *self.homes.entry(page).or_insert(node);
        let not = match access {
            Access::Fetch => Holds::Data,
            Access::Load | Access::Store => Holds::Instructions,
        };
        let path = self.path(pu as u32, not);
        // A core that fetches what its first level of instructions holds does not see that another core writes there.
        let own = path
            .first()
            .map(|number| &mut self.caches[*number])
            .filter(|cache| cache.holds == Holds::Instructions);
        let blind = own.is_some_and(|cache| cache.set(line).iter().any(|(here, _)| *here == line));
        let mut from = None;
        if access != Access::Fetch || !blind {
            from = self.cohere(pu as u32, line, store, counters);
        }
        let mut out = Vec::new();
        let mut found = false;
        for (step, number) in path.iter().enumerate() {
            let cache = &mut self.caches[*number];
            let (hit, gone) = cache.use_line(line, store && step == 0);
            out.extend(gone.map(|line| (*number, line)));
            if cache.level > 1 {
                beyond += cache.latency;
            }
            if hit {
                found = true;
                break;
            }
            let misses = match access {
                Access::Fetch => &mut counters.fetch_misses,
                Access::Load | Access::Store => &mut counters.data_misses,
            };
            misses[usize::from(cache.level) - 1] += 1;
        }
        if !found {
            counters.bus_transactions += 1;
            let distances = &self.model.memory.distance[node as usize];
            let way = from.map_or(0.0, |from| distances[from as usize]);
            let distance = distances[home as usize].max(way);
            beyond += (self.model.memory.latency as f64 * distance) as Ps;
        }
        for (number, line) in out {
            let below = self.below(number);
            self.write_back(below, line, counters);
        }
        beyond
    }

    /// Lines that each cache of a level holds.
    pub fn held(&self, level: u8) -> Vec<usize> {
        let of_level = self.caches.iter().filter(|cache| cache.level == level);
        of_level
            .map(|cache| cache.sets.iter().map(Vec::len).sum())
            .collect()
    }
}
