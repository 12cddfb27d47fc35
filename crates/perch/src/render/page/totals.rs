//! The first reading of a recording: what there is in it, and the sums. Linear in threads and periods.

use super::{
    data::RemarkRow,
    place::Whereabouts,
    values::{Means, Quantities},
};
use perch_core::{
    MetricSource, Outcome, PuSet, Remark, Severity, ThreadId, ThreadInfo, Topology, metric::names,
};
use perch_engine::recording::{EndRecord, Header, PeriodRecord};
use perch_profile::Profile;
use rustc_hash::{FxHashMap, FxHashSet};
use std::{collections::BTreeMap, sync::Arc};

/// More different remarks than these would not be read.
const REMARKS: usize = 200;

/// One thread, over the whole recording. Times are in nanoseconds.
#[derive(Debug)]
pub struct ThreadSum {
    /// With its last name.
    pub info: ThreadInfo,
    /// When it was first measured.
    pub first: u64,
    /// When it was last measured.
    pub last: u64,
    /// On a PU.
    pub cpu: u64,
    /// Waiting for a PU.
    pub wait: u64,
    /// The PUs where it was seen.
    pub visited: PuSet,
    /// How often it was moved.
    pub moves: u64,
    /// As the kernel counts.
    pub migrations: Option<u64>,
    /// Its quantities.
    pub means: Means,
}

/// Everything that is summed up. Times are in nanoseconds.
#[derive(Debug)]
pub struct Totals {
    /// The recording's header.
    pub header: Arc<Header>,
    /// Its profile.
    pub profile: Profile,
    /// The machine on which threads are shown.
    pub topology: Arc<Topology>,
    /// What is known of threads.
    pub quantities: Quantities,
    /// The threads.
    pub threads: FxHashMap<ThreadId, ThreadSum>,
    /// CPU time by PU.
    pub pus: FxHashMap<u32, u64>,
    /// How many moves led to these PUs.
    pub targets: BTreeMap<PuSet, u64>,
    /// Number of periods.
    pub periods: u64,
    /// When the first period began.
    pub begin: u64,
    /// When the last period ended.
    pub end: u64,
    /// CPU time that belongs to no measured thread.
    pub unmeasured: u64,
    /// Threads that came and went without being measured.
    pub unseen: u64,
    /// CPU time of perch itself.
    pub own: u64,
    /// The most threads in a period.
    pub most_threads: usize,
    /// Threads that were bound, moved on and released.
    pub made: [u64; 3],
    /// Moves that could not be made.
    pub refused: u64,
    /// Seconds of CPU time for which an FP share is known, and the sum of its confidence x that time.
    pub known: (f64, f64),
    /// Where the FP shares come from.
    pub sources: Vec<MetricSource>,
    /// Remarks, each once.
    pub remarks: Vec<RemarkRow>,
    /// Different remarks that are left out.
    pub remarks_left_out: u64,
    /// The recording's last line.
    pub ended: Option<EndRecord>,
    said: FxHashMap<String, usize>,
    whereabouts: Whereabouts,
}

impl Totals {
    /// Nothing summed up yet. The topology must be a valid one.
    pub fn new(header: Arc<Header>, profile: Profile) -> Self {
        let shown = header.what_if.as_ref().unwrap_or(&header.topology);
        Self {
            topology: Arc::clone(shown),
            whereabouts: Whereabouts::new(&header),
            header,
            profile,
            quantities: Quantities::default(),
            threads: FxHashMap::default(),
            pus: FxHashMap::default(),
            targets: BTreeMap::new(),
            periods: 0,
            begin: 0,
            end: 0,
            unmeasured: 0,
            unseen: 0,
            own: 0,
            most_threads: 0,
            made: [0; 3],
            refused: 0,
            known: (0.0, 0.0),
            sources: Vec::new(),
            remarks: Vec::new(),
            remarks_left_out: 0,
            ended: None,
            said: FxHashMap::default(),
        }
    }

    /// Adds a period; its topology, if it has one, must be a valid one.
    pub fn period(&mut self, period: &PeriodRecord) {
        let observation = &*period.observation;
        if self.periods == 0 {
            self.begin = observation.at.saturating_sub(observation.interval);
        }
        self.periods += 1;
        self.end = observation.at;
        if let Some(topology) = &observation.topology
            && self.header.what_if.is_none()
        {
            self.topology = Arc::clone(topology);
        }
        self.unmeasured = self.unmeasured.saturating_add(observation.unmeasured);
        self.unseen = self.unseen.saturating_add(observation.unseen);
        self.own = self.own.saturating_add(observation.own_cpu_time);
        self.most_threads = self.most_threads.max(observation.threads.len());
        for sample in &observation.threads {
            self.sample(sample, observation.at);
        }
        for made in &period.moves {
            self.moved(made);
        }
        // What the machine noticed is among the period's.
        for remark in &period.remarks {
            self.remark(remark, observation.at);
        }
        self.whereabouts.follow(period);
    }

    fn sample(&mut self, sample: &perch_core::ThreadSample, at: u64) {
        let values = self.quantities.of(&self.profile, sample);
        let fp_share = self.quantities.metric(names::FP_SHARE);
        let share = values.iter().find(|(number, _)| Some(*number) == fp_share);
        if let Some((_, share)) = share {
            self.known.0 += sample.cpu_time as f64 / 1e9;
            self.known.1 += share.weight();
            let source = sample.metrics.get(names::FP_SHARE);
            let source = source.map_or(MetricSource::Counters, |share| share.source);
            if !self.sources.contains(&source) {
                self.sources.push(source);
            }
        }
        let pu = self.whereabouts.of(sample);
        let id = sample.info.id;
        let thread = self.threads.entry(id).or_insert_with(|| ThreadSum {
            info: sample.info.clone(),
            first: at.saturating_sub(sample.interval),
            last: at,
            cpu: 0,
            wait: 0,
            visited: PuSet::new(),
            moves: 0,
            migrations: None,
            means: Means::default(),
        });
        if thread.info.name != sample.info.name || thread.info.process != sample.info.process {
            thread.info = sample.info.clone();
        }
        thread.last = at;
        thread.cpu = thread.cpu.saturating_add(sample.cpu_time);
        thread.wait = thread.wait.saturating_add(sample.wait_time);
        if let Some(more) = sample.migrations {
            thread.migrations = Some(thread.migrations.unwrap_or(0).saturating_add(more));
        }
        for (number, value) in values {
            thread.means.add(number, value);
        }
        // A number that no machine has would make a set of that length.
        let pu = pu.filter(|pu| self.topology.pu(*pu).is_some());
        if let Some(pu) = pu.filter(|_| sample.cpu_time > 0) {
            thread.visited.insert(pu);
            let sum = self.pus.entry(pu).or_default();
            *sum = sum.saturating_add(sample.cpu_time);
        }
    }

    fn moved(&mut self, made: &perch_engine::Move) {
        if !matches!(made.outcome, Outcome::Applied | Outcome::NotApplied) {
            self.refused += 1;
            return;
        }
        let kind = match (&made.from, &made.to) {
            (None, _) => 0,
            (Some(_), Some(_)) => 1,
            (Some(_), None) => 2,
        };
        self.made[kind] += 1;
        if let Some(thread) = self.threads.get_mut(&made.thread) {
            thread.moves += 1;
        }
        if let Some(to) = &made.to {
            *self.targets.entry(to.clone()).or_default() += 1;
        }
    }

    fn remark(&mut self, remark: &Remark, at: u64) {
        if let Some(known) = self.said.get(&remark.text) {
            self.remarks[*known].times += 1;
            return;
        }
        if self.remarks.len() >= REMARKS {
            self.remarks_left_out += 1;
            return;
        }
        self.said.insert(remark.text.clone(), self.remarks.len());
        self.remarks.push(RemarkRow {
            at: self.seconds(at),
            severity: match remark.severity {
                Severity::Note => "note",
                Severity::Warning => "warning",
                Severity::Error => "error",
            },
            text: remark.text.clone(),
            times: 1,
        });
    }

    /// A time on the page.
    pub fn seconds(&self, at: u64) -> f64 {
        let micros = at.saturating_sub(self.begin) / 1000;
        micros as f64 / 1e6
    }

    /// Length in nanoseconds, at least 1.
    pub fn length(&self) -> u64 {
        self.end.saturating_sub(self.begin).max(1)
    }

    /// The PUs on which threads were seen.
    pub fn used(&self) -> FxHashSet<u32> {
        self.pus.keys().copied().collect()
    }

    /// The threads by falling CPU time.
    pub fn by_time(&self) -> Vec<&ThreadSum> {
        let mut threads: Vec<&ThreadSum> = self.threads.values().collect();
        threads.sort_by_key(|thread| (u64::MAX - thread.cpu, thread.info.id));
        threads
    }
}
