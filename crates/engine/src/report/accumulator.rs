//! Adding up what threads did.

use super::{MetricReport, Role, ThreadStats};
use perch_core::{Metric, MetricName, MetricSource, Metrics, ThreadSample, metric::names};

/// Sums over one thread or over several.
#[derive(Debug, Clone, Default)]
pub(super) struct Accumulator {
    pub stats: ThreadStats,
    metrics: Vec<Sum>,
    /// FP share × CPU time while FP-heavy and while not.
    fp: [f64; 2],
}

#[derive(Debug, Clone)]
struct Sum {
    name: MetricName,
    amount: f64,
    /// Value x weight, weight; the weight is CPU time x confidence.
    value: f64,
    weight: f64,
    confidence: f64,
    time: f64,
    source: MetricSource,
}

/// Metrics that are amounts of their window: a session's is the sum.
pub(super) fn is_amount(name: &str) -> bool {
    names::AMOUNTS.contains(&name)
}

impl Accumulator {
    /// One period of a thread.
    pub fn add(&mut self, sample: &ThreadSample, metrics: &Metrics, role: Role, bound: bool) {
        let stats = &mut self.stats;
        let time = sample.cpu_time;
        stats.lifetime += sample.interval;
        stats.cpu_time += time;
        stats.wait_time += sample.wait_time;
        add_known(&mut stats.switches, sample.switches);
        add_known(&mut stats.migrations, sample.migrations);
        match role {
            Role::FloatingPoint => stats.fp_time += time,
            Role::Integer => stats.integer_time += time,
            Role::Unknown => {}
        }
        let phase = usize::from(role == Role::Integer);
        self.fp[phase] += metrics.value(names::FP_SHARE).unwrap_or(0.0) * time as f64;
        if bound {
            stats.bound_time += time;
        }
        for (name, metric) in metrics.iter() {
            self.add_metric(name, metric, time as f64);
        }
    }

    fn add_metric(&mut self, name: &MetricName, metric: &Metric, time: f64) {
        if time == 0.0 || !metric.value.is_finite() || !metric.confidence.is_finite() {
            return;
        }
        let sum = self.sum(name, metric.source);
        let weight = time * metric.confidence;
        sum.amount += metric.value;
        sum.value += metric.value * weight;
        sum.weight += weight;
        sum.confidence += weight;
        sum.time += time;
        sum.source = metric.source;
    }

    fn sum(&mut self, name: &MetricName, source: MetricSource) -> &mut Sum {
        let at = self.metrics.iter().position(|sum| sum.name == *name);
        let at = at.unwrap_or_else(|| {
            self.metrics.push(Sum {
                name: MetricName::clone(name),
                amount: 0.0,
                value: 0.0,
                weight: 0.0,
                confidence: 0.0,
                time: 0.0,
                source,
            });
            self.metrics.len() - 1
        });
        &mut self.metrics[at]
    }

    /// Adds another thread's.
    pub fn merge(&mut self, other: &Self) {
        let (stats, more) = (&mut self.stats, &other.stats);
        stats.lifetime += lasted(more);
        stats.cpu_time += more.cpu_time;
        stats.wait_time += more.wait_time;
        add_known(&mut stats.switches, more.switches);
        add_known(&mut stats.migrations, more.migrations);
        stats.fp_time += more.fp_time;
        stats.integer_time += more.integer_time;
        stats.bound_time += more.bound_time;
        stats.moves += more.moves;
        for (sum, more) in self.fp.iter_mut().zip(other.fp) {
            *sum += more;
        }
        for theirs in &other.metrics {
            let sum = self.sum(&theirs.name, theirs.source);
            sum.amount += theirs.amount;
            sum.value += theirs.value;
            sum.weight += theirs.weight;
            sum.confidence += theirs.confidence;
            sum.time += theirs.time;
        }
    }

    /// The sums and means.
    pub fn finish(&self) -> ThreadStats {
        let metric = |sum: &Sum| {
            let mean = || (sum.weight > 0.0).then(|| sum.value / sum.weight);
            Some(MetricReport {
                name: MetricName::clone(&sum.name),
                value: if is_amount(&sum.name) {
                    sum.amount
                } else {
                    mean()?
                },
                confidence: sum.confidence / sum.time,
                source: sum.source,
            })
        };
        let share = |sum: f64, time: u64| (time > 0).then(|| sum / time as f64);
        ThreadStats {
            metrics: self.metrics.iter().filter_map(metric).collect(),
            fp_share_heavy: share(self.fp[0], self.stats.fp_time),
            fp_share_light: share(self.fp[1], self.stats.integer_time),
            lifetime: lasted(&self.stats),
            ..self.stats.clone()
        }
    }
}

/// How long a thread lived. It runs, waits for a PU, or sleeps; the clocks of its start and end are coarser than those by
/// which the first two are counted.
fn lasted(stats: &ThreadStats) -> u64 {
    stats
        .lifetime
        .max(stats.cpu_time.saturating_add(stats.wait_time))
}

pub(super) fn add_known(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}
