//! What a command line asks to be counted and shown.

use super::modules::Chosen;
use crate::args::StatArgs;
use anyhow::{Result, bail};
use perch_core::{
    MetricInfo, MetricKind, MetricName, MetricScope, diagnostic::did_you_mean_one_of, metric::names,
};
use perch_linux::perf::Privilege;
use perch_linux::perf::encode::{GENERIC_EVENTS, cache_events};
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

/// The metrics that `-m` asks for: formulas, and names of the profile's.
pub struct Formulas {
    /// Of the user.
    pub derived: Vec<Derived>,
    of_profile: Vec<MetricName>,
}

impl Formulas {
    /// Reads the texts of `-m`.
    ///
    /// # Errors
    /// Texts that name no metric and are no formula.
    pub fn read(args: &StatArgs, profile: &Profile) -> Result<Self> {
        let (mut derived, mut of_profile) = (Vec::new(), Vec::new());
        for text in &args.metrics {
            if text.contains('=') {
                derived.push(Derived::parse(&with_underscores(text, &args.events))?);
                continue;
            }
            let known = profile.metrics.iter().map(|metric| &*metric.name);
            match profile.metric(text) {
                Some(rule) => of_profile.push(MetricName::clone(&rule.name)),
                None => bail!(
                    "-m {text}: profile {} has no such metric; {} or define it: NAME=FORMULA",
                    profile.name,
                    did_you_mean_one_of(text, known.collect::<Vec<_>>())
                ),
            }
        }
        Ok(Self {
            derived,
            of_profile,
        })
    }
}

/// A formula with `_` for `-` in names of events, those of -e and the kernel's: there `-` is no minus.
pub(super) fn with_underscores(text: &str, events: &[String]) -> String {
    let asked = events.iter().flat_map(|set| set.split([',', ':', '=']));
    let generic = GENERIC_EVENTS.iter().flat_map(|event| event.names);
    let caches: Vec<String> = cache_events().collect();
    let caches = caches.iter().map(String::as_str);
    let mut names: Vec<&str> = asked
        .chain(generic.copied())
        .chain(caches)
        .map(str::trim)
        .collect();
    let is_plain = |name: &str| {
        name.chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
    };
    names.retain(|name| name.contains('-') && is_plain(name));
    // A name may begin with another one.
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    let mut text = text.to_owned();
    for name in names {
        let is_inside = |c: char| c.is_alphanumeric() || "_-".contains(c);
        let at = text.match_indices(name).map(|(at, _)| at);
        let whole: Vec<usize> = at
            .filter(|at| {
                let before = text[..*at].chars().next_back();
                let behind = text[at + name.len()..].chars().next();
                !before.is_some_and(is_inside) && !behind.is_some_and(is_inside)
            })
            .collect();
        for at in whole {
            text.replace_range(at..at + name.len(), &name.replace('-', "_"));
        }
    }
    text
}

impl Wanted {
    /// Whether a metric is made of context switches or migrations as the kernel counts them.
    pub fn uses_switches(&self) -> bool {
        let mut metrics = self.derived.iter();
        metrics.any(|metric| metric.uses("switches") || metric.uses("migrations"))
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
        wanted.take(formulas, modules);
        modules.check_rows(wanted.by.is_of_pus())?;
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
        if request.sets.len() > 1 && args.phases != Some(Method::Off) && pmu {
            request.need_everywhere(&[names::INSTRUCTIONS, names::CYCLES], profile, space);
        }
        wanted.complete(request, profile);
        Ok(wanted)
    }

    /// Of a recording: whatever was counted then.
    ///
    /// # Errors
    /// Texts that name no metric, or one that recordings do not have.
    pub fn of_recording(args: &StatArgs, profile: &Profile) -> Result<Self> {
        let mut wanted = Self::empty(args);
        let modules = Chosen::of_recording(args)?;
        wanted.take(Formulas::read(args, profile)?, &modules);
        let mut request = Request::of_profile(profile, Space::All);
        wanted.need(&mut request, profile, Space::All, &modules);
        check_phases(args, &request)?;
        if args.metrics.is_empty() && args.virtuals.is_empty() {
            wanted.give_sampled();
        }
        wanted.complete(request, profile);
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
        let whole = args.program.is_empty()
            && args.pids.is_empty()
            && args.cgroup.is_none()
            && args.from.is_none()
            && args.sim.is_none();
        let by = args
            .by()
            .unwrap_or(if whole { By::Machine } else { By::Thread });
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
    fn take(&mut self, formulas: Formulas, modules: &Chosen) {
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
    fn complete(&mut self, request: Request, profile: &Profile) {
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
        self.request = request;
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
    if asked && request.sets.len() < 2 {
        bail!("--phases is for several event sets in rotation: give -e more than once");
    }
    Ok(())
}

/// A column's title: with the unit, if it has one.
fn titled(name: &str, unit: &str) -> String {
    match unit {
        "" => name.to_owned(),
        unit => format!("{name}[{unit}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hyphen_in_the_name_of_an_event_is_no_minus() {
        let events = ["instructions,my-misses=r412e".to_owned()];
        let read = |text: &str| with_underscores(text, &events);
        for (text, expected) in [
            ("r=page-faults/cpu_seconds", "r=page_faults/cpu_seconds"),
            (
                "r=(page-faults + my-misses)/2",
                "r=(page_faults + my_misses)/2",
            ),
            ("r=LLC-load-misses-my-misses", "r=LLC-load-misses-my-misses"),
            ("r=LLC-load-misses - 1", "r=LLC_load_misses - 1"),
            ("r=a-b", "r=a-b"),
            (
                "r=1e-3*page-faults*page-faults",
                "r=1e-3*page_faults*page_faults",
            ),
        ] {
            assert_eq!(read(text), expected);
        }
    }
}
