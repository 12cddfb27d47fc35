//! What a thread uses of each shared resource, read from whatever metrics there are.
//!
//! Counted metrics are rates; sampled ones are shares of instructions. The kernels of a calibration and the threads are
//! read in the same way, the best that all of them have, so that the numbers can be compared.

use perch_core::{Metrics, metric::names};
use std::collections::BTreeMap;

/// Where values of metrics come from: a thread or a kernel.
pub(super) type Values<'a> = dyn Fn(&str) -> Option<f64> + 'a;

/// A resource that threads compete for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    Issue,
    Fp,
    Access,
    Branch,
    Divide,
    L1,
    L2,
    Llc,
    Tlb,
    Bus,
    Waiting,
    Footprint,
}

/// One way to read a use: the sum of some metrics, times instructions per cycle where they are shares that shall be
/// rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Way {
    pub resource: Resource,
    parts: &'static [&'static str],
    times_ipc: bool,
}

const fn rate(resource: Resource, parts: &'static [&'static str]) -> Way {
    Way {
        resource,
        parts,
        times_ipc: false,
    }
}

const fn share(resource: Resource, parts: &'static [&'static str]) -> Way {
    Way {
        resource,
        parts,
        times_ipc: true,
    }
}

/// The ways where cycles and instructions are counted, the best of each resource first.
const COUNTED: [Way; 18] = [
    rate(Resource::Issue, &[names::IPC]),
    rate(Resource::Fp, &["fp_load"]),
    share(Resource::Fp, &[names::FP_SHARE]),
    rate(Resource::Access, &["access_load"]),
    share(Resource::Access, &[names::LOAD_SHARE, names::STORE_SHARE]),
    share(Resource::Branch, &[names::BRANCH_SHARE]),
    share(Resource::Divide, &[names::DIVIDE_SHARE]),
    rate(Resource::L1, &["l1_load"]),
    rate(Resource::L2, &["l2_load"]),
    share(Resource::L2, &[names::L2_MPKI]),
    rate(Resource::Llc, &["llc_load"]),
    share(Resource::Llc, &[names::LLC_MPKI]),
    rate(Resource::Tlb, &["tlb_load"]),
    rate(Resource::Bus, &["bus_load"]),
    rate(Resource::Footprint, &[names::FOOTPRINT]),
    rate(Resource::Waiting, &["memory_stall_share"]),
    rate(Resource::Waiting, &[names::MEMORY_INTENSITY]),
    rate(Resource::Waiting, &["stall_share"]),
];

/// The ways where only instructions are sampled.
const SAMPLED: [Way; 6] = [
    rate(Resource::Fp, &[names::FP_SHARE]),
    rate(Resource::Access, &[names::LOAD_SHARE, names::STORE_SHARE]),
    rate(Resource::Branch, &[names::BRANCH_SHARE]),
    rate(Resource::Divide, &[names::DIVIDE_SHARE]),
    rate(Resource::Waiting, &[names::MEMORY_INTENSITY]),
    rate(Resource::Footprint, &[names::FOOTPRINT]),
];

/// The metrics that it is good to have, for [`perch_core::Policy::needs`].
pub(super) const WANTED: &[&str] = &[
    names::IPC,
    names::FP_SHARE,
    names::LOAD_SHARE,
    names::STORE_SHARE,
    names::BRANCH_SHARE,
    names::DIVIDE_SHARE,
    "fp_load",
    "access_load",
    "l1_load",
    "l2_load",
    "llc_load",
    "tlb_load",
    "bus_load",
    names::FOOTPRINT,
    names::SMT_CONTENTION,
];

/// Shares that tell a phase of a thread from another and that no neighbour changes.
pub(super) const SIGNATURE: [&str; 4] = [
    names::FP_SHARE,
    names::LOAD_SHARE,
    names::STORE_SHARE,
    names::BRANCH_SHARE,
];

impl Way {
    /// Whether a neighbour's cache lines can raise it.
    pub fn is_misses(self) -> bool {
        use Resource::{Bus, L1, L2, Llc, Tlb};
        matches!(self.resource, L1 | L2 | Llc | Tlb | Bus)
    }

    /// Whether it falls as its thread is slowed down.
    pub fn is_rate(self, counted: bool) -> bool {
        counted && !matches!(self.resource, Resource::Footprint | Resource::Waiting)
    }

    fn read(self, value: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let parts = self.parts.iter().map(|part| value(part));
        let sum = parts.sum::<Option<f64>>()?;
        match self.times_ipc {
            true => Some(sum * value(names::IPC)?),
            false => Some(sum),
        }
    }
}

/// Which ways are read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Basis {
    /// Whether instructions per cycle are counted: then speeds are known, and rates.
    pub counted: bool,
    pub ways: Vec<Way>,
}

impl Basis {
    /// The best ways that all of these have.
    pub fn common(counted: bool, of: &[&Values<'_>]) -> Self {
        let all: &[Way] = if counted { &COUNTED } else { &SAMPLED };
        let mut ways: Vec<Way> = Vec::new();
        for way in all {
            let known = ways.iter().any(|other| other.resource == way.resource);
            if !known && of.iter().all(|value| way.read(value).is_some()) {
                ways.push(*way);
            }
        }
        Self { counted, ways }
    }

    /// The uses, way by way; nothing if one is missing.
    pub fn read(&self, value: &Values<'_>) -> Option<Vec<f64>> {
        self.ways.iter().map(|way| way.read(value)).collect()
    }

    /// The place of a resource's way.
    pub fn place(&self, resource: Resource) -> Option<usize> {
        self.ways.iter().position(|way| way.resource == resource)
    }
}

/// A thread's metrics with sufficient confidence.
pub(super) fn believed(metrics: &Metrics, least: f64) -> impl Fn(&str) -> Option<f64> {
    move |name| {
        let metric = metrics.get(name)?;
        let sound = metric.confidence >= least && metric.value.is_finite() && metric.value >= 0.0;
        sound.then_some(metric.value)
    }
}

/// A kernel's metrics.
pub(super) fn of_kernel(metrics: &BTreeMap<String, f64>) -> impl Fn(&str) -> Option<f64> {
    move |name| metrics.get(name).copied()
}
