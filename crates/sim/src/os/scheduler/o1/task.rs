//! A thread's dynamic priority: its nice value, better by up to 5 for one that has slept much, and worse by up to 5 for one
//! that has computed.

use crate::units::Ps;

/// Priorities of threads: nice value -20 to 19.
pub(super) const PRIORITIES: usize = 40;

/// Steps of the bonus (`MAX_BONUS`): from 5 worse to 5 better.
const STEPS: u64 = 10;

/// How much better than its nice value an interactive thread is, at nice value 0 (`INTERACTIVE_DELTA`).
const INTERACTIVE: i32 = 2;

/// Percent of its wait for a PU that count as sleep for a thread that woke (`ON_RUNQUEUE_WEIGHT`).
const WAIT_COUNTS: u64 = 30;

/// Percent of its bonus that a thread leaves to one that it starts (`CHILD_PENALTY`).
const INHERITED: u64 = 95;

/// In which of the arrays of its queue a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In none: it has nothing to do.
    Nowhere,
    /// It has time left.
    Active,
    /// It has used up its slice, and comes after all that have not.
    Expired,
}

/// What the scheduler knows of a thread.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub place: Place,
    /// Ticks left of its slice.
    pub slice: u64,
    /// The dynamic priority, from 0, the best, to 39.
    pub priority: usize,
    /// How much more it has slept than run, up to `most` (`sleep_avg`).
    pub average: Ps,
    /// When it stopped, woke, or was last charged for what it ran.
    pub since: Ps,
    /// When it last ran.
    pub ran: Ps,
    /// Whether it woke and has not run since.
    pub woke: bool,
}

/// The length of a slice in milliseconds, which are ticks (`task_timeslice`).
pub(super) fn slice(nice: i32) -> u64 {
    let scaled = |most: i32| most * (20 - nice) / 20;
    let slice = if nice < 0 { scaled(400) } else { scaled(100) };
    u64::from(slice.max(5).unsigned_abs())
}

/// How much better its priority must be than its nice value (`DELTA`).
fn delta(nice: i32) -> i32 {
    nice * STEPS as i32 / PRIORITIES as i32 + INTERACTIVE
}

impl Task {
    /// A thread that a shell has just started, which sleeps most of the time.
    pub fn new(nice: i32, most: Ps, now: Ps) -> Self {
        let mut task = Self {
            place: Place::Nowhere,
            slice: slice(nice),
            priority: 0,
            average: most,
            since: now,
            ran: now,
            woke: false,
        };
        task.average = task.left_to_child(most);
        task.set_priority(nice, most);
        task
    }

    /// A thread that this one starts: they share what is left of its slice (`sched_fork`, `wake_up_new_task`).
    pub fn child(&mut self, nice: i32, most: Ps, now: Ps) -> Self {
        let slice = self.slice.div_ceil(2);
        self.slice = (self.slice / 2).max(1);
        let mut child = Self {
            slice,
            average: self.left_to_child(most),
            ..Self::new(nice, most, now)
        };
        child.set_priority(nice, most);
        child
    }

    fn left_to_child(&self, most: Ps) -> Ps {
        self.bonus(most) * INHERITED / 100 * most / STEPS
    }

    /// 0 to 10 (`CURRENT_BONUS`).
    fn bonus(&self, most: Ps) -> u64 {
        self.average * STEPS / most.max(1)
    }

    /// Sets the priority by what it has slept (`effective_prio`).
    pub fn set_priority(&mut self, nice: i32, most: Ps) {
        let bonus = self.bonus(most) as i32 - STEPS as i32 / 2;
        self.priority = (nice + 20 - bonus).clamp(0, PRIORITIES as i32 - 1) as usize;
    }

    /// Whether it goes on among the active ones when its slice is over (`TASK_INTERACTIVE`).
    pub fn is_interactive(&self, nice: i32) -> bool {
        self.priority as i32 <= nice + 20 - delta(nice)
    }

    /// After how many ticks of a slice an interactive thread lets others of its priority go on (`TIMESLICE_GRANULARITY`).
    pub fn granularity(&self, most: Ps, pus: usize) -> u64 {
        let steps = (STEPS - self.bonus(most).min(STEPS)).max(1) - 1;
        (10 << steps) * pus as u64
    }

    /// It ran from `since` on (`schedule`).
    pub fn charge(&mut self, most: Ps, now: Ps) {
        let ran = now.saturating_sub(self.since).min(most);
        self.average = self.average.saturating_sub(ran / self.bonus(most).max(1));
        (self.since, self.ran) = (now, now);
    }

    /// It slept from `since` on (`recalc_task_prio`). A long sleep makes it interactive, and no more.
    fn slept(&mut self, nice: i32, (most, ms): (Ps, Ps), now: Ps) {
        let slept = now.saturating_sub(self.since).min(most);
        let steps = (STEPS as i32 / 2 + delta(nice) + 1).max(0) as u64;
        if slept > (most * steps / STEPS).saturating_sub(ms) {
            self.average = most.saturating_sub(100 * ms);
        } else {
            let weight = (STEPS - self.bonus(most).min(STEPS)).max(1);
            self.average = (self.average + slept * weight).min(most);
        }
        self.set_priority(nice, most);
    }

    /// It has something to do again.
    pub fn wake(&mut self, nice: i32, scale: (Ps, Ps), now: Ps) {
        self.slept(nice, scale, now);
        (self.since, self.woke) = (now, true);
    }

    /// It gets a PU for the first time since it woke: a part of its wait counts as sleep. It is then to be queued anew.
    pub fn arrive(&mut self, nice: i32, scale: (Ps, Ps), now: Ps) {
        let waited = now.saturating_sub(self.since) * WAIT_COUNTS / 100;
        self.slept(nice, scale, self.since + waited);
        self.woke = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "[800ms ... 100ms ... 5ms]" (kernel/sched.c).
    #[test]
    fn slices_are_those_of_the_source() {
        assert_eq!([-20, -1, 0, 10, 19].map(slice), [800, 420, 100, 50, 5]);
    }

    /// The table in kernel/sched.c: by nice value, how many of the eleven bonuses make a thread interactive. (For -10 it
    /// has 7, where the source next to it comes to 6.)
    #[test]
    fn who_is_interactive_is_as_in_the_source() {
        let most = 1_000;
        for (nice, of_eleven) in [(-20, 9), (0, 4), (10, 2), (19, 0)] {
            let interactive = (0..=10).filter(|bonus| {
                let mut task = Task::new(nice, most, 0);
                task.average = bonus * most / 10;
                task.set_priority(nice, most);
                task.is_interactive(nice)
            });
            assert_eq!(interactive.count(), of_eleven, "{nice}");
        }
    }

    #[test]
    fn who_computes_loses_priority_and_who_sleeps_gains_it() {
        let (most, ms) = (1_000_000, 1_000);
        let mut task = Task::new(0, most, 0);
        assert!(task.is_interactive(0));
        for second in 1..20 {
            task.charge(most, second * most);
            task.set_priority(0, most);
        }
        assert_eq!((task.average, task.priority), (0, 25));
        // Half a second counts tenfold.
        task.wake(0, (most, ms), 19 * most + most / 20);
        assert_eq!(task.priority, 20);
    }
}
