//! How PUs balance the numbers of their threads, within scheduling domains (`rebalance_tick`, `load_balance`,
//! `find_busiest_group`, `move_tasks`).

use super::{ConstantTime, queue::LOAD};
use crate::{os::scheduler::Index, thread::Thread, units::Ps};

/// How a domain is balanced (include/linux/topology.h, include/asm-i386/topology.h).
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// Milliseconds between two balances of an idle PU, at least and at most.
    interval: (u64, u64),
    /// A PU that has threads balances this many times more rarely.
    busy: u64,
    /// Percent of a group's load that another's must exceed.
    percent: u64,
    /// A thread that ran less than this many microseconds ago stays where it is.
    hot: u64,
    /// After this many tries in vain, hot threads are moved too; after two more, running ones.
    patience: u32,
    /// Whether a PU that becomes idle takes threads from the domain.
    new_idle: bool,
}

/// The PUs of a core (`SD_SIBLING_INIT`).
const CORE: Rules = Rules {
    interval: (1, 2),
    busy: 8,
    percent: 110,
    hot: 0,
    patience: 0,
    new_idle: true,
};

/// The cores of a node (`SD_CPU_INIT`).
const NODE: Rules = Rules {
    interval: (1, 4),
    busy: 64,
    percent: 125,
    hot: 2_500,
    patience: 1,
    new_idle: true,
};

/// The nodes of a machine (`SD_NODE_INIT`).
const MACHINE: Rules = Rules {
    interval: (8, 32),
    busy: 32,
    percent: 125,
    hot: 10_000,
    patience: 1,
    new_idle: false,
};

/// How a PU has balanced a domain so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tries {
    /// The tick of the last time.
    last: u64,
    /// Milliseconds until the next; 0 before the first.
    interval: u64,
    /// How many times in a row it wanted to move threads and could not.
    failed: u32,
}

impl Tries {
    /// Ticks up to this one have passed in which there was nothing to balance.
    pub fn pass(&mut self, ticks: u64) {
        (self.last, self.failed) = (ticks, 0);
    }
}

/// Why a domain is balanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Idle,
    Busy,
    BecomesIdle,
}

impl ConstantTime {
    fn rules(&self, level: usize) -> Rules {
        let nodes = self.levels.len() - usize::from(self.core_level.is_some()) > 1;
        match Some(level) == self.core_level {
            true => CORE,
            false if nodes && level + 1 == self.levels.len() => MACHINE,
            false => NODE,
        }
    }

    /// Balances the domains of a PU of which it is time, at a tick.
    pub(super) fn balance(&mut self, pu: usize, threads: &mut [Thread], now: Ps) {
        self.queues[pu].age_load();
        let pus = self.queues.len() as u64;
        // Not all of them at once.
        let tick = self.ticks + 1_000 * pu as u64 / pus;
        let mut why = match self.queues[pu].current {
            Some(_) => Why::Busy,
            None => Why::Idle,
        };
        for level in 0..self.levels.len() {
            let rules = self.rules(level);
            let tries = &mut self.tries[level][pu];
            tries.interval = tries.interval.max(rules.interval.0);
            let interval = match why {
                Why::Busy => tries.interval * rules.busy,
                _ => tries.interval,
            };
            if tick.saturating_sub(tries.last) < interval {
                continue;
            }
            // Once after a time in which it was not asked.
            tries.last = tick - tick.saturating_sub(tries.last) % interval;
            if self.balance_level(level, pu, why, threads, now) {
                why = Why::Busy;
            }
        }
    }

    /// Whether threads came (`load_balance`).
    fn balance_level(
        &mut self,
        level: usize,
        pu: usize,
        why: Why,
        threads: &mut [Thread],
        now: Ps,
    ) -> bool {
        let rules = self.rules(level);
        let Some((busiest, number)) = self.busiest(level, pu, why) else {
            let tries = &mut self.tries[level][pu];
            if tries.interval < rules.interval.1 {
                tries.interval *= 2;
            }
            return false;
        };
        let mut moved = 0;
        if self.queues[busiest].len() > 1 {
            moved = self.move_threads(level, busiest, pu, number, threads, now);
        }
        let tries = &mut self.tries[level][pu];
        if moved > 0 {
            (tries.failed, tries.interval) = (0, rules.interval.0);
            return true;
        }
        tries.failed += 1;
        if tries.interval < rules.interval.1 {
            tries.interval += 1;
        }
        if tries.failed > rules.patience + 2 {
            tries.failed = rules.patience;
            self.push_running(busiest, threads, now);
        }
        false
    }

    /// A PU without threads takes some from others (`idle_balance`).
    pub(super) fn balance_new_idle(&mut self, pu: usize, threads: &mut [Thread], now: Ps) {
        for level in 0..self.levels.len() {
            if !self.rules(level).new_idle {
                continue;
            }
            if let Some((busiest, number)) = self.busiest(level, pu, Why::BecomesIdle)
                && self.move_threads(level, busiest, pu, number, threads, now) > 0
            {
                return;
            }
        }
    }

    /// What a group of PUs can do: a core of two PUs a tenth more than one (`cpu_power`).
    fn power(&self, group: &[u32]) -> u64 {
        let of = |pu: &u32| match self.core_level {
            Some(level) if group.len() > 1 => {
                let siblings = self.levels[level].domain(*pu as usize).weight() as u64;
                (LOAD + LOAD * (siblings - 1) / 10) / siblings
            }
            _ => LOAD,
        };
        group.iter().map(of).sum()
    }

    /// The PU from which threads should come, and how many (`find_busiest_group`, `find_busiest_queue`).
    fn busiest(&self, level: usize, pu: usize, why: Why) -> Option<(usize, u64)> {
        let (rules, level) = (self.rules(level), &self.levels[level]);
        let mut busiest: Option<(u64, &[u32])> = None;
        let (mut own, mut total, mut all_power) = (0, 0, 0);
        for group in &level.domain(pu).groups {
            let is_own = group.contains(&(pu as u32));
            let load = group.iter().map(|pu| match is_own {
                true => self.queues[*pu as usize].target_load(),
                false => self.queues[*pu as usize].source_load(),
            });
            let (load, power) = (load.sum::<u64>(), self.power(group));
            (total, all_power) = (total + load, all_power + power);
            let load = load * LOAD / power;
            if is_own {
                own = load;
            } else if load > busiest.map_or(0, |(most, _)| most) {
                busiest = Some((load, group));
            }
        }
        let (most, group) = busiest?;
        let number = self.imbalance(
            rules,
            (most, group),
            (own, level.group(pu)),
            LOAD * total / all_power,
        );
        let number = match number {
            0 if why == Why::BecomesIdle || why == Why::Idle && most > LOAD => 1,
            number => number,
        };
        let busiest = group
            .iter()
            .map(|pu| *pu as usize)
            .filter(|other| self.queues[*other].source_load() > 0)
            .rev()
            .max_by_key(|other| self.queues[*other].source_load())?;
        (number > 0).then_some((busiest, number))
    }

    /// How many threads should come from a group with this load to that with another one; the domain's is `average`.
    fn imbalance(
        &self,
        rules: Rules,
        (most, from): (u64, &[u32]),
        (own, to): (u64, &[u32]),
        average: u64,
    ) -> u64 {
        if own >= most || own >= average || 100 * most <= rules.percent * own {
            return 0;
        }
        let (from, to) = (self.power(from), self.power(to));
        let imbalance = (most.saturating_sub(average)).min(average - own) * from.min(to) / LOAD;
        if imbalance >= LOAD - 1 {
            return (imbalance + 1) / LOAD;
        }
        if most - own >= 2 * LOAD {
            return 1;
        }
        // One thread, if more of what the groups can do is used then.
        let used = |power: u64, load: u64| power * load.min(LOAD);
        let before = (used(from, most) + used(to, own)) / LOAD;
        let (less, more) = (LOAD * LOAD / from, (LOAD * LOAD / to).min(most));
        let after = (used(from, most.saturating_sub(less)) + used(to, own + more)) / LOAD;
        u64::from(after >= before + LOAD / 8)
    }

    /// Whether no PU finds threads that should come to it, once loads have settled.
    pub(super) fn is_balanced(&self) -> bool {
        let settled = |pu: usize| self.queues[pu].load == self.queues[pu].len() as u64 * LOAD;
        let pus = 0..self.queues.len();
        pus.clone().all(settled)
            && pus.into_iter().all(|pu| {
                let why = match self.queues[pu].len() {
                    0 => Why::Idle,
                    _ => Why::Busy,
                };
                (0..self.levels.len()).all(|level| self.busiest(level, pu, why).is_none())
            })
    }

    /// Whether a PU and its core are idle.
    fn is_core_idle(&self, pu: usize) -> bool {
        let core = self.core(pu);
        core.iter().all(|pu| self.queues[*pu as usize].len() == 0)
    }

    /// Moves up to this many threads that do not run: those that expired first.
    fn move_threads(
        &mut self,
        level: usize,
        from: usize,
        to: usize,
        number: u64,
        threads: &mut [Thread],
        now: Ps,
    ) -> u64 {
        let rules = self.rules(level);
        let eager = self.is_core_idle(to) || self.tries[level][to].failed > rules.patience;
        let hot = rules.hot * self.tick / 1_000;
        let queue = &self.queues[from];
        let all = queue
            .expired
            .to_be_moved()
            .chain(queue.active.to_be_moved());
        let may = |index: &Index| {
            let ran = self.tasks[*index].as_ref().map_or(0, |task| task.ran);
            queue.current != Some(*index)
                && threads[*index].mask.contains(to as u32)
                && (eager || now.saturating_sub(ran) >= hot)
        };
        let chosen: Vec<Index> = all.filter(may).take(number as usize).collect();
        for index in &chosen {
            self.transfer(*index, from, to, threads, now);
        }
        chosen.len() as u64
    }

    /// The running thread of a PU goes to a core that is idle (`active_load_balance`).
    fn push_running(&mut self, from: usize, threads: &mut [Thread], now: Ps) {
        for level in 0..self.levels.len() {
            let pus: Vec<u32> = self.levels[level].domain(from).pus().collect();
            for to in pus {
                let to = to as usize;
                let Some(index) = self.queues[from].current else {
                    return;
                };
                let may = threads[index].mask.contains(to as u32);
                if to != from && may && self.is_core_idle(to) {
                    self.transfer(index, from, to, threads, now);
                    return;
                }
            }
        }
    }

    fn transfer(&mut self, index: Index, from: usize, to: usize, threads: &mut [Thread], now: Ps) {
        let place = self.place_of(index);
        let had = self.take_off_keeping(index, from, now);
        threads[index].switches += u64::from(had);
        threads[index].queued(to as u32, now);
        if let Some(task) = &mut self.tasks[index] {
            self.queues[to].push_to(index, task, place);
        }
        if self.preempts(index, to) {
            self.schedule(to, threads, now);
        }
        if had {
            self.schedule(from, threads, now);
        }
    }

    /// Takes a thread off its queue; one that waits goes on waiting since when it did.
    fn take_off_keeping(&mut self, index: Index, pu: usize, now: Ps) -> bool {
        let since = self.tasks[index].as_ref().map(|task| task.since);
        let had = self.take_off(index, pu, now);
        if let (Some(task), Some(since), false) = (&mut self.tasks[index], since, had) {
            task.since = since;
        }
        had
    }
}
