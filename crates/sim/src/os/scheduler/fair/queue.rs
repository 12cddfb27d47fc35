//! The threads of one PU: the one that has it, and the one that comes next.

use super::{Index, Times};
use crate::{
    thread::{Thread, VirtualTime},
    units::Ps,
};

/// With more runnable threads than that, each gets the shortest slice (`sched_nr_latency`).
const MANY: u64 = 8;

/// The thread that has a PU, and those that wait for it.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    pub current: Option<Index>,
    /// Since when the current one has it.
    pub since: Ps,
    pub waiting: Vec<Index>,
    /// The least virtual time of its threads, when that was last asked: it never goes back (`min_vruntime`).
    floor: VirtualTime,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.current.is_some())
    }

    pub fn is_idle(&self) -> bool {
        self.current.is_none() && self.waiting.is_empty()
    }

    pub fn members(&self) -> impl Iterator<Item = Index> {
        self.waiting.iter().chain(&self.current).copied()
    }

    /// The weights of its threads.
    pub fn load(&self, threads: &[Thread]) -> u64 {
        self.members()
            .map(|index| u64::from(threads[index].weight()))
            .sum()
    }

    /// The least virtual time of its threads and of those that had the PU before (`update_min_vruntime`).
    pub fn floor(&mut self, threads: &[Thread], now: Ps) -> VirtualTime {
        let least = self
            .members()
            .map(|index| threads[index].virtual_time_at(now))
            .min();
        self.floor = self.floor.max(least.unwrap_or(self.floor));
        self.floor
    }

    /// Takes a thread off, and gives the floor while it was there.
    pub fn remove(&mut self, index: Index, threads: &[Thread], now: Ps) -> VirtualTime {
        let floor = self.floor(threads, now);
        self.waiting.retain(|other| *other != index);
        if self.current == Some(index) {
            self.current = None;
        }
        floor
    }

    /// The waiting thread that comes next gets the PU: under CFS the one that has had the least.
    pub fn pick(&mut self, times: &Times, threads: &mut [Thread], now: Ps) {
        // Of one that is just being taken off, what it ran is not accounted for yet.
        let order = |index: &Index| (threads[*index].virtual_time_at(now), *index);
        let next = match times.eevdf {
            false => self.waiting.iter().copied().min_by_key(order),
            true => self.earliest(threads, now),
        };
        let at = next.and_then(|next| self.waiting.iter().position(|other| *other == next));
        let Some(at) = at else { return };
        let index = self.waiting.remove(at);
        self.current = Some(index);
        self.since = now;
        let thread = &mut threads[index];
        self.floor = self.floor.max(thread.virtual_time_at(now));
        thread.dispatched(now);
    }

    /// How long a thread of it may run at a stretch while others wait (`sched_slice`).
    pub fn slice(&self, index: Index, times: &Times, threads: &[Thread]) -> Ps {
        let number = self.len() as u64;
        let period = match number > MANY {
            true => number * times.shortest,
            false => times.latency,
        };
        let weight = u128::from(threads[index].weight());
        let share = u128::from(period) * weight / u128::from(self.load(threads).max(1));
        (share as Ps).max(times.shortest)
    }

    /// The virtual time with which a new thread begins: it has to wait for its turn (`place_entity`, `START_DEBIT`).
    pub fn first_time(
        &mut self,
        index: Index,
        times: &Times,
        threads: &[Thread],
        now: Ps,
    ) -> VirtualTime {
        let weight = u64::from(threads[index].weight());
        let load = u128::from(self.load(threads) + weight);
        let number = self.len() as u64 + 1;
        let period = times.latency.max(match number > MANY {
            true => number * times.shortest,
            false => 0,
        });
        let slice = (u128::from(period) * u128::from(weight) / load) as Ps;
        self.floor(threads, now) + threads[index].charge(slice.max(times.shortest))
    }

    /// The timer (`check_preempt_tick`): the current one's slice may be over.
    pub fn tick(&mut self, times: &Times, threads: &mut [Thread], now: Ps) {
        if times.eevdf {
            return self.tick_deadline(times, threads, now);
        }
        let Some(index) = self.current else { return };
        let first = self
            .waiting
            .iter()
            .map(|other| threads[*other].virtual_time);
        let Some(first) = first.min() else { return };
        let ran = now.saturating_sub(self.since);
        let slice = self.slice(index, times, threads);
        let ahead = threads[index].virtual_time_at(now) - first;
        let over = ran > slice || (ran >= times.shortest && ahead > VirtualTime::from(slice));
        if !over {
            return;
        }
        match ahead > 0 {
            true => self.preempt(times, threads, now),
            // No thread has had less: it begins another one.
            false => self.since = now,
        }
    }

    /// Whether a thread that came is so far behind the current one that it takes the PU at once
    /// (`check_preempt_wakeup`).
    pub fn yields_to(&self, index: Index, times: &Times, threads: &[Thread], now: Ps) -> bool {
        if times.eevdf {
            return self.yields_to_deadline(index, threads, now);
        }
        self.current.is_some_and(|current| {
            let ahead = threads[current].virtual_time_at(now) - threads[index].virtual_time;
            ahead > threads[index].charge(times.wakeup)
        })
    }

    /// The current one waits, and the next gets the PU.
    pub fn preempt(&mut self, times: &Times, threads: &mut [Thread], now: Ps) {
        if let Some(index) = self.current.take() {
            self.waiting.push(index);
            threads[index].preempted(now);
            self.pick(times, threads, now);
        }
    }
}
