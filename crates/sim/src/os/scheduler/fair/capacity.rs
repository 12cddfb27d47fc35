//! Cores of different capacity, and threads that need more than theirs has (kernel 6.1, `kernel/sched/fair.c`: misfit tasks,
//! `select_idle_capacity`; `drivers/base/arch_topology.c`; utilisation as in `kernel/sched/pelt.c`).

use super::{FairScheduler, Index};
use crate::{model::MachineModel, thread::Thread, units::Ps};

/// The capacity of the fastest core (`SCHED_CAPACITY_SCALE`).
pub(super) const FULL: u64 = 1024;

/// Nanoseconds of the operating system after which what a thread did counts half (`PELT_HALFLIFE`: 32 periods of 1024 µs).
const HALF_LIFE: u64 = 32 * 1_024_000;

/// How much a thread needs: a mean over the time, in units of capacity, in which the past fades.
#[derive(Debug, Clone, Copy, Default)]
struct Utilisation {
    mean: f64,
    /// Up to when that is, and the time on a PU that the thread had had then.
    at: Ps,
    ran: Ps,
    /// The mean when it last had nothing to do (`util_est`).
    estimate: f64,
}

impl Utilisation {
    /// Up to now; since the last time it was on PUs of this capacity, as far as it ran.
    fn advance(&mut self, thread: &Thread, capacity: u64, half_life: f64, now: Ps) {
        let passed = now.saturating_sub(self.at) as f64;
        if passed <= 0.0 {
            return;
        }
        let ran = thread.cpu_time_at(now);
        let share = (ran.saturating_sub(self.ran) as f64 / passed).min(1.0);
        let kept = (-passed / half_life).exp2();
        self.mean = self.mean * kept + capacity as f64 * share * (1.0 - kept);
        (self.at, self.ran) = (now, ran);
    }

    /// What it will need (`task_util_est`).
    fn needed(&self) -> f64 {
        self.mean.max(self.estimate)
    }
}

/// The capacities of a machine's PUs, and what its threads need.
#[derive(Debug, Clone)]
pub(super) struct Capacities {
    of: Vec<u64>,
    half_life: f64,
    threads: Vec<Utilisation>,
}

impl Capacities {
    /// `None` where all PUs have the same.
    pub fn new(machine: &MachineModel) -> Option<Self> {
        let of = capacities(machine);
        let differ = of.iter().any(|capacity| *capacity != of[0]);
        differ.then(|| Self {
            of,
            half_life: machine.machine_time(HALF_LIFE).max(1) as f64,
            threads: Vec::new(),
        })
    }

    pub fn of(&self, pu: u32) -> u64 {
        self.of[pu as usize]
    }

    /// A new thread: it may need half of what its PU has (`post_init_entity_util_avg`, on a PU that was idle).
    pub fn start(&mut self, index: Index, thread: &Thread, pu: u32, now: Ps) {
        if self.threads.len() <= index {
            self.threads.resize(index + 1, Utilisation::default());
        }
        self.threads[index] = Utilisation {
            mean: self.of(pu) as f64 / 2.0,
            at: now,
            ran: thread.cpu_time_at(now),
            estimate: 0.0,
        };
    }

    /// Takes in what a thread did up to now where it is.
    pub fn advance(&mut self, index: Index, threads: &[Thread], now: Ps) {
        let thread = &threads[index];
        let capacity = self.of(thread.last_pu);
        self.threads[index].advance(thread, capacity, self.half_life, now);
    }

    /// A thread has nothing to do any more.
    pub fn stop(&mut self, index: Index, threads: &[Thread], now: Ps) {
        self.advance(index, threads, now);
        self.threads[index].estimate = self.threads[index].mean;
    }

    /// Whether a PU has what a thread needs, and a fifth to spare (`fits_capacity`).
    pub fn fits(&self, index: Index, pu: u32) -> bool {
        self.threads[index].needed() * 1280.0 < (self.of(pu) * 1024) as f64
    }

    /// Whether a PU has markedly more than another (`capacity_greater`).
    pub fn is_greater(&self, pu: u32, than: u64) -> bool {
        self.of(pu) * 1024 > than * 1078
    }
}

/// By PU: what a core does at its highest clock, `FULL` for the fastest (`topology_normalize_cpu_scale`). The same for all
/// if it is not known of each kind.
pub(super) fn capacities(machine: &MachineModel) -> Vec<u64> {
    let places = machine.places();
    let raw = |core: usize| {
        let kind = machine.kind(&machine.cores[core]);
        Some(u64::from(kind.dmips_per_mhz?) * kind.highest_clock())
    };
    let raw: Option<Vec<u64>> = places.iter().map(|(core, _)| raw(*core)).collect();
    let most = raw.iter().flatten().max().copied().unwrap_or(0);
    match raw {
        Some(raw) if most > 0 => raw
            .into_iter()
            .map(|raw| (raw * FULL / most).max(1))
            .collect(),
        _ => vec![FULL; places.len()],
    }
}

impl FairScheduler {
    /// The capacity of a PU.
    pub(super) fn capacity(&self, pu: u32) -> u64 {
        self.capacities.as_ref().map_or(FULL, |all| all.of(pu))
    }

    /// The weight of the thread that has a PU, if it needs more than the PU has, and may go elsewhere; else 0
    /// (`misfit_task_load`).
    pub(super) fn misfit(&self, pu: u32, threads: &[Thread]) -> u64 {
        let Some(capacities) = &self.capacities else {
            return 0;
        };
        let misfit = self.queues[pu as usize].current.filter(|index| {
            !capacities.fits(*index, pu) && threads[*index].mask.iter().nth(1).is_some()
        });
        misfit.map_or(0, |index| u64::from(threads[index].weight()))
    }

    /// Where a thread that wakes goes on (`select_idle_capacity`): where it was, if that is idle and has what it needs;
    /// else on the next idle PU that has, else on the idle one that has most, else where it was.
    pub(super) fn near_with_capacity(
        &self,
        capacities: &Capacities,
        index: Index,
        before: u32,
        threads: &[Thread],
    ) -> u32 {
        let pus = self.queues.len() as u32;
        let idle = (before..pus)
            .chain(0..before)
            .filter(|pu| threads[index].mask.contains(*pu) && self.queues[*pu as usize].is_idle());
        let mut best: Option<u32> = None;
        for pu in idle {
            if capacities.fits(index, pu) {
                return pu;
            }
            if best.is_none_or(|best| capacities.of(pu) > capacities.of(best)) {
                best = Some(pu);
            }
        }
        best.unwrap_or(before)
    }

    /// Whether a thread has a PU while one of more capacity is idle, on which it may go.
    pub(super) fn may_be_promoted(&self, threads: &[Thread]) -> bool {
        let Some(capacities) = &self.capacities else {
            return false;
        };
        let pus = 0..self.queues.len() as u32;
        let idle = pus.clone().filter(|pu| self.queues[*pu as usize].is_idle());
        let idle: Vec<u32> = idle.collect();
        pus.into_iter().any(|pu| {
            self.queues[pu as usize].current.is_some_and(|index| {
                let mask = &threads[index].mask;
                let better = |idle: &u32| capacities.is_greater(*idle, capacities.of(pu));
                idle.iter().any(|idle| better(idle) && mask.contains(*idle))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::find_machine;

    #[test]
    fn capacities_are_relative_to_the_fastest_and_need_to_be_known_of_all() {
        let mut machine = find_machine("big-little").unwrap();
        for (kind, dmips) in machine.kinds.iter_mut().zip([1024, 512]) {
            kind.dmips_per_mhz = Some(dmips);
        }
        // 1.4 GHz of 2, and half as much in each cycle.
        let known = capacities(&machine);
        assert_eq!((known[0], known[7]), (1024, 358));
        machine.kinds[0].dmips_per_mhz = None;
        assert!(
            capacities(&machine)
                .iter()
                .all(|capacity| *capacity == FULL)
        );
        assert!(Capacities::new(&machine).is_none());
    }
}
