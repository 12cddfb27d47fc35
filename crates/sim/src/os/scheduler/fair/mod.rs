//! The default Linux scheduler as a model: the baseline with which all papers compare.
//!
//! Modelled after the fair class of kernel 6.1 (`kernel/sched/fair.c`, CFS): a queue a PU in the order of virtual run time
//! ([`queue`]), the places of threads that start or wake ([`place`]), and load balance between PUs without work, in
//! intervals, and by moving running threads ([`balance`]), all within scheduling domains ([`domains`]). Threads share a PU
//! in proportion to the weights of their nice values, and loads are sums of the weights of runnable threads.
//!
//! A machine may have the fair class of kernel 6.12 instead (EEVDF, [`eevdf`]), which orders the threads of a PU in another
//! way; all else is the same. Where its cores have different capacities, threads that need more than theirs has go to
//! greater ones ([`capacity`]).
//!
//! Not modelled: utilisation elsewhere (for the balance, a thread that is runnable counts as one that runs all the time),
//! energy-aware placement, which thread wakes which (a thread wakes near where it ran), and how long a thread's data stay
//! in caches.

mod balance;
mod capacity;
pub(super) mod domains;
mod eevdf;
mod place;
mod queue;

use super::{Index, SchedulerModel};
use crate::{
    model::{MachineModel, SchedulerKind},
    stream::Random,
    thread::{Thread, VirtualTime},
    units::Ps,
};
use balance::Tries;
use capacity::Capacities;
use domains::{Level, levels};
use queue::Queue;

/// The same on a machine, in its time.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// As since Linux 6.6.
    eevdf: bool,
    tick: Ps,
    latency: Ps,
    shortest: Ps,
    wakeup: Ps,
}

impl Times {
    fn new(machine: &MachineModel, model: SchedulerModel) -> Self {
        let factor = 1 + u64::from(machine.pus().clamp(1, 8).ilog2());
        let scaled = |ns: u64| machine.machine_time(ns).max(1);
        Self {
            eevdf: machine.scheduler == SchedulerKind::Eevdf,
            tick: scaled(model.tick),
            latency: scaled(model.latency * factor),
            shortest: scaled(model.granularity * factor),
            wakeup: scaled(model.wakeup * factor),
        }
    }
}

/// The queues of all PUs.
#[derive(Debug, Clone)]
pub struct FairScheduler {
    times: Times,
    queues: Vec<Queue>,
    levels: Vec<Level>,
    /// Those of its PUs, if they differ.
    capacities: Option<Capacities>,
    /// The level of cores, if any has several PUs.
    core_level: Option<usize>,
    /// The level of last caches, if any is shared.
    cache_level: Option<usize>,
    /// By level and PU.
    tries: Vec<Vec<Tries>>,
    random: Random,
    /// The next tick of the first PU, or the last one while others have not had theirs.
    next_tick: Ps,
    /// By how much a PU has its ticks later than the PU before it.
    skew: Ps,
    /// With a skew: the PU that has its tick next.
    turn: usize,
    /// Ticks so far, of the first PU.
    ticks: u64,
    /// Ticks in a millisecond, by which intervals between balances grow with the PUs of a domain.
    pace: f64,
}

impl FairScheduler {
    /// The scheduler of a machine; `random` breaks ties between PUs that are equally idle.
    pub fn new(machine: &MachineModel, model: SchedulerModel, random: Random) -> Self {
        let pus = machine.pus();
        let levels = levels(machine);
        let times = Times::new(machine, model);
        Self {
            times,
            queues: vec![Queue::default(); pus],
            core_level: (machine.cores.len() < pus).then_some(0),
            cache_level: levels.iter().rposition(|level| level.shares_cache),
            tries: vec![vec![Tries::default(); pus]; levels.len()],
            levels,
            capacities: Capacities::new(machine),
            random,
            next_tick: times.tick,
            // Half a tick, divided among all (`tick_setup_sched_timer`, kernel/time/tick-sched.c).
            skew: match machine.os.skew_tick {
                true => times.tick / 2 / pus as u64,
                false => 0,
            },
            turn: 0,
            ticks: 0,
            pace: 1e6 / model.tick as f64,
        }
    }

    /// The thread that is to run on a PU.
    pub fn current(&self, pu: usize) -> Option<usize> {
        self.queues[pu].current
    }

    /// When the scheduler wants to be called again at the latest.
    pub fn next_tick(&self) -> Ps {
        self.next_tick + self.turn as u64 * self.skew
    }

    /// Whether all PUs are idle.
    pub fn is_idle(&self) -> bool {
        self.queues.iter().all(Queue::is_idle)
    }

    /// A new thread.
    pub fn start(&mut self, index: usize, threads: &mut [Thread], now: Ps) {
        let Some(pu) = self.idlest(index, threads) else {
            return;
        };
        if let Some(capacities) = &mut self.capacities {
            capacities.start(index, &threads[index], pu, now);
        }
        // A thread gets no credit for the time before it was there: otherwise every new thread would come first.
        let queue = &mut self.queues[pu as usize];
        match self.times.eevdf {
            false => {
                threads[index].virtual_time = queue.first_time(index, &self.times, threads, now);
            }
            true => queue.place_first(index, &self.times, threads, now),
        }
        self.enqueue(pu, index, threads, now);
    }

    /// A thread has something to do again.
    pub fn wake(&mut self, index: usize, threads: &mut [Thread], now: Ps) {
        if let Some(capacities) = &mut self.capacities {
            capacities.advance(index, threads, now);
        }
        let pu = self.near(index, threads);
        if self.times.eevdf {
            let before = threads[index].last_pu as usize;
            let lag = self.queues[before].lag_of_sleeper(index, threads, now);
            self.queues[pu as usize].place(index, lag, &self.times, threads, now);
            return self.enqueue(pu, index, threads, now);
        }
        let before = threads[index].last_pu;
        if before != pu {
            let floor = self.queues[before as usize].floor(threads, now);
            self.rebase(index, floor, pu, threads, now);
        }
        // It does not get back what it did not use, but comes before those that used their time (`place_entity`,
        // `GENTLE_FAIR_SLEEPERS`).
        let floor = self.queues[pu as usize].floor(threads, now);
        let earliest = floor - VirtualTime::from(self.times.latency / 2);
        let thread = &mut threads[index];
        thread.virtual_time = thread.virtual_time.max(earliest);
        self.enqueue(pu, index, threads, now);
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
        threads[index].virtual_time += self.queues[to as usize].floor(threads, now) - floor;
    }

    /// A thread joins a queue. One that waited elsewhere has done so since then.
    fn enqueue(&mut self, pu: u32, index: usize, threads: &mut [Thread], now: Ps) {
        threads[index].queued(pu, now);
        let queue = &mut self.queues[pu as usize];
        queue.waiting.push(index);
        if queue.current.is_none() {
            queue.pick(&self.times, threads, now);
        } else if queue.yields_to(index, &self.times, threads, now) {
            queue.preempt(&self.times, threads, now);
        }
    }

    /// A runnable thread goes to another queue, and a thread that waited in the first gets its PU.
    fn transfer(&mut self, index: usize, to: u32, threads: &mut [Thread], now: Ps) {
        if let Some(capacities) = &mut self.capacities {
            capacities.advance(index, threads, now);
        }
        let from = threads[index].last_pu as usize;
        let ran = self.queues[from].current == Some(index);
        threads[index].switches += u64::from(ran);
        match self.times.eevdf {
            false => {
                let floor = self.queues[from].remove(index, threads, now);
                self.rebase(index, floor, to, threads, now);
            }
            true => {
                let lag = self.queues[from].lag(index, &self.times, threads, now);
                self.queues[from].remove(index, threads, now);
                self.queues[to as usize].place(index, lag, &self.times, threads, now);
            }
        }
        self.enqueue(to, index, threads, now);
        if self.queues[from].current.is_none() {
            self.queues[from].pick(&self.times, threads, now);
        }
    }

    /// A thread has nothing to do, or has ended: its PU goes to the next.
    pub fn stop(&mut self, index: usize, threads: &mut [Thread], now: Ps) {
        if let Some(capacities) = &mut self.capacities {
            capacities.stop(index, threads, now);
        }
        let pu = threads[index].last_pu as usize;
        if self.times.eevdf {
            threads[index].lag = self.queues[pu].lag(index, &self.times, threads, now);
        }
        self.queues[pu].remove(index, threads, now);
        self.fill(pu, threads, now);
    }

    /// A mask was changed: a thread that may not stay moves away.
    pub fn masked(&mut self, index: usize, threads: &mut [Thread], now: Ps) {
        let thread = &threads[index];
        if !thread.is_runnable() || thread.mask.contains(thread.last_pu) {
            return;
        }
        let before = thread.last_pu as usize;
        let pu = self.near(index, threads);
        self.transfer(index, pu, threads, now);
        self.fill(before, threads, now);
    }

    /// An idle PU takes a thread that waits for it, or for others.
    fn fill(&mut self, pu: usize, threads: &mut [Thread], now: Ps) {
        if self.queues[pu].current.is_none() {
            self.queues[pu].pick(&self.times, threads, now);
        }
        if self.queues[pu].is_idle() {
            self.balance_new_idle(pu, threads, now);
        }
    }

    /// Whether no tick changes anything before a thread stops, wakes or gets another mask: no thread waits for a PU,
    /// and none may go from a crowded group of PUs to an idle one.
    pub fn is_still(&self, threads: &[Thread]) -> bool {
        let waits = |queue: &Queue| !queue.waiting.is_empty();
        !self.queues.iter().any(waits) && !self.spreads(threads) && !self.may_be_promoted(threads)
    }

    /// Ticks at which nothing happened are over.
    pub fn pass(&mut self, now: Ps) {
        if self.skew > 0 {
            while self.next_tick() <= now {
                let (pu, before) = (self.next_turn(), self.ticks - 1);
                self.pass_balances(pu, before);
            }
            return;
        }
        let before = self.ticks;
        self.count_ticks(now);
        for pu in 0..self.queues.len() {
            self.pass_balances(pu, before);
        }
    }

    /// The next PU in turn has its tick.
    fn next_turn(&mut self) -> usize {
        let pu = self.turn;
        self.ticks += u64::from(pu == 0);
        self.turn = (pu + 1) % self.queues.len();
        if self.turn == 0 {
            self.next_tick += self.times.tick;
        }
        pu
    }

    fn count_ticks(&mut self, now: Ps) {
        if let Some(beyond) = now.checked_sub(self.next_tick) {
            let ticks = beyond / self.times.tick + 1;
            self.ticks += ticks;
            self.next_tick += ticks * self.times.tick;
        }
    }

    /// The timer: slices end, and now and then load is balanced.
    pub fn tick(&mut self, threads: &mut [Thread], now: Ps) {
        if self.skew > 0 {
            while self.next_tick() <= now {
                let pu = self.next_turn();
                self.tick_of(pu, threads, now);
            }
            return;
        }
        self.count_ticks(now);
        if let Some(capacities) = &mut self.capacities {
            for index in self.queues.iter().flat_map(Queue::members) {
                capacities.advance(index, threads, now);
            }
        }
        for queue in &mut self.queues {
            queue.tick(&self.times, threads, now);
        }
        for pu in 0..self.queues.len() {
            self.balance(pu, threads, now);
        }
    }

    /// The timer of one PU.
    fn tick_of(&mut self, pu: usize, threads: &mut [Thread], now: Ps) {
        if let Some(capacities) = &mut self.capacities {
            for index in self.queues[pu].members() {
                capacities.advance(index, threads, now);
            }
        }
        self.queues[pu].tick(&self.times, threads, now);
        self.balance(pu, threads, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Ticks and balances come when they would have come if none had been left out.
        #[test]
        fn ticks_that_are_left_out_do_not_shift_those_that_follow(moments in proptest::collection::vec(1u64..100, 1..20), skew: bool) {
            let mut machine = crate::config::find_machine("core2-quad").unwrap();
            machine.os.skew_tick = skew;
            let model = SchedulerModel::default();
            let mut passed = FairScheduler::new(&machine, model, Random::new(1));
            let mut ticked = passed.clone();
            let mut now = 0;
            for step in moments {
                now += step * passed.times.tick / 7;
                passed.pass(now);
                while ticked.next_tick() <= now {
                    let tick = ticked.next_tick();
                    ticked.tick(&mut [], tick);
                }
                prop_assert_eq!(passed.next_tick(), ticked.next_tick());
                prop_assert_eq!(&passed.tries, &ticked.tries);
            }
        }
    }
}
