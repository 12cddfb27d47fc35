//! The scheduler of Linux 2.4 (`kernel/sched.c` of 2.4.18 and 2.4.19): one queue for all PUs.
//!
//! Each thread has a number of timer ticks that it may run, its counter. A PU takes the thread of the queue with the greatest
//! *goodness*: what is left of its counter, with an advantage for the PU where it was last. When no runnable thread has any
//! left, all threads get new ticks, and those that sleep keep half of theirs. A thread that wakes goes to the PU where it
//! was, to a core whose PUs are both idle, to the PU that has been idle longest, or takes the PU of a thread with less
//! goodness. There is no balance of load: an idle PU takes a thread that waits.
//!
//! Not modelled: real-time classes, `sched_yield`, and that a child's remaining ticks return to its parent.

use super::Index;
use crate::{model::MachineModel, stream::Random, thread::Thread, units::Ps};
use std::collections::VecDeque;

/// From one timer tick to the next, in nanoseconds of the operating system (`HZ` is 100 on i386).
const TICK: u64 = 10_000_000;

/// Advantage of a thread on the PU where it was last (`PROC_CHANGE_PENALTY`, include/asm-i386/smp.h).
const SAME_PU: i32 = 15;

/// Advantage of a thread of the process that a PU had last: its address space is there.
const SAME_PROCESS: i32 = 1;

/// New ticks (`NICE_TO_TICKS`, for an `HZ` below 200): 6 at nice value 0.
fn ticks(nice: i32) -> i32 {
    ((20 - nice) >> 2) + 1
}

/// A PU.
#[derive(Debug, Clone, Default)]
struct Pu {
    /// The thread that runs there.
    current: Option<Index>,
    /// The process of the thread that ran there last.
    process: Option<usize>,
    /// When its thread last changed, or left it idle.
    switched: Ps,
    /// The other PU of its core, if there is one.
    sibling: Option<usize>,
}

/// A thread.
#[derive(Debug, Clone, Copy)]
struct Task {
    /// What is left of its ticks.
    counter: i32,
    /// The PU that it has.
    pu: Option<usize>,
}

/// The queue.
#[derive(Debug, Clone)]
pub struct SingleQueue {
    tick: Ps,
    next_tick: Ps,
    pus: Vec<Pu>,
    /// Runnable threads, those on PUs included; the last to come is first.
    queue: VecDeque<Index>,
    /// By thread; `None` before it has started.
    tasks: Vec<Option<Task>>,
    /// Where the shell runs that starts the programs. It is busy while it does.
    shell: usize,
}

impl SingleQueue {
    /// The queue of a machine. Where its programs are started from is chance.
    pub fn new(machine: &MachineModel, mut random: Random) -> Self {
        let mut pus = vec![Pu::default(); machine.pus()];
        let mut first = 0;
        for core in &machine.cores {
            let contexts = machine.kinds[core.kind].contexts as usize;
            if contexts == 2 {
                pus[first].sibling = Some(first + 1);
                pus[first + 1].sibling = Some(first);
            }
            first += contexts;
        }
        let tick = machine.machine_time(TICK).max(1);
        Self {
            tick,
            next_tick: tick,
            shell: random.below(pus.len() as u64) as usize,
            pus,
            queue: VecDeque::new(),
            tasks: Vec::new(),
        }
    }

    /// The thread that is to run on a PU.
    pub fn current(&self, pu: usize) -> Option<usize> {
        self.pus[pu].current
    }

    /// The next timer tick.
    pub fn next_tick(&self) -> Ps {
        self.next_tick
    }

    /// Whether no thread is runnable.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// A new thread: it gets half of what its parent has left (`do_fork`).
    pub fn start(&mut self, index: Index, threads: &mut [Thread], now: Ps) {
        if self.task(index).is_some() {
            // It had to wait before it had run.
            return self.wake(index, threads, now);
        }
        if self.tasks.len() <= index {
            self.tasks.resize(index + 1, None);
        }
        let parent = threads[index].identity.parent;
        let parent = parent.filter(|parent| self.task(*parent).is_some());
        let (from, counter) = match parent {
            Some(parent) => (threads[parent].last_pu, self.halve(parent)),
            None => (self.shell as u32, ticks(threads[index].nice)),
        };
        self.tasks[index] = Some(Task { counter, pu: None });
        let thread = &mut threads[index];
        (thread.last_pu, thread.waiting_since) = (from, Some(now));
        self.queue.push_front(index);
        let busy = parent.is_none().then_some(self.shell);
        let pu = self.target(index, busy, threads);
        // The shell waits for its programs before long.
        let pu = pu.or_else(|| self.target(index, None, threads));
        self.settle(pu, threads, now);
    }

    /// A thread has something to do again.
    pub fn wake(&mut self, index: Index, threads: &mut [Thread], now: Ps) {
        threads[index].waiting_since.get_or_insert(now);
        self.queue.push_front(index);
        let pu = self.target(index, None, threads);
        self.settle(pu, threads, now);
    }

    /// A thread has nothing to do, or has ended: its PU goes to the next.
    pub fn stop(&mut self, index: Index, threads: &mut [Thread], now: Ps) {
        self.queue.retain(|other| *other != index);
        let pu = self.release(index, now);
        self.settle(pu, threads, now);
    }

    /// A mask was changed: a thread that may not stay moves away, and one that waits may have got an idle PU.
    pub fn masked(&mut self, index: Index, threads: &mut [Thread], now: Ps) {
        let Some(task) = self.task(index).filter(|_| threads[index].is_runnable()) else {
            return;
        };
        let mask = &threads[index].mask;
        if task.pu.is_some_and(|pu| mask.contains(pu as u32)) {
            return;
        }
        let before = self.release(index, now);
        if before.is_some() {
            threads[index].preempted(now);
        }
        let target = self.target(index, None, threads);
        self.settle(target, threads, now);
        self.settle(before, threads, now);
    }

    /// Whether no thread waits for a PU.
    pub fn is_still(&self, _: &[Thread]) -> bool {
        self.queue.len() == self.pus.iter().filter(|pu| pu.current.is_some()).count()
    }

    /// Ticks at which no thread waited are over: counters went down.
    pub fn pass(&mut self, threads: &[Thread], now: Ps) {
        while self.next_tick <= now {
            self.next_tick += self.tick;
            for pu in 0..self.pus.len() {
                if self.count_down(pu) {
                    self.renew(threads);
                }
            }
        }
    }

    /// The timer: a thread without ticks left may have to go.
    pub fn tick(&mut self, threads: &mut [Thread], now: Ps) {
        while self.next_tick <= now {
            self.next_tick += self.tick;
            for pu in 0..self.pus.len() {
                if self.count_down(pu) {
                    self.settle(Some(pu), threads, now);
                }
            }
        }
    }

    /// A tick of a PU; whether its thread has none left.
    fn count_down(&mut self, pu: usize) -> bool {
        let on = self.pus[pu].current;
        let Some(task) = on.and_then(|on| self.tasks[on].as_mut()) else {
            return false;
        };
        task.counter = (task.counter - 1).max(0);
        task.counter == 0
    }

    /// All threads get new ticks, also those that sleep.
    fn renew(&mut self, threads: &[Thread]) {
        for (task, thread) in self.tasks.iter_mut().zip(threads) {
            if let Some(task) = task {
                task.counter = (task.counter >> 1) + ticks(thread.nice);
            }
        }
    }

    fn task(&self, index: Index) -> Option<Task> {
        self.tasks.get(index).copied().flatten()
    }

    /// Takes half of what a thread has left, for its child.
    fn halve(&mut self, parent: Index) -> i32 {
        let Some(task) = &mut self.tasks[parent] else {
            return 0;
        };
        let half = (task.counter + 1) >> 1;
        task.counter >>= 1;
        half
    }

    /// A thread leaves the PU that it has; gives the PU.
    fn release(&mut self, index: Index, now: Ps) -> Option<usize> {
        let pu = self.tasks[index].as_mut()?.pu.take()?;
        (self.pus[pu].current, self.pus[pu].switched) = (None, now);
        Some(pu)
    }

    /// How much a thread is worth on a PU: 0 if it has no ticks left.
    fn goodness(&self, index: Index, pu: usize, threads: &[Thread]) -> i32 {
        let (thread, at) = (&threads[index], &self.pus[pu]);
        let counter = self.task(index).map_or(0, |task| task.counter);
        if counter == 0 {
            return 0;
        }
        let same_pu = if thread.last_pu as usize == pu {
            SAME_PU
        } else {
            0
        };
        let same_process = match at.process == Some(thread.identity.process) {
            true => SAME_PROCESS,
            false => 0,
        };
        counter + same_pu + same_process + 20 - thread.nice
    }

    /// The PU that a thread without one should get (`reschedule_idle`); `busy` is not idle, although no thread is there.
    fn target(&self, index: Index, busy: Option<usize>, threads: &[Thread]) -> Option<usize> {
        let mask = &threads[index].mask;
        let is_idle = |pu: usize| self.pus[pu].current.is_none() && busy != Some(pu);
        let last = threads[index].last_pu as usize;
        if mask.contains(last as u32) && is_idle(last) {
            return Some(last);
        }
        let mut oldest: Option<usize> = None;
        let mut best: Option<(i32, usize)> = None;
        for pu in (0..self.pus.len()).filter(|pu| mask.contains(*pu as u32)) {
            let Some(on) = self.pus[pu].current else {
                if !is_idle(pu) {
                    continue;
                }
                if self.pus[pu].sibling.is_some_and(is_idle) {
                    return Some(pu);
                }
                let since = |pu: usize| self.pus[pu].switched;
                if oldest.is_none_or(|oldest| since(pu) < since(oldest)) {
                    oldest = Some(pu);
                }
                continue;
            };
            let more = self.goodness(index, pu, threads) - self.goodness(on, pu, threads);
            if more > best.map_or(0, |(most, _)| most) {
                best = Some((more, pu));
            }
        }
        oldest.or(best.map(|(_, pu)| pu))
    }

    /// A PU takes the best thread, and the thread that had to leave may take another PU. That ends, as each thread that is
    /// displaced is worth less than the one before.
    fn settle(&mut self, pu: Option<usize>, threads: &mut [Thread], now: Ps) {
        let mut due = pu;
        while let Some(pu) = due.take() {
            let before = self.pus[pu].current;
            let next = self.best(pu, threads);
            if before == next {
                continue;
            }
            let at = &mut self.pus[pu];
            (at.current, at.switched) = (next, now);
            if let Some(index) = next {
                let thread = &mut threads[index];
                at.process = Some(thread.identity.process);
                thread.goes_to(pu as u32);
                thread.dispatched(now);
                self.give(index, Some(pu));
            }
            if let Some(index) = before {
                self.give(index, None);
                threads[index].preempted(now);
                due = self.target(index, None, threads);
            }
        }
    }

    fn give(&mut self, index: Index, pu: Option<usize>) {
        if let Some(task) = &mut self.tasks[index] {
            task.pu = pu;
        }
    }

    /// The next thread on a PU, which may be the one that is there: of equals, the first in the queue (`schedule`).
    fn best(&mut self, pu: usize, threads: &[Thread]) -> Option<Index> {
        loop {
            let mut best: Option<(i32, Index)> = None;
            for index in &self.queue {
                let has = self.task(*index).and_then(|task| task.pu);
                let may = threads[*index].mask.contains(pu as u32);
                if !may || has.is_some_and(|has| has != pu) {
                    continue;
                }
                let worth = self.goodness(*index, pu, threads);
                if best.is_none_or(|(most, _)| worth > most) {
                    best = Some((worth, *index));
                }
            }
            match best {
                Some((0, _)) => self.renew(threads),
                _ => return best.map(|(_, index)| index),
            }
        }
    }
}
