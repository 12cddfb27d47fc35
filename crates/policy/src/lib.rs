//! Placement policies, one paper a file.
//!
//! A policy sees a [`Snapshot`](perch_core::Snapshot) after each period and answers with the
//! [`Plan`](perch_core::Plan) that it wants in force. It reads no clock and no file, so that what it decided can be
//! recorded, replayed and tested. [`registry`] builds those that perch has by name; `docs/policies.md` describes what
//! they do and when they help.
//!
//! # A policy of one's own
//!
//! This one keeps threads that wait for memory off each other's core. It needs the metric `memory_intensity`, whatever
//! counters or samples that comes from.
//!
//! ```
//! use perch_core::{Binding, Plan, Policy, PuSet, Reason, Snapshot, metric::names};
//!
//! /// Gives each thread that waits for memory more than half of its time a core of its own, while there are cores.
//! #[derive(Default)]
//! struct MemoryApart;
//!
//! impl Policy for MemoryApart {
//!     fn name(&self) -> &'static str {
//!         "memory-apart"
//!     }
//!
//!     fn needs(&self) -> &'static [&'static str] {
//!         &[names::MEMORY_INTENSITY]
//!     }
//!
//!     fn decide(&mut self, snapshot: &Snapshot) -> Plan {
//!         let mut plan = Plan::default();
//!         let mut taken = PuSet::new();
//!         for thread in &snapshot.threads {
//!             let intensity = thread.metrics.value(names::MEMORY_INTENSITY);
//!             // Skips threads that another process placed, and threads about which nothing is known.
//!             let Some(intensity) = intensity.filter(|i| *i > 0.5 && thread.unmanaged.is_none()) else {
//!                 continue;
//!             };
//!             // Where it is bound already it stays: a plan that is in force must be planned again.
//!             let cores = snapshot.topology.cores.iter();
//!             let free = cores.filter(|core| core.pus.is_disjoint(&taken) && !core.pus.is_disjoint(&thread.allowed));
//!             let Some(core) = free.min_by_key(|core| thread.bound != Some(core.pus.and(&thread.allowed))) else {
//!                 break;
//!             };
//!             taken = taken.or(&core.pus);
//!             plan.bindings.push(Binding {
//!                 thread: thread.info.id,
//!                 pus: core.pus.and(&thread.allowed),
//!                 reason: Reason::new("waits for memory: a core of its own").with(names::MEMORY_INTENSITY, intensity),
//!             });
//!         }
//!         plan
//!     }
//! }
//! # use perch_core::{Metric, MetricSource, ThreadId, ThreadInfo, ThreadState, Topology, topology::*};
//! # let all: PuSet = (0..4).collect();
//! # let cores = [0, 2].map(|first| Core { pus: (first..first + 2).collect(), package: 0, numa_node: 0, kind: 0 });
//! # let topology = Topology {
//! #     source: "an example".into(),
//! #     packages: vec![], numa_nodes: vec![], caches: vec![], kinds: vec![],
//! #     cores: cores.to_vec(),
//! #     pus: (0..4).map(|os| Pu { os, core: os as usize / 2, state: PuState::Usable }).collect(),
//! # };
//! # let thread = |tid, intensity| ThreadState {
//! #     info: ThreadInfo { id: ThreadId { tid, start: 0 }, pid: 1, name: "t".into(), process: "app".into(), work: perch_core::Work::default(), },
//! #     target: 0, allowed: all.clone(), bound: None, unmanaged: None, last_pu: None, activity: 1.0, waiting: 0.0,
//! #     metrics: [(names::MEMORY_INTENSITY.into(), Metric { value: intensity, confidence: 1.0, source: MetricSource::Counters })]
//! #         .into_iter().collect(),
//! # };
//! # let snapshot = Snapshot {
//! #     settings: Vec::new(),
//! #     period: 0, at: 0, interval: 1_000_000_000,
//! #     units: std::sync::Arc::default(),
//! #     topology: std::sync::Arc::new(topology),
//! #     thresholds: Default::default(),
//! #     threads: vec![thread(1, 0.8), thread(2, 0.1), thread(3, 0.7)],
//! #     pus: vec![],
//! #     irqs: vec![],
//! #     sharing: vec![],
//! #     energy: None,
//! #     last_outcomes: vec![],
//! # };
//!
//! let plan = MemoryApart.decide(&snapshot);
//! assert_eq!(plan.bindings[0].pus.to_string(), "0-1");
//! assert_eq!(plan.bindings[1].pus.to_string(), "2-3");
//! ```
#![forbid(unsafe_code)]

mod busy;
pub mod calibration;
pub mod cpi;
mod domains;
mod error;
pub mod fixed;
mod history;
mod hysteresis;
mod inputs;
pub mod irq;
pub mod masa;
mod matching;
mod nothing;
pub mod observe;
pub mod ps_sched;
mod ranking;
pub mod registry;
pub mod sos;
mod spread;
pub mod symbiosis;
pub mod workover;

pub use calibration::{
    CalibratedMetric, Calibration, CalibrationError, Coupling, Kernel, Share, Transfer,
};
pub use cpi::{Cpi, CpiConfig};
pub use error::PolicyError;
pub use fixed::{Fixed, FixedConfig};
pub use inputs::Inputs;
pub use irq::{Irq, IrqConfig};
pub use masa::{Masa, MasaConfig};
pub use observe::Observe;
pub use ps_sched::{Method, PsSched, PsSchedConfig};
pub use sos::{Sos, SosConfig};
pub use symbiosis::{Symbiosis, SymbiosisConfig};
pub use workover::{WorkOver, WorkOverConfig};
