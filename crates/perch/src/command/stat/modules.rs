//! The monitoring modules that a command line asks for.

use crate::{args::StatArgs, command::modules::Catalogue};
use anyhow::{Result, bail};
use perch_core::{
    MetricInfo, MetricScope, Module, Need, diagnostic::did_you_mean_one_of, metric::names,
};
use perch_stat::{ACCOUNTED, Derived};

/// Metrics of sampled instructions that are shown by `-V sampling`.
const SAMPLED: [&str; 7] = [
    names::FP_SHARE,
    names::VECTOR_SHARE,
    names::LOAD_SHARE,
    names::STORE_SHARE,
    names::BRANCH_SHARE,
    names::DIVIDE_SHARE,
    names::MEMORY_INTENSITY,
];

/// What was asked for.
#[derive(Default)]
pub struct Chosen {
    /// Modules that were opened, in the order in which they must run.
    pub opened: Vec<Box<dyn Module>>,
    /// Metrics that are shown, in the order in which they were named.
    pub shown: Vec<MetricInfo>,
    /// Metrics that formulas may use, besides those.
    pub known: Vec<MetricInfo>,
    /// Formulas over the kernel's accounting.
    pub accounted: Vec<Derived>,
    /// Whether instructions are sampled.
    pub sample: bool,
}

impl Chosen {
    /// Opens the modules whose metrics `-V` or a formula of `-m` names.
    ///
    /// # Errors
    /// A name that no module has, with what is meant perhaps; a module that does not work here, and why.
    pub fn new(args: &StatArgs, catalogue: &Catalogue, formulas: &[Derived]) -> Result<Self> {
        let mut chosen = Self::default();
        for name in args.virtuals.iter().map(|name| name.trim()) {
            chosen.add(name, catalogue)?;
        }
        // Programs may be of use to formulas only.
        for name in formulas.iter().flat_map(Derived::events) {
            let owner = catalogue.owner_of_metric(name);
            if let Some(owner) = owner.filter(|at| !catalogue.entries[*at].is_built_in()) {
                chosen.open(owner, catalogue)?;
            }
        }
        Ok(chosen)
    }

    /// Without the machine: what a recording may have.
    ///
    /// # Errors
    /// A name that recordings do not have.
    pub fn of_recording(args: &StatArgs) -> Result<Self> {
        let mut chosen = Self::default();
        let catalogue = Catalogue::of_machine_only();
        for name in args.virtuals.iter().map(|name| name.trim()) {
            chosen.add(name, &catalogue)?;
        }
        Ok(chosen)
    }

    fn add(&mut self, name: &str, catalogue: &Catalogue) -> Result<()> {
        if let Some((_, formula)) = ACCOUNTED.iter().find(|(known, _)| *known == name) {
            self.accounted.push(Derived::parse(formula)?);
            return Ok(());
        }
        if name == "accounting" {
            let formulas = ACCOUNTED.iter().map(|(_, formula)| Derived::parse(formula));
            self.accounted
                .extend(formulas.collect::<Result<Vec<_>, _>>()?);
            return Ok(());
        }
        let of_metric = catalogue.owner_of_metric(name);
        let of_module = match of_metric {
            Some(_) => None,
            None => catalogue
                .entries
                .iter()
                .position(|entry| *entry.name == *name),
        };
        let Some(at) = of_metric.or(of_module) else {
            let hint = did_you_mean_one_of(name, catalogue.names());
            bail!("-V {name}: no module has such a metric; {hint} (`perch modules` explains them)");
        };
        let entry = &catalogue.entries[at];
        if entry.is_built_in() {
            let wanted = entry.metrics.iter().filter(|metric| match of_module {
                Some(_) => SAMPLED.contains(&&*metric.name),
                None => *metric.name == *name,
            });
            let wanted: Vec<MetricInfo> = wanted.cloned().collect();
            if wanted.is_empty() {
                bail!("-V {name}: {}: use -e or -m", entry.summary);
            }
            self.sample = true;
            self.show(wanted);
            return Ok(());
        }
        let provided = self.open(at, catalogue)?;
        let wanted = match of_module {
            Some(_) => provided,
            None => {
                let of_name = provided.iter().filter(|metric| *metric.name == *name);
                let of_name: Vec<MetricInfo> = of_name.cloned().collect();
                if of_name.is_empty() {
                    let has: Vec<&str> = provided.iter().map(|metric| &*metric.name).collect();
                    bail!(
                        "-V {name}: module {} does not provide it on this machine; it provides {}",
                        entry.name,
                        has.join(", ")
                    );
                }
                of_name
            }
        };
        self.show(wanted);
        Ok(())
    }

    fn show(&mut self, metrics: Vec<MetricInfo>) {
        for metric in metrics {
            if !self.shown.iter().any(|known| known.name == metric.name) {
                self.shown.push(metric);
            }
        }
    }

    /// Opens a module unless it is open; what it provides.
    fn open(&mut self, at: usize, catalogue: &Catalogue) -> Result<Vec<MetricInfo>> {
        let entry = &catalogue.entries[at];
        let mut open = self.opened.iter();
        if let Some(module) = open.find(|module| *module.name() == *entry.name) {
            return Ok(module.provides());
        }
        let opened = entry.open(&catalogue.place);
        let opened = opened.map_err(|why| anyhow::anyhow!("module {}: {why}", entry.name))?;
        let Some(module) = opened else {
            return Ok(Vec::new());
        };
        let provided = module.provides();
        self.known.extend(provided.iter().cloned());
        self.opened.push(module);
        Ok(provided)
    }

    /// The events that the modules need.
    pub fn events(&self) -> Vec<String> {
        let needs = self.opened.iter().flat_map(|module| module.needs());
        let events = needs.filter_map(|need| match need {
            Need::Event(name) => Some(name.into_owned()),
            Need::Metric(_) | Need::File(_) | Need::Permission(_) => None,
        });
        events.collect()
    }

    /// Whether a formula's name is a module's metric.
    pub fn has(&self, name: &str) -> bool {
        self.known.iter().any(|metric| *metric.name == *name)
    }

    /// Fails if rows cannot show a metric.
    ///
    /// # Errors
    /// Metrics of threads or processes, in rows about PUs.
    pub fn check_rows(&self, of_pus: bool) -> Result<()> {
        let of_programs = |scope| matches!(scope, MetricScope::Thread | MetricScope::Process);
        let mut shown = self.shown.iter();
        match shown.find(|metric| of_pus && of_programs(metric.scope)) {
            Some(metric) => bail!(
                "-V {}: this is known of threads or processes, not of PUs: use --by thread or --by process with a \
                 program or -p",
                metric.name
            ),
            None => Ok(()),
        }
    }
}
