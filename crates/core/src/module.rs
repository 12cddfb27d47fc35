//! The trait of monitoring modules: what is no plain counter.
//!
//! A module declares the metrics that it provides and what it needs for them. The machine counts the events that it
//! needs, tells it about threads, and asks it for values at the end of each period, right after the counters were read.

use crate::{
    MachineError, Metric, MetricName, Metrics, PuSample, Remark, Sharing, ThreadId, ThreadInfo,
    ThreadSample, Topology, metric::names,
};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, sync::Arc};

/// What the values of a metric are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetricScope {
    /// Single threads.
    Thread,
    /// Processes, with all their threads.
    Process,
    /// PUs, whatever runs on them.
    Pu,
    /// Packages, whatever runs on them.
    Package,
    /// The whole machine.
    Machine,
}

impl MetricScope {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("thread", Self::Thread),
        ("process", Self::Process),
        ("pu", Self::Pu),
        ("package", Self::Package),
        ("machine", Self::Machine),
    ];

    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(_, scope)| *scope == self);
        named.map_or("", |(name, _)| name)
    }
}

/// How the values of a metric are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetricKind {
    /// An amount of the period, such as joules: adds up over time, and over the parts of the machine.
    Amount,
    /// A state at the end of the period, such as bytes that are occupied: adds up over the parts of the machine, and is
    /// averaged over time.
    Level,
    /// A ratio or an intensity, such as a share or a temperature: averaged over both.
    Ratio,
}

impl MetricKind {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 3] = [
        ("amount", Self::Amount),
        ("level", Self::Level),
        ("ratio", Self::Ratio),
    ];

    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(_, kind)| *kind == self);
        named.map_or("", |(name, _)| name)
    }
}

/// A metric that a module provides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MetricInfo {
    /// Its name: lower-case letters, digits and `_`.
    pub name: MetricName,
    /// Its unit, `J` or `B` for example; empty for a plain number.
    pub unit: Cow<'static, str>,
    /// What its values are about.
    pub scope: MetricScope,
    /// How its values are combined.
    pub kind: MetricKind,
    /// What it is, in a few words.
    pub about: Cow<'static, str>,
}

impl MetricInfo {
    /// A metric with its name, unit and description.
    pub fn new(
        name: impl Into<MetricName>,
        unit: &'static str,
        scope: MetricScope,
        kind: MetricKind,
        about: &'static str,
    ) -> Self {
        Self {
            name: name.into(),
            unit: unit.into(),
            scope,
            kind,
            about: about.into(),
        }
    }
}

/// What a module needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "what")]
pub enum Need {
    /// A metric of threads that a module before it provides ([`check_needs`]).
    Metric(Cow<'static, str>),
    /// An event that must be counted, by the profile's name or any other. The events of all modules and of the user are
    /// counted by one plan.
    Event(Cow<'static, str>),
    /// A file or folder, in words.
    File(Cow<'static, str>),
    /// A permission, in words.
    Permission(Cow<'static, str>),
}

/// What one value is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// A process, by its number.
    Process(i32),
    /// A PU, by the operating system's number.
    Pu(u32),
    /// A package, by the operating system's number.
    Package(u32),
    /// The whole machine.
    Machine,
}

impl Subject {
    /// The scope of a metric that has values about it.
    pub fn scope(self) -> MetricScope {
        match self {
            Self::Process(_) => MetricScope::Process,
            Self::Pu(_) => MetricScope::Pu,
            Self::Package(_) => MetricScope::Package,
            Self::Machine => MetricScope::Machine,
        }
    }
}

/// A module's value about something other than a thread, of one period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// What it is about.
    pub subject: Subject,
    /// The metric's name.
    pub name: MetricName,
    /// How it is combined with others.
    pub kind: MetricKind,
    /// The value.
    pub metric: Metric,
}

impl Reading {
    /// The package whose energy in the period this is, and that energy in joules.
    pub fn package_energy(&self) -> Option<(u32, f64)> {
        match self.subject {
            Subject::Package(package)
                if *self.name == *names::ENERGY_PKG && self.kind == MetricKind::Amount =>
            {
                Some((package, self.metric.value))
            }
            _ => None,
        }
    }
}

/// What a module knows about a period.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModuleValues {
    /// Metrics of threads.
    pub threads: Vec<(ThreadId, Metrics)>,
    /// Values about processes, PUs, packages and the machine: at most one for each metric and subject.
    pub readings: Vec<Reading>,
}

/// What happened to a thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ThreadEvent<'a> {
    /// It was seen for the first time. Of a program that perch starts, the first thread is reported before the program is
    /// executed; other threads at the end of the period in which they were found.
    Started(&'a ThreadInfo),
    /// It has exited, in the period that ends.
    Exited(ThreadId),
    /// It moved from one PU to another, so many times in the period that ends.
    Migrated(&'a ThreadSample, u64),
    /// It was switched off a PU, so many times in the period that ends.
    Switched(&'a ThreadSample, u64),
}

/// Which of [`ThreadEvent`] a module asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WantedEvents {
    /// [`ThreadEvent::Started`].
    pub starts: bool,
    /// [`ThreadEvent::Exited`].
    pub exits: bool,
    /// [`ThreadEvent::Migrated`].
    pub migrations: bool,
    /// [`ThreadEvent::Switched`].
    pub switches: bool,
}

/// The input of a module at the end of a period.
pub struct ModuleContext<'a> {
    /// The topology in force at the period's end.
    pub topology: &'a Arc<Topology>,
    /// Nanoseconds since the last period's end.
    pub interval: u64,
    /// The threads of this period with their counts, by rising id, and with what modules before this one added to them.
    pub threads: &'a [ThreadSample],
    /// The PUs of this period with their counts, by rising number; empty if they are not observed.
    pub pus: &'a [PuSample],
    /// Threads that ended in this period.
    pub ended: &'a [ThreadId],
}

/// Whether each module finds what it needs. Modules run in this order, and each sees what those before it have added.
///
/// # Errors
/// The first metric that no module before provides.
pub fn check_needs<'a>(
    modules: impl IntoIterator<Item = &'a dyn Module>,
) -> Result<(), MachineError> {
    let mut provided: Vec<MetricName> = Vec::new();
    for module in modules {
        let missing = module.needs().into_iter().find_map(|need| match need {
            Need::Metric(name) if !provided.iter().any(|known| **known == *name) => Some(name),
            _ => None,
        });
        if let Some(missing) = missing {
            let there = match provided.as_slice() {
                [] => "nothing is provided".to_owned(),
                some => format!("provided are: {}", some.join(", ")),
            };
            return Err(MachineError::Other(format!(
                "module `{}` needs the metric `{missing}`, which no module before it provides; {there}",
                module.name()
            )));
        }
        provided.extend(module.provides().into_iter().map(|metric| metric.name));
    }
    Ok(())
}

/// Measures what is no plain counter: instruction mix by sampling, energy, cache occupancy, a model's prediction.
///
/// Only [`Module::name`], [`Module::provides`], [`Module::period`] and [`Module::description`] must be there.
pub trait Module: Send {
    /// Name of the module, for messages and errors.
    fn name(&self) -> &str;

    /// The metrics that it provides on this machine.
    fn provides(&self) -> Vec<MetricInfo>;

    /// What it needs: metrics of modules before it, events, files, permissions.
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    /// What happens to threads and must be reported to it.
    fn wants(&self) -> WantedEvents {
        WantedEvents::default()
    }

    /// The first period begins now: what was measured before does not count.
    fn begin(&mut self) {}

    /// Something happened to a thread. Called before [`Module::period`] of the same period.
    fn thread_event(&mut self, _event: ThreadEvent<'_>) {}

    /// A period is over: values for those threads, processes and parts of the machine about which it knows something.
    /// It is called right after the counters were read, and must not take long.
    ///
    /// # Errors
    /// A module that has nothing to say; it is asked again in the next period.
    fn period(&mut self, context: &ModuleContext<'_>) -> Result<ModuleValues, MachineError>;

    /// How often [`Module::refresh`] must be called at least, if periods are longer: for counters that wrap around.
    fn refresh_every(&self) -> Option<std::time::Duration> {
        None
    }

    /// Reads what would be lost if it were read only at the end of a long period.
    fn refresh(&mut self) {}

    /// Threads of the period that just ended that were seen to share memory.
    fn sharing(&mut self) -> Vec<Sharing> {
        Vec::new()
    }

    /// What the user should know since the last call, such as lost samples.
    fn remarks(&mut self) -> Vec<Remark> {
        Vec::new()
    }

    /// One line for the report: what it does and how, such as rate and privilege.
    fn description(&self) -> String;
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Part(
        &'static str,
        &'static [&'static str],
        &'static [&'static str],
    );

    impl Module for Part {
        fn name(&self) -> &str {
            self.0
        }

        fn provides(&self) -> Vec<MetricInfo> {
            let metric = |name: &&str| {
                MetricInfo::new(*name, "", MetricScope::Thread, MetricKind::Ratio, "")
            };
            self.1.iter().map(metric).collect()
        }

        fn needs(&self) -> Vec<Need> {
            // An event is never provided by another module.
            let metrics = self.2.iter().map(|name| Need::Metric((*name).into()));
            metrics.chain([Need::Event("cycles".into())]).collect()
        }

        fn period(&mut self, _: &ModuleContext<'_>) -> Result<ModuleValues, MachineError> {
            Ok(ModuleValues::default())
        }

        fn description(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn what_a_module_needs_comes_from_those_before_it() {
        let mix = Part("mix", &["fp_share", "load_share"], &[]);
        let power = Part("power", &["watts"], &["fp_share"]);
        let cost = Part("cost", &[], &["watts", "load_share"]);
        let check = |parts: &[&Part]| {
            let parts = parts.iter().map(|part| *part as &dyn Module);
            check_needs(parts).map_err(|error| error.to_string())
        };
        check(&[]).unwrap();
        check(&[&mix, &power, &cost]).unwrap();
        let told = check(&[&power, &mix]).unwrap_err();
        assert!(
            told.contains("`power`") && told.contains("`fp_share`"),
            "{told}"
        );
        assert!(told.contains("nothing is provided"), "{told}");
        let told = check(&[&mix, &cost, &power]).unwrap_err();
        assert!(
            told.contains("`cost`") && told.contains("`watts`") && told.contains("load_share"),
            "{told}"
        );
    }
}
