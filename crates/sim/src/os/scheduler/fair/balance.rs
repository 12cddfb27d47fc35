//! Load balance between the groups of scheduling domains (`load_balance`, `find_busiest_group`, `calculate_imbalance`,
//! `detach_tasks`).

use super::{
    FairScheduler, Index,
    capacity::{Capacities, FULL},
    domains::Level,
};
use crate::{thread::Thread, units::Ps};

/// A PU that has threads balances this many times more rarely (`busy_factor`).
const BUSY: u64 = 16;

/// After more failed tries than that, a running thread is moved (`cache_nice_tries` + 2).
const TRIES: u32 = 3;

/// Between NUMA nodes, a difference of so few threads may stay (`NUMA_IMBALANCE_MIN`).
const NUMA_DIFFERENCE: u64 = 2;

/// How a PU has balanced a domain so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tries {
    /// The tick of the last time.
    last: u64,
    /// How many times in a row it wanted to move threads and could not (`nr_balance_failed`).
    failed: u32,
}

/// What there is in a group of PUs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub pus: u64,
    /// PUs without a thread.
    pub idle: u64,
    /// Runnable threads.
    pub threads: u64,
    /// Their weights.
    pub load: u64,
    /// What its PUs have, together, at least and at most.
    pub capacity: u64,
    pub least: u64,
    pub most: u64,
    /// The greatest weight of a running thread that needs more than its PU has.
    pub misfit: u64,
}

/// How full a group is (`group_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fill {
    Spare,
    Busy,
    Misfit,
    Overloaded,
}

impl Tally {
    fn fill(&self) -> Fill {
        match self.threads.cmp(&self.pus) {
            std::cmp::Ordering::Greater => Fill::Overloaded,
            _ if self.misfit > 0 => Fill::Misfit,
            std::cmp::Ordering::Equal => Fill::Busy,
            std::cmp::Ordering::Less => Fill::Spare,
        }
    }

    /// Weights for the capacity of a PU of the fastest kind.
    fn mean(&self) -> u64 {
        self.load * FULL / self.capacity.max(1)
    }

    fn add(&mut self, other: &Self) {
        self.pus += other.pus;
        self.idle += other.idle;
        self.threads += other.threads;
        self.load += other.load;
        self.least = match self.capacity {
            0 => other.least,
            _ => self.least.min(other.least),
        };
        self.capacity += other.capacity;
        self.most = self.most.max(other.most);
        self.misfit = self.misfit.max(other.misfit);
    }
}

/// What is to be moved to even out two groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Imbalance {
    Threads(u64),
    /// Threads of that weight together.
    Load(u64),
    /// A thread that needs more than its PU has.
    Misfit,
}

/// What a group should take from a busier one; `all` is their whole domain.
fn imbalance(
    level: &Level,
    here: &Tally,
    there: &Tally,
    all: &Tally,
    idle: bool,
) -> Option<Imbalance> {
    let (filled, busiest) = (here.fill(), there.fill());
    if busiest == Fill::Misfit {
        return Some(Imbalance::Misfit);
    }
    if filled > busiest {
        return None;
    }
    let by_load = filled >= Fill::Busy;
    if by_load && (here.mean() >= there.mean() || here.mean() >= all.mean()) {
        return None;
    }
    if filled == Fill::Overloaded && 100 * there.mean() <= level.percent * here.mean() {
        return None;
    }
    let spreads = level.spreads && filled == Fill::Spare && there.threads > here.threads + 1;
    if !spreads && busiest < Fill::Overloaded {
        let as_idle = there.pus > 1 && here.idle <= there.idle + 1;
        if !idle || as_idle || there.threads <= 1 {
            return None;
        }
    }
    if by_load {
        let above = (there.mean() - all.mean().min(there.mean())) * there.capacity / FULL;
        let below = (all.mean() - here.mean()) * here.capacity / FULL;
        return Some(Imbalance::Load(above.min(below)));
    }
    if busiest == Fill::Overloaded && !level.shares_cache {
        return Some(Imbalance::Threads(here.pus - here.threads));
    }
    let difference = match level.spreads || there.pus == 1 {
        true => there.threads.saturating_sub(here.threads),
        false => here.idle.saturating_sub(there.idle),
    };
    let stays = |most: u64| here.threads < most && difference <= NUMA_DIFFERENCE;
    let threads = match level.numa.is_some_and(stays) {
        true => 0,
        false => difference / 2,
    };
    (threads > 0).then_some(Imbalance::Threads(threads))
}

impl FairScheduler {
    /// What there is in a group; of threads that need more than their PU has, if `misfits`.
    pub(super) fn tally(&self, group: &[u32], threads: &[Thread], misfits: bool) -> Tally {
        let mut tally = Tally::default();
        for pu in group {
            let queue = &self.queues[*pu as usize];
            tally.add(&Tally {
                pus: 1,
                idle: u64::from(queue.is_idle()),
                threads: queue.len() as u64,
                load: queue.load(threads),
                capacity: self.capacity(*pu),
                least: self.capacity(*pu),
                most: self.capacity(*pu),
                misfit: match misfits {
                    true => self.misfit(*pu, threads),
                    false => 0,
                },
            });
        }
        tally
    }

    /// From one balance to the next, in ticks: a millisecond for each PU of the domain, if the PU is idle
    /// (`get_sd_balance_interval`).
    fn interval(&self, level: usize, pu: usize) -> u64 {
        let weight = self.levels[level].domain(pu).weight() as f64;
        let idle = ((weight * self.pace).ceil() as u64).max(1);
        match self.queues[pu].is_idle() {
            true => idle,
            false => idle * BUSY,
        }
    }

    /// Of each group one PU balances: the first idle one, or the first (`should_we_balance`).
    fn is_due(&self, level: usize, pu: usize) -> bool {
        if self.ticks < self.tries[level][pu].last + self.interval(level, pu) {
            return false;
        }
        self.balances(level, pu)
    }

    fn balances(&self, level: usize, pu: usize) -> bool {
        let group = self.levels[level].group(pu);
        let idle = group.iter().find(|pu| self.queues[**pu as usize].is_idle());
        idle.or(group.first()) == Some(&(pu as u32))
    }

    /// What the timer does.
    pub(super) fn balance(&mut self, pu: usize, threads: &mut [Thread], now: Ps) {
        for level in 0..self.levels.len() {
            if !self.is_due(level, pu) {
                continue;
            }
            self.tries[level][pu].last = self.ticks;
            let idle = self.queues[pu].is_idle();
            let Some((group, imbalance)) = self.busiest(level, pu, idle, false, threads) else {
                self.tries[level][pu].failed = 0;
                continue;
            };
            if self.take(level, pu, group, imbalance, threads, now) {
                self.tries[level][pu].failed = 0;
                continue;
            }
            let failed = &mut self.tries[level][pu].failed;
            *failed += 1;
            let moves = *failed > TRIES && matches!(imbalance, Imbalance::Threads(_));
            if moves && idle {
                self.take_running(level, pu, group, threads, now);
            }
        }
    }

    /// Ticks of a PU after the one given are over, at which no thread had to be moved.
    pub(super) fn pass_balances(&mut self, pu: usize, before: u64) {
        for level in 0..self.levels.len() {
            let interval = self.interval(level, pu);
            let first = (self.tries[level][pu].last + interval).max(before + 1);
            if first <= self.ticks && self.balances(level, pu) {
                let last = first + (self.ticks - first) / interval * interval;
                self.tries[level][pu] = Tries { last, failed: 0 };
            }
        }
    }

    /// A PU has just become idle: it looks at near PUs first (`newidle_balance`).
    pub(super) fn balance_new_idle(&mut self, pu: usize, threads: &mut [Thread], now: Ps) {
        for level in 0..self.levels.len() {
            let Some((group, imbalance)) = self.busiest(level, pu, true, true, threads) else {
                continue;
            };
            let wanted = match imbalance {
                Imbalance::Misfit => Imbalance::Misfit,
                Imbalance::Threads(_) | Imbalance::Load(_) => Imbalance::Threads(1),
            };
            if self.take(level, pu, group, wanted, threads, now) {
                return;
            }
        }
    }

    /// Whether an idle PU will take a running thread from a fuller group.
    pub(super) fn spreads(&self, threads: &[Thread]) -> bool {
        (0..self.levels.len()).any(|level| {
            (0..self.queues.len()).any(|pu| {
                self.queues[pu].is_idle()
                    && self.balances(level, pu)
                    && self.busiest(level, pu, true, false, threads).is_some()
            })
        })
    }

    /// The group of a PU's domain from which it should take threads that may run there, and how many.
    fn busiest(
        &self,
        level: usize,
        pu: usize,
        idle: bool,
        waiting_only: bool,
        threads: &[Thread],
    ) -> Option<(usize, Imbalance)> {
        let of = &self.levels[level];
        let (domain, own) = of.place[pu];
        let groups = &of.domains[domain].groups;
        // It does not ask whether its own group's threads need more (`update_sg_lb_stats`).
        let here = self.tally(&groups[own], threads, false);
        let mut all = here;
        let mut busiest: Option<(usize, Tally)> = None;
        for (number, group) in groups
            .iter()
            .enumerate()
            .filter(|(number, _)| *number != own)
        {
            let tally = self.tally(group, threads, of.asymmetric);
            all.add(&tally);
            let fuller = |than: &Tally| match tally.fill().cmp(&than.fill()) {
                std::cmp::Ordering::Equal => match tally.fill() {
                    Fill::Spare => (than.idle, tally.threads) > (tally.idle, than.threads),
                    Fill::Misfit => tally.misfit > than.misfit,
                    Fill::Busy | Fill::Overloaded => tally.mean() > than.mean(),
                },
                other => other.is_gt(),
            };
            let running_too = !waiting_only || tally.fill() == Fill::Misfit;
            if tally.threads > 0
                && self.may_help(pu as u32, &here, &tally, of)
                && busiest.as_ref().is_none_or(|(_, than)| fuller(than))
                && self.may_come(group, pu, !running_too, threads)
            {
                busiest = Some((number, tally));
            }
        }
        let (group, there) = busiest?;
        let imbalance = imbalance(of, &here, &there, &all, idle)?;
        Some((group, imbalance))
    }

    /// Whether threads of a group are better off on a PU, as far as capacities go (`update_sd_pick_busiest`): one that needs
    /// more than it has only on a greater PU with room, and one that has a PU for itself not on a smaller one.
    fn may_help(&self, pu: u32, here: &Tally, there: &Tally, level: &Level) -> bool {
        let Some(capacities) = self.capacities.as_ref().filter(|_| level.asymmetric) else {
            return true;
        };
        match there.fill() {
            Fill::Misfit => here.fill() == Fill::Spare && capacities.is_greater(pu, there.most),
            Fill::Spare | Fill::Busy => {
                let own = capacities.of(pu);
                there.least * 1024 <= own * 1078
            }
            Fill::Overloaded => true,
        }
    }

    /// Whether any thread of these PUs may run on that one.
    fn may_come(&self, group: &[u32], pu: usize, waiting_only: bool, threads: &[Thread]) -> bool {
        group.iter().any(|other| {
            let queue = &self.queues[*other as usize];
            let running = queue.current.filter(|_| !waiting_only);
            let mut members = queue.waiting.iter().copied().chain(running);
            members.any(|index| threads[index].mask.contains(pu as u32))
        })
    }

    /// Takes threads from a group. Whether it got any.
    fn take(
        &mut self,
        level: usize,
        pu: usize,
        group: usize,
        imbalance: Imbalance,
        threads: &mut [Thread],
        now: Ps,
    ) -> bool {
        match imbalance {
            Imbalance::Misfit => self.take_misfit(level, pu, group, threads, now),
            Imbalance::Threads(_) | Imbalance::Load(_) => {
                self.take_waiting(level, pu, group, imbalance, threads, now)
            }
        }
    }

    /// Takes waiting threads from the fullest queues of a group. Whether it got any.
    fn take_waiting(
        &mut self,
        level: usize,
        pu: usize,
        group: usize,
        mut imbalance: Imbalance,
        threads: &mut [Thread],
        now: Ps,
    ) -> bool {
        let failed = self.tries[level][pu].failed.min(u64::BITS - 1);
        let mut got = false;
        loop {
            let pus = &self.levels[level].domain(pu).groups[group];
            // The more often it failed, the more weight it takes at a time. So the PUs share the load of a thread that is one
            // too many.
            let fits = |index: &Index| {
                let thread = &threads[*index];
                thread.mask.contains(pu as u32)
                    && match imbalance {
                        Imbalance::Threads(threads) => threads > 0,
                        Imbalance::Load(load) => u64::from(thread.weight()) >> failed <= load,
                        Imbalance::Misfit => false,
                    }
            };
            let next = pus.iter().filter_map(|other| {
                let queue = &self.queues[*other as usize];
                let index = queue.waiting.iter().copied().find(fits)?;
                let full = match imbalance {
                    Imbalance::Threads(_) | Imbalance::Misfit => queue.len() as u64,
                    Imbalance::Load(_) => queue.load(threads),
                };
                Some((full, std::cmp::Reverse(*other), index))
            });
            let Some((.., index)) = next.max() else {
                return got;
            };
            got = true;
            let weight = u64::from(threads[index].weight());
            self.transfer(index, pu as u32, threads, now);
            imbalance = match imbalance {
                Imbalance::Threads(threads) if threads > 1 => Imbalance::Threads(threads - 1),
                Imbalance::Load(load) if load > weight => Imbalance::Load(load - weight),
                _ => return true,
            };
        }
    }

    /// Active balance: an idle PU takes a running thread from the fullest core of a group.
    fn take_running(
        &mut self,
        level: usize,
        pu: usize,
        group: usize,
        threads: &mut [Thread],
        now: Ps,
    ) {
        let pus = &self.levels[level].domain(pu).groups[group];
        let capacities = self.capacities.as_ref();
        let capacities = capacities.filter(|_| self.levels[level].asymmetric);
        let running = pus.iter().filter_map(|other| {
            let queue = &self.queues[*other as usize];
            let index = queue.current?;
            // A thread that is alone does not go to a smaller PU (`find_busiest_queue`).
            let greater = |all: &Capacities| all.is_greater(pu as u32, all.of(*other));
            (queue.len() > 1 || capacities.is_none_or(greater)).then_some(())?;
            let on_core = self.siblings(*other);
            let on_core = on_core.filter(|pu| self.queues[*pu as usize].current.is_some());
            threads[index]
                .mask
                .contains(pu as u32)
                .then(|| (on_core.count(), std::cmp::Reverse(*other), index))
        });
        if let Some((.., index)) = running.max() {
            self.transfer(index, pu as u32, threads, now);
        }
    }

    /// Takes a thread that needs more than its PU has: of the PU whose running thread is the heaviest of these, a waiting
    /// one, else that one (`migrate_misfit`, `need_active_balance`). Whether it got one.
    fn take_misfit(
        &mut self,
        level: usize,
        pu: usize,
        group: usize,
        threads: &mut [Thread],
        now: Ps,
    ) -> bool {
        let Some(capacities) = &self.capacities else {
            return false;
        };
        let pus = &self.levels[level].domain(pu).groups[group];
        let heaviest = pus.iter().filter_map(|other| {
            let queue = &self.queues[*other as usize];
            let wants = |index: &Index| {
                threads[*index].mask.contains(pu as u32) && !capacities.fits(*index, *other)
            };
            let mut members = queue.waiting.iter().copied().chain(queue.current);
            let index = members.find(wants)?;
            let weight = self.misfit(*other, threads);
            (weight > 0).then_some((weight, std::cmp::Reverse(*other), index))
        });
        let Some((.., index)) = heaviest.max() else {
            return false;
        };
        self.transfer(index, pu as u32, threads, now);
        true
    }
}
