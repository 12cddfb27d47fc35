//! What a command line asks to be counted and shown.

use super::{formulas::Formulas, modules::Chosen};
use crate::{args::StatArgs, exit};
use anyhow::{Result, bail};
use perch_core::{MetricInfo, MetricKind, MetricName, MetricScope, metric::names};
use perch_linux::perf::Privilege;
use perch_profile::Profile;
use perch_stat::{
    ACCOUNTED, By, Derived, Options, Request, RequestedSet, SOFTWARE, SOFTWARE_IN_USER_SPACE,
    Space, phases::Method,
};
use std::{collections::BTreeSet, sync::Arc};

/// One column of counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventColumn {
    /// Its title.
    pub name: Arc<str>,
    /// The event's alias in counts.
    pub alias: Arc<str>,
}

/// One column of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricColumn {
    /// Its name.
    pub name: MetricName,
    /// Its title in tables: with the unit, if the user gave one.
    pub title: String,
    /// Its unit; may be empty.
    pub unit: String,
}

/// What is counted, and what is shown.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The event sets.
    pub request: Request,
    /// What each row and each total is about.
    pub by: By,
    /// Whether instructions are sampled.
    pub sample: bool,
    /// Nothing was asked for, and there are no hardware counters.
    pub is_fallback: bool,
    /// Whether an event makes the records (`:every=`), not the clock.
    pub windows: bool,
    /// The columns of counts.
    pub events: Vec<EventColumn>,
    /// The columns of metrics.
    pub metrics: Vec<MetricColumn>,
    derived: Vec<Derived>,
    of_profile: Vec<MetricName>,
    given: Vec<MetricName>,
    given_units: Vec<String>,
    given_amounts: Vec<MetricName>,
    /// Metrics of modules that are not about threads, and formulas over them.
    wide: Vec<MetricName>,
}

impl Wanted {
    /// Whether a metric is made of context switches or migrations as the kernel counts them.
    pub fn uses_switches(&self) -> bool {
        let mut metrics = self.derived.iter();
        metrics.any(|metric| metric.uses("switches") || metric.uses("migrations"))
    }

    /// Whether a metric is made of migrations as the kernel counts them.
    pub fn uses_migrations(&self) -> bool {
        self.derived.iter().any(|metric| metric.uses("migrations"))
    }

    /// Of the live machine.
    ///
    /// # Errors
    /// Texts that name no event, or metrics that rows cannot show.
    pub fn new(
        args: &StatArgs,
        profile: &Profile,
        pmu: bool,
        formulas: Formulas,
        modules: &Chosen,
    ) -> Result<Self> {
        let space = match (args.user, args.kernel) {
            (true, _) => Space::User,
            (_, true) => Space::Kernel,
            _ => Space::All,
        };
        let nothing_asked =
            args.events.is_empty() && args.metrics.is_empty() && args.virtuals.is_empty();
        let is_fallback = nothing_asked && !pmu;
        // Without the kernel, what happens only there is not counted; the kernel's accounts of threads have it.
        let user_only =
            || space == Space::User || !Privilege::detect().is_ok_and(|privilege| privilege.kernel);
        let accounted = is_fallback && user_only();
        let mut request = match (nothing_asked, pmu) {
            (true, true) => Request::of_profile(profile, space),
            (true, false) => {
                let events = if accounted {
                    SOFTWARE_IN_USER_SPACE
                } else {
                    SOFTWARE
                };
                Request::parse(&[events.to_owned()], profile, space)?
            }
            (false, _) => Request::parse(&args.events, profile, space)?,
        };
        let mut wanted = Self::empty(args);
        if is_of_whole_machine(args) && !wanted.by.is_of_pus() {
            bail!(
                "--by {}: threads are counted of a program, of processes (-p) or of a control group (--cgroup); without \
                 these, whole PUs are: --by pu, core, package, node or machine",
                wanted.by.name()
            );
        }
        wanted.take(formulas, modules)?;
        wanted.windows = request.has_thresholds();
        if wanted.windows {
            check_windows(args, wanted.by, &request)?;
        }
        // Instructions are sampled of threads only.
        if is_fallback && !wanted.by.is_of_pus() {
            if accounted {
                let formulas = ACCOUNTED.iter().filter(|(name, _)| *name != "run_delay");
                let formulas: Result<Vec<Derived>, _> = formulas
                    .map(|(_, formula)| Derived::parse(formula))
                    .collect();
                wanted.derived.extend(formulas?);
            }
            wanted.give_sampled();
            wanted.sample = true;
        }
        wanted.is_fallback = is_fallback;
        wanted.need(&mut request, profile, space, modules);
        check_phases(args, &request)?;
        if request.sets.len() > 1 && args.phases != Some(Method::Off) {
            match pmu {
                true => {
                    request.need_everywhere(&[names::INSTRUCTIONS, names::CYCLES], profile, space)
                }
                false => exit::note(
                    "changes of phase are not detected: that takes instructions and cycles in every event set, and this \
                     machine counts neither",
                ),
            }
        }
        wanted.complete(request, profile)?;
        Ok(wanted)
    }

    /// Of a recording: whatever was counted then.
    ///
    /// # Errors
    /// Texts that name no metric, or one that recordings do not have.
    pub fn of_recording(args: &StatArgs, profile: &Profile) -> Result<Self> {
        let mut wanted = Self::empty(args);
        let modules = Chosen::of_recording(args)?;
        wanted.take(Formulas::read(args, profile)?, &modules)?;
        let mut request = Request::of_profile(profile, Space::All);
        wanted.need(&mut request, profile, Space::All, &modules);
        check_phases(args, &request)?;
        if args.metrics.is_empty() && args.virtuals.is_empty() {
            wanted.give_sampled();
        }
        wanted.complete(request, profile)?;
        Ok(wanted)
    }

    /// Of a file that was written with these columns: `wide` are the metrics of which a column tells what they are about.
    pub fn of_file(
        by: By,
        sets: usize,
        events: Vec<EventColumn>,
        metrics: Vec<MetricColumn>,
        wide: Vec<MetricName>,
    ) -> Self {
        // What the sets were is not told, only how many.
        let sets = vec![RequestedSet::default(); sets.min(1000)];
        Self {
            request: Request { sets },
            by,
            sample: false,
            is_fallback: false,
            windows: false,
            events,
            metrics,
            derived: Vec::new(),
            of_profile: Vec::new(),
            given: Vec::new(),
            given_units: Vec::new(),
            given_amounts: Vec::new(),
            wide,
        }
    }

    fn empty(args: &StatArgs) -> Self {
        let by = args.by().unwrap_or(match is_of_whole_machine(args) {
            true => By::Machine,
            false => By::Thread,
        });
        Self {
            request: Request::default(),
            by,
            sample: false,
            is_fallback: false,
            windows: false,
            events: Vec::new(),
            metrics: Vec::new(),
            derived: Vec::new(),
            of_profile: Vec::new(),
            given: Vec::new(),
            given_units: Vec::new(),
            given_amounts: Vec::new(),
            wide: Vec::new(),
        }
    }

    /// Takes over what `-m` and `-V` ask for.
    ///
    /// # Errors
    /// Metrics that rows cannot show.
    fn take(&mut self, formulas: Formulas, modules: &Chosen) -> Result<()> {
        modules.check_rows(self.by.is_of_pus())?;
        self.derived = formulas.derived;
        self.of_profile = formulas.of_profile;
        self.derived.extend(modules.accounted.iter().cloned());
        self.sample = modules.sample;
        let not_of_threads = |metric: &&MetricInfo| metric.scope != MetricScope::Thread;
        let wide = modules.known.iter().filter(not_of_threads);
        let wide: Vec<MetricName> = wide.map(|metric| MetricName::clone(&metric.name)).collect();
        let formulas = self.derived.iter().filter(|derived| {
            let mut inputs = derived.inputs().iter();
            inputs.any(|input| wide.iter().any(|name| **name == **input))
        });
        self.wide = formulas.map(|derived| Arc::clone(&derived.name)).collect();
        self.wide.extend(wide);
        for metric in &modules.shown {
            self.given.push(MetricName::clone(&metric.name));
            self.given_units.push(metric.unit.to_string());
            if metric.kind == MetricKind::Amount {
                self.given_amounts.push(MetricName::clone(&metric.name));
            }
        }
        let of_threads = |derived: &Derived| {
            let known = ["wait_seconds", "switches", "migrations"];
            known.into_iter().find(|name| derived.uses(name))
        };
        let mut derived = self.derived.iter();
        let wrong = derived.find_map(|derived| Some((derived, of_threads(derived)?)));
        if let (true, Some((derived, name))) = (self.by.is_of_pus(), wrong) {
            bail!(
                "{}: `{name}` is known of threads, not of PUs: use --by thread or --by process with a program or -p",
                derived.name
            );
        }
        Ok(())
    }

    /// What is known of sampled instructions, in short.
    fn give_sampled(&mut self) {
        for name in [names::FP_SHARE, names::MEMORY_INTENSITY] {
            self.given.push(name.into());
            self.given_units.push(String::new());
        }
    }

    /// Adds the events that the metrics and the modules need.
    fn need(&self, request: &mut Request, profile: &Profile, space: Space, modules: &Chosen) {
        let of_modules = modules.events();
        let formulas = self.derived.iter().flat_map(Derived::events);
        let mut needed: Vec<&str> = formulas.filter(|name| !modules.has(name)).collect();
        needed.extend(of_modules.iter().map(String::as_str));
        if !needed.is_empty() {
            request.need(&needed, profile, space);
        }
        request.need_metrics(&self.of_profile, profile, space);
    }

    /// Decides on the columns.
    ///
    /// # Errors
    /// Two of the same name.
    fn complete(&mut self, request: Request, profile: &Profile) -> Result<()> {
        let events = request.events();
        let column = |event: &&perch_stat::Requested| EventColumn {
            name: Arc::clone(&event.name),
            alias: Arc::clone(&event.alias),
        };
        self.events = events.iter().map(column).collect();
        if self.of_profile.is_empty() && self.derived.is_empty() {
            self.of_profile = request.ratios(profile);
        }
        let of_profile = self.of_profile.iter().map(|name| MetricColumn {
            name: MetricName::clone(name),
            title: name.to_string(),
            unit: profile
                .metric(name)
                .map_or_else(String::new, |rule| rule.unit.clone()),
        });
        let derived = self.derived.iter().map(|derived| MetricColumn {
            name: Arc::clone(&derived.name),
            title: derived.title(),
            unit: derived.unit.clone(),
        });
        // A share that events and samples can both tell has one column; samples take precedence.
        let given = self.given.iter().zip(&self.given_units);
        let given = given.filter(|(name, _)| !self.of_profile.contains(name));
        let given = given.map(|(name, unit)| MetricColumn {
            name: MetricName::clone(name),
            title: titled(name, unit),
            unit: unit.clone(),
        });
        self.metrics = of_profile.chain(derived).chain(given).collect();
        let events = self.events.iter().map(|event| &event.name);
        let metrics = self.metrics.iter().map(|metric| &metric.name);
        let mut seen = BTreeSet::new();
        if let Some(name) = events.chain(metrics).find(|name| !seen.insert(&***name)) {
            bail!(
                "two columns would be called `{name}`: name each event and each metric once, and call formulas otherwise \
                 (-m NAME=FORMULA)"
            );
        }
        self.request = request;
        Ok(())
    }

    /// Where no event was counted, a metric that events and samples can both tell is that of the samples, with their unit.
    pub fn settle_units(&mut self, counted: &BTreeSet<Arc<str>>) {
        if self
            .events
            .iter()
            .any(|event| counted.contains(&event.alias))
        {
            return;
        }
        for (name, unit) in self.given.iter().zip(&self.given_units) {
            let of_name = self
                .metrics
                .iter_mut()
                .filter(|metric| metric.name == *name);
            of_name.for_each(|metric| metric.unit.clone_from(unit));
        }
    }

    /// Leaves out the columns of events that were never counted, and of the ratios that perch chose itself if no event was.
    pub fn leave_out_uncounted(&mut self, counted: &BTreeSet<Arc<str>>, args: &StatArgs) {
        self.events.retain(|event| counted.contains(&event.alias));
        if self.events.is_empty() && args.metrics.is_empty() {
            let given = &self.given;
            self.metrics.retain(|metric| given.contains(&metric.name));
        }
    }

    /// The columns of metrics that modules know about more than threads, or that follow from those.
    pub fn of_modules(&self) -> impl Iterator<Item = &MetricColumn> {
        let columns = self.metrics.iter();
        columns.filter(|column| self.wide.contains(&column.name))
    }

    /// The settings of a collector.
    pub fn options(&self, args: &StatArgs) -> Options {
        Options {
            by: self.by,
            sets: self.request.sets.len(),
            derived: self.derived.clone(),
            of_profile: self.of_profile.clone(),
            given: self.given.clone(),
            given_amounts: self.given_amounts.clone(),
            phases: match self.request.sets.len() {
                0 | 1 => Method::Off,
                _ => args.phases.unwrap_or(Method::Bayes),
            },
            complete_rounds: args.complete_rounds,
            windows: self.windows,
        }
    }
}

/// Whether whole PUs are counted: no program, no processes.
fn is_of_whole_machine(args: &StatArgs) -> bool {
    args.program.is_empty()
        && args.pids.is_empty()
        && args.cgroup.is_none()
        && args.from.is_none()
        && args.sim.is_none()
}

/// Refuses what does not go with records that an event makes.
fn check_windows(args: &StatArgs, by: By, request: &Request) -> Result<()> {
    if args.interval.is_some() {
        bail!(
            "with `:every=` each record comes when the event has happened so often: leave -i out"
        );
    }
    if by != By::Thread {
        bail!(
            "`:every=` counts the events of each thread: leave --by out, or start or attach to a program"
        );
    }
    if request.sets.len() > 1 {
        bail!(
            "with `:every=` there can be only one -e, since records of different sets cannot be compared"
        );
    }
    Ok(())
}

/// Refuses a way to detect changes of phase where there is nothing that a change could spoil.
fn check_phases(args: &StatArgs, request: &Request) -> Result<()> {
    let asked = args.phases.is_some_and(|method| method != Method::Off);
    let flags = [
        ("--phases", asked),
        ("--complete-rounds", args.complete_rounds),
    ];
    let mut given = flags.iter().filter(|(_, given)| *given);
    match given.next() {
        Some((flag, _)) if request.sets.len() < 2 => {
            bail!("{flag} is for several event sets in rotation: give -e more than once")
        }
        _ => Ok(()),
    }
}

/// A column's title: with the unit, if it has one.
fn titled(name: &str, unit: &str) -> String {
    match unit {
        "" => name.to_owned(),
        unit => format!("{name}[{unit}]"),
    }
}
