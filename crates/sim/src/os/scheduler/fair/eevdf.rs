//! The order of a PU's threads by earliest eligible virtual deadline first (kernel 6.12, `kernel/sched/fair.c`; Stoica and
//! Abdel-Wahab, "Earliest Eligible Virtual Deadline First", 1995).
//!
//! A thread is eligible if it has had no more than its share: its virtual time is not beyond the mean of all. Of those,
//! the one with the earliest deadline has the PU for its slice (`RUN_TO_PARITY`). A thread that leaves takes with it what it
//! has had too little, up to a tick or two slices; what it has had too much fades while it sleeps (`DELAY_DEQUEUE`,
//! `DELAY_ZERO`).

use super::{Index, Times, queue::Queue};
use crate::{
    thread::{Thread, VirtualTime},
    units::Ps,
};

impl Queue {
    /// The mean virtual time of the threads, by weight (`avg_vruntime`); without any, the least that there was.
    fn mean(&mut self, threads: &[Thread], now: Ps) -> VirtualTime {
        let floor = self.floor(threads, now);
        self.mean_from(floor, threads, now)
    }

    fn mean_from(&self, floor: VirtualTime, threads: &[Thread], now: Ps) -> VirtualTime {
        let (mut sum, mut load) = (0, 0);
        for index in self.members() {
            let weight = VirtualTime::from(threads[index].weight());
            sum += (threads[index].virtual_time_at(now) - floor) * weight;
            load += weight;
        }
        floor + if load > 0 { sum.div_euclid(load) } else { 0 }
    }

    /// The waiting thread that comes next: of the eligible ones, that with the earliest deadline (`pick_eevdf`).
    pub fn earliest(&self, threads: &[Thread], now: Ps) -> Option<Index> {
        earliest(self.waiting.iter().copied(), self, threads, now)
    }

    /// What a thread has had less than its share, at most for a tick or two slices (`update_entity_lag`).
    pub fn lag(&mut self, index: Index, times: &Times, threads: &[Thread], now: Ps) -> VirtualTime {
        let thread = &threads[index];
        let limit = thread.charge((2 * times.shortest).max(times.tick));
        let lag = self.mean(threads, now) - thread.virtual_time_at(now);
        lag.clamp(-limit, limit)
    }

    /// The lag with which a thread wakes that slept: nothing is owed any more that the others have had meanwhile.
    pub fn lag_of_sleeper(&mut self, index: Index, threads: &[Thread], now: Ps) -> VirtualTime {
        let thread = &threads[index];
        match thread.lag < 0 {
            // It stays where it was until it is eligible again.
            true => (self.mean(threads, now) - thread.virtual_time).clamp(thread.lag, 0),
            false => thread.lag,
        }
    }

    /// Where a thread comes in that has this lag (`place_entity`): so that it has it when the mean includes the thread.
    pub fn place(
        &mut self,
        index: Index,
        lag: VirtualTime,
        times: &Times,
        threads: &mut [Thread],
        now: Ps,
    ) {
        let load = VirtualTime::from(self.load(threads));
        let mean = self.mean(threads, now);
        let thread = &mut threads[index];
        let weight = VirtualTime::from(thread.weight());
        let lag = match load > 0 {
            true => lag * (load + weight) / load,
            false => 0,
        };
        // What a thread ran that is just being taken off is not accounted for yet.
        let pending = thread.virtual_time_at(now) - thread.virtual_time;
        thread.virtual_time = mean - lag - pending;
        thread.deadline = mean - lag + thread.charge(times.shortest);
    }

    /// Where a new thread comes in: it has its share, and half a slice (`PLACE_DEADLINE_INITIAL`).
    pub fn place_first(&mut self, index: Index, times: &Times, threads: &mut [Thread], now: Ps) {
        self.place(index, 0, times, threads, now);
        let thread = &mut threads[index];
        thread.deadline -= thread.charge(times.shortest) / 2;
    }

    /// The timer (`update_deadline`): a slice may be over.
    pub fn tick_deadline(&mut self, times: &Times, threads: &mut [Thread], now: Ps) {
        let Some(index) = self.current else { return };
        let time = threads[index].virtual_time_at(now);
        if time < threads[index].deadline {
            return;
        }
        threads[index].deadline = time + threads[index].charge(times.shortest);
        let all = self.members();
        if earliest(all, self, threads, now).is_some_and(|next| next != index) {
            self.preempt(times, threads, now);
        }
    }

    /// Whether a thread that came takes the PU at once: not before the current one's slice is over
    /// (`check_preempt_wakeup_fair`).
    pub fn yields_to_deadline(&self, index: Index, threads: &[Thread], now: Ps) -> bool {
        self.current.is_some_and(|current| {
            threads[current].virtual_time_at(now) >= threads[current].deadline
                && earliest(self.members(), self, threads, now) == Some(index)
        })
    }
}

/// Of some threads of a queue the one that comes next. There is always an eligible one among all of a queue; among some,
/// the one that is nearest to it.
fn earliest(
    some: impl Iterator<Item = Index>,
    of: &Queue,
    threads: &[Thread],
    now: Ps,
) -> Option<Index> {
    let mut some: Vec<Index> = some.collect();
    let origin = some
        .first()
        .map(|index| threads[*index].virtual_time_at(now))?;
    let mean = of.mean_from(origin, threads, now);
    some.sort_unstable_by_key(|index| {
        let thread = &threads[*index];
        let beyond = (thread.virtual_time_at(now) - mean).max(0);
        (beyond, thread.deadline, *index)
    });
    some.first().copied()
}
