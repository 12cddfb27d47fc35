//! From observations to rows: one an entity, interval and event set.

mod time;

#[cfg(test)]
mod tests;

use crate::{
    Amounts, By, Derived, Entity, Readings, Totals, Value,
    phases::{Detector, Method},
    readings::Interval,
    text::{PARTIAL, SCALED},
};
use perch_core::{
    MetricName, MetricScope, Metrics, Observation, ThreadId, ThreadSample, Topology, Window,
};
use perch_profile::Profile;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};
use time::{Seen, Time};

/// Settings of a collector.
#[derive(Debug, Clone)]
pub struct Options {
    /// What each row and each total is about.
    pub by: By,
    /// How many event sets are in rotation.
    pub sets: usize,
    /// Metrics that the user defined.
    pub derived: Vec<Derived>,
    /// Metrics of the profile that are shown.
    pub of_profile: Vec<MetricName>,
    /// Metrics of the machine and its modules that are shown.
    pub given: Vec<MetricName>,
    /// Those of them, of threads, that add up over time.
    pub given_amounts: Vec<MetricName>,
    /// How changes of phase are detected.
    pub phases: Method,
    /// Whether only rounds are shown of which every set is from one phase.
    pub complete_rounds: bool,
    /// Whether there is a row for each window of a thread ([`perch_core::Window`]) instead of one an interval.
    pub windows: bool,
}

/// Why there is a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The interval is over.
    Tick,
    /// It ended in the interval.
    Exit,
    /// A thread has had N of an event (`:every=N`).
    Window,
    /// The run is over: a total.
    Total,
}

/// One line of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Nanoseconds from the first observation's beginning to this one's end.
    pub at: u64,
    /// Length of the interval, or of the window, in nanoseconds.
    pub interval: u64,
    /// What it is about.
    pub entity: Entity,
    /// Its name: a thread's, a program's; empty for PUs.
    pub name: Arc<str>,
    /// Its process, of a thread or process.
    pub pid: Option<i32>,
    /// Why there is a row.
    pub event: Event,
    /// Which event set was counted, from 0; `None` if nothing was counted.
    pub set: Option<u32>,
    /// The round of sets that it belongs to, from 0.
    pub round: u64,
    /// The phase that it belongs to, from 0; a round that spans two is dropped.
    pub phase: u64,
    /// A new phase was noticed with this row: the round before it, if it was not complete, is of no use.
    pub new_phase: bool,
    /// When the round began that the new phase broke, in nanoseconds from the first observation's beginning; it lasted
    /// until this row's interval began. `None` if the phase began with a round.
    pub broken: Option<u64>,
    /// What was done.
    pub amounts: Amounts,
    /// What modules know about it.
    pub readings: Readings,
    /// Metrics from counts, formulas and modules.
    pub metrics: RowMetrics,
}

impl Row {
    /// A row of totals up to `at`, over `interval` nanoseconds, in which nothing was done yet.
    pub fn of_totals(at: u64, interval: u64, entity: Entity, name: Arc<str>) -> Self {
        Self {
            at,
            interval,
            entity,
            name,
            pid: None,
            event: Event::Total,
            set: None,
            round: 0,
            phase: 0,
            new_phase: false,
            broken: None,
            amounts: Amounts::default(),
            readings: Readings::default(),
            metrics: RowMetrics::default(),
        }
    }
}

/// The metrics of a row, with what must be said about them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RowMetrics {
    /// The values.
    pub values: Metrics,
    /// Metrics that are about more than the row, and about what.
    pub wider: BTreeMap<MetricName, MetricScope>,
    /// Amounts of a part of the time only: lower bounds.
    pub partial: BTreeSet<MetricName>,
    /// Metrics over counts that are scaled up.
    pub scaled: BTreeSet<MetricName>,
}

impl RowMetrics {
    /// The marks before a metric: of a lower bound, and of one over counts that are scaled up.
    pub fn mark(&self, name: &str) -> String {
        let mark = |of: &BTreeSet<MetricName>, mark| if of.contains(name) { mark } else { "" };
        [mark(&self.partial, PARTIAL), mark(&self.scaled, SCALED)].concat()
    }
}

/// What a sample is added to.
struct About<'a> {
    entity: Entity,
    name: &'a Arc<str>,
    pid: Option<i32>,
    event: Event,
}

/// Rows by entity and event set.
type Groups = BTreeMap<(Entity, Option<u32>), (Row, Time)>;

/// The rows of an interval. What the threads of an entity did of which nothing was counted is in the entity's first row of
/// counts, which then covers a part of its CPU time only.
fn complete(groups: Groups, interval: u64) -> Vec<Row> {
    let mut rows: Vec<(Row, Time)> = Vec::with_capacity(groups.len());
    for (row, time) in groups.into_values() {
        // In this order, the row without a set comes first.
        match rows.last_mut() {
            Some((last, so_far)) if last.entity == row.entity && last.set.is_none() => {
                let uncounted = std::mem::replace(last, row);
                last.amounts.add(&uncounted.amounts);
                so_far.join(&time);
            }
            _ => rows.push((row, time)),
        }
    }
    let row = |(mut row, time): (Row, Time)| {
        row.interval = time.any(interval);
        row
    };
    rows.into_iter().map(row).collect()
}

/// Where an entity is in the rotation of sets.
#[derive(Debug, Default)]
struct Progress {
    round: u64,
    /// When the first row of the present round began.
    began: u64,
    phase: u64,
    detector: Option<Detector>,
    /// Rows of the present round; kept whole only where complete rounds are wanted.
    held: Vec<Row>,
    /// The sets of the present round so far.
    seen: Vec<u32>,
}

/// Turns observations into rows and totals.
#[derive(Debug)]
pub struct Collector {
    options: Options,
    profile: Profile,
    began: Option<u64>,
    progress: HashMap<Entity, Progress>,
    totals: Totals,
    /// Rounds that a new phase broke.
    broken: u64,
}

impl Collector {
    /// One that has seen nothing yet.
    pub fn new(options: Options, profile: Profile) -> Self {
        Self {
            totals: Totals::new(options.by),
            options,
            profile,
            began: None,
            progress: HashMap::new(),
            broken: 0,
        }
    }

    /// The rows of an observation, by rising entity. Linear in threads and PUs.
    pub fn take(&mut self, observation: &Observation, topology: &Topology) -> Vec<Row> {
        let began = *self
            .began
            .get_or_insert(observation.at.saturating_sub(observation.interval));
        let at = observation.at.saturating_sub(began);
        let by = self.options.by;
        let ended: HashSet<ThreadId> = observation.ended.iter().copied().collect();
        let modules = Interval::new(observation, topology);
        // What was observed at all, with the processes of its threads: only needed for what modules know.
        let mut observed: BTreeMap<Entity, BTreeSet<i32>> = BTreeMap::new();
        let mut processes: BTreeSet<i32> = BTreeSet::new();
        let mut groups = Groups::default();
        let mut add = |about: About<'_>, set: Option<u32>, seen: Seen, amounts: &Amounts| {
            let key = (about.entity.clone(), set);
            let (row, time) = groups.entry(key).or_insert_with(|| {
                let row = Row {
                    pid: about.pid,
                    event: about.event,
                    set,
                    ..Row::of_totals(at, 0, about.entity, Arc::clone(about.name))
                };
                (row, Time::default())
            });
            time.add(seen);
            row.amounts.add(amounts);
        };
        for sample in &observation.threads {
            let amounts = Amounts::of_thread(sample);
            self.totals.thread(sample, &amounts, observation.interval);
            let entity = Entity::of_thread(by, &sample.info);
            if let Some(entity) = entity.clone().filter(|_| !modules.is_empty()) {
                processes.insert(sample.info.pid);
                observed.entry(entity).or_default().insert(sample.info.pid);
            }
            let gone = ended.contains(&sample.info.id);
            // A thread that neither ran nor ended has nothing to show.
            if amounts.cpu_time == 0 && amounts.values.is_empty() && !gone {
                continue;
            }
            let Some(entity) = entity else { continue };
            let (name, pid) = Entity::labels(by, &sample.info);
            let event = match gone && by == By::Thread {
                true => Event::Exit,
                false => Event::Tick,
            };
            let about = About {
                entity,
                name,
                pid,
                event,
            };
            add(
                about,
                sample.event_set.map(|set| set.number),
                Seen {
                    time: sample.interval,
                    ended: gone,
                },
                &amounts,
            );
        }
        let nameless: Arc<str> = "".into();
        for sample in &observation.pus {
            let amounts = Amounts::of_pu(sample);
            self.totals.pu(sample, &amounts, topology);
            if let Some(entity) = Entity::of_pu(by, sample.pu, topology) {
                if !modules.is_empty() {
                    observed.entry(entity.clone()).or_default();
                }
                let about = About {
                    entity,
                    name: &nameless,
                    pid: None,
                    event: Event::Tick,
                };
                add(
                    about,
                    sample.event_set.map(|set| set.number),
                    Seen {
                        time: sample.interval,
                        ended: false,
                    },
                    &amounts,
                );
            }
        }
        self.totals.period(observation);
        let all = match by.is_of_pus() {
            true => Entity::Machine,
            false => Entity::All,
        };
        self.totals.read_all(&modules.of(&all, &processes));
        let read: BTreeMap<Entity, Readings> = observed
            .into_iter()
            .map(|(entity, processes)| {
                let readings = modules.of(&entity, &processes);
                self.totals.read(&entity, &readings);
                (entity, readings)
            })
            .collect();
        let rows: Vec<Row> = match self.options.windows {
            true => windows(observation, began),
            false => complete(groups, observation.interval),
        };
        let mut shown = Vec::with_capacity(rows.len());
        for mut row in rows {
            // Modules are read once an interval, in which a thread may have several windows or a part of one.
            let readings = read.get(&row.entity).filter(|_| row.event != Event::Window);
            if let Some(readings) = readings {
                row.readings.clone_from(readings);
            }
            row.metrics = self.metrics(&row.amounts, &row.readings, row.interval);
            self.follow(row, &mut shown);
        }
        for thread in &observation.ended {
            self.progress.remove(&Entity::Thread(*thread));
        }
        shown
    }

    /// What happened from the first observation to the last.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Rounds of which a new phase left only a part.
    pub fn broken_rounds(&self) -> u64 {
        self.broken
    }

    /// The metrics of amounts and readings over this many nanoseconds, as far as they were asked for.
    pub fn metrics(&self, amounts: &Amounts, readings: &Readings, interval: u64) -> RowMetrics {
        let (of_profile, _) = self
            .profile
            .metrics(None, &amounts.counts(), amounts.covered);
        let given = amounts.given(&self.options.given_amounts);
        let sources = [
            (of_profile, &self.options.of_profile),
            (given, &self.options.given),
        ];
        let mut shown = RowMetrics::default();
        for (known, wanted) in sources {
            for (name, metric) in known.iter().filter(|(name, _)| wanted.contains(name)) {
                shown.values.set(MetricName::clone(name), *metric);
            }
        }
        let is_scaled = |value: &Value| value.is_scaled(amounts.covered);
        if amounts.values.values().any(is_scaled) {
            // Which counts are in it only the profile knows.
            let of_profile = self.options.of_profile.iter();
            let of_parts = of_profile.filter(|name| {
                let metric = shown.values.get(name);
                metric.is_some_and(|metric| metric.confidence < 0.995)
            });
            shown.scaled.extend(of_parts.cloned());
        }
        for name in &self.options.given_amounts {
            if amounts.is_given_in_part(name) {
                shown.partial.insert(MetricName::clone(name));
            }
        }
        let mark = |shown: &mut RowMetrics, name: &MetricName, inputs: &[String]| {
            let wider = inputs.iter().filter_map(|input| readings.wider(input));
            if let Some(scope) = wider.max() {
                shown.wider.insert(MetricName::clone(name), scope);
            }
            if inputs
                .iter()
                .any(|input| readings.is_partial(input, interval))
            {
                shown.partial.insert(MetricName::clone(name));
            }
        };
        for name in &self.options.given {
            if let Some(metric) = readings.get(name) {
                shown.values.set(MetricName::clone(name), metric);
                mark(&mut shown, name, &[name.to_string()]);
            }
        }
        for derived in &self.options.derived {
            if let Some(found) = derived.of(amounts, readings, interval) {
                let name = || MetricName::clone(&derived.name);
                shown.values.set(name(), found.metric);
                mark(&mut shown, &derived.name, derived.inputs());
                if found.is_scaled {
                    shown.scaled.insert(name());
                }
                if found.is_partial {
                    shown.partial.insert(name());
                }
            }
        }
        shown
    }

    /// Numbers the row's round and phase, and passes on what is to be shown.
    fn follow(&mut self, mut row: Row, shown: &mut Vec<Row>) {
        let sets = self.options.sets;
        let signal = self.signal(&row);
        let progress = self
            .progress
            .entry(row.entity.clone())
            .or_insert_with(|| Progress {
                detector: self.options.phases.detector(),
                ..Progress::default()
            });
        let Some(set) = row.set else {
            row.round = progress.round;
            row.phase = progress.phase;
            if !self.options.complete_rounds || row.amounts.values.is_empty() {
                shown.push(row);
            }
            return;
        };
        let change = signal.and_then(|value| progress.detector.as_mut()?.next(value));
        if change.is_some() {
            progress.phase += 1;
            row.new_phase = true;
            if !progress.seen.is_empty() {
                row.broken = Some(progress.began);
                self.broken += 1;
                progress.round += 1;
                progress.seen.clear();
                progress.held.clear();
            }
        }
        if progress.seen.contains(&set) {
            // The rotation has begun anew without every set: a thread that was without counters for a while.
            progress.round += 1;
            progress.seen.clear();
            progress.held.clear();
        }
        if progress.seen.is_empty() {
            progress.began = row.at.saturating_sub(row.interval);
        }
        row.round = progress.round;
        row.phase = progress.phase;
        progress.seen.push(set);
        let complete = progress.seen.len() >= sets;
        match self.options.complete_rounds {
            false => shown.push(row),
            true => {
                progress.held.push(row);
                if complete {
                    shown.append(&mut progress.held);
                }
            }
        }
        if complete {
            progress.round += 1;
            progress.seen.clear();
            progress.held.clear();
        }
    }

    /// In what changes of phase are detected: instructions per cycle, which every set can count.
    fn signal(&self, row: &Row) -> Option<f64> {
        let estimate = |alias: &str| row.amounts.value(alias)?.estimate(row.amounts.cpu_time);
        match (estimate("instructions"), estimate("cycles")) {
            (Some(instructions), Some(cycles)) if cycles > 0.0 => Some(instructions / cycles),
            _ => None,
        }
    }
}

/// A row for each window, by rising time.
fn windows(observation: &Observation, began: u64) -> Vec<Row> {
    let threads: HashMap<ThreadId, &ThreadSample> = observation
        .threads
        .iter()
        .map(|sample| (sample.info.id, sample))
        .collect();
    let row = |window: &Window| {
        let sample = threads.get(&window.thread)?;
        Some(Row {
            at: window.at.saturating_sub(began),
            interval: window.interval,
            entity: Entity::Thread(window.thread),
            name: Arc::clone(&sample.info.name),
            pid: Some(sample.info.pid),
            event: Event::Window,
            set: Some(0),
            round: 0,
            phase: 0,
            new_phase: false,
            broken: None,
            amounts: Amounts::of_window(window),
            readings: Readings::default(),
            metrics: RowMetrics::default(),
        })
    };
    let mut rows: Vec<Row> = observation.windows.iter().filter_map(row).collect();
    rows.sort_by_key(|row| row.at);
    rows
}
