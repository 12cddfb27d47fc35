//! One period: who is busy, and which parts of the machine the threads can be put on.

use super::{cost::Costs, search::MATCHED};
use perch_core::{PuSet, Snapshot, ThreadState};

const NOWHERE: u32 = u32::MAX;

/// The PUs that share what is closest of all that was measured: a core, a module, the PUs below a cache. Threads are put
/// on units; within one the operating system places them.
#[derive(Debug, Clone)]
pub(super) struct Unit {
    /// Those that can be used; never empty.
    pub pus: PuSet,
    /// How many these are.
    pub width: usize,
    /// The kind of its cores.
    pub kind: usize,
    /// Its group at each of the levels above the closest.
    pub groups: Vec<usize>,
}

/// A busy thread.
#[derive(Debug, Clone)]
pub(super) struct Runner {
    /// Its place in the snapshot.
    pub at: usize,
    /// Where it is.
    pub unit: usize,
    /// Whether it may be put elsewhere.
    pub ours: bool,
    /// Share of the period that it wants a PU, 0 to 1.
    pub present: f64,
    /// Its place in [`Scene::masks`].
    pub mask: usize,
}

/// The busy threads and the units.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub units: Vec<Unit>,
    /// By rising place in the snapshot.
    pub runners: Vec<Runner>,
    /// Units on which threads may be put, one list for all threads that are alike in that.
    pub masks: Vec<Vec<bool>>,
    /// The place of each level of [`Costs::levels`], the closest first. Where threads time-share PUs these are all
    /// above the closest, the PU.
    pub levels: Vec<usize>,
    /// Whether there are more threads than PUs: then units are PUs, which threads time-share.
    pub turns: bool,
    of_pu: Vec<u32>,
}

impl Scene {
    /// Nothing if there is nothing to choose: fewer than two units. `present` is the share of time that each thread of
    /// the snapshot wants a PU; 0 of those that are not busy.
    pub fn new(snapshot: &Snapshot, costs: &Costs, present: &[f64]) -> Option<Self> {
        let topology = &snapshot.topology;
        let mut sized: Vec<(usize, Vec<PuSet>)> = Vec::new();
        for (place, level) in costs.levels.iter().enumerate() {
            let groups = level.share.groups(snapshot).into_iter();
            sized.push((place, groups.map(|group| group.pus).collect()));
        }
        // The closest has the smallest groups.
        let size = |groups: &[PuSet]| groups.iter().map(PuSet::len).max().unwrap_or(0);
        sized.sort_by_key(|(_, groups)| size(groups));
        sized.retain(|(_, groups)| size(groups) > 1);
        let usable: PuSet = topology.usable();
        // With more threads than PUs it matters which threads time-share one: those never run at the same time.
        let threads = present.iter().filter(|present| **present > 0.0).count();
        let turns = threads > usable.len() && threads <= MATCHED;
        let none = Vec::new();
        let closest = match turns {
            true => &none,
            false => &sized.first()?.1,
        };
        let highest = topology.pus.last().map_or(0, |pu| pu.os as usize + 1);
        let mut found = Self {
            units: Vec::new(),
            runners: Vec::new(),
            masks: Vec::new(),
            levels: sized.iter().map(|(place, _)| *place).collect(),
            turns,
            of_pu: vec![NOWHERE; highest],
        };
        let kind = |pu: u32| topology.core_of(pu).map_or(0, |core| core.kind);
        let alone = topology.pus.iter().map(|pu| PuSet::single(pu.os));
        for group in closest.iter().cloned().chain(alone) {
            let pus = group.and(&usable);
            let Some(first) = pus.first() else { continue };
            if found.of_pu[first as usize] != NOWHERE {
                continue;
            }
            for pu in pus.iter() {
                found.of_pu[pu as usize] = found.units.len() as u32;
            }
            let above = if turns { &sized[..] } else { &sized[1..] };
            let groups = above.iter().map(|(_, groups)| {
                let place = groups.iter().position(|group| group.contains(first));
                place.unwrap_or(usize::MAX)
            });
            found.units.push(Unit {
                width: pus.len(),
                kind: kind(first),
                groups: groups.collect(),
                pus,
            });
        }
        if found.units.len() < 2 {
            return None;
        }
        let mut sets: Vec<(&PuSet, usize)> = Vec::new();
        for (at, thread) in snapshot.threads.iter().enumerate() {
            if present[at] <= 0.0 {
                continue;
            }
            let Some(unit) = found.unit_of(thread) else {
                continue;
            };
            let kind = found.units[unit].kind;
            let known = sets
                .iter()
                .find(|(set, mask)| **set == thread.allowed && found.masks[*mask][unit]);
            let mask = known.map(|(_, mask)| *mask).unwrap_or_else(|| {
                let may = |unit: &Unit| unit.kind == kind && !unit.pus.is_disjoint(&thread.allowed);
                found.masks.push(found.units.iter().map(may).collect());
                sets.push((&thread.allowed, found.masks.len() - 1));
                found.masks.len() - 1
            });
            found.runners.push(Runner {
                at,
                unit,
                ours: thread.unmanaged.is_none() && found.masks[mask][unit],
                present: present[at].clamp(0.01, 1.0),
                mask,
            });
        }
        Some(found)
    }

    /// Where a thread spent the period: where it is bound, or pinned by others, else where it was last seen.
    fn unit_of(&self, thread: &ThreadState) -> Option<usize> {
        let unit = |pu: u32| {
            let unit = self.of_pu.get(pu as usize).copied()?;
            (unit != NOWHERE).then_some(unit as usize)
        };
        let of_all = |pus: &PuSet| {
            let mut units = pus.iter().filter_map(unit);
            let first = units.next()?;
            units.all(|other| other == first).then_some(first)
        };
        let bound = thread.bound.as_ref().and_then(of_all);
        let pinned = || thread.unmanaged.and_then(|_| of_all(&thread.allowed));
        bound
            .or_else(pinned)
            .or_else(|| thread.last_pu.and_then(unit))
    }

    /// The level at which two units are closest: 0 for the same one, then in the order of their groups; nothing if
    /// nothing was measured of what they share.
    pub fn between(&self, one: usize, other: usize) -> Option<usize> {
        if one == other {
            return Some(0);
        }
        let groups = self.units[one].groups.iter().zip(&self.units[other].groups);
        let mut above = groups.enumerate();
        above
            .find(|(_, (one, other))| one == other && **one != usize::MAX)
            .map(|(at, _)| at + 1)
    }
}
