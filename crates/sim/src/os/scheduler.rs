//! The default Linux scheduler as a model: a queue a PU, time slices, wake-ups, load balance, a preference for idle
//! cores, and otherwise stickiness. It is the baseline with which all papers compare.
//!
//! Modelled after the fair class (CFS, kernel 6.1: `kernel/sched/fair.c`): `select_task_rq_fair` for wake-ups (previous
//! PU if its core is idle, an idle core near to it, an idle PU near to it, else the previous), `newidle_balance`, the
//! periodic `load_balance` with active balance from cores with two running threads to idle cores, and `sched_exec`/fork
//! balance to the idlest. Threads share a PU in proportion to the weights of their nice values, and loads are sums of the
//! weights of runnable threads.

use crate::{
    model::MachineModel,
    stream::Random,
    thread::{Thread, VirtualTime},
    units::Ps,
};

/// A thread: an index of the system's threads.
type Index = usize;

/// How the model is set. Times are in nanoseconds of the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerModel {
    /// From one timer tick to the next (`CONFIG_HZ=250`).
    pub tick: u64,
    /// How long a thread runs at least while others wait for its PU (`sched_min_granularity`, scaled by the number of
    /// PUs as the kernel does).
    pub slice: u64,
    /// From one periodic balance to the next.
    pub balance: u64,
    /// What a switch to another thread costs its PU.
    pub switch: u64,
}

impl Default for SchedulerModel {
    fn default() -> Self {
        Self {
            tick: 4_000_000,
            slice: 3_000_000,
            balance: 16_000_000,
            switch: 2_000,
        }
    }
}

/// Who has a PU, and who waits for it.
#[derive(Debug, Clone, Default)]
struct Queue {
    current: Option<Index>,
    /// Since when the current one has it.
    since: Ps,
    waiting: Vec<Index>,
    /// The virtual time of who had had the least when that was last asked: it never goes back (`min_vruntime`).
    floor: VirtualTime,
}

impl Queue {
    fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.current.is_some())
    }

    fn is_idle(&self) -> bool {
        self.len() == 0
    }
}

/// The queues of all PUs.
#[derive(Debug, Clone)]
pub struct Scheduler {
    /// How long a tick, slice and balance are on the machine, in picoseconds.
    tick: Ps,
    slice: Ps,
    balance: Ps,
    queues: Vec<Queue>,
    /// The PUs of each PU's core.
    siblings: Vec<Vec<u32>>,
    /// The PUs near to each PU: those that share its last cache, nearest first by number.
    near: Vec<Vec<u32>>,
    random: Random,
    next_tick: Ps,
    next_balance: Ps,
}

impl Scheduler {
    /// The scheduler of a machine; `random` breaks ties between PUs that are equally idle.
    pub fn new(machine: &MachineModel, model: SchedulerModel, random: Random) -> Self {
        let places = machine.places();
        let pus = places.len();
        let on_core = |core: usize| -> Vec<u32> {
            (0..pus as u32)
                .filter(|pu| places[*pu as usize].0 == core)
                .collect()
        };
        let siblings = places.iter().map(|(core, _)| on_core(*core)).collect();
        let last = machine.caches.iter().map(|cache| cache.level).max();
        let last = machine
            .caches
            .iter()
            .find(|cache| Some(cache.level) == last);
        let all: Vec<u32> = (0..pus as u32).collect();
        let near = all
            .iter()
            .map(|pu| {
                let group =
                    last.and_then(|level| level.shared_by.iter().find(|group| group.contains(pu)));
                group.cloned().unwrap_or_else(|| all.clone())
            })
            .collect();
        let on_machine = |ns: u64| machine.machine_time(ns).max(1);
        let tick = on_machine(model.tick);
        Self {
            tick,
            slice: on_machine(model.slice),
            balance: on_machine(model.balance),
            queues: vec![Queue::default(); pus],
            siblings,
            near,
            random,
            next_tick: tick,
            next_balance: tick,
        }
    }

    /// Who shall be on a PU.
    pub fn current(&self, pu: usize) -> Option<usize> {
        self.queues[pu].current
    }

    /// When the scheduler wants to be called again at the latest.
    pub fn next_tick(&self) -> Ps {
        self.next_tick
    }

    /// A new thread: to the idlest core, there to the idlest PU; which of equals is chance.
    pub fn start(&mut self, index: usize, threads: &mut [Thread], now: Ps) {
        let mut best = Vec::new();
        let mut least = (u64::MAX, u64::MAX);
        for pu in threads[index]
            .mask
            .iter()
            .filter(|pu| (*pu as usize) < self.queues.len())
        {
            let core: u64 = self.siblings[pu as usize]
                .iter()
                .map(|other| self.load(*other as usize, threads))
                .sum();
            let contexts = self.siblings[pu as usize].len() as u64;
            let load = (core * 64 / contexts, self.load(pu as usize, threads));
            if load < least {
                least = load;
                best.clear();
            }
            if load == least {
                best.push(pu);
            }
        }
        if !best.is_empty() {
            let chosen = best[self.random.below(best.len() as u64) as usize];
            // A thread gets no credit for the time before it was there: otherwise every new thread would come first.
            threads[index].virtual_time = self.floor(chosen, threads, now);
            self.enqueue(chosen, index, threads, now);
        }
    }

    /// A thread has something to do again.
    pub fn wake(&mut self, index: usize, threads: &mut [Thread], now: Ps) {
        let pu = self.choose(&threads[index]);
        let before = threads[index].last_pu;
        if before != pu {
            let floor = self.floor(before, threads, now);
            self.rebase(index, floor, pu, threads, now);
        }
        // It does not get back what it did not use, but comes before those that used their time.
        let earliest = self.floor(pu, threads, now) - self.slice as VirtualTime;
        let thread = &mut threads[index];
        thread.virtual_time = thread.virtual_time.max(earliest);
        self.enqueue(pu, index, threads, now);
    }

    /// Where a thread that wakes goes on.
    fn choose(&self, thread: &Thread) -> u32 {
        let allowed = |pu: &&u32| thread.mask.contains(**pu);
        let idle = |pu: &&u32| self.queues[**pu as usize].is_idle();
        let core_idle = |pu: &&u32| {
            self.siblings[**pu as usize]
                .iter()
                .all(|other| self.queues[*other as usize].is_idle())
        };
        let before = thread.last_pu;
        let first = thread.mask.first().unwrap_or(before);
        let before = if thread.mask.contains(before) {
            before
        } else {
            first
        };
        if core_idle(&&before) {
            return before;
        }
        let near = || self.near[before as usize].iter().filter(allowed);
        if let Some(pu) = near().find(core_idle) {
            return *pu;
        }
        if self.queues[before as usize].is_idle() {
            return before;
        }
        near().find(idle).copied().unwrap_or(before)
    }

    /// The least virtual time on a PU, of its threads and of those that had it before (`update_min_vruntime`).
    fn floor(&mut self, pu: u32, threads: &[Thread], now: Ps) -> VirtualTime {
        let queue = &mut self.queues[pu as usize];
        let members = queue.waiting.iter().chain(&queue.current);
        let least = members.map(|index| threads[*index].virtual_time_at(now));
        queue.floor = queue.floor.max(least.min().unwrap_or(queue.floor));
        queue.floor
    }

    /// Virtual times of different queues have nothing to do with each other: a thread that goes to another one is as far
    /// ahead of or behind its threads as it was of the others where it was, whose floor is given
    /// (`migrate_task_rq_fair`, `enqueue_entity`).
    fn rebase(
        &mut self,
        index: usize,
        floor: VirtualTime,
        to: u32,
        threads: &mut [Thread],
        now: Ps,
    ) {
        threads[index].virtual_time += self.floor(to, threads, now) - floor;
    }

    fn enqueue(&mut self, pu: u32, index: usize, threads: &mut [Thread], now: Ps) {
        let thread = &mut threads[index];
        if thread.last_pu != pu {
            thread.migrations += u64::from(thread.cpu_time > 0);
            thread.last_pu = pu;
        }
        thread.waiting_since = Some(now);
        let queue = &mut self.queues[pu as usize];
        queue.waiting.push(index);
        if queue.current.is_none() {
            self.pick(pu as usize, threads, now);
        }
    }

    /// A thread has nothing to do, or has ended: its PU goes to the next.
    pub fn stop(&mut self, index: usize, threads: &mut [Thread], now: Ps) {
        self.dequeue(index, threads, now);
        let pu = threads[index].last_pu as usize;
        if self.queues[pu].current.is_none() {
            self.pick(pu, threads, now);
        }
        if self.queues[pu].is_idle() {
            self.pull(pu, threads, now);
        }
    }

    /// Takes a thread off its queue, and gives the queue's floor while it was in it.
    fn dequeue(&mut self, index: usize, threads: &[Thread], now: Ps) -> VirtualTime {
        let pu = threads[index].last_pu;
        let floor = self.floor(pu, threads, now);
        let queue = &mut self.queues[pu as usize];
        queue.waiting.retain(|other| *other != index);
        if queue.current == Some(index) {
            queue.current = None;
        }
        floor
    }

    /// A mask was changed: a thread that may not stay moves away.
    pub fn masked(&mut self, index: usize, threads: &mut [Thread], now: Ps) {
        let thread = &threads[index];
        if !thread.is_runnable() || thread.mask.contains(thread.last_pu) {
            return;
        }
        let before = thread.last_pu;
        let floor = self.dequeue(index, threads, now);
        let pu = self.choose(&threads[index]);
        self.rebase(index, floor, pu, threads, now);
        self.enqueue(pu, index, threads, now);
        if self.queues[before as usize].current.is_none() {
            self.pick(before as usize, threads, now);
        }
    }

    /// The waiting thread that has had the least gets the PU.
    fn pick(&mut self, pu: usize, threads: &mut [Thread], now: Ps) {
        let queue = &mut self.queues[pu];
        let next = (0..queue.waiting.len())
            .min_by_key(|at| (threads[queue.waiting[*at]].virtual_time, queue.waiting[*at]));
        let Some(at) = next else { return };
        let index = queue.waiting.remove(at);
        queue.current = Some(index);
        queue.since = now;
        let thread = &mut threads[index];
        queue.floor = queue.floor.max(thread.virtual_time);
        if let Some(since) = thread.waiting_since.take() {
            thread.wait_time += now.saturating_sub(since);
        }
    }

    /// Whether no tick changes anything before a thread stops, wakes or gets another mask: no thread waits for a PU,
    /// and none may go from a crowded core to an idle one.
    pub fn is_still(&self, threads: &[Thread]) -> bool {
        let waits = |queue: &Queue| !queue.waiting.is_empty();
        !self.queues.iter().any(waits)
            && (0..self.queues.len()).all(|pu| self.crowded(pu, threads).is_none())
    }

    /// Ticks at which nothing happened are over.
    pub fn pass(&mut self, now: Ps) {
        self.next_tick = after(now, self.next_tick, self.tick);
        self.next_balance = after(now, self.next_balance, self.balance);
    }

    /// The timer: slices end, and now and then load is balanced.
    pub fn tick(&mut self, threads: &mut [Thread], now: Ps) {
        self.next_tick = after(now, self.next_tick, self.tick);
        for pu in 0..self.queues.len() {
            let queue = &mut self.queues[pu];
            let over = now.saturating_sub(queue.since) >= self.slice;
            if let Some(index) = queue.current
                && over
                && queue
                    .waiting
                    .iter()
                    .any(|other| threads[*other].virtual_time < threads[index].virtual_time)
            {
                queue.current = None;
                queue.waiting.push(index);
                threads[index].waiting_since = Some(now);
                threads[index].switches += 1;
                self.pick(pu, threads, now);
            }
        }
        if self.next_balance <= now {
            self.next_balance = now + self.balance;
            self.balance(threads, now);
        }
    }

    fn balance(&mut self, threads: &mut [Thread], now: Ps) {
        for pu in 0..self.queues.len() {
            self.pull(pu, threads, now);
            self.spread(pu, threads, now);
        }
    }

    /// The weights of a PU's runnable threads.
    fn load(&self, pu: usize, threads: &[Thread]) -> u64 {
        let queue = &self.queues[pu];
        let members = queue.waiting.iter().chain(&queue.current);
        members
            .map(|index| u64::from(threads[*index].weight()))
            .sum()
    }

    /// Takes a waiting thread from the PU with the greatest load, if this PU is idle or has no greater load with the thread
    /// than the other one without.
    fn pull(&mut self, pu: usize, threads: &mut [Thread], now: Ps) {
        let idle = self.queues[pu].is_idle();
        let mine = self.load(pu, threads);
        let evens = |index: &Index, load: u64| {
            let weight = u64::from(threads[*index].weight());
            idle || load >= mine + 2 * weight
        };
        let busiest = (0..self.queues.len())
            .filter(|other| self.queues[*other].len() >= 2)
            .map(|other| (self.load(other, threads), other))
            .filter(|(load, other)| {
                let mut waiting = self.queues[*other].waiting.iter();
                waiting.any(|index| evens(index, *load))
            })
            .max_by_key(|(load, other)| (*load, std::cmp::Reverse(*other)));
        let Some((load, from)) = busiest else { return };
        let movable = self.queues[from]
            .waiting
            .iter()
            .copied()
            .find(|index| threads[*index].mask.contains(pu as u32) && evens(index, load));
        if let Some(index) = movable {
            let floor = self.dequeue(index, threads, now);
            let waiting = threads[index].waiting_since;
            self.rebase(index, floor, pu as u32, threads, now);
            self.enqueue(pu as u32, index, threads, now);
            // It has waited elsewhere already.
            if threads[index].waiting_since.is_some() {
                threads[index].waiting_since = waiting;
            } else if let Some(since) = waiting {
                threads[index].wait_time += now.saturating_sub(since);
            }
        }
    }

    /// Active balance: a PU of an idle core takes a running thread from a core that has several.
    fn spread(&mut self, pu: usize, threads: &mut [Thread], now: Ps) {
        if let Some((from, index)) = self.crowded(pu, threads) {
            let floor = self.dequeue(index, threads, now);
            threads[index].switches += 1;
            self.rebase(index, floor, pu as u32, threads, now);
            self.enqueue(pu as u32, index, threads, now);
            self.pick(from, threads, now);
        }
    }

    /// If the core of a PU is idle: another PU whose core has several running threads, and its one that may go here.
    fn crowded(&self, pu: usize, threads: &[Thread]) -> Option<(usize, Index)> {
        let idle = |other: &u32| self.queues[*other as usize].is_idle();
        if !self.siblings[pu].iter().all(idle) {
            return None;
        }
        (0..self.queues.len()).find_map(|other| {
            let index = self.queues[other].current?;
            let runs = |pu: &&u32| self.queues[**pu as usize].current.is_some();
            let running = self.siblings[other].iter().filter(runs).count();
            let may_go = running >= 2 && threads[index].mask.contains(pu as u32);
            may_go.then_some((other, index))
        })
    }

    /// Whether all PUs are idle.
    pub fn is_idle(&self) -> bool {
        self.queues.iter().all(Queue::is_idle)
    }
}

/// The first moment after `now` of those that come with this step from `next` on.
fn after(now: Ps, next: Ps, step: Ps) -> Ps {
    match next > now {
        true => next,
        false => next + ((now - next) / step + 1) * step,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Ticks and balances come when they would have come if none had been left out.
        #[test]
        fn ticks_that_are_left_out_do_not_shift_those_that_follow(moments in proptest::collection::vec(1u64..100, 1..20)) {
            let machine = crate::config::find_machine("core2-quad").unwrap();
            let model = SchedulerModel::default();
            let mut passed = Scheduler::new(&machine, model, Random::new(1));
            let mut ticked = passed.clone();
            let mut now = 0;
            for step in moments {
                now += step * passed.tick / 7;
                passed.pass(now);
                while ticked.next_tick() <= now {
                    let tick = ticked.next_tick();
                    ticked.tick(&mut [], tick);
                }
                prop_assert_eq!(passed.next_tick(), ticked.next_tick());
                prop_assert_eq!(passed.next_balance, ticked.next_balance);
            }
        }
    }
}
