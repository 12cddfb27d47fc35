//! The O(1) scheduler (`kernel/sched.c` of Linux 2.6.11), with which paper 003 compares.
//!
//! Each PU has two arrays of threads by dynamic priority ([`queue`]). The best active one runs until its slice is over, 100 ms
//! at nice value 0, and goes to the expired ones; once no active one is left, the arrays change places. A thread's priority
//! follows from how much it slept lately ([`task`]): one that mostly sleeps stays among the active ones, and takes the PU
//! of one that computes as soon as it wakes. PUs balance how many threads they have ([`balance`]).
//!
//! Not modelled: real-time threads, sleeps that cannot be interrupted, which wake-ups come from interrupts (none do), that a
//! thread that wakes may go to the PU of the one that woke it, that threads of a core with lower priority wait for their
//! sibling (`dependent_sleeper`), and that the rest of a child's first slice returns to its parent.

mod balance;
mod queue;
mod task;

use super::{Index, fair::domains::Level, fair::domains::levels_without_caches};
use crate::{model::MachineModel, stream::Random, thread::Thread, units::Ps};
use balance::Tries;
use queue::{LOAD, Queue};
use task::{Place, Task, slice};

/// From one timer tick to the next, in nanoseconds of the operating system (`HZ` is 1000 on i386).
const TICK: u64 = 1_000_000;

/// Ticks of sleep that make the greatest bonus (`MAX_SLEEP_AVG`).
const MOST_SLEEP: u64 = 1_000;

/// The scheduler.
#[derive(Debug, Clone)]
pub struct ConstantTime {
    /// Between ticks: a millisecond of the operating system.
    tick: Ps,
    next_tick: Ps,
    ticks: u64,
    queues: Vec<Queue>,
    /// By thread; `None` before it has started.
    tasks: Vec<Option<Task>>,
    levels: Vec<Level>,
    /// The level of cores, if any has several PUs.
    core_level: Option<usize>,
    /// By level and PU.
    tries: Vec<Vec<Tries>>,
    /// Where the shell runs that starts the programs.
    shell: u32,
}

impl ConstantTime {
    /// The scheduler of a machine. Where its programs are started from is chance.
    pub fn new(machine: &MachineModel, mut random: Random) -> Self {
        let pus = machine.pus();
        let levels = levels_without_caches(machine);
        let tick = machine.machine_time(TICK).max(1);
        Self {
            tick,
            next_tick: tick,
            ticks: 0,
            queues: vec![Queue::default(); pus],
            tasks: Vec::new(),
            core_level: (machine.cores.len() < pus).then_some(0),
            tries: vec![vec![Tries::default(); pus]; levels.len()],
            levels,
            shell: random.below(pus as u64) as u32,
        }
    }

    /// The greatest average of sleep, and a millisecond.
    fn scale(&self) -> (Ps, Ps) {
        (MOST_SLEEP * self.tick, self.tick)
    }

    /// The thread that is to run on a PU.
    pub fn current(&self, pu: usize) -> Option<usize> {
        self.queues[pu].current
    }

    /// The next timer tick.
    pub fn next_tick(&self) -> Ps {
        self.next_tick
    }

    /// Whether no thread is runnable.
    pub fn is_idle(&self) -> bool {
        self.queues.iter().all(|queue| queue.len() == 0)
    }

    /// A new thread. A program goes to the first of the PUs with the least load when it is executed (`sched_exec`), another
    /// thread of it begins where its parent is.
    pub fn start(&mut self, index: Index, threads: &mut [Thread], now: Ps) {
        if self.tasks.get(index).is_some_and(Option::is_some) {
            // It had to wait before it had run.
            return self.wake(index, threads, now);
        }
        if self.tasks.len() <= index {
            self.tasks.resize(index + 1, None);
        }
        let (most, _) = self.scale();
        let thread = &threads[index];
        let (nice, mask) = (thread.nice, thread.mask.clone());
        let parent = thread.identity.parent;
        let known = parent.and_then(|parent| self.tasks[parent].as_mut());
        let (task, pu) = match (known, parent) {
            (Some(known), Some(parent)) => {
                let pu = Some(threads[parent].last_pu).filter(|pu| mask.contains(*pu));
                (known.child(nice, most, now), pu.or_else(|| mask.first()))
            }
            _ => {
                let load = |pu: &u32| {
                    let shell = u64::from(*pu == self.shell) * LOAD;
                    self.queues[*pu as usize].target_load() + shell
                };
                (Task::new(nice, most, now), mask.iter().min_by_key(load))
            }
        };
        self.tasks[index] = Some(task);
        if let Some(pu) = pu {
            self.enqueue(pu, index, threads, now);
        }
    }

    /// A thread has something to do again: it goes on where it was, or on an idle PU of that core (`wake_idle`).
    pub fn wake(&mut self, index: Index, threads: &mut [Thread], now: Ps) {
        let thread = &threads[index];
        let before = match thread.mask.contains(thread.last_pu) {
            true => Some(thread.last_pu),
            false => thread.mask.first(),
        };
        let Some(before) = before else { return };
        let is_idle = |pu: &u32| self.queues[*pu as usize].len() == 0;
        let mut near = self.core(before as usize).into_iter();
        let pu = match is_idle(&before) {
            true => before,
            false => near
                .find(|pu| thread.mask.contains(*pu) && is_idle(pu))
                .unwrap_or(before),
        };
        let scale = self.scale();
        if let Some(task) = &mut self.tasks[index] {
            task.wake(thread.nice, scale, now);
        }
        self.enqueue(pu, index, threads, now);
    }

    /// The PUs of a PU's core.
    fn core(&self, pu: usize) -> Vec<u32> {
        match self.core_level {
            Some(level) => self.levels[level].domain(pu).pus().collect(),
            None => vec![pu as u32],
        }
    }

    /// A thread joins a queue, and takes the PU if it has the better priority.
    fn enqueue(&mut self, pu: u32, index: Index, threads: &mut [Thread], now: Ps) {
        threads[index].queued(pu, now);
        let queue = &mut self.queues[pu as usize];
        let Some(task) = &mut self.tasks[index] else {
            return;
        };
        queue.push(index, task);
        if self.preempts(index, pu as usize) {
            self.schedule(pu as usize, threads, now);
        }
    }

    /// Whether a thread has a better priority than the one on the PU.
    fn preempts(&self, index: Index, pu: usize) -> bool {
        let priority = |index: Index| self.tasks[index].as_ref().map(|task| task.priority);
        self.queues[pu]
            .current
            .is_none_or(|current| priority(index) < priority(current))
    }

    /// A thread has nothing to do, or has ended: its PU goes to the next.
    pub fn stop(&mut self, index: Index, threads: &mut [Thread], now: Ps) {
        let pu = threads[index].last_pu as usize;
        let had = self.take_off(index, pu, now);
        if had {
            self.schedule(pu, threads, now);
        }
    }

    /// Takes a thread off its queue; whether it had the PU.
    fn take_off(&mut self, index: Index, pu: usize, now: Ps) -> bool {
        let (most, _) = self.scale();
        let had = self.queues[pu].current == Some(index);
        if let Some(task) = &mut self.tasks[index] {
            if had {
                task.charge(most, now);
            }
            task.since = now;
            self.queues[pu].remove(index, task);
        }
        had
    }

    /// A mask was changed: a thread that may not stay goes to the first PU that it may use (`set_cpus_allowed`).
    pub fn masked(&mut self, index: Index, threads: &mut [Thread], now: Ps) {
        let thread = &threads[index];
        let from = thread.last_pu as usize;
        if !thread.is_runnable() || thread.mask.contains(thread.last_pu) {
            return;
        }
        let Some(pu) = thread.mask.first() else {
            return;
        };
        if self.tasks.get(index).is_none_or(Option::is_none) {
            return;
        }
        let had = self.take_off(index, from, now);
        threads[index].switches += u64::from(had);
        self.enqueue(pu, index, threads, now);
        if had {
            self.schedule(from, threads, now);
        }
    }

    /// The best thread of a PU gets it. One without threads takes some from others first.
    fn schedule(&mut self, pu: usize, threads: &mut [Thread], now: Ps) {
        let scale = self.scale();
        let before = self.queues[pu].current;
        if let Some(task) = before.and_then(|before| self.tasks[before].as_mut()) {
            task.charge(scale.0, now);
        }
        if self.queues[pu].len() == 0 {
            self.balance_new_idle(pu, threads, now);
        }
        let queue = &mut self.queues[pu];
        let next = queue.next(&mut self.tasks);
        if let Some(index) = next
            && let Some(task) = self.tasks[index].as_mut().filter(|task| task.woke)
        {
            queue.remove(index, task);
            task.arrive(threads[index].nice, scale, now);
            queue.push(index, task);
        }
        queue.current = next;
        if before == next {
            return;
        }
        if let Some(index) = before.filter(|before| threads[*before].is_runnable()) {
            threads[index].preempted(now);
        }
        if let Some(index) = next {
            if let Some(task) = &mut self.tasks[index] {
                task.since = now;
            }
            threads[index].dispatched(now);
        }
    }

    /// The timer: slices end, and now and then load is balanced.
    pub fn tick(&mut self, threads: &mut [Thread], now: Ps) {
        while self.next_tick <= now {
            self.next_tick += self.tick;
            self.ticks += 1;
            for pu in 0..self.queues.len() {
                let must = self.tick_of(pu, threads, now);
                self.balance(pu, threads, now);
                if must {
                    self.schedule(pu, threads, now);
                }
            }
        }
    }

    /// A tick of the thread that has a PU; whether another one may have to come (`scheduler_tick`).
    fn tick_of(&mut self, pu: usize, threads: &[Thread], now: Ps) -> bool {
        let ((most, _), pus) = (self.scale(), self.queues.len());
        let queue = &mut self.queues[pu];
        let Some(index) = queue.current else {
            return false;
        };
        let Some(task) = &mut self.tasks[index] else {
            return false;
        };
        let nice = threads[index].nice;
        task.slice = task.slice.saturating_sub(1);
        let mut turn = |task: &mut Task, over: bool| {
            queue.remove(index, task);
            task.set_priority(nice, most);
            match over {
                true => queue.expire(index, task, nice, (most, now)),
                false => queue.push(index, task),
            }
            queue.current = Some(index);
        };
        if task.slice == 0 {
            task.slice = slice(nice);
            // What it ran since it came counts.
            task.charge(most, now);
            turn(task, true);
            return true;
        }
        let granularity = task.granularity(most, pus);
        let ran = slice(nice).saturating_sub(task.slice);
        let yields = task.is_interactive(nice)
            && ran.is_multiple_of(granularity)
            && task.slice >= granularity;
        if yields {
            turn(task, false);
        }
        yields
    }

    /// Whether no tick changes which thread is on which PU before a thread stops, wakes or gets another mask: no thread
    /// waits, and none is to be moved for the balance.
    pub fn is_still(&self, _: &[Thread]) -> bool {
        self.queues.iter().all(|queue| queue.len() <= 1) && self.is_balanced()
    }

    /// Ticks at which nothing happened are over.
    pub fn pass(&mut self, threads: &[Thread], now: Ps) {
        let Some(beyond) = now.checked_sub(self.next_tick) else {
            return;
        };
        let ticks = beyond / self.tick + 1;
        self.ticks += ticks;
        self.next_tick += ticks * self.tick;
        let (most, _) = self.scale();
        for queue in &mut self.queues {
            queue.load = queue.len() as u64 * LOAD;
            let Some(index) = queue.current else { continue };
            if let Some(task) = &mut self.tasks[index] {
                let nice = threads[index].nice;
                let whole = slice(nice);
                // Slice after slice, as no other thread wants the PU.
                let left = (task.slice + whole * (ticks / whole + 1) - ticks % whole) % whole;
                task.slice = if left == 0 { whole } else { left };
                queue.remove(index, task);
                task.charge(most, now);
                task.set_priority(nice, most);
                queue.push(index, task);
                queue.current = Some(index);
            }
        }
        let ticks = self.ticks;
        let tries = self.tries.iter_mut().flatten();
        tries.for_each(|tries| tries.pass(ticks));
    }

    fn place_of(&self, index: Index) -> Place {
        let task = self.tasks[index].as_ref();
        task.map_or(Place::Nowhere, |task| task.place)
    }
}
