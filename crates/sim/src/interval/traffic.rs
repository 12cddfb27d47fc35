//! Who misses where: caches, TLBs and memory channels for threads that go on at given speeds.
//!
//! Speeds that agree with each other are looked for step by step; what did not change since the step before is kept.

use super::{
    demand::{Demand, Owner},
    eviction::{Shape, Visitor},
    homes::{Home, Homes},
    known::Known,
    layout::{LEVELS, Layout},
    links::{Crossings, Moved, Users, elsewhere, farther},
    ports::{passing, written_through},
    prefetch::{Cover, Learned, cover, missed_alone, remembered, visited_with},
    reuse::{Point, Reuse},
    tlb::{Tlb, tlbs},
    victim::{self, Before},
    ways::together,
};
use crate::ways::Ways;
use std::collections::BTreeMap;

/// A thread on a PU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running<'a> {
    pub pu: usize,
    pub demand: &'a Demand,
    /// The NUMA nodes of its data.
    pub homes: Homes,
    /// The ways of caches that it may fill.
    pub ways: Ways,
}

/// What happens to one thread's accesses.
#[derive(Debug, Clone, Default)]
pub(super) struct Fate {
    /// Misses of level 1, 2, 3 by one instruction, of data and of code.
    pub data: [f64; LEVELS],
    pub fetch: [f64; LEVELS],
    /// TLB misses by one instruction.
    pub tlb: f64,
    /// Lines over the channel by one instruction, out included.
    pub transfers: f64,
    /// Those of them that do not come from its own memory, by home.
    pub apart: Vec<(Home, f64)>,
    /// Lines that pass the ports of caches by one instruction, if their bandwidth is limited.
    pub ports: Vec<(usize, f64)>,
    /// Lines that cross links between nodes, if their bandwidth is limited.
    pub links: Crossings,
    /// Lines taken from other cores by one instruction.
    pub coherence: f64,
    /// By how much longer than from its own memory they take that no cache is in common for, by one instruction, in
    /// picoseconds.
    pub farther: f64,
    /// Lines from memory that prefetchers ask for in time, or a little late.
    pub prefetched: Vec<Prefetched>,
    /// Lines that prefetchers bring by one instruction, from memory or not.
    pub prefetches: f64,
    /// Lines that it would find again in each cache of its path, and how fast it would visit them: visits by one
    /// instruction that hit.
    pub kept: Vec<Kept>,
}

impl Fate {
    /// How many lines prefetchers have under way for it, at most.
    pub fn ahead(&self) -> f64 {
        let ahead = self.prefetched.iter().map(|its| its.cover.ahead);
        ahead.fold(0.0, f64::max)
    }

    /// Lines pass the port of a cache.
    fn pass(&mut self, cache: usize, lines: f64) {
        match self.ports.iter_mut().find(|(known, _)| *known == cache) {
            Some((_, sum)) => *sum += lines,
            None => self.ports.push((cache, lines)),
        }
    }

    /// Lines go over the channel of their home.
    fn transfer(&mut self, lines: f64, home: Home, own: Homes) {
        self.transfers += lines;
        if home == Home::Node(own.own) || lines <= 0.0 {
            return;
        }
        match self.apart.iter_mut().find(|(known, _)| *known == home) {
            Some((_, sum)) => *sum += lines,
            None => self.apart.push((home, lines)),
        }
    }
}

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

/// Lines that come from memory and are asked for before they are needed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Prefetched {
    /// Which lines: an index of the demand's.
    pub which: usize,
    /// The place of the cache to which they go on the path of the data.
    pub step: usize,
    /// How many, by one instruction.
    pub lines: f64,
    /// What prefetchers do for these.
    pub cover: Cover,
}

/// What a thread has in a cache when it has run there for long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Kept {
    /// The cache; TLBs are counted on from there.
    pub cache: usize,
    /// Which lines: an index of the demand's.
    pub which: usize,
    /// How many, together with those who share them.
    pub lines: f64,
    /// Hits by one instruction.
    pub hits: f64,
    /// Misses by one instruction.
    pub misses: f64,
    /// Those of them that no prefetcher saves.
    pub unsaved: f64,
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
        let (layout, running) = (self.layout, self.running);
        let mut fates = vec![Fate::default(); running.len()];
        for flow in &mut self.flows {
            let lines = &running[flow.thread].demand.lines[flow.lines];
            flow.visits = lines.visits;
            flow.reuse = lines.reuse.clone();
            flow.cover = Cover::default();
        }
        let flows = &mut self.flows;
        let lines_of = |flow: &Flow| &running[flow.thread].demand.lines[flow.lines];
        // Stores of shared lines: on which PU, and how many in a picosecond.
        let mut stores: BTreeMap<Owner, Vec<(usize, f64)>> = BTreeMap::new();
        for flow in flows.iter() {
            let lines = lines_of(flow);
            if lines.written > 0.0 && lines.owner != Owner::Thread {
                let rate = lines.stores() * speeds[flow.thread];
                let pu = running[flow.thread].pu;
                stores.entry(lines.owner).or_default().push((pu, rate));
            }
        }
        for (number, cache) in layout.caches.iter().enumerate() {
            let visits = |group: &&Group| {
                let mut members = group.members.iter();
                members.any(|at| flows[*at].visits > 0.0)
            };
            let groups: Vec<&Group> = self.groups[number].iter().filter(visits).collect();
            let visitor = |(number_here, group): (usize, &&Group)| {
                let mut members = group.members.iter().map(|at| &flows[*at]);
                let rates = members.clone();
                let rates = rates.map(|flow| flow.visits * speeds[flow.thread]);
                let first = members.find(|flow| flow.visits > 0.0)?;
                let lines = lines_of(first);
                let elsewhere = elsewhere(layout, &stores, group.owner, number);
                let elsewhere: f64 = elsewhere.map(|(_, rate)| rate).sum();
                // A thread's own data lie side by side; code and regions are somewhere.
                let block = match group.owner {
                    Owner::Thread => first.thread,
                    _ => running.len() + number_here,
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
            let mut visitors: Vec<Visitor> =
                groups.iter().enumerate().filter_map(visitor).collect();
            let shape = match cache.victim {
                true => behind(layout, &self.known, number),
                false => cache.shape,
            };
            let through = match cache.line_transfer > 0.0 {
                true => written_through(layout, running, (number, speeds)),
                false => Vec::new(),
            };
            if cache.prefetchers.is_empty() {
                // What a cache before it has asked for passes through it.
                for (visitor, group) in visitors.iter_mut().zip(&groups) {
                    visitor.rate *= 1.0 + neighbours(running, flows, group, |cover| cover.wasted);
                }
            } else {
                let [first, second] = &mut self.guessed[number];
                first.update(shape, visitors.clone());
                let members = groups.iter().zip(&first.missed);
                let members = members.flat_map(|(group, missed)| {
                    let members = group.members.iter();
                    members.map(|at| (*at, missed.ratio))
                });
                let members: Vec<(usize, f64)> = members.collect();
                cover_flows(layout, running, (number, &members), flows, speeds);
                let asked = groups
                    .iter()
                    .map(|group| neighbours(running, flows, group, |cover| cover.asked));
                let asked: Vec<f64> = asked.collect();
                let mut ratios: Vec<f64> = first.missed.iter().map(|its| its.ratio).collect();
                let rates: Vec<f64> = visitors.iter().map(|visitor| visitor.rate).collect();
                let all = |ratios: &[f64], visitors: &mut [Visitor]| {
                    let each = ratios.iter().zip(&asked).zip(&rates);
                    for (visitor, ((ratio, asked), rate)) in visitors.iter_mut().zip(each) {
                        visitor.rate = rate * visited_with(*ratio, *asked);
                    }
                };
                all(&ratios, &mut visitors);
                if asked.iter().any(|asked| *asked > 0.0) {
                    // With what they bring, lines stay for a shorter time.
                    second.update(shape, visitors.clone());
                    for (ratio, (missed, asked)) in
                        ratios.iter_mut().zip(second.missed.iter().zip(&asked))
                    {
                        *ratio = missed_alone(missed.ratio, *asked);
                    }
                    all(&ratios, &mut visitors);
                }
            }
            let known = &mut self.known[number];
            known.update(shape, visitors);
            let found = known.visitors.iter().zip(&known.missed);
            for (group, (visitor, missed)) in groups.iter().zip(found) {
                let ratio = missed.ratio;
                for at in &group.members {
                    let flow = &mut flows[*at];
                    if flow.visits <= 0.0 {
                        continue;
                    }
                    let lines = &running[flow.thread].demand.lines[flow.lines];
                    let fate = &mut fates[flow.thread];
                    if !cache.prefetchers.is_empty() {
                        flow.cover.wasted = flow.cover.wasted.max(flow.cover.brought(ratio));
                    }
                    let (hits, gone) = (flow.visits * (1.0 - ratio), flow.visits * ratio);
                    if cache.line_transfer > 0.0 {
                        let who = (flow.thread, flow.lines, &running[flow.thread]);
                        let visits = (flow.visits, ratio);
                        let lines = passing(layout, (number, &through), who, visits);
                        fate.pass(number, lines + flow.visits * flow.cover.wasted);
                    }
                    let time = |after: f64| after / visitor.rate.max(1e-30);
                    let taken = |point: &Point| 1.0 - (-visitor.taken * time(point.after)).exp();
                    if visitor.taken > 0.0 {
                        let points = visitor.reuse.points().iter();
                        let share: f64 = points.map(|point| point.share * taken(point)).sum();
                        let taken = flow.visits * share;
                        let pu = &layout.pus[running[flow.thread].pu];
                        let path = if lines.code { &pu.fetch } else { &pu.data };
                        // What one level has lost to others is looked for in vain in the next ones too: that is one loss.
                        if path.first() == Some(&number) {
                            fate.coherence += taken;
                        }
                        if path.last() == Some(&number) {
                            // It is written back and brought again, from where the writer is.
                            let from = running[flow.thread];
                            fate.transfer(taken, from.homes.of(group.owner), from.homes);
                            fate.farther +=
                                taken * farther(layout, &stores, group.owner, number, from);
                        }
                    }
                    fate.kept.push(Kept {
                        cache: number,
                        which: flow.lines,
                        lines: visitor.lines * (1.0 - ratio),
                        hits,
                        misses: gone,
                        unsaved: gone * (1.0 - flow.cover.share),
                    });
                    let counts = if lines.code {
                        &mut fate.fetch
                    } else {
                        &mut fate.data
                    };
                    counts[cache.level] += gone * (1.0 - flow.cover.share);
                    let path = &layout.pus[running[flow.thread].pu].data;
                    if !cache.prefetchers.is_empty()
                        && !lines.code
                        && path.get(flow.step) == Some(&number)
                    {
                        fate.prefetches += gone * (flow.cover.share + flow.cover.wasted);
                    }
                    flow.visits = gone;
                    flow.reuse = missed.rest.clone();
                }
            }
        }
        let users = Users::of(layout, running, speeds);
        for flow in flows.iter() {
            let lines = lines_of(flow);
            let fate = &mut fates[flow.thread];
            let dirty = lines.dirty(flow.visits);
            let homes = running[flow.thread].homes;
            let moved = flow.visits * (1.0 + dirty + flow.cover.wasted);
            fate.transfer(moved, homes.of(lines.owner), homes);
            fate.links.add(
                layout,
                &users,
                (flow.lines, running[flow.thread]),
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
        for tlb in &mut self.tlbs {
            tlb.translate(layout, running, speeds, &mut fates);
        }
        fates
    }
}

/// Finds out what the prefetchers of a cache do for the flows that come to it. `members` are these flows, each with the share
/// of its visits that miss.
fn cover_flows(
    layout: &Layout,
    running: &[Running<'_>],
    (number, members): (usize, &[(usize, f64)]),
    flows: &mut [Flow],
    speeds: &[f64],
) {
    let prefetchers = &layout.caches[number].prefetchers;
    let lines_of = |flow: &Flow| &running[flow.thread].demand.lines[flow.lines];
    let rate = |(at, ratio): &(usize, f64)| {
        let flow = &flows[*at];
        let missed = flow.visits * ratio * (1.0 - flow.cover.share);
        missed * speeds[flow.thread]
    };
    let strays = members.iter().filter(|(at, _)| {
        let lines = lines_of(&flows[*at]);
        !lines.code && lines.step.is_none()
    });
    let strays: f64 = strays.map(rate).sum();
    let rates: Vec<f64> = members.iter().map(rate).collect();
    let learned = members.iter().zip(&rates).map(|((at, _), rate)| Learned {
        lines: lines_of(&flows[*at]),
        rate: *rate,
    });
    let learned: Vec<Learned<'_>> = learned.filter(|its| !its.lines.code).collect();
    let times = remembered(prefetchers, layout.line, &learned);
    for ((at, _), rate) in members.iter().zip(rates) {
        let flow = &mut flows[*at];
        let who = &running[flow.thread];
        let lines = &who.demand.lines[flow.lines];
        let step = layout.pus[who.pu]
            .data
            .iter()
            .position(|its| *its == number);
        let Some(step) = step.filter(|_| !lines.code) else {
            continue;
        };
        let beside = (&times[..], strays / rate.max(1e-30));
        let found = cover(prefetchers, Learned { lines, rate }, layout.line, beside);
        let wasted = flow.cover.wasted.max(found.wasted);
        if found.share > flow.cover.share || flow.cover == Cover::default() {
            (flow.cover, flow.step) = (found, step);
        }
        flow.cover.wasted = wasted;
        (flow.cover.asked, flow.cover.paired) = (found.asked, found.paired);
    }
}

/// How many lines of a group prefetchers ask for, or bring, with each that is missed, if the group is visited at random: the
/// next line, or the other of a pair, is then one of the group too. It takes a place and may be hit later.
fn neighbours(
    running: &[Running<'_>],
    flows: &[Flow],
    group: &Group,
    of: impl Fn(&Cover) -> f64,
) -> f64 {
    let of_flow = |at: &usize| {
        let flow = &flows[*at];
        let lines = &running[flow.thread].demand.lines[flow.lines];
        match lines.step.is_none() && !lines.code && lines.lines > 1.0 {
            true => of(&flow.cover),
            false => 0.0,
        }
    };
    group.members.iter().map(of_flow).fold(0.0, f64::max)
}
