//! What happened over a whole run.

use crate::{Amounts, By, Entity, Readings};
use perch_core::{Observation, PuSample, ThreadSample, Topology};
use std::{collections::HashMap, sync::Arc};

/// Uncounted time on PUs, in nanoseconds, that needs no mark: the kernel takes less to start a program and to end it.
pub const SMALL: u64 = 10_000_000;

/// One entity over the whole run.
#[derive(Debug, Clone, PartialEq)]
pub struct Total {
    /// What it is about.
    pub entity: Entity,
    /// Its last name; empty for PUs.
    pub name: Arc<str>,
    /// Its process, of a thread or process.
    pub pid: Option<i32>,
    /// Nanoseconds for which it was observed: of several threads or PUs, those for which any of them was.
    pub interval: u64,
    /// The observation that was added last, and how much of `interval` is from it.
    last: (u64, u64),
    /// Whether it was there for a whole interval.
    was_there: bool,
    /// The same, the times of its threads or PUs added up.
    time: u64,
    /// What it did. An event of a set in rotation was counted for a part of the time.
    pub amounts: Amounts,
    /// What modules know about it.
    pub readings: Readings,
}

/// All entities over the whole run.
#[derive(Debug, Clone, PartialEq)]
pub struct Totals {
    by: By,
    entities: HashMap<Entity, Total>,
    /// Of programs that were counted as a whole.
    whole: Option<Amounts>,
    /// What modules know about all entities together.
    readings: Readings,
    /// How many observations there were before.
    observations: u64,
    /// Nanoseconds from the first observation's beginning to the last one's end.
    pub interval: u64,
    /// Threads that came and went between two observations.
    pub unseen: u64,
    /// CPU time, in nanoseconds, of which only that is known: theirs, and that of threads' last moments.
    pub unmeasured: u64,
    /// CPU time of perch itself, in nanoseconds.
    pub own_cpu_time: u64,
}

/// Entities of which a total is kept each; further ones are added up by thread name.
const MOST_THREADS: usize = 20_000;

impl Total {
    /// Whether it was there for some time and did not run: it has done nothing, which is known without counting.
    pub fn was_idle(&self) -> bool {
        self.was_there && !self.amounts.unknown_end && self.amounts.cpu_time == 0
    }

    /// Adds one of its threads or PUs, which was observed for this many nanoseconds in this observation.
    fn add(&mut self, observation: u64, interval: u64, amounts: &Amounts) {
        if self.last.0 != observation {
            self.last = (observation, 0);
        }
        let longer = interval.saturating_sub(self.last.1);
        self.last.1 += longer;
        self.interval += longer;
        self.time = self.time.saturating_add(interval);
        self.amounts.add(amounts);
        self.amounts.mean_members = mean(self.time, self.interval);
    }
}

/// How many there were on the average of `interval`, if their times together are `time`.
fn mean(time: u64, interval: u64) -> Option<f64> {
    (interval > 0).then(|| time as f64 / interval as f64)
}

impl Totals {
    pub(crate) fn new(by: By) -> Self {
        Self {
            by,
            entities: HashMap::new(),
            whole: None,
            readings: Readings::default(),
            observations: 0,
            interval: 0,
            unseen: 0,
            unmeasured: 0,
            own_cpu_time: 0,
        }
    }

    /// Adds a thread over an interval of this many nanoseconds, of which it may have lived for a part.
    pub(crate) fn thread(&mut self, sample: &ThreadSample, amounts: &Amounts, interval: u64) {
        let Some(mut entity) = Entity::of_thread(self.by, &sample.info) else {
            return;
        };
        let (name, mut pid) = Entity::labels(self.by, &sample.info);
        if self.entities.len() >= MOST_THREADS && !self.entities.contains_key(&entity) {
            entity = Entity::Command(Arc::clone(&sample.info.name));
            pid = None;
        }
        let observation = self.observations;
        let total = self.entry(entity, pid);
        if total.name != *name {
            total.name = Arc::clone(name);
        }
        total.was_there |= sample.interval >= interval;
        total.add(observation, sample.interval, amounts);
    }

    pub(crate) fn pu(&mut self, sample: &PuSample, amounts: &Amounts, topology: &Topology) {
        let Some(entity) = Entity::of_pu(self.by, sample.pu, topology) else {
            return;
        };
        let observation = self.observations;
        let total = self.entry(entity, None);
        total.add(observation, sample.interval, amounts);
    }

    /// What modules know about an entity that was observed in the interval.
    pub(crate) fn read(&mut self, entity: &Entity, readings: &Readings) {
        if let Some(total) = self.entities.get_mut(entity) {
            total.readings.add(readings);
        }
    }

    /// What modules know about all entities together.
    pub(crate) fn read_all(&mut self, readings: &Readings) {
        self.readings.add(readings);
    }

    /// What modules know about all entities together: not the sum over rows, which may tell the same.
    pub fn readings(&self) -> &Readings {
        &self.readings
    }

    pub(crate) fn period(&mut self, observation: &Observation) {
        if !self.by.is_of_pus() {
            for sample in &observation.targets {
                let whole = self.whole.get_or_insert_default();
                whole.add(&Amounts::of_target(sample));
            }
        }
        self.observations += 1;
        self.interval += observation.interval;
        self.unseen += observation.unseen;
        self.unmeasured += observation.unmeasured;
        self.own_cpu_time += observation.own_cpu_time;
    }

    fn entry(&mut self, entity: Entity, pid: Option<i32>) -> &mut Total {
        self.entities
            .entry(entity.clone())
            .or_insert_with(|| Total {
                entity,
                name: "".into(),
                pid,
                interval: 0,
                last: (u64::MAX, 0),
                was_there: false,
                time: 0,
                amounts: Amounts::default(),
                readings: Readings::default(),
            })
    }

    /// The entities, those with the most CPU time first.
    pub fn by_cpu_time(&self) -> Vec<&Total> {
        let mut totals: Vec<&Total> = self.entities.values().collect();
        totals.sort_by_key(|total| {
            (
                std::cmp::Reverse(total.amounts.cpu_time),
                total.entity.clone(),
            )
        });
        totals
    }

    /// Whether [`Totals::all`] includes the counts of threads that were too short-lived for rows.
    pub fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// Nanoseconds on PUs of all entities; of a program that was counted as a whole, also of threads that are in no row.
    /// Its counters may have been on for less: they start at its `exec`, and stop before the kernel has ended a thread.
    pub fn cpu_time(&self) -> u64 {
        let rows = self.entities.values().map(|total| total.amounts.cpu_time);
        let rows = rows.fold(0u64, u64::saturating_add);
        match &self.whole {
            Some(whole) => whole.cpu_time.max(rows.saturating_add(self.unmeasured)),
            None => rows,
        }
    }

    /// The sum over all entities. The counts of a program that was started are those of all its threads, however
    /// short-lived.
    pub fn all(&self) -> Amounts {
        let mut all = Amounts::default();
        let mut time = 0u64;
        for total in self.by_cpu_time() {
            all.add(&total.amounts);
            time = time.saturating_add(total.time);
        }
        all.mean_members = mean(time, self.interval);
        if let Some(whole) = &self.whole {
            // The kernel's own work to start a program and to end its threads is no reason to call counts a lower bound.
            let uncounted = self.cpu_time().saturating_sub(whole.covered);
            all.cpu_time = match uncounted > SMALL {
                true => self.cpu_time(),
                false => whole.cpu_time,
            };
            all.covered = whole.covered;
            all.values.clone_from(&whole.values);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As of an ordinary user's program with set-user-ID children.
    #[test]
    fn all_is_a_lower_bound_if_more_is_missing_than_the_kernel_takes() {
        for (uncounted, expected) in [(0, false), (SMALL / 2, false), (2 * SMALL, true)] {
            let mut whole = Amounts::of_counts(&[], 100_000_000);
            whole.covered = whole.cpu_time;
            let totals = Totals {
                unmeasured: whole.cpu_time + uncounted,
                whole: Some(whole),
                ..Totals::new(By::Thread)
            };
            assert_eq!(totals.all().is_partial(), expected, "{uncounted}");
        }
    }

    #[test]
    fn counters_of_a_whole_program_may_miss_some_of_its_time() {
        let totals = |whole: u64| Totals {
            whole: Some(Amounts::of_counts(&[], whole)),
            unmeasured: 30,
            ..Totals::new(By::Thread)
        };
        assert_eq!(totals(20).cpu_time(), 30);
        assert_eq!(totals(50).cpu_time(), 50);
        assert_eq!(totals(20).all().cpu_time, 20);
        assert_eq!(
            Totals {
                whole: None,
                ..totals(20)
            }
            .cpu_time(),
            0
        );
    }

    #[test]
    fn two_pus_for_a_second_are_observed_for_a_second() {
        let topology = Topology {
            source: "test".into(),
            packages: Vec::new(),
            numa_nodes: Vec::new(),
            caches: Vec::new(),
            cores: Vec::new(),
            kinds: Vec::new(),
            pus: Vec::new(),
        };
        let mut totals = Totals::new(By::Machine);
        for interval in [1_000, 500] {
            for (pu, observed) in [(0, interval - 100), (1, interval)] {
                let sample = PuSample {
                    pu,
                    interval: observed,
                    busy: 10,
                    interrupts: 0,
                    counts: Vec::new(),
                    event_set: None,
                };
                totals.pu(&sample, &Amounts::of_pu(&sample), &topology);
            }
            totals.period(&Observation::default());
        }
        let total = totals.by_cpu_time()[0];
        assert_eq!((total.interval, total.amounts.cpu_time), (1_500, 40));
        // Two of them almost all the time, not four.
        assert_eq!(
            total.amounts.threads(),
            (900.0 + 1_000.0 + 400.0 + 500.0) / 1_500.0
        );
    }
}
