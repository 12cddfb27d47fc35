//! A profile: what perch knows about one microarchitecture.

use crate::{cpu::Rule, formula::Formula};
use perch_core::{
    EventChoice, Limits, MetricName, MetricSource, ShareLevel, SharingDomain, Thresholds, Topology,
    UnitClass, UnitDomains, metric::names,
};
use std::sync::Arc;

/// From this share of floating-point instructions on, a sampled thread counts as floating-point heavy, where the
/// profile says nothing else. Sampling counts the same thing everywhere, so it has one threshold.
pub const SAMPLING_FP_THRESHOLD: f64 = 0.05;

/// What perch knows about one microarchitecture. Made by [`Profile::parse`]; sound once made.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its name, for `--profile`.
    pub name: String,
    /// The processors' names, for people.
    pub title: String,
    /// Path of the file; of a shipped one below `profiles`.
    pub path: String,
    /// Its text, as it was read.
    pub text: String,
    /// Notes for users of this profile.
    pub notes: Vec<String>,
    /// The processors that it is for.
    pub rules: Vec<Rule>,
    /// The kinds of core, each with a PMU of its own; empty where all cores are alike.
    pub kinds: Vec<Kind>,
    /// Pools of execution units, and the PUs that share them.
    pub units: Vec<Unit>,
    /// Events that can be counted, with their spellings.
    pub events: Vec<Event>,
    /// Sets of events that are counted together, in the order of multiplexing.
    pub sets: Vec<Set>,
    /// Metrics, with their formulas.
    pub metrics: Vec<MetricRule>,
    /// Limits of plausible counts.
    pub limits: Limits,
    pub(crate) fp_threshold_counters: Option<f64>,
    pub(crate) fp_threshold_sampling: Option<f64>,
}

/// A kind of core with a PMU of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// The PMU's name below `/sys/bus/event_source/devices`, such as `cpu_atom`.
    pub pmu: Arc<str>,
    /// For people: `efficiency cores (Gracemont)`.
    pub title: String,
}

/// Execution units of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// The class of operations that they execute.
    pub class: UnitClass,
    /// Number of units per group of PUs that share them.
    pub count: u32,
    /// The level at which PUs share them.
    pub share: ShareLevel,
    /// The kind of core (index into [`Profile::kinds`]); `None` for all.
    pub kind: Option<usize>,
    /// Manual, paper or table that documents this.
    pub source: String,
}

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The name that formulas use.
    pub name: Arc<str>,
    /// What is asked of the machine. Its alias is `name`, or `name@pmu` for an event of one kind of core, so that a
    /// thread's counts on both kinds stay apart.
    pub choice: EventChoice,
    /// The kind of core (index into [`Profile::kinds`]); `None` for all.
    pub kind: Option<usize>,
    /// Highest plausible count per cycle; `None` for no limit.
    pub max_per_cycle: Option<f64>,
    /// Manual, paper or table that documents it, and its peculiarities.
    pub source: String,
}

/// Events that are counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Name of the set in the file, for messages.
    pub name: Arc<str>,
    /// Indices into [`Profile::events`]; the first leads.
    pub events: Vec<usize>,
    /// Whether it is counted only if a requested metric needs it.
    pub on_demand: bool,
}

/// The object that a metric describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A thread.
    Thread,
    /// A hardware thread.
    Pu,
    /// A core.
    Core,
    /// The PUs below one last-level cache.
    Llc,
    /// A package.
    Package,
    /// The machine.
    Machine,
}

impl Scope {
    /// All of them, with the names that files use.
    pub const ALL: [(&'static str, Self); 6] = [
        ("thread", Self::Thread),
        ("pu", Self::Pu),
        ("core", Self::Core),
        ("llc", Self::Llc),
        ("package", Self::Package),
        ("machine", Self::Machine),
    ];
}

/// Definition of a metric: formula, unit and range.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricRule {
    /// Name of the metric, such as `fp_share`.
    pub name: MetricName,
    /// Formula over event aliases, constants and `cpu_seconds`.
    pub formula: Formula,
    /// The unit and scale, such as `operations / cycle`.
    pub unit: String,
    /// The object that it describes.
    pub scope: Scope,
    /// The least and the greatest value that it can have.
    pub range: Option<(f64, f64)>,
    /// Whether it is a total over the window (cycles) rather than a ratio (IPC): totals of several kinds of core add
    /// up, ratios are averaged by cycles.
    pub total: bool,
    /// Description for users.
    pub description: String,
    /// Manual, paper or definition from which the formula comes.
    pub source: String,
    /// How to compute it, for each kind of core on which it can be.
    pub(crate) plans: Vec<MetricPlan>,
}

/// A formula with its names looked up.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MetricPlan {
    /// The kind of core; `None` where all are alike.
    pub kind: Option<usize>,
    /// One for each of the formula's names, in its order.
    pub inputs: Vec<Input>,
    /// Whether a set that it needs is counted only on demand.
    pub on_demand: bool,
}

/// The meaning of a name in a formula.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Input {
    /// Index into [`Profile::events`].
    Event(usize),
    /// A number from the file.
    Constant(f64),
    /// Seconds on a PU in the window.
    CpuSeconds,
}

/// The name under which formulas find the seconds that the thread was on a PU.
pub const CPU_SECONDS: &str = "cpu_seconds";

/// What became of one event of a profile on one machine ([`Profile::check`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventCheck {
    /// The event's alias in the plan.
    pub alias: Arc<str>,
    /// The encoding that was found, or the error.
    pub result: Result<String, String>,
    /// Metrics that need it.
    pub needed_by: Vec<MetricName>,
}

impl Profile {
    /// From which FP share on a thread counts as floating-point heavy, for an FP share from that source.
    ///
    /// The scale of counted FP shares is each processor's own (WorkOver, section 5.2), so theirs is in the profile;
    /// a profile without one, and every other source than counters, gets the threshold of sampling.
    pub fn fp_threshold(&self, source: MetricSource) -> f64 {
        let sampling = self.fp_threshold_sampling.unwrap_or(SAMPLING_FP_THRESHOLD);
        match source {
            MetricSource::Counters | MetricSource::Simulation => {
                self.fp_threshold_counters.unwrap_or(sampling)
            }
            MetricSource::Sampling
            | MetricSource::Kernel
            | MetricSource::Model
            | MetricSource::Sensor => sampling,
        }
    }

    /// The same, of each metric that has a threshold.
    pub fn thresholds(&self, source: MetricSource) -> Thresholds {
        let fp = (MetricName::from(names::FP_SHARE), self.fp_threshold(source));
        [fp].into_iter().collect()
    }

    /// The PUs that share units, of each class of which the profile says something; and those that share floating-point
    /// units.
    pub fn unit_domains(&self, topology: &Topology) -> UnitDomains {
        let levels = self.units.iter().map(|unit| (unit.class, unit.share));
        let levels = levels.chain([(UnitClass::Fp, self.fp_share_level())]);
        levels
            .map(|(class, level)| (class, topology.domains(level)))
            .collect()
    }

    /// At which level PUs share floating-point units: the core, unless the profile says otherwise.
    pub fn fp_share_level(&self) -> ShareLevel {
        self.units
            .iter()
            .find(|unit| unit.class == UnitClass::Fp)
            .map_or(ShareLevel::Core, |unit| unit.share)
    }

    /// The groups of PUs that share floating-point units on that machine, by rising lowest PU.
    pub fn fp_domains(&self, topology: &Topology) -> Vec<SharingDomain> {
        topology.domains(self.fp_share_level())
    }

    /// The rule of the metric of that name.
    pub fn metric(&self, name: &str) -> Option<&MetricRule> {
        self.metrics.iter().find(|metric| &*metric.name == name)
    }

    /// Whether hardware counters can give this metric on some core of this processor.
    pub fn counts(&self, metric: &str) -> bool {
        self.metric(metric).is_some()
    }

    /// Asks for each event whether it can be counted here. `resolve` answers what an event resolves to, or why not.
    pub fn check(
        &self,
        resolve: &dyn Fn(&EventChoice) -> Result<String, String>,
    ) -> Vec<EventCheck> {
        self.events
            .iter()
            .enumerate()
            .map(|(at, event)| EventCheck {
                alias: event.choice.alias.clone(),
                result: resolve(&event.choice),
                needed_by: self
                    .metrics
                    .iter()
                    .filter(|metric| {
                        metric
                            .plans
                            .iter()
                            .any(|plan| plan.inputs.contains(&Input::Event(at)))
                    })
                    .map(|metric| metric.name.clone())
                    .collect(),
            })
            .collect()
    }

    /// The metrics that cannot be had with only these events open (aliases as in the plan), each with the events that
    /// it lacks. Metrics of sets that are counted on demand are left out.
    pub fn lacking(&self, open: &[&str]) -> Vec<(MetricName, Vec<Arc<str>>)> {
        let missing = |plan: &MetricPlan| -> Vec<Arc<str>> {
            plan.inputs
                .iter()
                .filter_map(|input| match input {
                    Input::Event(at) => Some(&self.events[*at].choice.alias),
                    Input::Constant(_) | Input::CpuSeconds => None,
                })
                .filter(|alias| !open.contains(&&***alias))
                .cloned()
                .collect()
        };
        self.metrics
            .iter()
            .filter_map(|metric| {
                let always = metric.plans.iter().filter(|plan| !plan.on_demand);
                let fewest = always.map(missing).min_by_key(Vec::len)?;
                (!fewest.is_empty()).then(|| (metric.name.clone(), fewest))
            })
            .collect()
    }
}
