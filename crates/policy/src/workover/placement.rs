//! Which of the candidates get a PU, and which.

use super::{Memory, Placed, View, explain, perch::Fixed};
use crate::{
    busy::Census,
    domains::Domains,
    history::PerThread,
    hysteresis::LIGHT,
    matching,
    ranking::{Candidate, FpShare},
    spread::{Ground, Item, spread},
};
use perch_core::PuSet;
use std::cmp::Reverse;

/// The candidates in order of choice, and what they are placed on.
pub(super) struct Placement<'a> {
    view: &'a View<'a>,
    domains: &'a Domains,
    fixed: &'a Fixed,
    threads: Vec<Thread>,
}

#[derive(Clone, Copy)]
struct Thread {
    candidate: Candidate,
    rank: usize,
    level: u8,
    /// The PU where it is bound; of those that are selected else the one that they used most, else where they were last
    /// seen.
    home: Option<u32>,
    /// Whether it is bound there, and no other thread is.
    settled: bool,
}

impl Thread {
    fn is_heavy(&self) -> bool {
        self.level < LIGHT
    }
}

impl<'a> Placement<'a> {
    pub fn new(
        view: &'a View<'a>,
        census: &Census<FpShare>,
        levels: &[u8],
        domains: &'a Domains,
        fixed: &'a Fixed,
    ) -> Self {
        let mut taken = fixed.taken.clone();
        let ranked = census.ranked.iter().zip(levels).enumerate();
        let threads = ranked.map(|(rank, (candidate, level))| {
            let thread = &view.snapshot.threads[candidate.at];
            let usable = |pu: &u32| domains.of(*pu).is_some() && thread.allowed.contains(*pu);
            let present = view.present[candidate.at].filter(usable);
            let alone = |pu: u32| !std::mem::replace(&mut taken[pu as usize], true);
            Thread {
                candidate: *candidate,
                rank,
                level: *level,
                home: present,
                settled: present.is_some_and(alone),
            }
        });
        Self {
            threads: threads.collect(),
            view,
            domains,
            fixed,
        }
    }

    /// Puts the threads in order of choice and, if there are more than `free` PUs, keeps as many FP-heavy ones as there
    /// are domains and fills up with FP-light ones. Bound threads come first, so that no thread is replaced by one like
    /// it.
    pub fn select(&mut self, memory: &PerThread<Memory>, free: usize) {
        let (mut heavies, mut lights): (Vec<Thread>, Vec<Thread>) =
            self.threads.iter().partition(|thread| thread.is_heavy());
        heavies.sort_by_key(|thread| (thread.level, !thread.settled, thread.rank));
        let activity = |thread: &Thread| (thread.candidate.activity * 1e6) as u64;
        lights.sort_by_key(|thread| (!thread.settled, Reverse(activity(thread)), thread.rank));
        if heavies.len() + lights.len() > free {
            let fewest = self.domains.len().min(free);
            let room = free.saturating_sub(lights.len());
            heavies.truncate(fewest.max(room));
            lights.truncate(free - heavies.len());
        }
        heavies.append(&mut lights);
        for thread in &mut heavies {
            thread.home = thread.home.or_else(|| self.last_home(memory, thread));
        }
        self.threads = heavies;
    }

    /// The PU that a thread used most, else the one where it was last seen.
    fn last_home(&self, memory: &PerThread<Memory>, thread: &Thread) -> Option<u32> {
        let at = thread.candidate.at;
        let state = &self.view.snapshot.threads[at];
        let usable = |pu: u32| self.domains.of(pu).is_some() && state.allowed.contains(pu);
        let last = || state.last_pu.filter(|pu| usable(*pu));
        memory[at].usage.most_used(usable).or_else(last)
    }

    /// Each thread's PU. The present placement is kept unless the new one is better.
    pub fn decide(&self) -> Vec<Option<u32>> {
        let (reach_of, reaches) = self.reaches();
        let threads = self.threads.iter().zip(&reach_of);
        let items = threads.map(|(thread, reach)| Item {
            level: thread.level,
            reach: *reach,
            home: thread.home.and_then(|pu| self.domains.of(pu)),
            settled: thread.settled,
        });
        let taken = |domain: usize| self.fixed.heavy[domain] + self.fixed.light[domain];
        let domains = self.domains.iter().enumerate();
        let ground = Ground {
            nodes: self.domains.iter().map(|domain| domain.node).collect(),
            room: domains.map(|(at, d)| d.pus.len() - taken(at)).collect(),
            fixed_heavy: self.fixed.heavy.clone(),
            fixed_light: self.fixed.light.clone(),
            reaches,
        };
        let new = self.pus(&spread(&items.collect::<Vec<_>>(), &ground));
        let present = |thread: &Thread| thread.home.filter(|_| thread.settled);
        let present: Vec<Option<u32>> = self.threads.iter().map(present).collect();
        if self.cost(&new) < self.cost(&present) {
            new
        } else {
            present
        }
    }

    /// Which of the different sets of allowed domains each thread has, and these sets.
    fn reaches(&self) -> (Vec<usize>, Vec<Vec<bool>>) {
        let mut sets: Vec<&PuSet> = Vec::new();
        let threads = self.threads.iter().map(|thread| {
            let allowed = &self.view.snapshot.threads[thread.candidate.at].allowed;
            sets.iter()
                .rposition(|set| *set == allowed)
                .unwrap_or_else(|| {
                    sets.push(allowed);
                    sets.len() - 1
                })
        });
        let reach_of = threads.collect();
        let reach = |set: &&PuSet| {
            let domains = self.domains.iter();
            let reached = domains.map(|domain| domain.pus.iter().any(|pu| set.contains(*pu)));
            reached.collect()
        };
        (reach_of, sets.iter().map(reach).collect())
    }

    /// PUs within the domains: a thread's home if it is there, else the lowest free one.
    fn pus(&self, spread: &[Option<usize>]) -> Vec<Option<u32>> {
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); self.domains.len()];
        // Bound threads first: their wishes go before those of threads that merely were here.
        for settled in [true, false] {
            for (at, domain) in spread.iter().enumerate() {
                if let Some(domain) = domain.filter(|_| self.threads[at].settled == settled) {
                    members[domain].push(at);
                }
            }
        }
        let mut pus = vec![None; self.threads.len()];
        for (domain, members) in self.domains.iter().zip(&members) {
            let free = |pu: &u32| !self.fixed.taken[*pu as usize];
            let free: Vec<u32> = domain.pus.iter().copied().filter(free).collect();
            let wish = |at: &usize| {
                free.iter()
                    .position(|pu| self.threads[*at].home == Some(*pu))
            };
            let wishes: Vec<Option<usize>> = members.iter().map(wish).collect();
            let slots = matching::assign(&wishes, free.len(), |member, slot| {
                let at = self.threads[members[member]].candidate.at;
                self.view.snapshot.threads[at].allowed.contains(free[slot])
            });
            for (at, slot) in members.iter().zip(slots) {
                pus[*at] = slot.map(|slot| free[slot]);
            }
        }
        pus
    }

    /// What is bad about a placement, worst first: FP-heavy threads without a PU, other threads without one, pairs of
    /// FP-heavy threads that share FP units, such pairs among the heaviest only, pairs of any threads.
    ///
    /// Only a lower cost changes anything, so under the same observations a placement changes finitely often.
    fn cost(&self, pus: &[Option<u32>]) -> Vec<usize> {
        let homeless = |heavy: bool| {
            let threads = self.threads.iter().zip(pus);
            threads
                .filter(|(thread, pu)| thread.is_heavy() == heavy && pu.is_none())
                .count()
        };
        let pairs = |loads: &[usize]| -> usize {
            let pairs = loads.iter().map(|n| n * n.saturating_sub(1) / 2);
            pairs.sum()
        };
        let mut loads = self.fixed.heavy.clone();
        let mut by_level = Vec::new();
        let mut placed = self.threads.iter().zip(pus).peekable();
        while let Some((first, _)) = placed.peek() {
            let level = first.level;
            if level == LIGHT {
                break;
            }
            while let Some((_, pu)) = placed.next_if(|(thread, _)| thread.level == level) {
                if let Some(domain) = pu.and_then(|pu| self.domains.of(pu)) {
                    loads[domain] += 1;
                }
            }
            by_level.push(pairs(&loads));
        }
        for (load, fixed) in loads.iter_mut().zip(&self.fixed.light) {
            *load += fixed;
        }
        for pu in placed.filter_map(|(_, pu)| *pu) {
            if let Some(domain) = self.domains.of(pu) {
                loads[domain] += 1;
            }
        }
        let mut cost = vec![homeless(true), homeless(false)];
        cost.extend(by_level.iter().rev());
        cost.push(pairs(&loads));
        cost
    }

    /// The placed threads with their reasons; `ranked` is how many were ranked.
    pub fn explain(&self, pus: &[Option<u32>], ranked: usize) -> impl Iterator<Item = Placed> {
        let mut heavy = self.fixed.heavy.clone();
        for (thread, pu) in self.threads.iter().zip(pus) {
            let domain = pu.and_then(|pu| self.domains.of(pu));
            if let Some(domain) = domain.filter(|_| thread.is_heavy()) {
                heavy[domain] += 1;
            }
        }
        let names = explain::Names::new();
        self.threads
            .iter()
            .zip(pus)
            .filter_map(move |(thread, pu)| {
                let (pu, at) = ((*pu)?, thread.candidate.at);
                let domain = self.domains.of(pu)?;
                let others = heavy[domain] - usize::from(thread.is_heavy());
                let text = format!(
                    "FP-{}, rank {} of {ranked}: PU {pu} of {}, {}; {}",
                    if thread.is_heavy() { "heavy" } else { "light" },
                    thread.rank + 1,
                    self.domains[domain].label(&self.view.snapshot.topology),
                    explain::company(thread.is_heavy(), others),
                    explain::movement(
                        self.view.snapshot,
                        at,
                        self.view.present[at],
                        pu,
                        self.domains
                    ),
                );
                let heavy = Some(heavy[domain]);
                let reason = names.reason(text, thread.rank, &thread.candidate, pu, heavy);
                Some(Placed { at, pu, reason })
            })
    }
}
