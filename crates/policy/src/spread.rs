//! Spreads threads over domains as evenly as can be, level by level, with few moves and few of them across NUMA nodes.
//!
//! This is the optimal semi-matching problem (Harvey et al., Semi-matchings for bipartite graphs and load balancing,
//! 2006): threads start where they are; as long as a path of moves leads from a domain to another with at least two
//! threads fewer, the path is taken. What is left has the least number of pairs that share a domain, exactly, whatever
//! the threads' allowed PUs are. Threads with the same allowed domains are searched together: with few different masks
//! a search costs as much as there are domains.

use crate::hysteresis::LIGHT;
use std::{cmp::Reverse, collections::VecDeque};

/// A thread to be placed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    /// Lower levels are spread first, and higher ones around them.
    pub level: u8,
    /// Which of [`Ground::reaches`] it has.
    pub reach: usize,
    /// The domain where it is or was.
    pub home: Option<usize>,
    /// Whether it is bound there.
    pub settled: bool,
}

/// What threads are spread over.
#[derive(Debug, Clone)]
pub(crate) struct Ground {
    /// Each domain's NUMA node.
    pub nodes: Vec<u32>,
    /// Each domain's free PUs.
    pub room: Vec<usize>,
    /// FP-heavy threads in each domain that cannot be moved.
    pub fixed_heavy: Vec<usize>,
    /// Other busy threads in each domain that cannot be moved.
    pub fixed_light: Vec<usize>,
    /// The different sets of domains on which items may be put.
    pub reaches: Vec<Vec<bool>>,
}

/// Each item's domain; `None` where there was no room. `items` are by rising level, and within a level those first that
/// choose first.
pub(crate) fn spread(items: &[Item], ground: &Ground) -> Vec<Option<usize>> {
    let mut state = Spread::new(items, ground);
    let mut from = 0;
    while from < items.len() {
        let level = items[from].level;
        let to = from + items[from..].partition_point(|item| item.level == level);
        if level == LIGHT {
            state.add_fixed_light();
        }
        state.place(from..to);
        from = to;
    }
    state.domain
}

struct Spread<'a> {
    items: &'a [Item],
    ground: &'a Ground,
    domain: Vec<Option<usize>>,
    /// Threads in each domain as far as they count for evenness.
    load: Vec<usize>,
    /// Of these the FP-heavy ones.
    heavy: Vec<usize>,
    room: Vec<usize>,
    /// Items that are at home in each domain.
    crowd: Vec<usize>,
    /// The present level's items in each domain.
    members: Vec<Vec<usize>>,
    lights_counted: bool,
}

/// One search's tree: by which item a domain was reached, and from where.
struct Tree {
    parent: Vec<Option<(usize, usize)>>,
    seen: Vec<bool>,
    order: Vec<usize>,
}

impl<'a> Spread<'a> {
    fn new(items: &'a [Item], ground: &'a Ground) -> Self {
        let mut crowd = vec![0; ground.nodes.len()];
        for home in items.iter().filter_map(|item| item.home) {
            crowd[home] += 1;
        }
        Self {
            items,
            ground,
            domain: vec![None; items.len()],
            load: ground.fixed_heavy.clone(),
            heavy: ground.fixed_heavy.clone(),
            room: ground.room.clone(),
            crowd,
            members: vec![Vec::new(); ground.nodes.len()],
            lights_counted: false,
        }
    }

    fn add_fixed_light(&mut self) {
        if !std::mem::replace(&mut self.lights_counted, true) {
            self.heavy.clone_from(&self.load);
            for (load, fixed) in self.load.iter_mut().zip(&self.ground.fixed_light) {
                *load += fixed;
            }
        }
    }

    fn place(&mut self, batch: std::ops::Range<usize>) {
        self.members.iter_mut().for_each(Vec::clear);
        for settled in [true, false] {
            for at in batch.clone() {
                let item = self.items[at];
                if let Some(home) = item.home.filter(|_| item.settled == settled)
                    && self.room[home] > 0
                    && self.ground.reaches[item.reach][home]
                {
                    self.enter(at, home);
                }
            }
        }
        for at in batch {
            if self.domain[at].is_none() {
                self.insert(at);
            }
        }
        self.level(true);
        if self.ground.nodes.iter().any(|n| *n != self.ground.nodes[0]) {
            self.level(false);
        }
    }

    fn enter(&mut self, at: usize, domain: usize) {
        self.domain[at] = Some(domain);
        self.members[domain].push(at);
        self.load[domain] += 1;
        self.room[domain] -= 1;
    }

    fn leave(&mut self, at: usize, domain: usize) {
        self.members[domain].retain(|member| *member != at);
        self.load[domain] -= 1;
        self.room[domain] += 1;
    }

    /// Puts an item that has no domain into the best one; where all that it may use are full, others of its level move
    /// on to make room.
    fn insert(&mut self, at: usize) {
        let item = self.items[at];
        let node = item.home.map(|home| self.ground.nodes[home]);
        let reach = &self.ground.reaches[item.reach];
        let reached = (0..reach.len()).filter(|domain| reach[*domain]);
        if let Some(free) = self.best(reached.clone(), node) {
            self.enter(at, free);
            return;
        }
        let mut tree = Tree::new(self.load.len());
        reached.for_each(|domain| {
            tree.reach(domain, None);
        });
        self.grow(&mut tree, false);
        if let Some(target) = self.best(tree.order.iter().copied(), node) {
            let first = self.shift(&tree, target);
            self.enter(at, first);
        }
    }

    /// The best of the domains with room for a thread from `node`: an idle domain, then one of its own node, then the
    /// least loaded, then one with FP-heavy threads.
    fn best(&self, domains: impl Iterator<Item = usize>, node: Option<u32>) -> Option<usize> {
        let free = domains.filter(|domain| self.room[*domain] > 0);
        free.min_by_key(|&domain| {
            let abroad = node.is_some_and(|node| node != self.ground.nodes[domain]);
            let load = self.load[domain];
            let away = if load == 0 { 0 } else { 1 + u8::from(abroad) };
            let beside = Reverse(self.heavy[domain]);
            (away, abroad, load, beside, self.crowd[domain], domain)
        })
    }

    /// Takes paths of moves that make the loads more even until there are none: within NUMA nodes, or across them to
    /// domains that have nothing yet.
    fn level(&mut self, within_node: bool) {
        let mut dead = vec![false; self.load.len()];
        loop {
            let live = (0..self.load.len()).filter(|d| !dead[*d] && !self.members[*d].is_empty());
            let Some(source) = live.max_by_key(|d| (self.load[*d], Reverse(*d))) else {
                return;
            };
            if self.load[source] < 2 {
                return;
            }
            let mut tree = Tree::new(self.load.len());
            tree.reach(source, None);
            self.grow(&mut tree, within_node);
            let limit = if within_node { usize::MAX } else { 0 };
            let best = tree.order.iter().copied().filter(|&d| {
                self.room[d] > 0 && self.load[d] + 2 <= self.load[source] && self.load[d] <= limit
            });
            match best.min_by_key(|&d| (self.load[d], self.crowd[d], d)) {
                Some(target) => {
                    self.shift(&tree, target);
                }
                // Nothing that can be reached from here is low enough, and nothing out of here leads elsewhere: later
                // sources have no more load, so what was seen need not be searched again.
                None => tree.order.iter().for_each(|d| dead[*d] = true),
            }
        }
    }

    /// Grows a tree by all domains to which members of its domains may move.
    fn grow(&self, tree: &mut Tree, within_node: bool) {
        let mut searched: Vec<(usize, Option<u32>)> = Vec::new();
        let mut queue: VecDeque<usize> = tree.order.iter().copied().collect();
        while let Some(from) = queue.pop_front() {
            let node = within_node.then(|| self.ground.nodes[from]);
            for &member in &self.members[from] {
                let reach = self.items[member].reach;
                if searched.contains(&(reach, node)) {
                    continue;
                }
                searched.push((reach, node));
                let mover = self.mover(from, reach);
                for to in (0..self.load.len()).filter(|to| self.ground.reaches[reach][*to]) {
                    let near = node.is_none_or(|node| node == self.ground.nodes[to]);
                    if near && tree.reach(to, Some((from, mover))) {
                        queue.push_back(to);
                    }
                }
            }
        }
    }

    /// Which of a domain's members with that reach moves: one that is not at home there, else one that is not bound,
    /// else the last in order.
    fn mover(&self, domain: usize, reach: usize) -> usize {
        let members = self.members[domain].iter().copied();
        members
            .filter(|member| self.items[*member].reach == reach)
            .max_by_key(|&member| {
                let item = self.items[member];
                (item.home != Some(domain), !item.settled, member)
            })
            .unwrap_or_default()
    }

    /// Moves everyone on the path to `target` on by one; returns the path's first domain.
    fn shift(&mut self, tree: &Tree, target: usize) -> usize {
        let mut to = target;
        while let Some((from, mover)) = tree.parent[to] {
            self.leave(mover, from);
            self.enter(mover, to);
            to = from;
        }
        to
    }
}

impl Tree {
    fn new(domains: usize) -> Self {
        Self {
            parent: vec![None; domains],
            seen: vec![false; domains],
            order: Vec::new(),
        }
    }

    fn reach(&mut self, domain: usize, parent: Option<(usize, usize)>) -> bool {
        let new = !std::mem::replace(&mut self.seen[domain], true);
        if new {
            self.parent[domain] = parent;
            self.order.push(domain);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hysteresis::HEAVY;
    use proptest::prelude::*;

    const DOMAINS: usize = 3;

    fn pairs(placed: &[Option<usize>]) -> usize {
        let count = |domain| placed.iter().filter(|d| **d == Some(domain)).count();
        (0..DOMAINS)
            .map(|domain| count(domain) * count(domain).saturating_sub(1) / 2)
            .sum()
    }

    /// All placements of all items within reach and room.
    fn all(items: &[Item], ground: &Ground) -> Vec<Vec<Option<usize>>> {
        let mut ways = vec![Vec::new()];
        for item in items {
            ways = (ways.iter())
                .flat_map(|way: &Vec<Option<usize>>| {
                    let free = |domain: &usize| {
                        let there = way.iter().filter(|d| **d == Some(*domain)).count();
                        there < ground.room[*domain] && ground.reaches[item.reach][*domain]
                    };
                    let next = (0..DOMAINS).filter(free);
                    next.map(|domain| [way.as_slice(), &[Some(domain)]].concat())
                        .collect::<Vec<_>>()
                })
                .collect();
        }
        ways
    }

    fn away(items: &[Item], placed: &[Option<usize>]) -> usize {
        items
            .iter()
            .zip(placed)
            .filter(|(item, domain)| item.home != **domain)
            .count()
    }

    fn ground(room: Vec<usize>, reaches: Vec<Vec<bool>>) -> Ground {
        Ground {
            nodes: vec![0; DOMAINS],
            room,
            fixed_heavy: vec![0; DOMAINS],
            fixed_light: vec![0; DOMAINS],
            reaches,
        }
    }

    fn items(threads: &[(usize, Option<usize>)]) -> Vec<Item> {
        let item = |(reach, home): &(usize, Option<usize>)| Item {
            level: HEAVY,
            reach: *reach,
            home: *home,
            settled: home.is_some(),
        };
        threads.iter().map(item).collect()
    }

    proptest! {
        #[test]
        fn fewest_pairs_whatever_is_allowed(
            room in proptest::collection::vec(0..4usize, DOMAINS),
            reaches in proptest::collection::vec(proptest::collection::vec(any::<bool>(), DOMAINS), 3),
            threads in proptest::collection::vec((0..3usize, proptest::option::of(0..DOMAINS)), 0..6),
        ) {
            let (items, ground) = (items(&threads), ground(room, reaches));
            let placed = spread(&items, &ground);
            if let Some(fewest) = all(&items, &ground).iter().map(|way| pairs(way)).min() {
                prop_assert!(placed.iter().all(Option::is_some));
                prop_assert_eq!(pairs(&placed), fewest);
            }
        }

        #[test]
        fn fewest_moves_where_all_is_allowed(homes in proptest::collection::vec(0..DOMAINS, 0..7)) {
            let threads: Vec<_> = homes.iter().map(|home| (0, Some(*home))).collect();
            let (items, ground) = (items(&threads), ground(vec![4; DOMAINS], vec![vec![true; DOMAINS]]));
            let placed = spread(&items, &ground);
            // Those beyond a domain's room are nowhere: only what fits is compared.
            let ways = all(&items, &ground);
            let fewest = ways.iter().map(|way| pairs(way)).min().unwrap();
            let best = ways.iter().filter(|way| pairs(way) == fewest);
            prop_assert_eq!(away(&items, &placed), best.map(|way| away(&items, way)).min().unwrap());
        }
    }
}
