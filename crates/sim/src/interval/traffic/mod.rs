//! Who misses where: caches, TLBs and memory channels for threads that go on at given speeds.
//!
//! Speeds that agree with each other are looked for step by step; what did not change since the step before is kept.

mod onward;
mod prefetched;

use super::{
    demand::Lines,
    eviction::{Shape, Visitor},
    fate::{Fate, Prefetched},
    known::Known,
    layout::Layout,
    links::{Moved, Users, elsewhere},
    owner::Owner,
    prefetch::Cover,
    reuse::Reuse,
    running::Running,
    tlb::{Tlb, tlbs},
    victim::{self, Before},
    ways::together,
};
use std::collections::BTreeMap;

/// The shape of a victim cache behind others, of which it is known who visits them.
fn behind(layout: &Layout, known: &[Known], number: usize) -> Shape {
    let ratios: Vec<Vec<f64>> = known
        .iter()
        .map(|known| known.missed.iter().map(|missed| missed.ratio).collect())
        .collect();
    let before = layout.caches[number].before.iter();
    let before = before.map(|at| Before {
        shape: layout.caches[*at].shape,
        visitors: &known[*at].visitors,
        ratios: &ratios[*at],
    });
    victim::shape(layout.caches[number].shape, &before.collect::<Vec<_>>())
}

/// The lines of one owner in one cache, no matter which threads visit them there.
struct Group {
    owner: Owner,
    /// The threads that visit them here: each one's place in the flows.
    members: Vec<usize>,
    /// The ways that these may fill, bit n for way n; 0 for all.
    ways: u32,
}

/// One thread's visits of one sort of lines on their way through the levels.
struct Flow {
    thread: usize,
    lines: usize,
    /// Visits by one instruction that reach the next level.
    visits: f64,
    reuse: Reuse,
    /// What prefetchers do for it, and the place of their cache on its path.
    cover: Cover,
    step: usize,
}

/// Stores of lines that threads share, by whose they are: on which PU, and how many in a picosecond.
type Stores = BTreeMap<Owner, Vec<(usize, f64)>>;

/// Who visits what on a machine while the same threads run.
pub(super) struct Traffic<'a> {
    layout: &'a Layout,
    running: &'a [Running<'a>],
    flows: Vec<Flow>,
    /// By cache.
    groups: Vec<Vec<Group>>,
    known: Vec<Known>,
    /// The same without the lines that prefetchers bring in vain, and with a first guess of what these do.
    guessed: Vec<[Known; 2]>,
    tlbs: Vec<Tlb>,
}

impl<'a> Traffic<'a> {
    /// Of threads on their PUs.
    pub fn new(layout: &'a Layout, running: &'a [Running<'a>]) -> Self {
        let mut flows: Vec<Flow> = Vec::new();
        for (thread, who) in running.iter().enumerate() {
            flows.extend(who.demand.lines.iter().enumerate().map(|(at, lines)| Flow {
                thread,
                lines: at,
                visits: lines.visits,
                reuse: lines.reuse.clone(),
                cover: Cover::default(),
                step: 0,
            }));
        }
        let mut groups: Vec<BTreeMap<(Owner, usize, usize), Group>> = Vec::new();
        groups.resize_with(layout.caches.len(), BTreeMap::new);
        for (at, flow) in flows.iter().enumerate() {
            let pu = &layout.pus[running[flow.thread].pu];
            let lines = &running[flow.thread].demand.lines[flow.lines];
            let path = if lines.code { &pu.fetch } else { &pu.data };
            let whose = match lines.owner {
                Owner::Thread => (lines.owner, flow.thread, flow.lines),
                _ => (lines.owner, usize::MAX, 0),
            };
            for cache in path {
                let level = layout.caches[*cache].level as u8 + 1;
                let ways = running[flow.thread].ways.bits(level);
                let group = groups[*cache].entry(whose).or_insert_with(|| Group {
                    owner: lines.owner,
                    members: Vec::new(),
                    ways,
                });
                group.ways = together(group.ways, ways);
                group.members.push(at);
            }
        }
        let groups: Vec<Vec<Group>> = groups
            .into_iter()
            .map(|of_cache| of_cache.into_values().collect())
            .collect();
        Self {
            layout,
            running,
            flows,
            known: groups.iter().map(|_| Known::default()).collect(),
            guessed: groups.iter().map(|_| Default::default()).collect(),
            groups,
            tlbs: tlbs(layout, running),
        }
    }

    /// The fates of the threads if they go on at these speeds, in instructions a picosecond.
    pub fn fates(&mut self, speeds: &[f64]) -> Vec<Fate> {
        let mut fates = vec![Fate::default(); self.running.len()];
        for flow in &mut self.flows {
            let lines = &self.running[flow.thread].demand.lines[flow.lines];
            flow.visits = lines.visits;
            flow.reuse = lines.reuse.clone();
            flow.cover = Cover::default();
        }
        let stores = self.stores(speeds);
        for number in 0..self.layout.caches.len() {
            let groups = self.visiting(number);
            let mut visitors = self.visitors((number, &groups), &stores, speeds);
            let shape = match self.layout.caches[number].victim {
                true => behind(self.layout, &self.known, number),
                false => self.layout.caches[number].shape,
            };
            self.prefetch((number, &groups), shape, &mut visitors, speeds);
            self.known[number].update(shape, visitors);
            self.pass_on((number, &groups), &stores, speeds, &mut fates);
        }
        self.to_memory(speeds, &mut fates);
        for tlb in &mut self.tlbs {
            tlb.translate(self.layout, self.running, speeds, &mut fates);
        }
        fates
    }

    /// The lines of which a flow is.
    fn lines_of(&self, flow: &Flow) -> &'a Lines {
        &self.running[flow.thread].demand.lines[flow.lines]
    }

    /// Who stores shared lines at these speeds.
    fn stores(&self, speeds: &[f64]) -> Stores {
        let mut stores = Stores::new();
        for flow in &self.flows {
            let lines = self.lines_of(flow);
            if lines.written > 0.0 && lines.owner != Owner::Thread {
                let rate = lines.stores() * speeds[flow.thread];
                let pu = self.running[flow.thread].pu;
                stores.entry(lines.owner).or_default().push((pu, rate));
            }
        }
        stores
    }

    /// The groups of a cache of which anything comes there.
    fn visiting(&self, number: usize) -> Vec<usize> {
        let comes = |group: &usize| {
            let mut members = self.groups[number][*group].members.iter();
            members.any(|at| self.flows[*at].visits > 0.0)
        };
        (0..self.groups[number].len()).filter(comes).collect()
    }

    /// What comes to a cache, by group, without what prefetchers bring.
    fn visitors(
        &self,
        (number, groups): (usize, &[usize]),
        stores: &Stores,
        speeds: &[f64],
    ) -> Vec<Visitor> {
        let visitor = |(number_here, group): (usize, &usize)| {
            let group = &self.groups[number][*group];
            let mut members = group.members.iter().map(|at| &self.flows[*at]);
            let rates = members.clone();
            let rates = rates.map(|flow| flow.visits * speeds[flow.thread]);
            let first = members.find(|flow| flow.visits > 0.0)?;
            let lines = self.lines_of(first);
            let elsewhere = elsewhere(self.layout, stores, group.owner, number);
            let elsewhere: f64 = elsewhere.map(|(_, rate)| rate).sum();
            // A thread's own data lie side by side; code and regions are somewhere.
            let block = match group.owner {
                Owner::Thread => first.thread,
                _ => self.running.len() + number_here,
            };
            Some(Visitor {
                rate: rates.sum(),
                lines: lines.lines,
                reuse: first.reuse.clone(),
                skips: lines.skips,
                block: (block, lines.start),
                taken: elsewhere / lines.lines,
                ways: group.ways,
                here: 1.0,
            })
        };
        groups.iter().enumerate().filter_map(visitor).collect()
    }

    /// What has missed all caches comes from memory.
    fn to_memory(&self, speeds: &[f64], fates: &mut [Fate]) {
        let users = Users::of(self.layout, self.running, speeds);
        for flow in &self.flows {
            let lines = self.lines_of(flow);
            let fate = &mut fates[flow.thread];
            let dirty = lines.dirty(flow.visits);
            let homes = self.running[flow.thread].homes;
            let moved = flow.visits * (1.0 + dirty + flow.cover.wasted);
            fate.transfer(moved, homes.of(lines.owner), homes);
            fate.links.add(
                self.layout,
                &users,
                (flow.lines, self.running[flow.thread]),
                Moved {
                    visits: flow.visits,
                    wasted: flow.visits * flow.cover.wasted,
                    dirty,
                },
            );
            if flow.cover.share > 0.0 {
                fate.prefetched.push(Prefetched {
                    which: flow.lines,
                    step: flow.step,
                    lines: flow.visits * flow.cover.share,
                    cover: flow.cover,
                });
            }
        }
    }
}
