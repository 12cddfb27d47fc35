//! Who misses where: caches, TLBs and memory channels for threads that go on at given speeds.

use super::{
    demand::{Demand, Owner},
    eviction::{Visitor, misses},
    layout::{LEVELS, Layout},
    reuse::{Point, Reuse},
};
use std::collections::BTreeMap;

/// A thread on a PU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running<'a> {
    pub pu: usize,
    pub demand: &'a Demand,
    /// The NUMA node of its data.
    pub home: usize,
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
    /// Lines taken from other cores by one instruction.
    pub coherence: f64,
    /// By how much longer than from its own memory they take that no cache is in common for, by one instruction, in
    /// picoseconds.
    pub farther: f64,
    /// Lines that it would find again in each cache of its path, and how fast it would visit them: visits by one
    /// instruction that hit.
    pub kept: Vec<Kept>,
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
}

/// The lines of one owner in one cache, whoever visits them there.
struct Group {
    owner: Owner,
    rate: f64,
    /// The threads that visit them here: each one's place in the flows.
    members: Vec<usize>,
}

/// One thread's visits of one sort of lines on their way through the levels.
struct Flow {
    thread: usize,
    lines: usize,
    /// Visits by one instruction that reach the next level.
    visits: f64,
    reuse: Reuse,
}

/// The fates of threads that go on at these speeds, in instructions a picosecond.
pub(super) fn fates(layout: &Layout, running: &[Running<'_>], speeds: &[f64]) -> Vec<Fate> {
    let mut fates = vec![Fate::default(); running.len()];
    let mut flows: Vec<Flow> = Vec::new();
    for (thread, who) in running.iter().enumerate() {
        flows.extend(who.demand.lines.iter().enumerate().map(|(at, lines)| Flow {
            thread,
            lines: at,
            visits: lines.visits,
            reuse: lines.reuse.clone(),
        }));
    }
    let lines_of = |flow: &Flow| &running[flow.thread].demand.lines[flow.lines];
    // Stores of shared lines: on which PU, and how many in a picosecond.
    let mut stores: BTreeMap<Owner, Vec<(usize, f64)>> = BTreeMap::new();
    for flow in &flows {
        let lines = lines_of(flow);
        if lines.written > 0.0 && lines.owner != Owner::Thread {
            let rate = lines.stores() * speeds[flow.thread];
            let pu = running[flow.thread].pu;
            stores.entry(lines.owner).or_default().push((pu, rate));
        }
    }
    for (number, cache) in layout.caches.iter().enumerate() {
        let mut groups: BTreeMap<(Owner, usize, usize), Group> = BTreeMap::new();
        for (at, flow) in flows.iter().enumerate() {
            let pu = &layout.pus[running[flow.thread].pu];
            let lines = lines_of(flow);
            let path = if lines.code { &pu.fetch } else { &pu.data };
            if !path.contains(&number) || flow.visits <= 0.0 {
                continue;
            }
            let thread = if lines.owner == Owner::Thread {
                flow.thread
            } else {
                usize::MAX
            };
            let part = if lines.owner == Owner::Thread {
                flow.lines
            } else {
                0
            };
            let group = groups
                .entry((lines.owner, thread, part))
                .or_insert_with(|| Group {
                    owner: lines.owner,
                    rate: 0.0,
                    members: Vec::new(),
                });
            let speed = speeds[flow.thread];
            group.rate += flow.visits * speed;
            group.members.push(at);
        }
        let groups: Vec<Group> = groups.into_values().collect();
        let visitors: Vec<Visitor> = groups
            .iter()
            .map(|group| {
                let first = &flows[group.members[0]];
                let lines = lines_of(first);
                let elsewhere = elsewhere(layout, &stores, group.owner, number);
                let elsewhere: f64 = elsewhere.map(|(_, rate)| rate).sum();
                Visitor {
                    rate: group.rate,
                    lines: lines.lines,
                    reuse: first.reuse.clone(),
                    skips: lines.skips,
                    taken: elsewhere / lines.lines,
                }
            })
            .collect();
        let missed = misses(cache.shape, &visitors);
        for ((group, visitor), missed) in groups.iter().zip(&visitors).zip(missed) {
            let points = visitor.reuse.points().iter();
            let ratio: f64 = points.zip(&missed).map(|(p, m)| p.share * m).sum();
            let rest = visitor.reuse.missed(&missed);
            for at in &group.members {
                let flow = &mut flows[*at];
                let lines = &running[flow.thread].demand.lines[flow.lines];
                let fate = &mut fates[flow.thread];
                let (hits, gone) = (flow.visits * (1.0 - ratio), flow.visits * ratio);
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
                        fate.transfers += taken;
                        fate.farther += taken * farther(layout, &stores, group.owner, number, from);
                    }
                }
                fate.kept.push(Kept {
                    cache: number,
                    which: flow.lines,
                    lines: visitor.lines * (1.0 - ratio),
                    hits,
                    misses: gone,
                });
                let counts = if lines.code {
                    &mut fate.fetch
                } else {
                    &mut fate.data
                };
                counts[cache.level] += gone;
                flow.visits = gone;
                flow.reuse = rest.clone();
            }
        }
    }
    for flow in &flows {
        let lines = lines_of(flow);
        let fate = &mut fates[flow.thread];
        // A line goes back if anything wrote to it while it was there.
        let stay = lines.visits * lines.accesses / flow.visits.max(1e-30);
        let dirty = 1.0 - (1.0 - lines.written).powf(stay.min(1e9));
        fate.transfers += flow.visits * (1.0 + dirty);
    }
    translate(layout, running, speeds, &mut fates);
    fates
}

/// The stores of an owner's lines by PUs that do not use a cache: on which PU, and how many in a picosecond.
fn elsewhere<'a>(
    layout: &'a Layout,
    stores: &'a BTreeMap<Owner, Vec<(usize, f64)>>,
    owner: Owner,
    cache: usize,
) -> impl Iterator<Item = (usize, f64)> + 'a {
    let stores = stores.get(&owner).into_iter().flatten().copied();
    stores.filter(move |(pu, _)| !layout.pus[*pu].data.contains(&cache))
}

/// By how much longer lines take on the average that come from where others wrote them.
fn farther(
    layout: &Layout,
    stores: &BTreeMap<Owner, Vec<(usize, f64)>>,
    owner: Owner,
    cache: usize,
    to: Running<'_>,
) -> f64 {
    let (mut sum, mut all) = (0.0, 0.0);
    for (pu, rate) in elsewhere(layout, stores, owner, cache) {
        let way = layout.latency(to.pu, layout.pus[pu].node) - layout.latency(to.pu, to.home);
        sum += way.max(0.0) * rate;
        all += rate;
    }
    if all > 0.0 { sum / all } else { 0.0 }
}

/// TLB misses.
fn translate(layout: &Layout, running: &[Running<'_>], speeds: &[f64], fates: &mut [Fate]) {
    let Some((shape, _)) = layout.tlb else { return };
    let mut of_tlb: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (thread, who) in running.iter().enumerate() {
        of_tlb
            .entry(layout.pus[who.pu].tlb)
            .or_default()
            .push(thread);
    }
    for (tlb, threads) in of_tlb {
        let mut shared: Vec<(Owner, usize)> = Vec::new();
        let mut visitors: Vec<Visitor> = Vec::new();
        let mut members: Vec<(usize, usize, usize)> = Vec::new();
        for thread in threads {
            let sets = running[thread].demand.lines.iter().enumerate();
            for (which, lines) in sets.filter(|(_, lines)| lines.page_visits > 0.0) {
                let rate = lines.page_visits * speeds[thread];
                let known = shared.iter().find(|(owner, _)| *owner == lines.owner);
                let at = match known {
                    Some((_, at)) => {
                        visitors[*at].rate += rate;
                        *at
                    }
                    None => {
                        if lines.owner != Owner::Thread {
                            shared.push((lines.owner, visitors.len()));
                        }
                        visitors.push(Visitor {
                            rate,
                            lines: lines.pages,
                            reuse: lines.page_reuse.clone(),
                            skips: 1.0,
                            taken: 0.0,
                        });
                        visitors.len() - 1
                    }
                };
                members.push((thread, which, at));
            }
        }
        let missed = misses(shape, &visitors);
        for (thread, which, at) in members {
            let visits = running[thread].demand.lines[which].page_visits;
            let points = visitors[at].reuse.points().iter();
            let ratio: f64 = points.zip(&missed[at]).map(|(p, m)| p.share * m).sum();
            fates[thread].tlb += visits * ratio;
            fates[thread].kept.push(Kept {
                cache: layout.caches.len() + tlb,
                which,
                lines: visitors[at].lines * (1.0 - ratio),
                hits: visits * (1.0 - ratio),
                misses: visits * ratio,
            });
        }
    }
}
