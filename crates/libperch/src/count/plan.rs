//! What is counted: resolved once, the same for all threads.

use super::Asked;
use crate::Error;
use perch_core::{
    MachineError, MetricName,
    diagnostic::{did_you_mean, did_you_mean_one_of},
};
use perch_linux::perf::{OwnPlan, encode::kernel_names, probe};
use perch_profile::{CpuIdentity, Library, Profile, detect, user_dirs};
use perch_regions::table::Columns;
use perch_stat::{
    ACCOUNTED, Amounts, By, Collector, Derived, Options as Formulas, Readings, Request, RowMetrics,
    SOFTWARE, canonical, phases::Method, with_underscores, without_modifier,
};
use std::{collections::BTreeSet, sync::Arc};

/// What is counted, and how metrics follow from it.
pub(crate) struct Plan {
    pub asked: Asked,
    /// `None` if no event can be counted: then only times are.
    pub counters: Option<OwnPlan>,
    /// The events and metrics of tables.
    pub columns: Columns,
    /// What the user should know.
    pub remarks: Vec<String>,
    /// Whether waiting times are wanted.
    pub needs_waits: bool,
    pub needs_switches: bool,
    pub needs_migrations: bool,
    /// The program's name.
    pub program: Arc<str>,
    /// Only its formulas are used.
    formulas: Collector,
}

impl Plan {
    /// Reads what is asked for, and tries the events on the calling thread.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub(crate) fn new(asked: Asked) -> Result<Self, Error> {
        let mut remarks = Vec::new();
        let profile = profile(&mut remarks)?;
        let (options, space) = (&asked.options, asked.options.space);
        let wrong = |error: &dyn std::fmt::Display| Error::Setting(error.to_string());
        let nothing_asked = options.events.is_empty() && options.metrics.is_empty();
        let mut request = match nothing_asked {
            true => {
                let probe = probe();
                match probe.pmu_usable {
                    true => Request::of_profile(&profile, space),
                    false => {
                        remarks.push(format!(
                            "{}; software events are counted instead",
                            probe.why
                        ));
                        Request::parse(&[SOFTWARE.to_owned()], &profile, space)
                            .map_err(|error| wrong(&error))?
                    }
                }
            }
            false => {
                Request::parse(&options.events, &profile, space).map_err(|error| wrong(&error))?
            }
        };
        if request.has_thresholds() {
            return Err(Error::Setting(
                "regions have no records every N events: leave `:every=` out".to_owned(),
            ));
        }
        let (derived, mut of_profile) = metrics(&asked, &profile, &mut remarks)?;
        let uses = |name: &str| derived.iter().any(|metric| metric.uses(name));
        let needed: Vec<&str> = derived.iter().flat_map(Derived::events).collect();
        if !needed.is_empty() {
            request.need(&needed, &profile, space);
        }
        request.need_metrics(&of_profile, &profile, space);
        let shown: Vec<_> = request.events().into_iter().cloned().collect();
        if of_profile.is_empty() && derived.is_empty() {
            of_profile = request.ratios(&profile);
        }
        // What the kernel accounts only in files is counted as events here, which cost less to read.
        let (needs_switches, needs_migrations) = (uses("switches"), uses("migrations"));
        for (needs, event) in [
            (needs_switches, "context-switches"),
            (needs_migrations, "cpu-migrations"),
        ] {
            if needs {
                request.need(&[event], &profile, space);
                request.need_everywhere(&[event], &profile, space);
            }
        }
        let counters = match OwnPlan::resolve(&request.plan(&profile)) {
            Ok((counters, missing)) => {
                remarks.extend(missing.into_iter().map(|remark| remark.text));
                Some(counters)
            }
            Err(error) => {
                if let Some(why) =
                    typo(&error, &request, &profile).filter(|_| asked.names_by_environment)
                {
                    return Err(Error::Setting(why));
                }
                remarks.push(format!("only times are counted: {}", said(&error)));
                None
            }
        };
        let titles = derived
            .iter()
            .map(|metric| (metric.title(), Arc::clone(&metric.name)));
        let columns = Columns {
            events: shown
                .iter()
                .map(|event| (Arc::clone(&event.name), Arc::clone(&event.alias)))
                .collect(),
            metrics: of_profile
                .iter()
                .map(|name| (name.to_string(), MetricName::clone(name)))
                .chain(titles)
                .collect(),
        };
        Ok(Self {
            needs_waits: uses("wait_seconds"),
            needs_switches,
            needs_migrations,
            counters,
            columns,
            remarks,
            program: program(),
            asked,
            formulas: Collector::new(
                Formulas {
                    by: By::All,
                    sets: request.sets.len(),
                    derived,
                    of_profile,
                    given: Vec::new(),
                    given_amounts: Vec::new(),
                    phases: Method::Off,
                    complete_rounds: false,
                    windows: false,
                },
                profile,
            ),
        })
    }

    /// The metrics of amounts over so many nanoseconds.
    pub(crate) fn metrics(&self, amounts: &Amounts, interval: u64) -> RowMetrics {
        let nothing = Readings::default();
        self.formulas.metrics(amounts, &nothing, interval)
    }

    /// How many event sets are in rotation.
    pub(crate) fn sets(&self) -> usize {
        self.counters.as_ref().map_or(1, OwnPlan::sets)
    }

    /// How it is counted, for people.
    pub(crate) fn counted_by(&self) -> String {
        let Some(counters) = &self.counters else {
            return "clocks only".to_owned();
        };
        let events: BTreeSet<&str> = counters.aliases();
        let plural = if events.len() == 1 { "" } else { "s" };
        let what = match counters.software_only() {
            true => "the kernel's software events",
            false => "hardware counters",
        };
        let mut text = format!("{what} ({} event{plural}", events.len());
        if counters.sets() > 1 {
            text += &format!(" in {} sets", counters.sets());
        }
        text += ")";
        if counters.user_only() {
            text += ", user space only";
        }
        text
    }
}

/// A name of an event that neither this machine nor the kernel or the profile knows, with what may have been meant.
fn typo(error: &MachineError, request: &Request, profile: &Profile) -> Option<String> {
    let MachineError::UnknownEvents { aliases, .. } = error else {
        return None;
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let of_kernel = kernel_names();
    let known = profile.events.iter().map(|event| &*event.name);
    let known: Vec<&str> = known.chain(of_kernel.iter().map(String::as_str)).collect();
    let events = request.events().into_iter();
    let mut names = events
        .filter(|event| aliases.contains(&event.alias))
        .map(|event| without_modifier(&event.name));
    let name = names.find(|name| {
        let written = name.replace('_', "-");
        name.chars().all(is_plain)
            && !known.contains(name)
            && !known.contains(&written.as_str())
            && !known.contains(&&*canonical(name))
    })?;
    let near = did_you_mean(name, known).map_or(String::new(), |near| format!("; {near}"));
    Some(format!("no event is called `{name}`{near}"))
}

fn said(error: &MachineError) -> String {
    error.to_string()
}

/// The profile that `PERCH_PROFILE` names, else the one that fits this machine.
fn profile(remarks: &mut Vec<String>) -> Result<Profile, Error> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    // Profiles in the user's settings folder are left to the command: a program's HOME may be another user's.
    let dirs = user_dirs(variable("PERCH_PROFILES").as_deref(), None);
    let mut library = Library::load(&dirs).unwrap_or_else(|error| {
        remarks.push(format!(
            "the profiles that come with perch are used: {error}"
        ));
        Library::embedded()
    });
    if let Some(asked) = variable("PERCH_PROFILE") {
        let chosen = library.choose(&asked.to_string_lossy());
        let chosen = chosen.map_err(|error| Error::Setting(format!("PERCH_PROFILE: {error}")))?;
        return Ok(chosen.clone());
    }
    let text = std::fs::read("/proc/cpuinfo").unwrap_or_default();
    let identity = CpuIdentity::from_cpuinfo(&String::from_utf8_lossy(&text));
    Ok(detect(&library, &identity).profile.clone())
}

/// The metrics by formula, and those of the profile.
fn metrics(
    asked: &Asked,
    profile: &Profile,
    remarks: &mut Vec<String>,
) -> Result<(Vec<Derived>, Vec<MetricName>), Error> {
    let options = &asked.options;
    let (mut derived, mut of_profile) = (Vec::new(), Vec::new());
    let of_kernel = kernel_names();
    let parse = |text: &str| {
        let text = with_underscores(text, &options.events, &of_kernel);
        Derived::parse(&text).map_err(|error| Error::Setting(error.to_string()))
    };
    for text in &options.metrics {
        if text.contains('=') {
            derived.push(parse(text)?);
            continue;
        }
        let known = profile.metrics.iter().map(|metric| &*metric.name);
        match profile.metric(text) {
            Some(rule) => of_profile.push(MetricName::clone(&rule.name)),
            None => {
                let why = format!(
                    "metric {text}: profile {} has none of this name; {} or define it: NAME=FORMULA",
                    profile.name,
                    did_you_mean_one_of(text, known.collect::<Vec<_>>())
                );
                // perch stat may know it from a profile of its user's; that is nothing for which a program should fail.
                match asked.folder {
                    None => return Err(Error::Setting(why)),
                    Some(_) => remarks.push(format!("regions are without {why}")),
                }
            }
        }
    }
    for name in &options.virtuals {
        let known = ACCOUNTED.iter().map(|(known, _)| *known);
        match ACCOUNTED.iter().find(|(known, _)| known == name) {
            Some((_, formula)) => derived.push(parse(formula)?),
            None => {
                return Err(Error::Setting(format!(
                    "virtual counter {name}: regions have none of this name; {}",
                    did_you_mean_one_of(name, known.collect::<Vec<_>>())
                )));
            }
        }
    }
    Ok((derived, of_profile))
}

fn program() -> Arc<str> {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    perch_core::text::name(std::os::unix::ffi::OsStrExt::as_bytes(name)).into()
}
