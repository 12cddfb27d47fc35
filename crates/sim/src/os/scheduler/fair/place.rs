//! Where threads begin and go on.

use super::{FairScheduler, Index, capacity::FULL};
use crate::thread::Thread;

impl FairScheduler {
    /// Where a new thread begins: level by level in the group with the most idle PUs, or with the least load a PU
    /// if none has any, and there on the PU with the least load (`find_idlest_cpu`). Which of equals is chance. `None`
    /// if it may run nowhere.
    pub(super) fn idlest(&mut self, index: Index, threads: &[Thread]) -> Option<u32> {
        let mask = &threads[index].mask;
        let allowed = |pu: &u32| mask.contains(*pu);
        let mut within: Vec<u32> = (0..self.queues.len() as u32).collect();
        for at in (0..self.levels.len()).rev() {
            let level = &self.levels[at];
            let first = *within.first()? as usize;
            let groups = &level.domain(first).groups;
            let mut best = Vec::new();
            let mut least = (u64::MAX, u64::MAX);
            for group in groups.iter().filter(|group| group.iter().any(allowed)) {
                let tally = self.tally(group, threads, false);
                let load = match tally.idle {
                    0 => (u64::MAX, tally.load * 64 * FULL / tally.capacity.max(1)),
                    idle => (u64::MAX - idle, tally.load),
                };
                if load < least {
                    least = load;
                    best.clear();
                }
                if load == least {
                    best.push(group);
                }
            }
            let chosen = self.random.below(best.len().max(1) as u64) as usize;
            within = best.get(chosen)?.to_vec();
        }
        within.into_iter().find(allowed)
    }

    /// Where a thread that wakes goes on (`select_idle_sibling`): where it was, on an idle core near to it, on an idle
    /// PU of its core, on an idle PU near to it, else where it was.
    pub(super) fn near(&self, index: Index, threads: &[Thread]) -> u32 {
        let thread = &threads[index];
        let allowed = |pu: &u32| thread.mask.contains(*pu);
        let idle = |pu: &u32| self.queues[*pu as usize].is_idle();
        let core_idle = |pu: &u32| self.siblings(*pu).all(|pu| idle(&pu));
        let before = match allowed(&thread.last_pu) {
            true => thread.last_pu,
            false => thread.mask.first().unwrap_or(thread.last_pu),
        };
        if let Some(capacities) = &self.capacities {
            return self.near_with_capacity(capacities, index, before, threads);
        }
        if idle(&before) {
            return before;
        }
        // The kernel looks from the next PU on.
        let near: Vec<u32> = self.sharers(before).collect();
        let from = near.iter().position(|pu| *pu == before).unwrap_or(0);
        let around = || {
            near[from..]
                .iter()
                .chain(&near[..from])
                .copied()
                .filter(allowed)
        };
        let own_core = self.siblings(before).filter(allowed);
        around()
            .find(core_idle)
            .or_else(|| own_core.into_iter().find(idle))
            .or_else(|| around().find(idle))
            .unwrap_or(before)
    }

    /// The PUs of a PU's core.
    pub(super) fn siblings(&self, pu: u32) -> impl Iterator<Item = u32> {
        self.within(self.core_level, pu)
    }

    /// The PUs that share a last cache with a PU.
    fn sharers(&self, pu: u32) -> impl Iterator<Item = u32> {
        self.within(self.cache_level, pu)
    }

    fn within(&self, level: Option<usize>, pu: u32) -> impl Iterator<Item = u32> {
        let domain = level.map(|level| self.levels[level].domain(pu as usize));
        let alone = domain.is_none().then_some(pu);
        domain
            .into_iter()
            .flat_map(|domain| domain.pus())
            .chain(alone)
    }
}
