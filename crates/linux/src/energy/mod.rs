//! Energy and power as a monitoring module: processors' RAPL counters through powercap or, where only root may read those,
//! through perf's PMU `power`; sensors of hwmon and of Arm's SCMI.
//!
//! What is measured is the energy of a package, a domain or a board, with everything that runs there.

mod counter;
mod hwmon;
mod packages;
mod power_pmu;
mod powercap;
mod rapl;

pub use packages::Energy;

use counter::{Counter, number_in};
use perch_core::{
    MachineError, Metric, MetricInfo, MetricKind, MetricName, MetricScope, MetricSource, Module,
    ModuleContext, ModuleValues, Need, Reading, Remark, Subject, metric::names,
};
use rapl::Domains;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The name of the module.
pub const NAME: &str = "energy";

/// No package uses more: so often a counter must be read, lest it wraps around unseen.
const MOST_WATTS: u64 = 1000;

/// Counters of packages are brought up to date every millisecond.
const ADVANCES_WITHIN: Duration = Duration::from_millis(100);

/// A source of one metric about one part of the machine.
struct Source {
    metric: MetricName,
    subject: Subject,
    from: From,
}

enum From {
    /// Microjoules in a file.
    Counter(Counter),
    /// perf's PMU.
    Pmu(power_pmu::Domain),
    /// A file of microwatts.
    Power(PathBuf),
}

impl From {
    /// Joules since the last call, or watts now; `None` if that is not known.
    fn take(&mut self) -> Option<f64> {
        match self {
            Self::Counter(counter) => counter.take().map(|used| used as f64 / 1e6),
            Self::Pmu(domain) => domain.take(),
            Self::Power(file) => number_in(file).ok().map(|power| power as f64 / 1e6),
        }
    }

    fn kind(&self) -> MetricKind {
        match self {
            Self::Counter(_) | Self::Pmu(_) => MetricKind::Amount,
            Self::Power(_) => MetricKind::Level,
        }
    }
}

/// The module.
#[derive(Default)]
pub struct EnergyModule {
    sources: Vec<Source>,
    metrics: Vec<MetricInfo>,
    how: String,
    remarks: Vec<Remark>,
}

impl EnergyModule {
    /// All that measures energy or power below the live `/sys`. It takes as long as counters need to advance.
    ///
    /// # Errors
    /// Nothing does, or nothing that this user may read: with the remedy.
    pub fn open(sysfs: &Path) -> Result<Self, MachineError> {
        let mut module = Self::open_unchecked(sysfs)?;
        module.drop_dead();
        if module.sources.is_empty() {
            return Err(MachineError::Other(format!(
                "the counters of energy stand still ({}): most virtual machines hide them so",
                module.how
            )));
        }
        Ok(module)
    }

    /// The counters of processors alone, for those who did not ask for energy: `None` where no package has one that this user
    /// may read and that advances.
    pub fn of_processors(sysfs: &Path) -> Option<Self> {
        let mut module = Self::default();
        module.add_processors(sysfs).ok()?;
        module.drop_dead();
        module.remarks.clear();
        let mut metrics = module.metrics.iter();
        metrics
            .any(|metric| *metric.name == *names::ENERGY_PKG)
            .then_some(module)
    }

    /// The same without looking whether counters advance: those of a captured tree do not.
    fn open_unchecked(sysfs: &Path) -> Result<Self, MachineError> {
        let mut module = Self::default();
        let refused = module.add_processors(sysfs).err();
        module.add_sensors(sysfs);
        if module.sources.is_empty() {
            return Err(refused.unwrap_or_else(|| nothing(sysfs)));
        }
        if let Some(refused) = refused {
            let text = format!("the energy of packages is not measured: {refused}");
            module.remarks.push(Remark::warning("no-energy", text));
        }
        Ok(module)
    }

    /// Leaves out counters of packages and platforms that do not advance: nothing uses no energy at all.
    fn drop_dead(&mut self) {
        let ever = |source: &Source| [names::ENERGY_PKG, "energy_psys"].contains(&&*source.metric);
        let mut alive = vec![false; self.sources.len()];
        let until = Instant::now() + ADVANCES_WITHIN;
        loop {
            for (source, alive) in self.sources.iter_mut().zip(&mut alive) {
                *alive |= !ever(source) || source.from.take().is_some_and(|value| value > 0.0);
            }
            if alive.iter().all(|alive| *alive) || Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            self.update();
        }
        let sources = std::mem::take(&mut self.sources).into_iter().zip(alive);
        let (living, dead): (Vec<_>, Vec<_>) = sources.partition(|(_, alive)| *alive);
        self.sources = living.into_iter().map(|(source, _)| source).collect();
        if dead.is_empty() {
            return;
        }
        let sources = &self.sources;
        self.metrics
            .retain(|metric| sources.iter().any(|source| source.metric == metric.name));
        let names: BTreeSet<&str> = dead.iter().map(|(source, _)| &*source.metric).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let text = format!(
            "counters that stand still are left out: {}",
            names.join(", ")
        );
        self.remarks.push(Remark::warning("no-energy", text));
    }

    /// RAPL, by powercap or by perf.
    fn add_processors(&mut self, sysfs: &Path) -> Result<(), MachineError> {
        match rapl::open(sysfs)? {
            Domains::Files(mut zones) => {
                if sysfs == Path::new("/sys") && is_amd() {
                    // The kernel reads that of one core only (MSR C001029A is one a core).
                    zones.retain(|zone| zone.domain != "core");
                }
                for zone in zones {
                    let scope = zone.scope();
                    let counter = From::Counter(zone.counter);
                    self.add_domain(&zone.domain, scope, zone.subject, counter);
                }
                self.say("RAPL counters (powercap)");
            }
            Domains::Perf(domains) => {
                if !domains.is_empty() {
                    self.say("RAPL counters (perf's PMU power)");
                }
                for domain in domains {
                    let (name, subject) = (domain.domain, domain.subject);
                    self.add_domain(name, subject.scope(), subject, From::Pmu(domain));
                }
            }
        }
        Ok(())
    }

    /// What is not a processor's own.
    fn add_sensors(&mut self, sysfs: &Path) {
        let before = self.sources.len();
        for zone in powercap::power_zones(&sysfs.join(powercap::POWERCAP)) {
            self.add_power(&format!("scmi_{}", zone.name), From::Power(zone.file));
        }
        for sensor in hwmon::sensors(&sysfs.join(hwmon::HWMON)) {
            match sensor.value {
                hwmon::Value::Power(file) => self.add_power(&sensor.name, From::Power(file)),
                hwmon::Value::Energy(counter) => {
                    let name = format!("energy_{}", plain(&sensor.name));
                    let about = "energy that a sensor has counted";
                    self.add(&name, "J", MetricKind::Amount, about, MetricScope::Machine);
                    self.push(name, Subject::Machine, From::Counter(counter));
                }
            }
        }
        if self.sources.len() > before {
            self.say("sensors");
        }
    }

    fn add_domain(&mut self, domain: &str, scope: MetricScope, subject: Subject, from: From) {
        let (name, about) = match domain {
            "package" => (names::ENERGY_PKG.to_owned(), "energy of whole packages"),
            "core" => (
                "energy_cores".to_owned(),
                "energy of all cores of a package",
            ),
            "uncore" => (
                "energy_uncore".to_owned(),
                "energy of what is beside the cores, mostly graphics",
            ),
            "dram" => (
                "energy_dram".to_owned(),
                "energy of the memory of a package",
            ),
            "psys" => ("energy_psys".to_owned(), "energy of the whole platform"),
            other => (format!("energy_{}", plain(other)), "energy of a domain"),
        };
        self.add(&name, "J", MetricKind::Amount, about, scope);
        self.push(name, subject, from);
    }

    fn add_power(&mut self, name: &str, from: From) {
        let name = format!("power_{}", plain(name));
        let about = "power that a sensor tells, at the end of the interval";
        self.add(&name, "W", MetricKind::Level, about, MetricScope::Machine);
        self.push(name, Subject::Machine, from);
    }

    fn add(
        &mut self,
        name: &str,
        unit: &'static str,
        kind: MetricKind,
        about: &'static str,
        scope: MetricScope,
    ) {
        if !self.metrics.iter().any(|known| *known.name == *name) {
            self.metrics
                .push(MetricInfo::new(name, unit, scope, kind, about));
        }
    }

    fn push(&mut self, name: String, subject: Subject, from: From) {
        self.sources.push(Source {
            metric: name.into(),
            subject,
            from,
        });
    }

    fn say(&mut self, how: &str) {
        if !self.how.is_empty() {
            self.how += " and ";
        }
        self.how += how;
    }

    fn update(&mut self) {
        for source in &mut self.sources {
            if let From::Counter(counter) = &mut source.from
                && let Err(error) = counter.update()
            {
                let text = format!("energy is missing: {error}");
                let key = counter.path.to_string_lossy().into_owned();
                let remark = Remark::warning("energy-unreadable", text);
                self.remarks.push(remark.keyed(key));
            }
        }
    }
}

/// The name of a sensor as part of a metric's: lower-case letters, digits and `_`.
fn plain(name: &str) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_lowercase(),
        false => '_',
    };
    name.chars().take(48).map(plain).collect()
}

/// A counter that cannot be read, with the remedy.
fn refused(error: io::Error) -> MachineError {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return MachineError::Other(error.to_string());
    }
    let path = error.to_string();
    let path = path
        .split(": ")
        .next()
        .unwrap_or(powercap::POWERCAP)
        .to_owned();
    MachineError::NotPermitted {
        what: format!("reading {path}"),
        remedy: "since Linux 5.10 only root may, as energy tells much of what other users' programs do \
                 (CVE-2020-8694): run perch as root, or with CAP_PERFMON or kernel.perf_event_paranoid=0 if the machine \
                 has perf's PMU `power`"
            .to_owned(),
    }
}

fn nothing(sysfs: &Path) -> MachineError {
    MachineError::Other(format!(
        "no counter of energy here: neither RAPL zones in {sysfs}/{} (kernel modules intel_rapl_msr, intel_rapl_common; \
         virtual machines have none), nor perf's PMU `power`, nor energy or power sensors in {sysfs}/{}",
        powercap::POWERCAP,
        hwmon::HWMON,
        sysfs = sysfs.display(),
    ))
}

impl Module for EnergyModule {
    fn name(&self) -> &str {
        NAME
    }

    fn provides(&self) -> Vec<MetricInfo> {
        self.metrics.clone()
    }

    fn needs(&self) -> Vec<Need> {
        needs()
    }

    fn begin(&mut self) {
        self.update();
        for source in &mut self.sources {
            source.from.take();
        }
    }

    fn period(&mut self, _: &ModuleContext<'_>) -> Result<ModuleValues, MachineError> {
        self.update();
        // Two dies of a package have a zone each.
        let mut sums: BTreeMap<(Subject, MetricName), (f64, MetricKind)> = BTreeMap::new();
        let mut gaps: Vec<MetricName> = Vec::new();
        for source in &mut self.sources {
            let key = (source.subject, MetricName::clone(&source.metric));
            let (value, kind) = (source.from.take(), source.from.kind());
            match value {
                Some(value) => sums.entry(key).or_insert((0.0, kind)).0 += value,
                None => gaps.push(key.1),
            }
        }
        // Without one of them, the sum over the machine would be too low.
        sums.retain(|(_, name), _| !gaps.contains(name));
        let reading = |((subject, name), (value, kind))| Reading {
            subject,
            name,
            kind,
            metric: Metric {
                value,
                confidence: 1.0,
                source: MetricSource::Sensor,
            },
        };
        Ok(ModuleValues {
            threads: Vec::new(),
            readings: sums.into_iter().map(reading).collect(),
        })
    }

    fn refresh_every(&self) -> Option<Duration> {
        let ranges = self.sources.iter().filter_map(|source| match &source.from {
            From::Counter(counter) => counter.range(),
            From::Pmu(_) | From::Power(_) => None,
        });
        let seconds = |range: u64| range / (MOST_WATTS * 1_000_000);
        ranges
            .min()
            .map(|range| Duration::from_secs(seconds(range).max(1)))
    }

    fn refresh(&mut self) {
        self.update();
    }

    fn remarks(&mut self) -> Vec<Remark> {
        std::mem::take(&mut self.remarks)
    }

    fn description(&self) -> String {
        format!("energy by {}", self.how)
    }
}

/// What the module needs, in words.
pub fn needs() -> Vec<Need> {
    vec![
        Need::File(
            "/sys/class/powercap/intel-rapl:*/energy_uj, or perf's PMU `power`, or energy*_input and power*_input of \
             /sys/class/hwmon, or /sys/class/powercap/arm-scmi:*/power_uw"
                .into(),
        ),
        Need::Permission(
            "energy_uj: root; the PMU `power`: CAP_PERFMON or kernel.perf_event_paranoid ≤ 0; sensors: none".into(),
        ),
    ]
}

/// The metrics that processors usually have; sensors have names of their own.
pub fn usual_metrics() -> Vec<MetricInfo> {
    let mut module = EnergyModule {
        sources: Vec::new(),
        metrics: Vec::new(),
        how: String::new(),
        remarks: Vec::new(),
    };
    for (domain, scope) in [
        ("package", MetricScope::Package),
        ("core", MetricScope::Package),
        ("uncore", MetricScope::Package),
        ("dram", MetricScope::Package),
        ("psys", MetricScope::Machine),
    ] {
        let file = From::Power(PathBuf::new());
        module.add_domain(domain, scope, Subject::Machine, file);
    }
    module.metrics
}

/// Whether this processor is AMD's, or a descendant of theirs.
fn is_amd() -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    ["AuthenticAMD", "HygonGenuine"]
        .iter()
        .any(|vendor| text.contains(vendor))
}

#[cfg(test)]
mod tests;
