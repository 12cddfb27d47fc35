//! perch's vocabulary: what a machine is made of, what was observed on it, what a policy may know
//! and what it may ask for, and the traits of machines, modules and policies.
//!
//! ```text
//! Machine ──observe──▶ Observation ──characterise──▶ Snapshot ──decide──▶ Plan ──apply──▶ Machine
//! ```
//!
//! No I/O, no clock, no threads: everything here is data, or a trait that others implement.
#![forbid(unsafe_code)]

pub mod affinity;
pub mod cache_ways;
pub mod diagnostic;
pub mod error;
pub mod event;
pub mod irq;
pub mod machine;
mod merge;
pub mod metric;
pub mod module;
pub mod observation;
mod plain_words;
pub mod plan;
pub mod policy;
pub mod pu_set;
pub mod remark;
pub mod setting;
pub mod snapshot;
mod suggest;
pub mod text;
pub mod thread;
pub mod topology;
pub mod units;
pub mod weight;

pub use affinity::{Affinity, MaskChange, MaskError};
pub use cache_ways::{CacheAllocation, CacheWays, CacheWaysError, WayMask, WaysChange};
pub use diagnostic::Diagnostic;
pub use error::MachineError;
pub use event::{Count, CountQuality, EventChoice, EventPlan, EventSet, Limits};
pub use irq::{IrqBinding, IrqChange, IrqLevel, IrqLoad, IrqSample, IrqState, IrqStep, Irqs};
pub use machine::{Launch, Machine, Targets, Wake};
pub use metric::{Metric, MetricName, MetricSource, Metrics, Thresholds};
pub use module::{
    MetricInfo, MetricKind, MetricScope, Module, ModuleContext, ModuleValues, Need, Reading,
    Subject, ThreadEvent, WantedEvents,
};
pub use observation::{
    CountedSet, Observation, Origin, ProcessState, PuSample, Sharing, Source, TargetSample,
    ThreadSample, Window,
};
pub use plan::{Action, ActionKind, Binding, Outcome, Plan, Reason};
pub use policy::Policy;
pub use pu_set::PuSet;
pub use remark::{Remark, Scope, Severity};
pub use setting::{
    Setting, SettingBinding, SettingChange, SettingChoices, SettingSample, SettingState,
    SettingValue, Settings,
};
pub use snapshot::{PuLoad, Snapshot, ThreadState, Unmanaged};
pub use thread::{ProcessId, ThreadId, ThreadInfo, Work};
pub use topology::Topology;
pub use units::{ShareLevel, SharingDomain, UnitClass, UnitDomains};
pub use weight::{
    GroupChange, NiceChange, NiceSample, Weight, WeightGroups, Weights, scheduler_weight,
};
