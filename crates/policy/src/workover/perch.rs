//! WorkOver with a steady hand: the paper's ranking up to noise, spread from where the threads are.

use super::{Decision, Memory, Placed, View, WorkOverConfig, explain};
use crate::{
    domains::Domains,
    history::PerThread,
    hysteresis::{Cuts, Thresholds},
    matching,
    ranking::{Candidate, Census},
    spread::{Ground, Item, spread},
};
use perch_core::{PuSet, Reason};
use std::cmp::Reverse;

pub(super) fn decide(
    view: &View<'_>,
    memory: &mut PerThread<Memory>,
    config: &WorkOverConfig,
) -> Decision {
    let snapshot = view.snapshot;
    let census = Census::new(snapshot, config.min_confidence, |at, thread| {
        let bound = view.present[at].is_some();
        let least = config.min_activity * if bound { 0.5 } else { 1.0 };
        thread.activity + thread.waiting >= least
    });
    let domains = Domains::new(snapshot, &view.reachable(&census));
    if let Some(why) = view.nothing_to_do(&census, &domains) {
        return Decision::nothing(why);
    }
    let thresholds = Thresholds {
        margin: config.margin,
        large: config.large,
        patience: config.patience,
        fp_threshold: snapshot.fp_threshold,
    };
    let cuts = Cuts::new(&census.ranked, domains.len(), domains.width(), thresholds);
    let levels: Vec<u8> = (census.ranked.iter())
        .map(|candidate| cuts.follow(&mut memory[candidate.at].level, candidate))
        .collect();
    let unknown = census
        .unknown
        .iter()
        .filter_map(|at| memory[*at].level.level());
    let mut seen = levels.iter().copied().chain(unknown);
    let one = seen
        .next()
        .filter(|first| seen.all(|level| level == *first));
    if let Some(level) = one {
        let heavy = level < cuts.light();
        return Decision::nothing(explain::alike(&census, heavy, snapshot.fp_threshold));
    }
    let fixed = Fixed::new(view, memory, &census, &domains, &cuts);
    let mut threads = Placement::candidates(view, memory, &census, &levels, &domains, &fixed);
    threads.select(cuts.light(), domains.len(), fixed.free(&domains));
    let pus = threads.place(view, &domains, &fixed, cuts.light());
    threads.explain(view, &census, &domains, &fixed, cuts.light(), &pus)
}

/// What stands where it is: threads that must be left alone, and bound ones about which nothing new is known.
struct Fixed {
    /// By PU.
    taken: Vec<bool>,
    heavy: Vec<usize>,
    light: Vec<usize>,
    /// Bound threads that stay since their FP share is not known, with their PU.
    kept: Vec<(usize, u32)>,
}

impl Fixed {
    fn new(
        view: &View<'_>,
        memory: &PerThread<Memory>,
        census: &Census,
        domains: &Domains,
        cuts: &Cuts,
    ) -> Self {
        let highest = domains.iter().flat_map(|d| d.pus.iter().copied()).max();
        let mut fixed = Self {
            taken: vec![false; highest.map_or(0, |pu| pu as usize + 1)],
            heavy: vec![0; domains.len()],
            light: vec![0; domains.len()],
            kept: Vec::new(),
        };
        for &at in &census.hands_off {
            let thread = &view.snapshot.threads[at];
            let share = thread.metrics.value(perch_core::metric::names::FP_SHARE);
            let heavy = share.is_some_and(|share| share >= view.snapshot.fp_threshold);
            if let (Some(pu), 1) = (thread.allowed.first(), thread.allowed.len()) {
                fixed.take(pu, heavy, domains);
            }
        }
        for &at in &census.unknown {
            let thread = &view.snapshot.threads[at];
            let level = memory[at].level.level();
            let heavy = level.is_some_and(|level| level < cuts.light());
            if let Some(pu) = view.present[at].filter(|pu| thread.allowed.contains(*pu))
                && fixed.take(pu, heavy, domains)
            {
                fixed.kept.push((at, pu));
            }
        }
        fixed
    }

    /// Takes a PU, if it can be used and is not taken.
    fn take(&mut self, pu: u32, heavy: bool, domains: &Domains) -> bool {
        let Some(domain) = domains.of(pu).filter(|_| !self.taken[pu as usize]) else {
            return false;
        };
        self.taken[pu as usize] = true;
        let count = if heavy {
            &mut self.heavy
        } else {
            &mut self.light
        };
        count[domain] += 1;
        true
    }

    fn free(&self, domains: &Domains) -> usize {
        domains.pus() - self.taken.iter().filter(|taken| **taken).count()
    }
}

/// The candidates with what decides where they go, in order of choice.
struct Placement {
    threads: Vec<Thread>,
}

#[derive(Clone, Copy)]
struct Thread {
    candidate: Candidate,
    rank: usize,
    level: u8,
    /// The PU where it is bound, else the one that it used most, else the one where it was last seen.
    home: Option<u32>,
    /// Whether it is bound there, and nobody else.
    settled: bool,
}

impl Placement {
    fn candidates(
        view: &View<'_>,
        memory: &PerThread<Memory>,
        census: &Census,
        levels: &[u8],
        domains: &Domains,
        fixed: &Fixed,
    ) -> Self {
        let mut taken = fixed.taken.clone();
        let ranked = census.ranked.iter().zip(levels).enumerate();
        let threads = ranked.map(|(rank, (candidate, level))| {
            let thread = &view.snapshot.threads[candidate.at];
            let usable = |pu: u32| domains.of(pu).is_some() && thread.allowed.contains(pu);
            let present = view.present[candidate.at].filter(|pu| usable(*pu));
            let settled =
                present.is_some_and(|pu| !std::mem::replace(&mut taken[pu as usize], true));
            let used = || memory[candidate.at].usage.most_used(usable);
            Thread {
                candidate: *candidate,
                rank,
                level: *level,
                home: present
                    .or_else(used)
                    .or(thread.last_pu.filter(|pu| usable(*pu))),
                settled,
            }
        });
        Self {
            threads: threads.collect(),
        }
    }

    /// Puts the threads in order of choice and, if there are more than `free` PUs, keeps as many FP-heavy ones as
    /// there are domains and fills up with FP-light ones; bound threads first, so that nobody is replaced by his like.
    fn select(&mut self, light: u8, domains: usize, free: usize) {
        let (mut heavies, mut lights): (Vec<Thread>, Vec<Thread>) =
            self.threads.iter().partition(|thread| thread.level < light);
        heavies.sort_by_key(|thread| (thread.level, !thread.settled, thread.rank));
        let activity = |thread: &Thread| (thread.candidate.activity * 1e6) as u64;
        lights.sort_by_key(|thread| (!thread.settled, Reverse(activity(thread)), thread.rank));
        if heavies.len() + lights.len() > free {
            let fewest = domains.min(free);
            let room = free.saturating_sub(lights.len());
            heavies.truncate(fewest.max(room));
            lights.truncate(free - heavies.len());
        }
        heavies.append(&mut lights);
        self.threads = heavies;
    }

    /// Each thread's PU. The present placement is kept unless the new one is better.
    fn place(
        &self,
        view: &View<'_>,
        domains: &Domains,
        fixed: &Fixed,
        light: u8,
    ) -> Vec<Option<u32>> {
        let (reach_of, reaches) = self.reaches(view, domains);
        let items: Vec<Item> = (self.threads.iter().zip(&reach_of))
            .map(|(thread, reach)| Item {
                level: thread.level,
                reach: *reach,
                home: thread.home.and_then(|pu| domains.of(pu)),
                settled: thread.settled,
            })
            .collect();
        let taken = |domain: usize| fixed.heavy[domain] + fixed.light[domain];
        let ground = Ground {
            nodes: domains.iter().map(|domain| domain.node).collect(),
            room: (domains
                .iter()
                .enumerate()
                .map(|(at, d)| d.pus.len() - taken(at)))
            .collect(),
            fixed_heavy: fixed.heavy.clone(),
            fixed_light: fixed.light.clone(),
            reaches,
        };
        let spread = spread(&items, &ground, light);
        let new = self.pus(view, domains, fixed, &spread);
        let present: Vec<Option<u32>> = (self.threads.iter())
            .map(|thread| thread.home.filter(|_| thread.settled))
            .collect();
        let cost = |pus: &[Option<u32>]| self.cost(pus, domains, fixed, light);
        if cost(&new) < cost(&present) {
            new
        } else {
            present
        }
    }

    /// Which of the different sets of allowed domains each thread has, and these sets.
    fn reaches(&self, view: &View<'_>, domains: &Domains) -> (Vec<usize>, Vec<Vec<bool>>) {
        let mut sets: Vec<&PuSet> = Vec::new();
        let threads = self.threads.iter().map(|thread| {
            let allowed = &view.snapshot.threads[thread.candidate.at].allowed;
            let same = |set: &&&PuSet| set.is_subset(allowed) && allowed.is_subset(set);
            let known = sets.iter().enumerate().rev().find(|(_, set)| same(set));
            known.map(|(at, _)| at).unwrap_or_else(|| {
                sets.push(allowed);
                sets.len() - 1
            })
        });
        let reach_of = threads.collect();
        let reaches = sets.iter().map(|set| {
            let domains = domains.iter();
            domains
                .map(|domain| domain.pus.iter().any(|pu| set.contains(*pu)))
                .collect()
        });
        (reach_of, reaches.collect())
    }

    /// PUs within the domains: a thread's home if it is there, else the lowest free one.
    fn pus(
        &self,
        view: &View<'_>,
        domains: &Domains,
        fixed: &Fixed,
        spread: &[Option<usize>],
    ) -> Vec<Option<u32>> {
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); domains.len()];
        // Bound threads first: their wishes go before those of threads that merely were here.
        for settled in [true, false] {
            for (at, domain) in spread.iter().enumerate() {
                if let Some(domain) = domain.filter(|_| self.threads[at].settled == settled) {
                    members[domain].push(at);
                }
            }
        }
        let mut pus = vec![None; self.threads.len()];
        for (domain, members) in domains.iter().zip(&members) {
            let free = domain
                .pus
                .iter()
                .copied()
                .filter(|pu| !fixed.taken[*pu as usize]);
            let free: Vec<u32> = free.collect();
            let home = |at: &usize| self.threads[*at].home;
            let wishes: Vec<Option<usize>> = (members.iter())
                .map(|at| free.iter().position(|pu| Some(*pu) == home(at)))
                .collect();
            let slots = matching::assign(&wishes, free.len(), |member, slot| {
                let at = self.threads[members[member]].candidate.at;
                view.snapshot.threads[at].allowed.contains(free[slot])
            });
            for (at, slot) in members.iter().zip(slots) {
                pus[*at] = slot.map(|slot| free[slot]);
            }
        }
        pus
    }

    /// What is bad about a placement, worst first: FP-heavy threads without a PU, pairs of FP-heavy threads that share
    /// FP units, such pairs among the heaviest, light threads without a PU, pairs of any threads.
    ///
    /// Only a lower cost changes anything, so under the same observations a placement changes finitely often.
    fn cost(&self, pus: &[Option<u32>], domains: &Domains, fixed: &Fixed, light: u8) -> Vec<usize> {
        let unplaced = |heavy: bool| {
            let threads = self.threads.iter().zip(pus);
            let of_kind = threads.filter(|(thread, _)| (thread.level < light) == heavy);
            of_kind.filter(|(_, pu)| pu.is_none()).count()
        };
        let pairs =
            |loads: &[usize]| -> usize { loads.iter().map(|n| n * n.saturating_sub(1) / 2).sum() };
        let mut loads = fixed.heavy.clone();
        let mut levels = Vec::new();
        let mut from = 0;
        let mut fixed_light = Some(&fixed.light);
        while from < self.threads.len() {
            let level = self.threads[from].level;
            if level >= light {
                for (load, fixed) in loads
                    .iter_mut()
                    .zip(fixed_light.take().unwrap_or(&Vec::new()))
                {
                    *load += fixed;
                }
            }
            let to = from + self.threads[from..].partition_point(|thread| thread.level == level);
            for domain in pus[from..to]
                .iter()
                .flatten()
                .filter_map(|pu| domains.of(*pu))
            {
                loads[domain] += 1;
            }
            levels.push((level, pairs(&loads)));
            from = to;
        }
        let heaviest = levels.iter().rev().filter(|(level, _)| *level < light);
        let mut cost = vec![unplaced(true)];
        cost.extend(heaviest.map(|(_, pairs)| *pairs));
        cost.push(unplaced(false));
        cost.extend(
            levels
                .iter()
                .filter(|(level, _)| *level >= light)
                .map(|(_, pairs)| *pairs),
        );
        cost
    }

    fn explain(
        &self,
        view: &View<'_>,
        census: &Census,
        domains: &Domains,
        fixed: &Fixed,
        light: u8,
        pus: &[Option<u32>],
    ) -> Decision {
        let mut heavy = fixed.heavy.clone();
        for (thread, pu) in self.threads.iter().zip(pus) {
            let domain = pu.and_then(|pu| domains.of(pu));
            if let Some(domain) = domain.filter(|_| thread.level < light) {
                heavy[domain] += 1;
            }
        }
        let placed = self.threads.iter().zip(pus).filter_map(|(thread, pu)| {
            let (pu, at) = ((*pu)?, thread.candidate.at);
            let domain = domains.of(pu)?;
            let is_heavy = thread.level < light;
            let others = heavy[domain] - usize::from(is_heavy);
            let beside = match (others, is_heavy) {
                (0, true) => "no other FP-heavy thread".to_owned(),
                (0, false) => "no FP-heavy thread".to_owned(),
                (1, _) => "1 FP-heavy thread beside it".to_owned(),
                (n, _) => format!("{n} FP-heavy threads beside it"),
            };
            let text = format!(
                "FP-{}, rank {} of {}: {} (PU {pu}), {beside}; {}",
                if is_heavy { "heavy" } else { "light" },
                thread.rank + 1,
                census.ranked.len(),
                domains[domain].label,
                explain::movement(view.snapshot, at, view.present[at], pu, domains),
            );
            let reason = explain::numbers(Reason::new(text), thread.rank, &thread.candidate, pu);
            let reason = reason.with("fp_heavy_in_domain", heavy[domain] as f64);
            Some(Placed { at, pu, reason })
        });
        let kept = fixed.kept.iter().map(|&(at, pu)| Placed {
            at,
            pu,
            reason: Reason::new("its FP share is not known now: stays until it is")
                .with("activity", view.snapshot.threads[at].activity)
                .with("pu", f64::from(pu)),
        });
        Decision {
            placed: placed.chain(kept).collect(),
            nothing: None,
            busy: census.busy(),
            pus: domains.pus(),
        }
    }
}
