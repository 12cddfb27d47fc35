//! Instructions per cycle of each thread on each kind of core, where a processor has several: Intel's hybrid ones, Arm's
//! big and little cores.
//!
//! A thread's IPC on a kind of core is known only from the time that it spent there. The last value of each kind is kept,
//! so that the ratio of both, by which schedulers for asymmetric cores decide (PMCTrack, section 4.1), is known once a
//! thread has run on both. perch does not move threads to find it.

use crate::perf::encode::Pmus;
use perch_core::{
    MachineError, Metric, MetricInfo, MetricKind, MetricName, MetricScope, MetricSource, Metrics,
    Module, ModuleContext, ModuleValues, Need, PuSet, ThreadEvent, ThreadId, ThreadSample,
    Topology, WantedEvents, metric::names,
};
use rustc_hash::FxHashMap;
use std::path::Path;

/// The name of the module.
pub const NAME: &str = "core-types";

/// The ratio of the IPC on the fastest kind of core to that on the slowest.
const RATIO: &str = "ipc_ratio";

/// What the confidence of a value becomes in each period without a new one.
const FADES: f64 = 0.9;

/// A kind of core.
#[derive(Debug)]
struct Kind {
    /// What the aliases of its events end with.
    pmu: String,
    metric: MetricName,
}

/// The module.
#[derive(Debug)]
pub struct CoreTypes {
    /// The slowest first.
    kinds: Vec<Kind>,
    ratio: MetricName,
    /// IPC and confidence by kind.
    known: FxHashMap<ThreadId, Vec<Option<(f64, f64)>>>,
}

impl CoreTypes {
    /// For the kinds of core that have a PMU each.
    ///
    /// # Errors
    /// All cores are of one kind.
    pub fn open(sysfs: &Path, topology: &Topology) -> Result<Self, MachineError> {
        let pmus = Pmus::new(sysfs);
        let of = |name: String| Some((pmus.open(&name).ok()?.pus()?, name));
        let mut found: Vec<(PuSet, String)> = pmus.of_cores().into_iter().filter_map(of).collect();
        // The topology has the slowest kind first.
        let place = |pus: &PuSet| {
            let mut kinds = topology.kinds.iter();
            kinds.position(|kind| pus.iter().next().is_some_and(|pu| kind.pus.contains(pu)))
        };
        found.sort_by_key(|(pus, name)| (place(pus), name.clone()));
        if found.len() < 2 {
            return Err(MachineError::Other(
                "all cores of this machine are of one kind, or the kernel has one PMU for all of them: \
                 `-m ipc=instructions/cycles` tells the IPC"
                    .to_owned(),
            ));
        }
        Ok(Self {
            kinds: found.into_iter().map(|(_, pmu)| Kind::new(pmu)).collect(),
            ratio: RATIO.into(),
            known: FxHashMap::default(),
        })
    }

    /// The IPC of a thread on each kind of core, the last known.
    fn update(&mut self, sample: &ThreadSample) -> Metrics {
        let kinds = &self.kinds;
        let known = self
            .known
            .entry(sample.info.id)
            .or_insert_with(|| vec![None; kinds.len()]);
        for (kind, known) in kinds.iter().zip(known.iter_mut()) {
            let count = |event: &str| {
                let mut counts = sample.counts.iter();
                let alias = |alias: &str| alias.split_once('@') == Some((event, kind.pmu.as_str()));
                Some(counts.find(|count| alias(&count.alias))?.value)
            };
            match (count(names::INSTRUCTIONS), count(names::CYCLES)) {
                (Some(instructions), Some(cycles)) if cycles > 0.0 => {
                    *known = Some((instructions / cycles, 1.0));
                }
                _ => {
                    if let Some((_, confidence)) = known {
                        *confidence *= FADES;
                    }
                }
            }
        }
        let metric = |(value, confidence): (f64, f64)| Metric {
            value,
            confidence,
            source: MetricSource::Counters,
        };
        let mut metrics = Metrics::default();
        for (kind, known) in kinds.iter().zip(known.iter()) {
            if let Some(known) = known {
                metrics.set(MetricName::clone(&kind.metric), metric(*known));
            }
        }
        if let (Some(Some(slow)), Some(Some(fast))) = (known.first(), known.last())
            && slow.0 > 0.0
        {
            let ratio = (fast.0 / slow.0, fast.1.min(slow.1));
            metrics.set(MetricName::clone(&self.ratio), metric(ratio));
        }
        metrics
    }
}

impl Kind {
    fn new(pmu: String) -> Self {
        Self {
            metric: format!("ipc_{pmu}").into(),
            pmu,
        }
    }
}

/// What the module needs.
pub(super) fn needs() -> Vec<Need> {
    let events = [names::INSTRUCTIONS, names::CYCLES];
    events.map(|name| Need::Event(name.into())).into()
}

fn info(name: impl Into<MetricName>, about: &'static str) -> MetricInfo {
    MetricInfo::new(name, "", MetricScope::Thread, MetricKind::Ratio, about)
}

/// The metrics on a hybrid processor of Intel's.
pub(super) fn usual_metrics() -> Vec<MetricInfo> {
    let kinds = ["cpu_atom", "cpu_core"].map(|pmu| Kind::new(pmu.to_owned()));
    provided(&kinds)
}

fn provided(kinds: &[Kind]) -> Vec<MetricInfo> {
    let kinds = kinds.iter().map(|kind| {
        let name = MetricName::clone(&kind.metric);
        info(name, "last known instructions / cycle on that kind of core")
    });
    kinds
        .chain([info(RATIO, "IPC on the fastest kind / IPC on the slowest")])
        .collect()
}

impl Module for CoreTypes {
    fn name(&self) -> &str {
        NAME
    }

    fn provides(&self) -> Vec<MetricInfo> {
        provided(&self.kinds)
    }

    fn needs(&self) -> Vec<Need> {
        needs()
    }

    fn wants(&self) -> WantedEvents {
        WantedEvents {
            exits: true,
            ..WantedEvents::default()
        }
    }

    fn thread_event(&mut self, event: ThreadEvent<'_>) {
        if let ThreadEvent::Exited(id) = event {
            self.known.remove(&id);
        }
    }

    fn period(&mut self, context: &ModuleContext<'_>) -> Result<ModuleValues, MachineError> {
        let ran = context.threads.iter().filter(|thread| thread.cpu_time > 0);
        let threads = ran.map(|thread| (thread.info.id, self.update(thread)));
        let threads = threads.collect();
        // One that ended in this period was removed before.
        for id in context.ended {
            self.known.remove(id);
        }
        Ok(ModuleValues {
            threads,
            readings: Vec::new(),
        })
    }

    fn description(&self) -> String {
        let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.pmu.as_str()).collect();
        format!("IPC by kind of core ({})", kinds.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::{Count, CountQuality, ThreadInfo, topology::CoreKind};
    use std::fs;

    fn hybrid(sysfs: &Path) -> Topology {
        for (pmu, cpus) in [("cpu_core", "0-1"), ("cpu_atom", "2-3")] {
            let folder = sysfs.join("bus/event_source/devices").join(pmu);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cpus"), format!("{cpus}\n")).unwrap();
            fs::write(folder.join("type"), "4\n").unwrap();
        }
        let kind = |name: &str, pus: [u32; 2]| CoreKind {
            name: name.to_owned(),
            pus: pus.into_iter().collect(),
        };
        Topology {
            source: "test".into(),
            packages: Vec::new(),
            numa_nodes: Vec::new(),
            caches: Vec::new(),
            cores: Vec::new(),
            kinds: vec![kind("efficiency", [2, 3]), kind("performance", [0, 1])],
            pus: Vec::new(),
        }
    }

    fn sample(counts: &[(&str, f64)]) -> ThreadSample {
        let count = |(alias, value): &(&str, f64)| Count {
            alias: (*alias).into(),
            value: *value,
            quality: CountQuality::Exact,
        };
        ThreadSample {
            info: ThreadInfo {
                id: ThreadId { tid: 1, start: 1 },
                pid: 1,
                name: "x".into(),
                process: "x".into(),
                work: perch_core::Work::default(),
            },
            interval: 1,
            cpu_time: 1,
            wait_time: 0,
            switches: None,
            migrations: None,
            last_pu: None,
            mask: None,
            counts: counts.iter().map(count).collect(),
            event_set: None,
            metrics: Metrics::default(),
        }
    }

    #[test]
    fn the_ratio_is_known_after_both_kinds() {
        let sysfs = tempfile::tempdir().unwrap();
        let topology = hybrid(sysfs.path());
        let mut module = CoreTypes::open(sysfs.path(), &topology).unwrap();
        let slow = [
            ("instructions@cpu_atom", 10.0),
            ("cycles@cpu_atom", 10.0),
            ("instructions@cpu_core", 0.0),
            ("cycles@cpu_core", 0.0),
        ];
        let metrics = module.update(&sample(&slow));
        assert_eq!(metrics.value("ipc_cpu_atom"), Some(1.0));
        assert_eq!(metrics.value("ipc_cpu_core"), None);
        assert_eq!(metrics.value(RATIO), None);
        let fast = [("instructions@cpu_core", 30.0), ("cycles@cpu_core", 10.0)];
        let metrics = module.update(&sample(&fast));
        assert_eq!(metrics.value(RATIO), Some(3.0));
        // The value of the other kind is older.
        assert_eq!(metrics.get(RATIO).unwrap().confidence, FADES);
    }

    #[test]
    fn one_kind_is_not_two() {
        let sysfs = tempfile::tempdir().unwrap();
        let topology = hybrid(sysfs.path());
        let alone = sysfs.path().join("alone");
        fs::create_dir(&alone).unwrap();
        let why = CoreTypes::open(&alone, &topology).unwrap_err().to_string();
        assert!(why.contains("of one kind"), "{why}");
    }
}
