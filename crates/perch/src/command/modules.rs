//! `perch modules`: what can be measured besides events, and whether it can be here.

use crate::{
    args::ModulesArgs,
    exit, processor,
    render::{
        table::{Align, table},
        wrapped,
    },
};
use anyhow::{Result, anyhow, bail};
use perch_core::{MetricInfo, Need, diagnostic::did_you_mean_one_of};
use perch_linux::{
    energy,
    modules::{Entry, Place, shipped},
    perf::OwnPlan,
    topology::{Source, load},
};
use perch_profile::Profile;
use perch_stat::{Request, Space};
use serde::Serialize;
use std::{path::PathBuf, process::ExitCode, sync::Arc};

/// All modules that can be asked for.
pub struct Catalogue {
    /// perch's own, those of the caller, and programs.
    pub entries: Vec<Entry>,
    /// Where they look.
    pub place: Place,
}

impl Catalogue {
    /// With modules of the caller's and with programs.
    ///
    /// # Errors
    /// A module whose name, or whose metric, another one has.
    pub fn new(own: Vec<Entry>, programs: &[PathBuf], place: Place) -> Result<Self> {
        let mut entries = shipped();
        for entry in own.into_iter().chain(scripts(programs)?) {
            let name = &entry.name;
            if entries.iter().any(|known| known.name == *name) {
                bail!("module {name}: there is one of that name already; give it another one");
            }
            let taken = entry.metrics.iter().find(|metric| {
                let mut others = entries.iter().flat_map(|known| &known.metrics);
                others.any(|known| known.name == metric.name)
            });
            if let Some(metric) = taken {
                bail!(
                    "module {name}: another module has the metric {} already; give it another name",
                    metric.name
                );
            }
            entries.push(entry);
        }
        Ok(Self { entries, place })
    }

    /// Those that are a part of the machine, and so of recordings.
    pub fn of_machine_only() -> Self {
        let mut entries = shipped();
        entries.retain(Entry::is_built_in);
        let topology = perch_core::Topology {
            source: "a recording".into(),
            packages: Vec::new(),
            numa_nodes: Vec::new(),
            caches: Vec::new(),
            cores: Vec::new(),
            kinds: Vec::new(),
            pus: Vec::new(),
        };
        Self {
            entries,
            place: Place::here(Arc::new(topology)),
        }
    }

    /// The place of the module that has a metric.
    pub fn owner_of_metric(&self, name: &str) -> Option<usize> {
        let has = |metric: &MetricInfo| *metric.name == *name;
        let declared = self
            .entries
            .iter()
            .position(|entry| entry.metrics.iter().any(has));
        declared.or_else(|| {
            // Sensors have names of their own, which are known only here.
            let sensor = ["energy_", "power_"]
                .iter()
                .any(|start| name.starts_with(start));
            let mut entries = self.entries.iter();
            let energy = entries.position(|entry| sensor && entry.name == energy::NAME)?;
            let (metrics, _) = self.entries[energy].check(&self.place).ok()?;
            metrics.iter().any(has).then_some(energy)
        })
    }

    /// All names that `-V` takes.
    pub fn names(&self) -> Vec<&str> {
        let metrics = self.entries.iter().flat_map(|entry| &entry.metrics);
        let metrics = metrics.map(|metric| &*metric.name);
        let modules = self.entries.iter().map(|entry| &*entry.name);
        metrics.chain(modules).collect()
    }
}

/// Starts programs, to learn what they are.
fn scripts(programs: &[PathBuf]) -> Result<Vec<Entry>> {
    let entries = programs.iter().map(|program| {
        // That it is not found does not mean that the program to count is not.
        Entry::script(program).map_err(|error| anyhow!("--module: {error}"))
    });
    entries.collect()
}

/// A module as `--json` tells it.
#[derive(Serialize)]
struct Told<'a> {
    name: &'a str,
    summary: &'a str,
    works: bool,
    /// How it measures, or why it does not.
    how: String,
    /// Events that it needs and that cannot be counted here, a sentence each: metrics that are made of them are missing.
    missing: Vec<String>,
    /// Those of this machine where it works; else those that it usually has.
    metrics: Vec<MetricInfo>,
    needs: &'a [Need],
}

/// Lists or explains modules. The exit code is 1 if `--check` finds one that does not work.
///
/// # Errors
/// No such module.
pub fn modules(args: &ModulesArgs, own: Vec<Entry>) -> Result<ExitCode> {
    let here = load(&Source::Native)?;
    let profile = processor::choose(None, &Source::Native, &here)?.profile;
    let place = Place::here(Arc::new(here.topology));
    let catalogue = Catalogue::new(own, &args.modules, place)?;
    let mut wanted: Vec<usize> = Vec::new();
    for name in &args.names {
        let by_name = catalogue
            .entries
            .iter()
            .position(|entry| *entry.name == **name);
        let Some(at) = by_name.or_else(|| catalogue.owner_of_metric(name)) else {
            let hint = did_you_mean_one_of(name, catalogue.names());
            bail!("{name}: no such module or metric; {hint}");
        };
        if !wanted.contains(&at) {
            wanted.push(at);
        }
    }
    if wanted.is_empty() {
        wanted = (0..catalogue.entries.len()).collect();
    }
    let told: Vec<Told<'_>> = wanted
        .into_iter()
        .map(|at| tell(&catalogue.entries[at], &catalogue.place, &profile))
        .collect();
    if args.json {
        super::print_json(&told)?;
    } else if args.names.is_empty() {
        super::print(&list(&told))?;
    } else {
        let texts: Vec<String> = told.iter().map(explain).collect();
        super::print(&texts.join("\n"))?;
    }
    let fails = |module: &Told<'_>| !module.works || !module.missing.is_empty();
    let failed = args.check && told.iter().any(fails);
    Ok(ExitCode::from(u8::from(failed)))
}

/// Why events that a module needs cannot be counted here.
fn missing(needs: &[Need], profile: &Profile) -> Vec<String> {
    let events = needs.iter().filter_map(|need| match need {
        Need::Event(name) => Some(name.to_string()),
        Need::Metric(_) | Need::File(_) | Need::Permission(_) => None,
    });
    let reason = |event: String| {
        let request = match Request::parse(std::slice::from_ref(&event), profile, Space::All) {
            Ok(request) => request,
            Err(error) => return Some(format!("event `{event}`: {error}")),
        };
        match OwnPlan::resolve(&request.plan(profile)) {
            Ok((_, missing)) => missing.into_iter().next().map(|remark| remark.text),
            Err(error) => {
                let why = error.to_string();
                let why = why.strip_prefix("nothing can be counted: ").unwrap_or(&why);
                Some(why.to_owned())
            }
        }
    };
    events.filter_map(reason).collect()
}

fn tell<'a>(entry: &'a Entry, place: &Place, profile: &Profile) -> Told<'a> {
    let (works, metrics, how) = match entry.check(place) {
        Ok((metrics, how)) => (true, metrics, how),
        Err(why) => {
            let why = exit::describe(&anyhow::Error::from(why));
            (false, entry.metrics.clone(), why)
        }
    };
    Told {
        name: &entry.name,
        summary: &entry.summary,
        works,
        how,
        missing: match works && !entry.is_built_in() {
            true => missing(&entry.needs, profile),
            false => Vec::new(),
        },
        metrics,
        needs: &entry.needs,
    }
}

/// Metrics that a list names.
const FEW: usize = 3;

fn list(modules: &[Told<'_>]) -> String {
    let columns = [
        ("module", Align::Left),
        ("here", Align::Left),
        ("what it measures", Align::Left),
        ("metrics", Align::Left),
    ];
    let rows = modules.iter().map(|module| {
        let metrics = module.metrics.iter().map(|metric| metric.name.to_string());
        let mut few: Vec<String> = metrics.take(FEW).collect();
        if module.metrics.len() > FEW {
            few.push("…".to_owned());
        }
        vec![
            module.name.to_owned(),
            match (module.works, module.missing.is_empty()) {
                (true, true) => "yes",
                (true, false) => "in part",
                (false, _) => "no",
            }
            .to_owned(),
            module.summary.to_owned(),
            few.join(", "),
        ]
    });
    let table = table(&columns, rows);
    format!("{table}\n\n`perch modules NAME` explains one, and why it does not work here.")
}

fn explain(module: &Told<'_>) -> String {
    let mut text = wrapped(&format!("{}: ", module.name), module.summary);
    let works = match (module.works, module.missing.is_empty()) {
        (true, true) => "works here: ",
        (true, false) => "works here in part: ",
        (false, _) => "does not work here: ",
    };
    text += &wrapped(works, &module.how);
    for why in &module.missing {
        text += &wrapped("missing: ", why);
    }
    if !module.metrics.is_empty() {
        let columns = [
            ("metric", Align::Left),
            ("unit", Align::Left),
            ("of each", Align::Left),
            ("kind", Align::Left),
            ("what it is", Align::Left),
        ];
        let rows = module.metrics.iter().map(|metric| {
            vec![
                metric.name.to_string(),
                metric.unit.to_string(),
                metric.scope.name().to_owned(),
                metric.kind.name().to_owned(),
                metric.about.to_string(),
            ]
        });
        text += &format!("\n{}\n", table(&columns, rows));
    }
    for need in module.needs {
        let (kind, what) = match need {
            Need::Metric(what) => ("metric", what),
            Need::Event(what) => ("event", what),
            Need::File(what) => ("file", what),
            Need::Permission(what) => ("permission", what),
        };
        text += &wrapped(&format!("needs {kind}: "), what);
    }
    text
}
