//! What a command line asks to be counted and shown.

use crate::args::StatArgs;
use anyhow::{Result, anyhow, bail};
use perch_core::{MetricName, diagnostic::did_you_mean_one_of, metric::names};
use perch_profile::Profile;
use perch_stat::{ACCOUNTED, By, Derived, Options, Request, SOFTWARE, Space, phases::Method};
use std::sync::Arc;

/// Metrics of sampled instructions.
const SAMPLED: [&str; 9] = [
    names::FP_SHARE,
    names::VECTOR_SHARE,
    names::LOAD_SHARE,
    names::STORE_SHARE,
    names::BRANCH_SHARE,
    names::DIVIDE_SHARE,
    names::MEMORY_INTENSITY,
    names::FOOTPRINT,
    names::SAMPLES,
];

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
    /// The columns of counts.
    pub events: Vec<EventColumn>,
    /// The columns of metrics.
    pub metrics: Vec<MetricColumn>,
    derived: Vec<Derived>,
    of_profile: Vec<MetricName>,
    given: Vec<MetricName>,
}

impl Wanted {
    /// Of the live machine.
    ///
    /// # Errors
    /// Texts that name no event, metric or virtual counter.
    pub fn new(args: &StatArgs, profile: &Profile, pmu: bool) -> Result<Self> {
        let space = match (args.user, args.kernel) {
            (true, _) => Space::User,
            (_, true) => Space::Kernel,
            _ => Space::All,
        };
        let nothing_asked =
            args.events.is_empty() && args.metrics.is_empty() && args.virtuals.is_empty();
        let mut request = match (nothing_asked, pmu) {
            (true, true) => Request::of_profile(profile, space),
            (true, false) => Request::parse(&[SOFTWARE.to_owned()], profile, space)?,
            (false, _) => Request::parse(&args.events, profile, space)?,
        };
        if request.has_thresholds() {
            bail!(
                "`:every=` (one record every N events) is not implemented yet: use -i for one record an interval"
            );
        }
        let mut wanted = Self::empty(args);
        wanted.read_metrics(args, profile)?;
        // Instructions are sampled of threads only.
        if nothing_asked && !pmu && !wanted.by.is_of_pus() {
            wanted.given = [names::FP_SHARE, names::MEMORY_INTENSITY]
                .map(MetricName::from)
                .into();
        }
        wanted.sample = !wanted.given.is_empty();
        wanted.is_fallback = nothing_asked && !pmu;
        wanted.need(&mut request, profile, space);
        if request.sets.len() > 1 && args.phases != Method::Off && pmu {
            request.need_everywhere(&[names::INSTRUCTIONS, names::CYCLES], profile, space);
        }
        wanted.complete(request, profile);
        Ok(wanted)
    }

    /// Of a recording: whatever was counted then.
    ///
    /// # Errors
    /// Texts that name no metric or virtual counter.
    pub fn of_recording(args: &StatArgs, profile: &Profile) -> Result<Self> {
        let mut wanted = Self::empty(args);
        wanted.read_metrics(args, profile)?;
        let mut request = Request::of_profile(profile, Space::All);
        wanted.need(&mut request, profile, Space::All);
        if args.metrics.is_empty() && args.virtuals.is_empty() {
            wanted.given = [names::FP_SHARE, names::MEMORY_INTENSITY]
                .map(MetricName::from)
                .into();
        }
        wanted.complete(request, profile);
        Ok(wanted)
    }

    fn empty(args: &StatArgs) -> Self {
        let whole = args.program.is_empty() && args.pids.is_empty() && args.from.is_none();
        let by = args
            .by
            .unwrap_or(if whole { By::Machine } else { By::Thread });
        Self {
            request: Request::default(),
            by,
            sample: false,
            is_fallback: false,
            events: Vec::new(),
            metrics: Vec::new(),
            derived: Vec::new(),
            of_profile: Vec::new(),
            given: Vec::new(),
        }
    }

    fn read_metrics(&mut self, args: &StatArgs, profile: &Profile) -> Result<()> {
        for text in &args.metrics {
            if text.contains('=') {
                self.derived.push(Derived::parse(text)?);
                continue;
            }
            let known = profile.metrics.iter().map(|metric| &*metric.name);
            match profile.metric(text) {
                Some(rule) => self.of_profile.push(MetricName::clone(&rule.name)),
                None => bail!(
                    "-m {text}: profile {} has no such metric; {} or define it: NAME=FORMULA",
                    profile.name,
                    did_you_mean_one_of(text, known.collect::<Vec<_>>())
                ),
            }
        }
        for name in &args.virtuals {
            let name = name.trim();
            if let Some((_, formula)) = ACCOUNTED.iter().find(|(known, _)| *known == name) {
                self.derived.push(Derived::parse(formula)?);
            } else if SAMPLED.contains(&name) {
                self.given.push(name.into());
            } else {
                let known = ACCOUNTED.iter().map(|(known, _)| *known).chain(SAMPLED);
                let hint = did_you_mean_one_of(name, known.collect::<Vec<_>>());
                return Err(anyhow!("-V {name}: no such virtual counter; {hint}"));
            }
        }
        Ok(())
    }

    /// Adds the events that the metrics need.
    fn need(&self, request: &mut Request, profile: &Profile, space: Space) {
        let needed: Vec<&str> = self.derived.iter().flat_map(Derived::events).collect();
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
        let given = self.given.iter().map(|name| MetricColumn {
            name: MetricName::clone(name),
            title: name.to_string(),
            unit: String::new(),
        });
        self.metrics = of_profile.chain(derived).chain(given).collect();
        self.request = request;
    }

    /// The settings of a collector.
    pub fn options(&self, args: &StatArgs) -> Options {
        Options {
            by: self.by,
            sets: self.request.sets.len(),
            derived: self.derived.clone(),
            of_profile: self.of_profile.clone(),
            given: self.given.clone(),
            phases: match self.request.sets.len() {
                0 | 1 => Method::Off,
                _ => args.phases,
            },
            complete_rounds: args.complete_rounds,
        }
    }
}
