//! The default scheduler of an operating system as a model: the baseline with which all papers compare.
//!
//! Today's Linux and that of some years ago share PUs fairly ([`fair`]). Older papers compared with older ones: Linux 2.6.11
//! gives PUs by dynamic priorities ([`o1`]), and Linux 2.4 has one queue for all PUs ([`single`]).

mod fair;
mod o1;
mod single;

use crate::{
    model::{MachineModel, SchedulerKind},
    stream::Random,
    thread::Thread,
    units::Ps,
};
use fair::FairScheduler;
use o1::ConstantTime;
use single::SingleQueue;

/// A thread: an index of the system's threads.
type Index = usize;

/// How the model is set. Times are in nanoseconds of the operating system. Those of one PU; the kernel multiplies
/// `latency`, `granularity` and `wakeup` by 1 + log2 of the number of PUs, and by 4 from 8 PUs on
/// (`SCHED_TUNABLESCALING_LOG`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerModel {
    /// From one timer tick to the next (`CONFIG_HZ=250`).
    pub tick: u64,
    /// In which each of up to 8 threads of a PU has its turn (`sched_latency`).
    pub latency: u64,
    /// How long a turn is at least (`sched_min_granularity`), and the slice of EEVDF (`sched_base_slice`).
    pub granularity: u64,
    /// How far behind the running thread one that wakes must be to take its place (`sched_wakeup_granularity`).
    pub wakeup: u64,
    /// What a switch to another thread costs its PU.
    pub switch: u64,
}

impl Default for SchedulerModel {
    fn default() -> Self {
        Self {
            tick: 4_000_000,
            latency: 6_000_000,
            granularity: 750_000,
            wakeup: 1_000_000,
            switch: 2_000,
        }
    }
}

/// A scheduler of a machine.
#[derive(Debug, Clone)]
pub enum Scheduler {
    /// Shares PUs fairly.
    Fair(FairScheduler),
    /// Gives PUs by dynamic priorities.
    ConstantTime(ConstantTime),
    /// Has one queue for all PUs.
    Single(SingleQueue),
}

/// Calls a scheduler, whichever it is.
macro_rules! of {
    ($scheduler:expr, $name:ident($($argument:expr),*)) => {
        match $scheduler {
            Scheduler::Fair(scheduler) => scheduler.$name($($argument),*),
            Scheduler::ConstantTime(scheduler) => scheduler.$name($($argument),*),
            Scheduler::Single(scheduler) => scheduler.$name($($argument),*),
        }
    };
}

impl Scheduler {
    /// The scheduler of a machine; `random` breaks ties between PUs that are equally idle.
    pub fn new(machine: &MachineModel, model: SchedulerModel, random: Random) -> Self {
        match machine.scheduler {
            SchedulerKind::Cfs | SchedulerKind::Eevdf => {
                Self::Fair(FairScheduler::new(machine, model, random))
            }
            SchedulerKind::Linux2611 => Self::ConstantTime(ConstantTime::new(machine, random)),
            SchedulerKind::Linux24 => Self::Single(SingleQueue::new(machine, random)),
        }
    }

    /// The thread that is to run on a PU.
    pub fn current(&self, pu: usize) -> Option<usize> {
        of!(self, current(pu))
    }

    /// When the scheduler wants to be called again at the latest.
    pub fn next_tick(&self) -> Ps {
        of!(self, next_tick())
    }

    /// Whether all PUs are idle.
    pub fn is_idle(&self) -> bool {
        of!(self, is_idle())
    }

    /// A new thread.
    pub fn start(&mut self, index: usize, threads: &mut [Thread], now: Ps) {
        of!(self, start(index, threads, now))
    }

    /// A thread has something to do again.
    pub fn wake(&mut self, index: usize, threads: &mut [Thread], now: Ps) {
        of!(self, wake(index, threads, now))
    }

    /// A thread has nothing to do, or has ended: its PU goes to the next.
    pub fn stop(&mut self, index: usize, threads: &mut [Thread], now: Ps) {
        of!(self, stop(index, threads, now))
    }

    /// A mask was changed: a thread that may not stay moves away.
    pub fn masked(&mut self, index: usize, threads: &mut [Thread], now: Ps) {
        of!(self, masked(index, threads, now))
    }

    /// Whether no tick changes which thread is on which PU before a thread stops, wakes or gets another mask.
    pub fn is_still(&self, threads: &[Thread]) -> bool {
        of!(self, is_still(threads))
    }

    /// Ticks at which nothing happened are over.
    pub fn pass(&mut self, threads: &[Thread], now: Ps) {
        match self {
            Self::Fair(scheduler) => scheduler.pass(now),
            Self::ConstantTime(scheduler) => scheduler.pass(threads, now),
            Self::Single(scheduler) => scheduler.pass(threads, now),
        }
    }

    /// The timer.
    pub fn tick(&mut self, threads: &mut [Thread], now: Ps) {
        of!(self, tick(threads, now))
    }
}
