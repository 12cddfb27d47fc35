//! Hardware counters of whole PUs: the same sets as of threads, counting whatever runs there, in turns alike.

use super::{
    Accumulator,
    group::{Group, Target},
    resolve::SetPlan,
};
use crate::{
    limits::{Budget, Kept, Purpose},
    perf::{limits::NOFILE_REMEDY, privilege::refusal},
    plausibility,
};
use perch_core::{Count, CountedSet, Limits, MachineError};
use std::{collections::BTreeMap, io};

/// Counters of the PUs of a machine. Reading is linear in PUs: a system call for each group, which interrupts the PU.
pub struct PuCounters {
    sets: Vec<SetPlan>,
    limits: Option<Limits>,
    pus: BTreeMap<u32, Kept<Pu>>,
    budget: Budget,
}

/// One PU's counters.
struct Pu {
    /// The set that counts now.
    active: usize,
    /// Groups of each set with their place in the plan; a group of another kind of core is missing.
    sets: Vec<Vec<(usize, Group)>>,
}

impl PuCounters {
    pub(super) fn open(
        sets: Vec<SetPlan>,
        limits: Option<Limits>,
        pus: &[u32],
        budget: Budget,
    ) -> Result<Self, MachineError> {
        let mut counters = Self {
            sets,
            limits,
            pus: BTreeMap::new(),
            budget,
        };
        for pu in pus {
            counters.add(*pu)?;
        }
        Ok(counters)
    }

    /// Starts to count a PU that has come online.
    ///
    /// # Errors
    /// Not permitted, with the remedy; no descriptors left.
    pub fn add(&mut self, pu: u32) -> Result<(), MachineError> {
        const WHAT: &str = "counting events of whole PUs";
        let groups = self.sets.iter().flat_map(|set| &set.groups);
        let cost: usize = groups.map(|group| group.events.len()).sum();
        let Some(place) = self.budget.reserve(Purpose::PuCounters, cost) else {
            return Err(MachineError::NotPermitted {
                what: WHAT.to_owned(),
                remedy: NOFILE_REMEDY.to_owned(),
            });
        };
        let mut sets = Vec::new();
        for (at, set) in self.sets.iter().enumerate() {
            let mut groups = Vec::new();
            for (number, plan) in set.groups.iter().enumerate() {
                // Everything that runs there is meant, so the kernel is never left out.
                match Group::open(plan, Target::Pu(pu), false) {
                    Ok(group) => groups.push((number, group)),
                    Err(error) if refuses(&error) => return Err(refusal(WHAT, error)),
                    // Events of another kind of core; or the PU has just been taken offline.
                    Err(_) => {}
                }
            }
            if at > 0 {
                for (_, group) in &mut groups {
                    group.disable().map_err(|error| refusal(WHAT, error))?;
                }
            }
            sets.push(groups);
        }
        self.pus.insert(pu, place.keep(Pu { active: 0, sets }));
        Ok(())
    }

    /// Stops counting a PU that was taken offline.
    pub fn remove(&mut self, pu: u32) {
        self.pus.remove(&pu);
    }

    /// The PUs that are counted.
    pub fn pus(&self) -> impl Iterator<Item = u32> + '_ {
        self.pus.keys().copied()
    }

    /// Whether some event is counted on some PU.
    pub fn is_counting(&self) -> bool {
        let mut groups = self.pus.values().flat_map(|pu| pu.sets.iter().flatten());
        groups.next().is_some()
    }

    /// What happened on a PU since its last reading, and the set that was counted. Then its next set has its turn.
    pub fn read(&mut self, pu: u32) -> (Vec<Count>, Option<CountedSet>) {
        let plans = &self.sets;
        let Some(pu) = self.pus.get_mut(&pu) else {
            return (Vec::new(), None);
        };
        let pu = &mut **pu;
        let mut tally = Accumulator::default();
        for (number, group) in &mut pu.sets[pu.active] {
            tally.add(group, &plans[pu.active].groups[*number]);
        }
        let on_cpu = tally.on_cpu();
        let set = CountedSet {
            number: plans[pu.active].number,
            enabled: on_cpu.longest,
        };
        if plans.len() > 1 {
            let next = (pu.active + 1) % plans.len();
            for (_, group) in &mut pu.sets[pu.active] {
                // A PU that was taken offline counts nothing until it is added again.
                let _ = group.disable();
            }
            for (_, group) in &mut pu.sets[next] {
                let _ = group.enable();
            }
            pu.active = next;
        }
        let (mut counts, _) = tally.counts();
        // An idle PU counts next to nothing and that proves nothing: only too high counts are implausible.
        plausibility::judge(&mut counts, on_cpu, true, self.limits.as_ref());
        let set = (!counts.is_empty()).then_some(set);
        (counts, set)
    }
}

/// Whether perch may not count that at all, or no more of it.
fn refuses(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(
        code,
        Some(libc::EACCES | libc::EPERM | libc::EMFILE | libc::ENFILE)
    )
}
