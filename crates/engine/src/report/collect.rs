//! Collects a report while a session runs, in bounded memory.

use super::{
    GroupReport, MoveReport, Moves, OwnCost, PackageEnergy, Placements, Report, Role, ThreadReport,
    Trust, VERSION, accumulator::Accumulator, given::Given, rows, system::System,
    timeline::PlacementTimeline,
};
use crate::observer::{Move, Period, SessionEnd, SessionSink, Start};
use perch_core::{
    MetricSource, Observation, Outcome, PuSet, Reading, Remark, Snapshot, ThreadId, ThreadInfo,
    ThreadSample, Unmanaged, metric::names,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// The report lists up to this many ended threads one by one, the busiest ones. It groups the rest by name.
const ENDED: usize = 400;

/// Groups of ended threads beyond these become one.
const GROUPS: usize = 400;

/// This many of the first and of the last moves are kept with their numbers.
const MOVES: usize = 200;

/// More remarks than these would not be read.
const REMARKS: usize = 200;

/// An observer that collects the report.
#[derive(Debug, Default)]
pub struct Collector {
    command: Vec<String>,
    start: Option<Start>,
    threads: FxHashMap<ThreadId, Thread>,
    ended: usize,
    groups: BTreeMap<(String, String), (u64, Accumulator)>,
    timeline: PlacementTimeline,
    system: System,
    moves: Moves,
    last_moves: VecDeque<MoveReport>,
    unmanaged: Vec<(Unmanaged, u64)>,
    trust: TrustSum,
    begin: Option<u64>,
    at: u64,
    periods: u64,
    unseen: u64,
    most_threads: usize,
    own_time: u64,
    energy: BTreeMap<u32, PackageEnergy>,
    fp_threshold: f64,
    remarks: Vec<Remark>,
    end: Option<SessionEnd>,
}

/// Names of one thread that are kept.
const NAMES: usize = 8;

#[derive(Debug)]
struct Thread {
    /// With its last name.
    info: ThreadInfo,
    /// The names that it had, with the CPU time under each.
    names: Vec<(Arc<str>, u64)>,
    first: u64,
    last: u64,
    ended: bool,
    unmanaged: Option<Unmanaged>,
    bound: Option<PuSet>,
    given: Given,
    accumulator: Accumulator,
}

#[derive(Debug, Default)]
struct TrustSum {
    cpu_time: f64,
    /// CPU time beyond, of which no sample tells.
    unmeasured: f64,
    known: f64,
    confidence: f64,
    sources: Vec<(MetricSource, f64)>,
}

impl Collector {
    /// Nothing collected yet. The command is that which was run, or the processes that were attached, as given.
    pub fn new(command: &[String]) -> Self {
        Self {
            command: command.to_vec(),
            ..Self::default()
        }
    }

    /// Adds remarks for the user to those of the session.
    pub fn remark(&mut self, remarks: impl IntoIterator<Item = Remark>) {
        let room = REMARKS.saturating_sub(self.remarks.len());
        self.remarks.extend(remarks.into_iter().take(room));
    }

    /// The report of what was seen so far.
    pub fn report(&self) -> Report {
        let duration = self.at.saturating_sub(self.begin.unwrap_or(self.at));
        let mut threads: Vec<ThreadReport> = self.threads.values().map(thread).collect();
        threads.sort_by_key(|thread| (u64::MAX - thread.stats.cpu_time, thread.thread));
        let mut groups: Vec<GroupReport> = self
            .groups
            .iter()
            .map(|((process, name), (threads, accumulator))| {
                let stats = accumulator.finish();
                let role = stats.role();
                GroupReport {
                    process: process.clone(),
                    name: name.clone(),
                    threads: *threads,
                    role,
                    stats,
                }
            })
            .collect();
        groups.sort_by_key(|group| u64::MAX - group.stats.cpu_time);
        let moves = Moves {
            last: self.last_moves.iter().cloned().collect(),
            ..self.moves.clone()
        };
        let what_if = self
            .start
            .as_ref()
            .filter(|start| start.machine != start.topology)
            .map(|start| start.topology.source.to_string());
        let text = |get: fn(&Start) -> &str| {
            self.start
                .as_ref()
                .map_or_else(String::new, |start| get(start).to_owned())
        };
        let grouped: u64 = groups.iter().map(|group| group.threads).sum();
        let threads_seen = threads.len() as u64 + grouped + self.unseen;
        Report {
            version: VERSION,
            command: self.command.clone(),
            policy: text(|start| &start.policy),
            profile: text(|start| &start.profile),
            counting: match &self.end {
                Some(end) => end.counting.clone(),
                None => text(|start| &start.counting),
            },
            machine: text(|start| start.machine.source.as_str()),
            dry_run: self.start.as_ref().is_some_and(|start| start.dry_run),
            what_if,
            period: self
                .start
                .as_ref()
                .map_or(0, |start| start.period.as_nanos() as u64),
            periods: self.periods,
            duration,
            fp_threshold: self.fp_threshold,
            trust: self.trust.finish(),
            unmeasured: self.trust.unmeasured as u64,
            energy: self.energy.values().copied().collect(),
            threads,
            groups,
            threads_seen,
            unseen: self.unseen,
            most_threads: self.most_threads,
            placements: self.placements(),
            moves,
            unmanaged: self.unmanaged.clone(),
            system: self.system.finish(),
            own: OwnCost {
                cpu_time: self.own_time,
                share: self.own_time as f64 / duration.max(1) as f64,
            },
            remarks: self.remarks.clone(),
            cause: self.end.as_ref().map(|end| end.cause),
            restored: self
                .end
                .as_ref()
                .map(|end| end.restored.clone())
                .unwrap_or_default(),
        }
    }

    /// Adds the energy of packages.
    fn used(&mut self, observation: &Observation) {
        let readings = observation.readings.iter();
        for (package, energy) in readings.filter_map(Reading::package_energy) {
            let used = self.energy.entry(package).or_insert(PackageEnergy {
                package,
                energy: 0.0,
                time: 0,
            });
            used.energy += energy;
            used.time += observation.interval;
        }
    }

    fn placements(&self) -> Placements {
        let placements = self.timeline.finish(self.at);
        match &self.start {
            Some(start) => rows::by_core(placements, &start.topology),
            None => placements,
        }
    }

    fn thread(
        &mut self,
        sample: &ThreadSample,
        snapshot: &Snapshot,
        bound: Option<&PuSet>,
        ended: bool,
    ) {
        let id = sample.info.id;
        let state = snapshot.thread(id);
        let metrics = state.map_or(&sample.metrics, |state| &state.metrics);
        let share = metrics.get(names::FP_SHARE);
        let role = match share {
            Some(share) if snapshot.thresholds.reached(names::FP_SHARE, share.value) => {
                Role::FloatingPoint
            }
            Some(_) => Role::Integer,
            None => Role::Unknown,
        };
        let time = sample.cpu_time as f64;
        self.trust.cpu_time += time;
        if let Some(share) = share {
            self.trust.add(share.source, share.confidence, time);
        }
        // In a dry run a thread is where it was put. Otherwise it is where it was seen, unless that was on another
        // machine.
        let (dry_run, elsewhere) = self.start.as_ref().map_or((false, false), |start| {
            (start.dry_run, start.machine != start.topology)
        });
        let put = bound.filter(|_| dry_run).and_then(PuSet::first);
        if let Some(pu) = put.or(sample.last_pu.filter(|_| !elsewhere)) {
            let name = &sample.info.name;
            self.timeline
                .add(pu, id, name, role, bound.is_some(), sample.cpu_time);
        }
        let thread = self.threads.entry(id).or_insert_with(|| Thread {
            info: sample.info.clone(),
            names: Vec::new(),
            first: snapshot.at.saturating_sub(sample.interval),
            last: snapshot.at,
            ended: false,
            unmanaged: None,
            bound: None,
            given: Given::default(),
            accumulator: Accumulator::default(),
        });
        // The sample of a thread that ended goes from where its last one ended to its own end.
        thread.last = match ended && thread.last < snapshot.at {
            true => snapshot.at.min(thread.last.saturating_add(sample.interval)),
            false => snapshot.at,
        };
        if std::mem::take(&mut thread.ended) {
            // Detached and attached again.
            self.ended -= 1;
        }
        if thread.info.name != sample.info.name {
            thread.info.name = Arc::clone(&sample.info.name);
        }
        let name = &sample.info.name;
        let at = thread.names.iter().position(|(known, _)| known == name);
        match at {
            Some(at) => thread.names[at].1 += sample.cpu_time,
            None if thread.names.len() < NAMES => {
                thread.names.push((Arc::clone(name), sample.cpu_time));
            }
            None => {}
        }
        if thread.bound.as_ref() != bound {
            thread.bound = bound.cloned();
        }
        // The kernel tells nothing of a thread that has ended: its last moments are not known to have been idle.
        let unread = ended && sample.cpu_time == 0 && sample.switches.is_none();
        if !unread {
            thread
                .accumulator
                .add(sample, metrics, role, bound.is_some());
        }
        let reason = state.and_then(|state| state.unmanaged);
        if let Some(reason) = reason.filter(|_| thread.unmanaged != reason) {
            count(&mut self.unmanaged, reason);
        }
        if reason.is_some() {
            thread.unmanaged = reason;
        }
    }

    fn moved(&mut self, made: &Move, snapshot: &Snapshot) {
        // What was refused has not happened. In a dry run everything counts.
        if matches!(made.outcome, Outcome::Applied | Outcome::NotApplied) {
            match (&made.from, &made.to) {
                (None, _) => self.moves.bound += 1,
                (Some(_), Some(_)) => self.moves.moved += 1,
                (Some(_), None) => self.moves.released += 1,
            }
        }
        count(&mut self.moves.outcomes, made.outcome);
        let thread = self.threads.get_mut(&made.thread);
        let name = thread.map_or_else(String::new, |thread| {
            thread.accumulator.stats.moves += 1;
            thread.info.name.to_string()
        });
        let report = MoveReport {
            period: snapshot.period,
            at: snapshot.at,
            thread: made.thread,
            name,
            ran_on: snapshot.thread(made.thread).and_then(|of| of.last_pu),
            from: made.from.clone(),
            to: made.to.clone(),
            reason: made.reason.clone(),
            outcome: made.outcome,
        };
        if self.moves.first.len() < MOVES {
            self.moves.first.push(report);
            return;
        }
        self.last_moves.push_back(report);
        if self.last_moves.len() > MOVES {
            self.last_moves.pop_front();
            self.moves.left_out += 1;
        }
    }

    /// An observation holds every live thread that is followed: what it lacks was detached, and counts as ended.
    /// `system` of its live threads belong to the operating system.
    fn end_unobserved(&mut self, observation: &Observation, system: usize) {
        let live = observation
            .threads
            .len()
            .saturating_sub(observation.ended.len() + system);
        if self.threads.len() - self.ended <= live {
            return;
        }
        for thread in self.threads.values_mut() {
            if !thread.ended && thread.last < observation.at {
                thread.ended = true;
                self.ended += 1;
            }
        }
    }

    /// Once twice as many threads have ended as the report lists one by one, groups the less busy half by name.
    fn fold(&mut self) {
        if self.ended < 2 * ENDED {
            return;
        }
        let mut ended: Vec<(u64, ThreadId)> = self
            .threads
            .iter()
            .filter(|(_, thread)| thread.ended)
            .map(|(id, thread)| (thread.accumulator.stats.cpu_time, *id))
            .collect();
        ended.sort_unstable();
        for (_, id) in &ended[..ended.len().saturating_sub(ENDED)] {
            let Some(thread) = self.threads.remove(id) else {
                continue;
            };
            let mut key = (
                thread.info.process.to_string(),
                name_pattern(&thread.info.name),
            );
            if !self.groups.contains_key(&key) && self.groups.len() >= GROUPS {
                key = ("(others)".to_owned(), "(others)".to_owned());
            }
            let (threads, accumulator) = self.groups.entry(key).or_default();
            *threads += 1;
            accumulator.merge(&thread.accumulator);
        }
        self.ended = self.ended.min(ENDED);
    }
}

impl SessionSink for Collector {
    fn start(&mut self, start: &Start) {
        self.start = Some(start.clone());
    }

    fn period(&mut self, period: &Period) {
        let (observation, snapshot) = (&*period.observation, &*period.snapshot);
        self.begin
            .get_or_insert(observation.at.saturating_sub(observation.interval));
        self.at = observation.at;
        self.periods += 1;
        self.unseen += observation.unseen;
        self.own_time += observation.own_cpu_time;
        self.fp_threshold = snapshot.thresholds.of(names::FP_SHARE).unwrap_or(0.0);
        self.trust.unmeasured += observation.unmeasured as f64;
        self.used(observation);
        let ended: FxHashSet<ThreadId> = observation.ended.iter().copied().collect();
        let mut system = 0;
        for sample in &observation.threads {
            let id = sample.info.id;
            if !sample.info.work.is_program() {
                let has_ended = ended.contains(&id);
                self.system.thread(sample, snapshot.thread(id), has_ended);
                system += usize::from(!has_ended);
                continue;
            }
            if !ended.contains(&id) {
                let state = snapshot.thread(id);
                let bound = state.and_then(|state| state.bound.as_ref());
                self.thread(sample, snapshot, bound, false);
                continue;
            }
            // It has ended where it was.
            let bound = self.threads.get(&id).and_then(|of| of.bound.clone());
            self.thread(sample, snapshot, bound.as_ref(), true);
        }
        self.most_threads = self
            .most_threads
            .max(snapshot.threads.len().saturating_sub(system));
        for made in &period.moves {
            let to = made.to.as_ref();
            if !self.system.moved(made.thread, to, made.outcome) {
                self.moved(made, snapshot);
            }
        }
        for taken in &period.actions {
            if let Some(thread) = self.threads.get_mut(&taken.thread) {
                thread.given.note(taken);
            }
        }
        self.system.period(period);
        for id in ended {
            if let Some(thread) = self.threads.get_mut(&id).filter(|thread| !thread.ended) {
                thread.ended = true;
                self.ended += 1;
            }
        }
        self.end_unobserved(observation, system);
        self.fold();
        self.timeline.close(observation.at, observation.interval);
        self.remark(period.remarks.iter().cloned());
    }

    fn end(&mut self, end: &SessionEnd) {
        self.end = Some(end.clone());
    }
}

impl TrustSum {
    fn add(&mut self, source: MetricSource, confidence: f64, time: f64) {
        self.known += time;
        self.confidence += confidence * time;
        match self.sources.iter_mut().find(|(known, _)| *known == source) {
            Some((_, sum)) => *sum += time,
            None => self.sources.push((source, time)),
        }
    }

    fn finish(&self) -> Trust {
        let all = self.cpu_time + self.unmeasured;
        let unmeasured = match all > 0.0 {
            true => self.unmeasured / all,
            false => 0.0,
        };
        if self.known <= 0.0 {
            return Trust {
                unmeasured,
                ..Trust::default()
            };
        }
        let mut sources = self.sources.clone();
        sources.sort_by(|a, b| b.1.total_cmp(&a.1));
        Trust {
            unmeasured,
            known: self.known / all,
            confidence: self.confidence / self.known,
            sources: sources
                .iter()
                .map(|(source, time)| (*source, time / self.known))
                .collect(),
        }
    }
}

fn thread(thread: &Thread) -> ThreadReport {
    let stats = thread.accumulator.finish();
    // Of equal ones the first.
    let busiest = thread.names.iter().rev().max_by_key(|(_, time)| *time);
    let name = busiest.map_or(&thread.info.name, |(name, _)| name);
    let several = thread.names.iter().filter(|_| thread.names.len() > 1);
    ThreadReport {
        thread: thread.info.id,
        pid: thread.info.pid,
        name: name.to_string(),
        names: several.map(|(name, _)| name.to_string()).collect(),
        process: thread.info.process.to_string(),
        first: thread.first,
        last: thread.last,
        ended: thread.ended,
        unmanaged: thread.unmanaged,
        bound: thread.bound.clone(),
        weight: thread.given.weight,
        cache_ways: thread.given.ways.clone(),
        role: stats.role(),
        stats,
    }
}

pub(super) fn count<T: PartialEq>(counts: &mut Vec<(T, u64)>, what: T) {
    match counts.iter_mut().find(|(known, _)| *known == what) {
        Some((_, count)) => *count += 1,
        None => counts.push((what, 1)),
    }
}

/// A name with each number as `#`: `worker-17` is one of the `worker-#`.
pub fn name_pattern(name: &str) -> String {
    let mut pattern = String::new();
    for c in name.chars() {
        match c.is_ascii_digit() {
            true if pattern.ends_with('#') => {}
            true => pattern.push('#'),
            false => pattern.push(c),
        }
    }
    pattern
}
