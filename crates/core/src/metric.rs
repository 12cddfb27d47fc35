//! Metrics: what a thread (or a PU) did in a window, with how far the number can be trusted.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A metric's name, such as [`names::FP_SHARE`]. Cheap to clone.
pub type MetricName = Arc<str>;

/// The metrics that perch itself knows; profiles and modules may add others.
pub mod names {
    /// How much a thread uses the floating-point units; its scale is the profile's (WorkOver, equations 1 and 2;
    /// by sampling: floating-point instructions / instructions).
    pub const FP_SHARE: &str = "fp_share";
    /// Standard error of a sampled [`FP_SHARE`], in the same unit: sampling noise and the estimator's own error.
    pub const FP_SHARE_ERROR: &str = "fp_share_error";
    /// Packed floating-point instructions / floating-point instructions.
    pub const VECTOR_SHARE: &str = "vector_share";
    /// Instructions that read memory / instructions.
    pub const LOAD_SHARE: &str = "load_share";
    /// Instructions that write memory / instructions.
    pub const STORE_SHARE: &str = "store_share";
    /// Branches / instructions.
    pub const BRANCH_SHARE: &str = "branch_share";
    /// Divisions and square roots (integer and floating-point) / instructions.
    pub const DIVIDE_SHARE: &str = "divide_share";
    /// Memory stall fraction: share of the time spent waiting for data beyond the L2 cache, 0 to 1. Each profile's formula
    /// has its source; sampling estimates it from the footprint (`perch_sampling::SampledMetrics::memory_intensity`).
    pub const MEMORY_INTENSITY: &str = "memory_intensity";
    /// Distinct memory touched, in bytes (an estimate).
    pub const FOOTPRINT: &str = "footprint";
    /// Instructions / cycle.
    pub const IPC: &str = "ipc";
    /// Average instruction delay latency in cycles: by how much an instruction delays the next one of its thread, mean
    /// over the instruction mix (Fedorova et al., section 4).
    pub const DELAY_LATENCY: &str = "delay_latency";
    /// Processor cycles in the window.
    pub const CYCLES: &str = "cycles";
    /// Instructions retired in the window.
    pub const INSTRUCTIONS: &str = "instructions";
    /// L2 misses / 1,000 instructions.
    pub const L2_MPKI: &str = "l2_mpki";
    /// Last-level cache misses / 1,000 instructions.
    pub const LLC_MPKI: &str = "llc_mpki";
    /// Cycles or slots lost to the co-runner / cycles or slots, measured (Zen 4 and later).
    pub const SMT_CONTENTION: &str = "smt_contention";
    /// Samples that stand behind the sampled metrics.
    pub const SAMPLES: &str = "samples";
    /// Energy of a package, whatever ran on it, in joules.
    pub const ENERGY_PKG: &str = "energy_pkg";
    /// Metrics that are amounts of their window: they add up over windows, the others are averaged.
    pub const AMOUNTS: [&str; 3] = [CYCLES, INSTRUCTIONS, SAMPLES];
}

/// The source of a metric's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetricSource {
    /// Hardware counters.
    Counters,
    /// Sampled and decoded instructions.
    Sampling,
    /// The kernel's own accounting.
    Kernel,
    /// A model's prediction.
    Model,
    /// The simulated machine.
    Simulation,
    /// A sensor of the machine, or what else a monitoring module reads.
    Sensor,
}

/// The value of one metric, with its confidence and source.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// The value, in the unit that its name declares.
    pub value: f64,
    /// Confidence, 0 to 1: 0 is no information, 1 as exact as the source can be.
    pub confidence: f64,
    /// The source of the value.
    pub source: MetricSource,
}

/// The metrics of one thread (or PU) in one window; few, so a list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Metrics(Vec<(MetricName, Metric)>);

impl Metrics {
    /// The metric of that name.
    pub fn get(&self, name: &str) -> Option<&Metric> {
        self.0
            .iter()
            .find(|(n, _)| &**n == name)
            .map(|(_, metric)| metric)
    }

    /// The value of that name.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.get(name).map(|metric| metric.value)
    }

    /// Sets a metric, replacing one of the same name.
    pub fn set(&mut self, name: MetricName, metric: Metric) {
        match self.0.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = metric,
            None => self.0.push((name, metric)),
        }
    }

    /// All of them, in the order in which they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&MetricName, &Metric)> {
        self.0.iter().map(|(name, metric)| (name, metric))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(MetricName, Metric)> for Metrics {
    fn from_iter<T: IntoIterator<Item = (MetricName, Metric)>>(iter: T) -> Self {
        let mut metrics = Self::default();
        for (name, metric) in iter {
            metrics.set(name, metric);
        }
        metrics
    }
}

/// From which value of a metric on a thread counts as a heavy user of what the metric stands for, on one processor: few,
/// so a list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Thresholds(Vec<(MetricName, f64)>);

impl Thresholds {
    /// That of a metric, in the metric's unit; `None` if the processor has none.
    pub fn of(&self, name: &str) -> Option<f64> {
        let known = self.0.iter().find(|(known, _)| &**known == name);
        known.map(|(_, threshold)| *threshold)
    }

    /// Whether a metric's value is at or above its threshold; never without one.
    pub fn reached(&self, name: &str, value: f64) -> bool {
        self.of(name).is_some_and(|threshold| value >= threshold)
    }
}

impl FromIterator<(MetricName, f64)> for Thresholds {
    fn from_iter<T: IntoIterator<Item = (MetricName, f64)>>(iter: T) -> Self {
        Self(iter.into_iter().collect())
    }
}
