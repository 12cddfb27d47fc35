//! Lines that cross links between nodes: from the memory of another node, from a cache there that holds them dirty, and
//! back to their memory.
//!
//! A line is dirty in a cache, or in those before it, from a store by their PUs to the next visit by another one: for the
//! part `b / (b + v)` of the time, where `b` are the stores by PUs of the cache and `v` the visits by all others.

use super::{
    demand::Lines, homes::Home, layout::Layout, owner::Owner, running::Running, wait::Wait,
};
use std::collections::BTreeMap;

/// What one thread moves over links.
#[derive(Debug, Clone, Default)]
pub(super) struct Crossings {
    /// Lines over each link by one instruction, by the link's place among the servers.
    pub lines: Vec<(usize, f64)>,
    /// Of the lines of a sort that come from outside its caches: the part that comes over a link.
    parts: Vec<(usize, usize, f64)>,
}

/// What one instruction moves of the lines of a sort.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved {
    /// Visits that find their lines in no cache of the PU.
    pub visits: f64,
    /// Lines that nobody needs.
    pub wasted: f64,
    /// Part of the lines that are written back when others from memory take their places.
    pub dirty: f64,
}

/// Who visits the lines of regions.
#[derive(Debug, Default)]
pub(super) struct Users(BTreeMap<Owner, Vec<User>>);

/// PUs with the same last cache.
#[derive(Debug)]
struct User {
    last: Option<usize>,
    node: usize,
    /// Visits and stores in a picosecond.
    visits: f64,
    stores: f64,
}

impl Users {
    /// Threads at these speeds; none if links have no limit.
    pub fn of(layout: &Layout, running: &[Running<'_>], speeds: &[f64]) -> Self {
        let mut users = Self::default();
        if layout.link <= 0.0 {
            return users;
        }
        for (who, speed) in running.iter().zip(speeds) {
            let pu = &layout.pus[who.pu];
            let is_shared = |lines: &&Lines| lines.owner != Owner::Thread && !lines.code;
            for lines in who.demand.lines.iter().filter(is_shared) {
                let all = users.0.entry(lines.owner).or_default();
                let last = pu.data.last().copied();
                let place = all.iter().position(|user| user.last == last);
                let place = place.filter(|_| last.is_some()).unwrap_or_else(|| {
                    all.push(User {
                        last,
                        node: pu.node,
                        visits: 0.0,
                        stores: 0.0,
                    });
                    all.len() - 1
                });
                all[place].visits += lines.visits * speed;
                all[place].stores += lines.stores() * speed;
            }
        }
        users
    }

    /// The chance that a line is dirty in each of the caches that a PU does not use, by the node of these.
    fn dirty(&self, layout: &Layout, pu: usize, owner: Owner) -> Vec<(usize, f64)> {
        let Some(all) = self.0.get(&owner) else {
            return Vec::new();
        };
        let visits: f64 = all.iter().map(|user| user.visits).sum();
        let last = layout.pus[pu].data.last();
        let others = all.iter().filter(|user| user.last.as_ref() != last);
        let others = others.filter(|user| user.stores > 0.0);
        others
            .map(|user| {
                let cleaned = (visits - user.visits).max(0.0);
                (user.node, user.stores / (user.stores + cleaned))
            })
            .collect()
    }
}

impl Crossings {
    /// A thread moves lines of one sort. What no other cache supplies comes from memory. What another supplies is written
    /// back; if the thread is in the home of the line, it comes there once.
    pub fn add(
        &mut self,
        layout: &Layout,
        users: &Users,
        (which, who): (usize, Running<'_>),
        moved: Moved,
    ) {
        if layout.link <= 0.0 || moved.visits <= 0.0 {
            return;
        }
        let to = layout.pus[who.pu].node;
        let lines = &who.demand.lines[which];
        let (homes, part) = layout.nodes_of(who.homes.of(lines.owner));
        let mut left = moved.visits;
        for (node, chance) in users.dirty(layout, who.pu, lines.owner) {
            let supplied = (lines.visits * chance).min(left);
            left -= supplied;
            self.cross(layout, (node, to), supplied);
            self.come(layout, (node, to), (which, supplied / moved.visits));
            for home in homes.clone().filter(|home| *home != to) {
                self.cross(layout, (node, home), supplied * part);
            }
        }
        for home in homes {
            self.cross(layout, (home, to), (left + moved.wasted) * part);
            self.come(layout, (home, to), (which, left * part / moved.visits));
            self.cross(layout, (to, home), left * moved.dirty * part);
        }
    }

    /// How long lines of a sort wait for links on the average.
    pub fn wait(&self, which: usize, wait: &Wait) -> f64 {
        let parts = self.parts.iter().filter(|part| part.0 == which);
        parts.map(|(_, link, part)| part * wait.server(*link)).sum()
    }

    fn come(&mut self, layout: &Layout, way: (usize, usize), (which, part): (usize, f64)) {
        if let Some(link) = layout.link(way).filter(|_| part > 0.0) {
            self.parts.push((which, link, part));
        }
    }

    fn cross(&mut self, layout: &Layout, way: (usize, usize), lines: f64) {
        let Some(link) = layout.link(way).filter(|_| lines > 0.0) else {
            return;
        };
        match self.lines.iter_mut().find(|(known, _)| *known == link) {
            Some((_, sum)) => *sum += lines,
            None => self.lines.push((link, lines)),
        }
    }
}

/// The stores of an owner's lines by PUs that do not use a cache: on which PU, and how many in a picosecond.
pub(super) fn elsewhere<'a>(
    layout: &'a Layout,
    stores: &'a BTreeMap<Owner, Vec<(usize, f64)>>,
    owner: Owner,
    cache: usize,
) -> impl Iterator<Item = (usize, f64)> + 'a {
    let stores = stores.get(&owner).into_iter().flatten().copied();
    stores.filter(move |(pu, _)| !layout.pus[*pu].data.contains(&cache))
}

/// By how much longer lines take on the average that come from where others wrote them.
pub(super) fn farther(
    layout: &Layout,
    stores: &BTreeMap<Owner, Vec<(usize, f64)>>,
    owner: Owner,
    cache: usize,
    to: Running<'_>,
) -> f64 {
    let (mut sum, mut all) = (0.0, 0.0);
    for (pu, rate) in elsewhere(layout, stores, owner, cache) {
        let writer = Home::Node(layout.pus[pu].node);
        let way = layout.latency(to.pu, writer) - layout.latency(to.pu, to.homes.of(owner));
        sum += way.max(0.0) * rate;
        all += rate;
    }
    if all > 0.0 { sum / all } else { 0.0 }
}
