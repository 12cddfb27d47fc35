//! In which NUMA node's memory data lie: where they are touched first, as Linux places them.

use super::owner::Owner;
use rustc_hash::FxHashMap;

/// Regions of a workload whose homes are followed; further ones count as their thread's own data.
const FOLLOWED: usize = 8;

/// A region is one node's if that node touched at least this part of it first.
const MOSTLY: f64 = 0.9;

/// Whose memory lines come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Home {
    Node(usize),
    /// That of all nodes, in equal parts.
    All,
}

/// The homes of a thread's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(super) struct Homes {
    /// Of its own, and of what has no home yet.
    pub own: usize,
    /// A byte for each region: 0 without a home, the number of the node plus one, or 255 for all nodes.
    pub regions: u64,
}

impl Homes {
    pub fn of(&self, owner: Owner) -> Home {
        let Owner::Region(_, at) = owner else {
            return Home::Node(self.own);
        };
        match self.regions.to_le_bytes().get(at) {
            None | Some(0) => Home::Node(self.own),
            Some(&u8::MAX) => Home::All,
            Some(node) => Home::Node(usize::from(*node) - 1),
        }
    }
}

/// How a region was touched for the first time.
#[derive(Debug, Clone, Default)]
struct Region {
    /// Visits by node, until there were as many as there are pages.
    visits: Vec<f64>,
    pages: f64,
    home: Option<Home>,
}

/// The regions of all processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Regions {
    /// By process and place among the regions' names.
    regions: FxHashMap<(usize, usize), Region>,
    /// Those without a home that were visited since homes were last given.
    visited: Vec<(usize, usize)>,
}

impl Regions {
    /// A PU of a node visits lines of an owner that has this many pages.
    pub fn touch(&mut self, owner: Owner, node: usize, visits: f64, pages: f64) {
        let Owner::Region(process, at) = owner else {
            return;
        };
        if at >= FOLLOWED || visits <= 0.0 {
            return;
        }
        let region = self.regions.entry((process, at)).or_default();
        if region.home.is_some() {
            return;
        }
        if region.visits.len() <= node {
            region.visits.resize(node + 1, 0.0);
        }
        region.visits[node] += visits;
        region.pages = region.pages.max(pages);
        self.visited.push((process, at));
    }

    /// To be called when all visits of threads that run at the same time are recorded: regions that are touched by now
    /// get their homes. Whether any did.
    pub fn settle(&mut self) -> bool {
        let mut any = false;
        for key in self.visited.drain(..) {
            let Some(region) = self.regions.get_mut(&key) else {
                continue;
            };
            let all: f64 = region.visits.iter().sum();
            if region.home.is_some() || all < region.pages {
                continue;
            }
            let mut visits = region.visits.iter();
            let mostly = visits.position(|visits| *visits >= MOSTLY * all);
            region.home = Some(mostly.map_or(Home::All, Home::Node));
            any = true;
        }
        any
    }

    /// The homes of a process's regions, as [`Homes::regions`].
    pub fn of(&self, process: usize) -> u64 {
        let byte = |at: usize| match self.regions.get(&(process, at)).and_then(|its| its.home) {
            None => 0,
            Some(Home::All) => u8::MAX,
            Some(Home::Node(node)) => u8::try_from(node + 1).unwrap_or(u8::MAX),
        };
        u64::from_le_bytes(std::array::from_fn(byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_where_it_was_touched_first() {
        let mut regions = Regions::default();
        let [one, both, later] = [0, 1, 2].map(|at| Owner::Region(7, at));
        regions.touch(one, 1, 30.0, 64.0);
        assert!(!regions.settle());
        regions.touch(one, 1, 40.0, 64.0);
        // At the same time.
        regions.touch(both, 0, 1_000.0, 64.0);
        regions.touch(both, 1, 900.0, 64.0);
        assert!(regions.settle());
        // What others do after that makes no difference.
        regions.touch(one, 0, 1_000.0, 64.0);
        regions.touch(later, 0, 1.0, 64.0);
        assert!(!regions.settle());
        let homes = Homes {
            own: 3,
            regions: regions.of(7),
        };
        let found = [one, both, later, Owner::Thread].map(|owner| homes.of(owner));
        assert_eq!(
            found,
            [Home::Node(1), Home::All, Home::Node(3), Home::Node(3)]
        );
        assert_eq!(regions.of(8), 0);
    }
}
