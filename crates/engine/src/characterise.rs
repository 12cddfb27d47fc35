//! From what a machine saw to what a policy may know: observation + processor + ownership = snapshot.

use crate::{
    irqs::KnownIrqs,
    ownership::{Owned, Ownership},
    settings::KnownSettings,
};
use perch_core::{
    Count, EventPlan, Metric, MetricName, MetricSource, Metrics, Observation, Outcome, PuLoad,
    PuSample, PuSet, Reading, Remark, Scope, Snapshot, ThreadId, ThreadSample, ThreadState,
    Thresholds, Topology, UnitDomains, Unmanaged, metric::names,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// What is left of a metric's confidence a second later, if the thread gave no new value: half of it after three seconds.
/// An own choice, as long as phases of programs usually last at least.
const KEPT: f64 = 0.8;

/// Below this confidence an old value says nothing any more (14 s, at first exact).
const FORGOTTEN: f64 = 0.045;

/// What must be known of a processor; a profile knows it.
pub trait Processor: Send {
    /// Its name, for recordings and reports.
    fn name(&self) -> &str;

    /// All that defines it, as text, so that a recording can be replayed without the file.
    fn text(&self) -> &str;

    /// The events to count, regardless of the policy.
    fn event_plan(&self) -> EventPlan;

    /// What to count for a policy that needs these metrics: [`Processor::event_plan`], and what is counted on demand
    /// only.
    fn event_plan_with(&self, _needs: &[&str]) -> EventPlan {
        self.event_plan()
    }

    /// Metrics from the counts of a thread that ran for `cpu_time` nanoseconds on PUs, or of a PU that was busy for so
    /// long; and why others are missing.
    fn metrics(&self, counts: &[Count], cpu_time: u64) -> (Metrics, Vec<String>);

    /// The PUs that share execution units.
    fn unit_domains(&self, topology: &Topology) -> UnitDomains;

    /// From which values of metrics of this source on a thread counts as a heavy user.
    fn thresholds(&self, source: MetricSource) -> Thresholds;
}

/// The placement of threads in a dry run.
#[derive(Debug, Default)]
pub(crate) struct DryRun {
    /// Where the plan has put them.
    pub bound: FxHashMap<ThreadId, PuSet>,
    /// Whether the topology is not that of the machine on which they run: then their masks mean nothing on it.
    pub elsewhere: bool,
}

/// What the characteriser needs besides the observation.
pub(crate) struct Context<'a> {
    pub processor: &'a dyn Processor,
    pub ownership: &'a Ownership,
    pub topology: &'a Arc<Topology>,
    /// The PUs on which perch may put threads.
    pub usable: &'a PuSet,
    pub units: &'a Arc<UnitDomains>,
    pub dry_run: Option<&'a DryRun>,
    pub irqs: &'a KnownIrqs,
    /// The PUs to which interrupts may be sent.
    pub irq_pus: &'a PuSet,
    pub settings: &'a KnownSettings,
    pub last_outcomes: Vec<(ThreadId, Outcome)>,
    /// The snapshot's number.
    pub number: u64,
    pub span: Span,
}

/// What an observation covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    /// One interval, the next one.
    One,
    /// Several intervals, each of which was characterised by itself already.
    Several,
}

/// Turns observations into snapshots; remembers metrics of threads that had no time for new ones.
#[derive(Debug)]
pub(crate) struct Characteriser {
    kept: FxHashMap<ThreadId, Metrics>,
    source: MetricSource,
}

impl Default for Characteriser {
    fn default() -> Self {
        Self {
            kept: FxHashMap::default(),
            source: MetricSource::Counters,
        }
    }
}

impl Characteriser {
    /// The snapshot of a period, and what the user should know. Linear in threads.
    pub fn snapshot(
        &mut self,
        observation: &Observation,
        context: Context<'_>,
    ) -> (Snapshot, Vec<Remark>) {
        let mut remarks = Vec::new();
        let ended: FxHashSet<ThreadId> = observation.ended.iter().copied().collect();
        for thread in &ended {
            self.kept.remove(thread);
        }
        let live = observation
            .threads
            .iter()
            .filter(|sample| !ended.contains(&sample.info.id));
        let mut threads: Vec<ThreadState> = live
            .map(|sample| self.thread(sample, observation.interval, &context, &mut remarks))
            .collect();
        threads.sort_by_key(|thread| thread.info.id);
        threads.dedup_by_key(|thread| thread.info.id);
        if self.kept.len() > threads.len() {
            let seen: FxHashSet<ThreadId> = threads.iter().map(|thread| thread.info.id).collect();
            self.kept.retain(|thread, _| seen.contains(thread));
        }
        self.choose_source(&threads, &mut remarks);
        let elsewhere = context.dry_run.is_some_and(|dry_run| dry_run.elsewhere);
        let snapshot = Snapshot {
            settings: match elsewhere {
                true => Vec::new(),
                false => context.settings.states(observation),
            },
            period: context.number,
            at: observation.at,
            interval: observation.interval,
            topology: Arc::clone(context.topology),
            units: Arc::clone(context.units),
            thresholds: context.processor.thresholds(self.source),
            threads,
            pus: Self::pus(observation, context.processor, &mut remarks),
            irqs: match elsewhere {
                true => Vec::new(),
                false => context.irqs.loads(observation, context.irq_pus),
            },
            sharing: observation.sharing.clone(),
            energy: energy(observation),
            last_outcomes: context.last_outcomes,
        };
        (snapshot, remarks)
    }

    fn thread(
        &mut self,
        sample: &ThreadSample,
        interval: u64,
        context: &Context<'_>,
        remarks: &mut Vec<Remark>,
    ) -> ThreadState {
        let id = sample.info.id;
        let share = |time: u64| (time as f64 / interval.max(1) as f64).min(1.0);
        let metrics = self.metrics(sample, interval, context, remarks);
        let owned = context.ownership.get(id);
        let placement = match context.dry_run {
            Some(dry_run) => planned(id, owned, context.usable, dry_run),
            None => live(owned, context),
        };
        ThreadState {
            info: sample.info.clone(),
            target: context.ownership.target(sample.info.pid),
            allowed: placement.allowed,
            bound: placement.bound,
            unmanaged: placement.unmanaged,
            last_pu: sample
                .last_pu
                .filter(|_| !context.dry_run.is_some_and(|dry_run| dry_run.elsewhere)),
            activity: share(sample.cpu_time),
            waiting: share(sample.wait_time),
            metrics,
        }
    }

    fn metrics(
        &mut self,
        sample: &ThreadSample,
        interval: u64,
        context: &Context<'_>,
        remarks: &mut Vec<Remark>,
    ) -> Metrics {
        let mut metrics = match (context.span, self.kept.get(&sample.info.id)) {
            (Span::Several, Some(known)) => up_to_date(&sample.metrics, known),
            _ => sample.metrics.clone(),
        };
        if !sample.counts.is_empty() {
            let (counted, wrong) = context.processor.metrics(&sample.counts, sample.cpu_time);
            for (name, metric) in counted.iter() {
                metrics.set(MetricName::clone(name), *metric);
            }
            for text in wrong {
                remarks.push(implausible(text));
            }
        }
        if context.span == Span::Several {
            return metrics;
        }
        // Where periods are longer than a second, a value is kept for as many periods as else for seconds.
        let kept = KEPT.powf((interval as f64 * 1e-9).min(1.0));
        if let Some(old) = self.kept.get(&sample.info.id) {
            for (name, metric) in old.iter() {
                let confidence = metric.confidence * kept;
                // An old amount would be taken for what the thread does now.
                let amount = names::AMOUNTS.contains(&&**name);
                if metrics.get(name).is_none() && !amount && confidence >= FORGOTTEN {
                    let old = Metric {
                        confidence,
                        ..*metric
                    };
                    metrics.set(MetricName::clone(name), old);
                }
            }
        }
        if metrics.is_empty() {
            self.kept.remove(&sample.info.id);
        } else {
            self.kept.insert(sample.info.id, metrics.clone());
        }
        metrics
    }

    /// What PUs did, by rising number: metrics of what they did while they were busy, as a thread's of what it did while
    /// it was on a PU. Nothing is kept of earlier periods: then others may have run there.
    fn pus(
        observation: &Observation,
        processor: &dyn Processor,
        remarks: &mut Vec<Remark>,
    ) -> Vec<PuLoad> {
        let load = |sample: &PuSample| {
            let share = |time: u64| (time as f64 / sample.interval.max(1) as f64).min(1.0);
            let (metrics, wrong) = match sample.counts.is_empty() {
                true => (Metrics::default(), Vec::new()),
                false => processor.metrics(&sample.counts, sample.busy),
            };
            for text in wrong {
                let pu = sample.pu;
                remarks.push(implausible(format!("PU {pu}: {text}")).about(Scope::Pu(pu)));
            }
            PuLoad {
                pu: sample.pu,
                busy: share(sample.busy),
                interrupts: share(sample.interrupts),
                metrics,
            }
        };
        let mut loads: Vec<PuLoad> = observation.pus.iter().map(load).collect();
        loads.sort_by_key(|load| load.pu);
        loads.dedup_by_key(|load| load.pu);
        loads
    }

    /// The threshold is that of the source from which most threads' FP shares come.
    fn choose_source(&mut self, threads: &[ThreadState], remarks: &mut Vec<Remark>) {
        let mut by_source: Vec<(MetricSource, usize)> = Vec::new();
        for thread in threads {
            let Some(metric) = thread.metrics.get(names::FP_SHARE) else {
                continue;
            };
            match by_source
                .iter_mut()
                .find(|(source, _)| *source == metric.source)
            {
                Some((_, threads)) => *threads += 1,
                None => by_source.push((metric.source, 1)),
            }
        }
        if by_source.len() > 1 {
            let text = "FP shares come from more than one source; their scales differ, and \
                        threads are compared across them";
            remarks.push(Remark::warning("mixed-sources", text));
        }
        if let Some((source, _)) = by_source.into_iter().max_by_key(|(_, threads)| *threads) {
            self.source = source;
        }
    }
}

/// Of all packages, in joules.
fn energy(observation: &Observation) -> Option<f64> {
    let readings = observation.readings.iter();
    let used = readings.filter_map(Reading::package_energy);
    used.fold(None, |sum, (_, used)| Some(sum.unwrap_or(0.0) + used))
}

/// The metrics of a thread in several intervals, of which all but amounts may be older than what is known of it by now.
fn up_to_date(sampled: &Metrics, known: &Metrics) -> Metrics {
    let mut metrics = sampled.clone();
    for (name, metric) in known.iter() {
        if !names::AMOUNTS.contains(&&**name) {
            metrics.set(MetricName::clone(name), *metric);
        }
    }
    metrics
}

/// A remark about counts that cannot be true, which says the same whatever the numbers in it.
fn implausible(text: String) -> Remark {
    let key: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
    Remark::warning("implausible-metric", text).keyed(key)
}

struct Placement {
    allowed: PuSet,
    bound: Option<PuSet>,
    unmanaged: Option<Unmanaged>,
}

fn live(owned: Option<&Owned>, context: &Context<'_>) -> Placement {
    let before = owned.map_or(context.ownership.default_mask(), |owned| &owned.before);
    Placement {
        allowed: before.and(context.usable),
        bound: owned.and_then(Owned::bound).cloned(),
        unmanaged: owned.and_then(|owned| owned.unmanaged),
    }
}

/// In a dry run: where the plan has put the thread counts, not its mask.
fn planned(id: ThreadId, owned: Option<&Owned>, usable: &PuSet, dry_run: &DryRun) -> Placement {
    let bound = dry_run.bound.get(&id).cloned();
    match owned {
        Some(owned) if !dry_run.elsewhere => Placement {
            allowed: owned.before.and(usable),
            bound,
            unmanaged: owned.unmanaged,
        },
        _ => Placement {
            allowed: usable.clone(),
            bound,
            unmanaged: None,
        },
    }
}
