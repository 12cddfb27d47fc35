//! Load metrics: which are checked, what a thread's load is, and where a resource's limit lies (MASA, sections 4 and 4.1).

use super::{GivenLimit, MasaConfig};
use crate::calibration::{Calibration, Share};
use perch_core::{Metrics, PuLoad, Snapshot, ThreadState, metric::names};

/// Below this load a resource is not scarce, whatever was learned.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Floor {
    /// Events per processor cycle; the clock is the fastest that was seen.
    PerCycle(f64),
    /// The metric's own value.
    Value(f64),
    /// The profile's threshold of floating-point heavy threads.
    FpThreshold,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    Measured(f64),
    Learned(Floor),
}

/// One way to read a load: the sum of some metrics.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LoadMetric {
    /// What it is called in reasons.
    pub name: String,
    /// The metrics whose values add up to it.
    parts: Vec<String>,
    pub share: Share,
    limit: Limit,
    /// The highest value that one thread was seen to have on its PU.
    highest: f64,
}

/// A resource and the ways to read its load, the best first.
#[derive(Debug, Clone)]
struct Resource {
    name: &'static str,
    ways: Vec<LoadMetric>,
}

/// What is checked, in order of priority.
#[derive(Debug, Clone)]
pub(crate) struct Loads {
    resources: Vec<Resource>,
    /// Processor cycles per second, the most that was seen.
    clock: f64,
}

/// What is checked in one period.
#[derive(Debug, Default)]
pub(crate) struct Present {
    /// In order of priority.
    pub metrics: Vec<LoadMetric>,
    /// By metric, what each busy thread does while it is on a PU.
    pub rates: Vec<Vec<Option<f64>>>,
    /// Resources of which no busy thread's load is known.
    pub missing: Vec<String>,
}

/// A built-in way to read a resource's load.
struct BuiltIn {
    resource: &'static str,
    share: Share,
    parts: &'static [&'static str],
    floor: Floor,
}

const fn built_in(
    resource: &'static str,
    share: Share,
    parts: &'static [&'static str],
    floor: Floor,
) -> BuiltIn {
    BuiltIn {
        resource,
        share,
        parts,
        floor,
    }
}

/// The metrics that say how much of a resource a thread uses, those of one resource together and the best first, and the
/// floors below which no limit is learned; chosen, not measured. L2 misses come before floating point as MASA measured
/// them (section 4.1, ratio 1.03); the others, for which the paper has no numbers, after these.
const BUILT_IN: [BuiltIn; 9] = [
    built_in("caches", Share::L2, &["l2_load"], Floor::PerCycle(0.001)),
    built_in(
        "caches",
        Share::L2,
        &[names::MEMORY_INTENSITY],
        Floor::Value(0.1),
    ),
    built_in(
        "floating point",
        Share::Fp,
        &["fp_load"],
        Floor::PerCycle(0.02),
    ),
    built_in(
        "floating point",
        Share::Fp,
        &[names::FP_SHARE],
        Floor::FpThreshold,
    ),
    built_in("bus", Share::Package, &["bus_load"], Floor::PerCycle(0.001)),
    built_in("bus", Share::Package, &["llc_load"], Floor::PerCycle(0.001)),
    built_in("TLB", Share::Core, &["tlb_load"], Floor::PerCycle(0.001)),
    built_in(
        "loads and stores",
        Share::Core,
        &["access_load"],
        Floor::PerCycle(0.1),
    ),
    built_in(
        "loads and stores",
        Share::Core,
        &[names::LOAD_SHARE, names::STORE_SHARE],
        Floor::Value(0.25),
    ),
];

/// The metrics that built-in limits exist for, for [`perch_core::Policy::needs`]: counted where a machine can.
pub(crate) const WANTED: &[&str] = &[
    "l2_load",
    "fp_load",
    "bus_load",
    "llc_load",
    "tlb_load",
    "access_load",
    names::CYCLES,
];

impl Loads {
    /// The built-in metrics.
    pub fn built_in() -> Self {
        let mut resources: Vec<Resource> = Vec::new();
        for entry in &BUILT_IN {
            let way = LoadMetric {
                name: entry.parts.join(" + "),
                parts: entry.parts.iter().map(|part| (*part).to_owned()).collect(),
                share: entry.share,
                limit: Limit::Learned(entry.floor),
                highest: 0.0,
            };
            match resources
                .last_mut()
                .filter(|last| last.name == entry.resource)
            {
                Some(resource) => resource.ways.push(way),
                None => resources.push(Resource {
                    name: entry.resource,
                    ways: vec![way],
                }),
            }
        }
        Self {
            resources,
            clock: 0.0,
        }
    }

    /// Those of a calibration, by priority, without those of resources whose sharing was not shown to slow down any
    /// kernel.
    pub fn calibrated(calibration: &Calibration) -> Self {
        let metrics = calibration.metrics.iter();
        let metrics = metrics.filter(|metric| metric.is_of_use());
        Self::measured(metrics.map(|metric| (&metric.name, metric.share, metric.limit)))
    }

    /// Those that the options list, in their order.
    pub fn given(limits: &[GivenLimit]) -> Self {
        let limits = limits.iter();
        Self::measured(limits.map(|given| (&given.metric, given.share, given.limit)))
    }

    fn measured<'a>(metrics: impl Iterator<Item = (&'a String, Share, f64)>) -> Self {
        let resources = metrics.map(|(name, share, limit)| Resource {
            name: "",
            ways: vec![LoadMetric {
                name: name.clone(),
                parts: vec![name.clone()],
                share,
                limit: Limit::Measured(limit),
                highest: 0.0,
            }],
        });
        Self {
            resources: resources.collect(),
            clock: 0.0,
        }
    }

    /// The metrics of this period: of each resource the first way that any of the threads has. And what is missing.
    pub fn present(
        &mut self,
        threads: &[&ThreadState],
        interval: u64,
        config: &MasaConfig,
    ) -> Present {
        for thread in threads {
            let on_pu = thread.activity * interval as f64 / 1e9;
            if let Some(cycles) = value(&thread.metrics, names::CYCLES, config.min_confidence)
                && on_pu > 0.0
            {
                self.clock = self.clock.max(cycles / on_pu);
            }
        }
        let mut present = Present::default();
        for resource in &mut self.resources {
            let seen = resource.ways.iter_mut().find_map(|way| {
                let rates = threads.iter().map(|thread| way.rate(thread, config));
                let rates: Vec<Option<f64>> = rates.collect();
                rates.iter().any(Option::is_some).then_some((way, rates))
            });
            let Some((way, rates)) = seen else {
                let ways = resource.ways.iter().map(|way| way.name.as_str());
                let ways = ways.collect::<Vec<_>>().join(" or ");
                present.missing.push(match resource.name {
                    "" => ways,
                    name => format!("{name} ({ways})"),
                });
                continue;
            };
            way.highest = rates.iter().flatten().copied().fold(way.highest, f64::max);
            present.metrics.push(way.clone());
            present.rates.push(rates);
        }
        present
    }

    /// The limit of one group of PUs.
    pub fn limit(&self, metric: &LoadMetric, snapshot: &Snapshot, headroom: f64) -> f64 {
        match metric.limit {
            Limit::Measured(limit) => limit,
            Limit::Learned(floor) => {
                let floor = match floor {
                    Floor::PerCycle(events) => events * self.clock,
                    Floor::Value(value) => value,
                    Floor::FpThreshold => crate::ranking::fp_threshold(snapshot),
                };
                floor.max(headroom * metric.highest)
            }
        }
    }
}

impl LoadMetric {
    /// What the thread does while it is on a PU.
    fn rate(&self, thread: &ThreadState, config: &MasaConfig) -> Option<f64> {
        self.sum(&thread.metrics, config)
    }

    /// The load of a PU as it was measured there over the period, interrupts and threads of others included; `None` where
    /// the PU was not counted (MASA, section 4, CPU load).
    pub fn of_pu(&self, pu: &PuLoad, config: &MasaConfig) -> Option<f64> {
        let busy = pu.busy.clamp(0.0, 1.0);
        Some(self.sum(&pu.metrics, config)? * busy)
    }

    fn sum(&self, metrics: &Metrics, config: &MasaConfig) -> Option<f64> {
        let parts = self.parts.iter();
        parts
            .map(|part| value(metrics, part, config.min_confidence))
            .sum()
    }
}

fn value(metrics: &Metrics, name: &str, min_confidence: f64) -> Option<f64> {
    let metric = metrics.get(name)?;
    let sound =
        metric.confidence >= min_confidence && metric.value.is_finite() && metric.value >= 0.0;
    sound.then_some(metric.value)
}
