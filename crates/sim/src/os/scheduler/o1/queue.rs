//! The threads of one PU in two arrays of lists, one list for each priority.

use super::task::{PRIORITIES, Place, Task};
use crate::{os::scheduler::Index, units::Ps};
use std::collections::VecDeque;

/// Threads by priority.
#[derive(Debug, Clone)]
pub(super) struct Array {
    lists: Vec<VecDeque<Index>>,
    pub number: usize,
}

impl Default for Array {
    fn default() -> Self {
        Self {
            lists: vec![VecDeque::new(); PRIORITIES],
            number: 0,
        }
    }
}

impl Array {
    fn push(&mut self, index: Index, priority: usize) {
        self.lists[priority].push_back(index);
        self.number += 1;
    }

    fn remove(&mut self, index: Index, priority: usize) {
        self.lists[priority].retain(|other| *other != index);
        self.number -= 1;
    }

    fn first(&self) -> Option<Index> {
        self.lists.iter().find_map(|list| list.front().copied())
    }

    /// In the order in which the balance looks for threads to move: the best priority first, and of one priority the last to
    /// come.
    pub fn to_be_moved(&self) -> impl Iterator<Item = Index> {
        let lists = self.lists.iter();
        lists.flat_map(|list| list.iter().rev().copied())
    }
}

/// A queue. The thread that has the PU is in it too.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    pub active: Array,
    pub expired: Array,
    pub current: Option<Index>,
    /// When the first thread expired of those that are.
    expired_since: Option<Ps>,
    /// The best nice value of those that expired.
    best_expired: Option<i32>,
    /// How many threads it had over the last ticks, in parts of 128 (`cpu_load`).
    pub load: u64,
}

/// The load of a thread (`SCHED_LOAD_SCALE`).
pub(super) const LOAD: u64 = 128;

impl Queue {
    /// How many threads there are, the running one included.
    pub fn len(&self) -> usize {
        self.active.number + self.expired.number
    }

    /// The load as a place that threads could leave: a low guess.
    pub fn source_load(&self) -> u64 {
        self.load.min(self.len() as u64 * LOAD)
    }

    /// As one to which they could go: a high guess.
    pub fn target_load(&self) -> u64 {
        self.load.max(self.len() as u64 * LOAD)
    }

    /// Brings the load up to date, at a tick.
    pub fn age_load(&mut self) {
        let now = self.len() as u64 * LOAD;
        // Upwards it is rounded up, so that it arrives.
        let before = self.load + u64::from(now > self.load);
        self.load = (before + now) / 2;
    }

    pub fn push(&mut self, index: Index, task: &mut Task) {
        task.place = Place::Active;
        self.active.push(index, task.priority);
    }

    pub fn push_to(&mut self, index: Index, task: &mut Task, place: Place) {
        match place {
            Place::Expired => {
                task.place = Place::Expired;
                self.expired.push(index, task.priority);
            }
            _ => self.push(index, task),
        }
    }

    pub fn remove(&mut self, index: Index, task: &mut Task) {
        match task.place {
            Place::Active => self.active.remove(index, task.priority),
            Place::Expired => self.expired.remove(index, task.priority),
            Place::Nowhere => return,
        }
        task.place = Place::Nowhere;
        if self.current == Some(index) {
            self.current = None;
        }
    }

    /// A thread with this nice value has used up its slice: whether it must wait for the others, although it is
    /// interactive (`EXPIRED_STARVING`).
    pub fn starves(&self, nice: i32, most: Ps, now: Ps) -> bool {
        let waited = self.expired_since.map_or(0, |since| now - since);
        waited > most * self.len() as u64 || self.best_expired.is_some_and(|best| nice > best)
    }

    /// A thread's slice is over. It was taken off before.
    pub fn expire(&mut self, index: Index, task: &mut Task, nice: i32, (most, now): (Ps, Ps)) {
        self.expired_since.get_or_insert(now);
        match task.is_interactive(nice) && !self.starves(nice, most, now) {
            true => self.push(index, task),
            false => {
                self.push_to(index, task, Place::Expired);
                self.best_expired = Some(self.best_expired.map_or(nice, |best| best.min(nice)));
            }
        }
    }

    /// The next thread. If none has time left, those that expired come again.
    pub fn next(&mut self, tasks: &mut [Option<Task>]) -> Option<Index> {
        if self.active.number == 0 && self.expired.number > 0 {
            std::mem::swap(&mut self.active, &mut self.expired);
            for index in self.active.to_be_moved() {
                if let Some(task) = &mut tasks[index] {
                    task.place = Place::Active;
                }
            }
            (self.expired_since, self.best_expired) = (None, None);
        }
        self.active.first()
    }
}
