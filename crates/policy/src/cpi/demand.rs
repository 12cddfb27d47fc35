//! What a thread asks of the pipeline, read from its metrics: instructions a cycle (1/CPI), counted or estimated.

use super::CpiConfig;
use perch_core::{Metric, ThreadState, metric::names};

/// Where demand comes from; all threads of a period are read alike, since the two scales differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Basis {
    /// Counted instructions a cycle, co-runners' disturbance included.
    Counted,
    /// The average instruction delay latency of the instruction mix, which no co-runner changes.
    Mix,
}

/// A thread's instructions a cycle while it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reading {
    /// Instructions a cycle; finite and above 0.
    pub ipc: f64,
    /// How far to trust it, above 0 and up to 1.
    pub confidence: f64,
}

/// Fewer instructions a cycle than this are a counter that did not count.
const LEAST_IPC: f64 = 1e-6;

/// More are one that counted nonsense: no core retires as many.
const MOST_IPC: f64 = 64.0;

/// The most of its time that a thread is taken to wait for memory, lest its demand be nothing at all.
const MOST_WAITING: f64 = 0.95;

/// An estimate from the mix counts for so much of the samples' own confidence: it knows nothing of dependencies.
const MIX_TRUST: f64 = 0.5;

/// Counted instructions a cycle.
pub(crate) fn counted(thread: &ThreadState, config: &CpiConfig) -> Option<Reading> {
    let metric = sound(thread, names::IPC, config)?;
    let plausible = (LEAST_IPC..=MOST_IPC).contains(&metric.value);
    plausible.then_some(Reading {
        ipc: metric.value,
        confidence: metric.confidence.min(1.0),
    })
}

/// Instructions a cycle by the average instruction delay latency (section 4): each instruction takes a cycle and then
/// holds the next one of its thread back by its kind's delay; waiting for memory beyond the L2 comes on top.
pub(crate) fn from_mix(thread: &ThreadState, config: &CpiConfig) -> Option<Reading> {
    let metric = |name| sound(thread, name, config);
    let share = |name| metric(name).map(|m| (m.value.clamp(0.0, 1.0), m.confidence));
    let (delay, confidence) = match metric(names::DELAY_LATENCY) {
        Some(delay) => (delay.value.max(0.0), delay.confidence),
        None => {
            let (loads, by_loads) = share(names::LOAD_SHARE)?;
            let (branches, by_branches) = share(names::BRANCH_SHARE)?;
            let divides = share(names::DIVIDE_SHARE).map_or(0.0, |(value, _)| value);
            // Divisions of floating-point numbers are in both shares.
            let fp = share(names::FP_SHARE).map_or(0.0, |(value, _)| (value - divides).max(0.0));
            let delay = loads * config.load_delay
                + branches * config.branch_delay
                + divides * config.divide_delay
                + fp * config.fp_delay;
            (delay, by_loads.min(by_branches))
        }
    };
    let waiting = share(names::MEMORY_INTENSITY).map_or(0.0, |(value, _)| value);
    let cpi = (1.0 + delay) / (1.0 - waiting.min(MOST_WAITING));
    Some(Reading {
        ipc: (1.0 / cpi).max(LEAST_IPC),
        confidence: MIX_TRUST * confidence.min(1.0),
    })
}

fn sound<'a>(thread: &'a ThreadState, name: &str, config: &CpiConfig) -> Option<&'a Metric> {
    let metric = thread.metrics.get(name)?;
    let believed = metric.confidence > 0.0 && metric.confidence >= config.min_confidence;
    (metric.value.is_finite() && believed).then_some(metric)
}
