//! The events that a user asks for: `-e instructions,llc-misses -e branches`.

use crate::{
    names::{Space, canonical, in_space, other_spellings, spellings},
    raw,
};
use perch_core::{EventChoice, EventPlan, EventSet, MetricName};
use perch_profile::{Profile, formula::is_name};
use std::{collections::BTreeSet, sync::Arc};

/// One event of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requested {
    /// Its name in columns, as the user wrote it.
    pub name: Arc<str>,
    /// Its name in counts and formulas: the profile's, if it is one of the profile's events.
    pub alias: Arc<str>,
    /// What the machine is asked for: one choice, or one for each kind of core.
    pub choices: Vec<EventChoice>,
    /// A record each time that a thread has had so many of them, instead of one an interval.
    pub every: Option<u64>,
}

/// Events that are counted at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestedSet {
    /// In the order in which they were given.
    pub events: Vec<Requested>,
}

/// All sets, in the order of rotation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The sets.
    pub sets: Vec<RequestedSet>,
}

/// A text that asks for no event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RequestError(pub String);

/// The events that are counted where there are no hardware counters and nothing was asked for.
pub const SOFTWARE: &str = "page-faults,context-switches,cpu-migrations";

/// Those of them that happen in user space too.
pub const SOFTWARE_IN_USER_SPACE: &str = "page-faults";

impl Request {
    /// Reads the texts of `-e`, one set each. A name is looked up among the profile's events first (`llc-misses` or
    /// `llc_misses`), and else left to the machine: the kernel's names, those of the PMU, libpfm4's.
    ///
    /// # Errors
    /// A text without an event, an event twice in a set, a threshold that is no number.
    pub fn parse(texts: &[String], profile: &Profile, space: Space) -> Result<Self, RequestError> {
        let sets = texts.iter().map(|text| set(text, profile, space));
        Ok(Self {
            sets: sets.collect::<Result<_, _>>()?,
        })
    }

    /// The sets that the profile always counts.
    pub fn of_profile(profile: &Profile, space: Space) -> Self {
        let sets = profile.sets.iter().filter(|set| !set.on_demand);
        let sets = sets.map(|set| {
            let mut events: Vec<Requested> = Vec::new();
            for at in &set.events {
                let event = event(&profile.events[*at].name, profile, space);
                // One for each kind of core, of which `event` has all.
                if !events.iter().any(|known| known.alias == event.alias) {
                    events.push(event);
                }
            }
            RequestedSet { events }
        });
        Self {
            sets: sets.collect(),
        }
    }

    /// What the machine has to count. Counts are checked against the profile's limits.
    pub fn plan(&self, profile: &Profile) -> EventPlan {
        let sets = self.sets.iter().enumerate().map(|(number, set)| {
            let events = set.events.iter();
            let every = events
                .clone()
                .find_map(|event| Some((Arc::clone(&event.alias), event.every?)));
            EventSet {
                every,
                ..EventSet::new(
                    format!("set {}", number + 1),
                    events
                        .flat_map(|event| event.choices.iter().cloned())
                        .collect(),
                )
            }
        });
        EventPlan {
            sets: sets.collect(),
            limits: Some(profile.limits),
        }
    }

    /// Adds the events that no set has to the first one: what metrics need.
    pub fn need(&mut self, names: &[&str], profile: &Profile, space: Space) {
        if self.sets.is_empty() {
            self.sets.push(RequestedSet::default());
        }
        let events = self.sets.iter().flat_map(|set| &set.events);
        let mut known: BTreeSet<Arc<str>> = events.map(|event| Arc::clone(&event.alias)).collect();
        let first = &mut self.sets[0].events;
        for name in names {
            let event = event(name, profile, space);
            // Two metrics may need the same: counted twice, it would be added up.
            if known.insert(Arc::clone(&event.alias)) {
                first.push(event);
            }
        }
    }

    /// Adds events to every set that lacks them: what phases are told apart by must be known all the time.
    pub fn need_everywhere(&mut self, names: &[&str], profile: &Profile, space: Space) {
        for name in names {
            let event = event(name, profile, space);
            for set in &mut self.sets {
                if !set.events.iter().any(|known| known.alias == event.alias) {
                    set.events.push(event.clone());
                }
            }
        }
    }

    /// Adds the events that these metrics of the profile need.
    pub fn need_metrics(&mut self, metrics: &[MetricName], profile: &Profile, space: Space) {
        let rules = metrics.iter().filter_map(|name| profile.metric(name));
        let names = rules.flat_map(|rule| rule.formula.names());
        let events: Vec<&str> = names
            .filter(|name| profile.events.iter().any(|event| *event.name == ***name))
            .map(String::as_str)
            .collect();
        if !events.is_empty() {
            self.need(&events, profile, space);
        }
    }

    /// The profile's ratios that what is counted allows.
    pub fn ratios(&self, profile: &Profile) -> Vec<MetricName> {
        let events = self.events();
        let counted = |name: &str| events.iter().any(|event| *event.alias == *name);
        let is_event = |name: &str| profile.events.iter().any(|event| *event.name == *name);
        let rules = profile.metrics.iter().filter(|rule| !rule.total);
        let possible = rules.filter(|rule| {
            let mut names = rule
                .formula
                .names()
                .iter()
                .filter(|name| is_event(name))
                .peekable();
            names.peek().is_some() && names.all(|name| counted(name))
        });
        possible.map(|rule| MetricName::clone(&rule.name)).collect()
    }

    /// All events, each once, in the order of the sets.
    pub fn events(&self) -> Vec<&Requested> {
        let mut seen = BTreeSet::new();
        let all = self.sets.iter().flat_map(|set| &set.events);
        all.filter(|event| seen.insert(&event.alias)).collect()
    }

    /// Whether some event asks for records of its own.
    pub fn has_thresholds(&self) -> bool {
        self.sets
            .iter()
            .flat_map(|set| &set.events)
            .any(|event| event.every.is_some())
    }
}

fn set(text: &str, profile: &Profile, space: Space) -> Result<RequestedSet, RequestError> {
    let wrong = |why: String| Err(RequestError(why));
    let mut events: Vec<Requested> = Vec::new();
    let parts: Vec<Requested> = match raw::is_raw(text) {
        true => raw::parse(text, space)?,
        false => {
            let parts = split(text);
            if parts.contains(&"") && parts.iter().any(|part| !part.is_empty()) {
                return wrong(format!("-e {text}: there is no event between two commas"));
            }
            let parts = parts.into_iter().filter(|part| !part.is_empty());
            parts
                .map(|part| one(part, profile, space))
                .collect::<Result<_, _>>()?
        }
    };
    for part in parts {
        if events.iter().any(|event| event.alias == part.alias) {
            return wrong(format!("-e {text}: `{}` is in the set twice", part.name));
        }
        events.push(part);
    }
    let sampled = events.iter().filter(|event| event.every.is_some()).count();
    match (events.is_empty(), sampled) {
        (true, _) => wrong(format!(
            "-e `{text}` names no event: write for instance -e instructions,cycles"
        )),
        (_, 2..) => wrong(format!(
            "-e {text}: only one event of a set can have `:every=`, which then makes the records"
        )),
        _ => Ok(RequestedSet { events }),
    }
}

/// The parts between commas, but not those between two slashes: `cpu/event=0xc0,umask=1/,cycles`.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut from, mut inside) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match character {
            '/' => inside = !inside,
            ',' if !inside => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts.into_iter().map(str::trim).collect()
}

/// `[NAME=]EVENT[:every=N]`.
fn one(text: &str, profile: &Profile, space: Space) -> Result<Requested, RequestError> {
    let (spelled, every) = match text.split_once(":every=") {
        Some((spelled, number)) => (spelled, Some(threshold(text, number)?)),
        None if text.ends_with(":every") => (text, Some(threshold(text, "")?)),
        None => (text, None),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if let Some((name, _)) = spelled.split_once('=')
        && !is_name(name)
        && name.chars().all(plain)
    {
        return Err(RequestError(format!(
            "-e {text}: `{name}` cannot name an event: use letters, digits and _, a letter first"
        )));
    }
    let named = spelled.split_once('=').filter(|(name, _)| is_name(name));
    let requested = match named {
        Some((name, spelled)) if !spelled.is_empty() => {
            renamed(name, event(spelled, profile, space))
        }
        Some((name, _)) => {
            return Err(RequestError(format!(
                "-e {text}: an event is missing after `{name}=`"
            )));
        }
        None => event(spelled, profile, space),
    };
    Ok(Requested { every, ..requested })
}

/// The least threshold: a record costs some microseconds.
const LEAST_EVERY: u64 = 1;

/// The kernel refuses those that do not fit a signed number (`perf_event_open` in kernel/events/core.c).
const MOST_EVERY: u64 = 1 << 63;

/// `500M`, `2.5G`, `100000`.
fn threshold(text: &str, number: &str) -> Result<u64, RequestError> {
    let (digits, factor) = match number.char_indices().last() {
        Some((at, 'k' | 'K')) => (&number[..at], 1e3),
        Some((at, 'm' | 'M')) => (&number[..at], 1e6),
        Some((at, 'g' | 'G')) => (&number[..at], 1e9),
        _ => (number, 1.0),
    };
    let value = digits
        .parse::<f64>()
        .ok()
        .filter(|value| value.is_finite() && *value > 0.0);
    match value
        .map(|value| (value * factor) as u64)
        .filter(|value| *value >= LEAST_EVERY)
    {
        Some(value) if value >= MOST_EVERY => Err(RequestError(format!(
            "-e {text}: {number} events are more than the kernel counts to: at most 9e18"
        ))),
        Some(value) => Ok(value),
        None => Err(RequestError(format!(
            "-e {text}: `{number}` is not a number of events: write one such as 100000, 500k or 2M"
        ))),
    }
}

/// An event by whatever name.
fn event(spelled: &str, profile: &Profile, space: Space) -> Requested {
    let meant = canonical(spelled);
    let of_profile = profile.events.iter().filter(|event| *event.name == *meant);
    let choices: Vec<EventChoice> = of_profile
        .map(|event| EventChoice {
            spellings: event
                .choice
                .spellings
                .iter()
                .map(|text| in_space(text, space))
                .collect(),
            ..event.choice.clone()
        })
        .collect();
    let alias: Arc<str> = match is_name(&meant) {
        true => meant.as_str().into(),
        false => spelled.into(),
    };
    let choices = match choices.is_empty() {
        false => choices,
        true => vec![EventChoice {
            alias: Arc::clone(&alias),
            spellings: spellings(spelled, space)
                .into_iter()
                .chain(other_spellings(&meant, space))
                .collect(),
            pmu: None,
        }],
    };
    Requested {
        name: spelled.into(),
        alias,
        choices,
        every: None,
    }
}

/// The same event under a name of the user's.
pub(crate) fn renamed(name: &str, event: Requested) -> Requested {
    let choices = event.choices.into_iter().map(|choice| EventChoice {
        // An event of one kind of core is `NAME@PMU`, so that the counts of both kinds stay apart.
        alias: match &choice.pmu {
            Some(pmu) => format!("{name}@{pmu}").into(),
            None => name.into(),
        },
        ..choice
    });
    Requested {
        name: name.into(),
        alias: name.into(),
        choices: choices.collect(),
        every: event.every,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_profile::Library;
    use proptest::prelude::*;

    fn profile(name: &str) -> Profile {
        Library::load(&[]).unwrap().choose(name).unwrap().clone()
    }

    fn request(texts: &[&str]) -> Result<Request, String> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Request::parse(&texts, &profile("zen4"), Space::All).map_err(|error| error.to_string())
    }

    fn names(request: &Request) -> Vec<Vec<&str>> {
        request
            .sets
            .iter()
            .map(|set| set.events.iter().map(|event| &*event.name).collect())
            .collect()
    }

    #[test]
    fn commas_between_slashes_do_not_part_events() {
        let found = request(&[
            "instructions,cpu/event=0x2e,umask=0x41/u,cycles",
            "page-faults",
        ])
        .unwrap();
        assert_eq!(
            names(&found),
            [
                vec!["instructions", "cpu/event=0x2e,umask=0x41/u", "cycles"],
                vec!["page-faults"]
            ]
        );
    }

    #[test]
    fn names_of_the_profile_come_first_and_with_any_separator() {
        let found = request(&["llc-misses,instr,page-faults,misses=r412e"]).unwrap();
        let events = &found.sets[0].events;
        assert!(
            events[0].choices[0].spellings[0].contains("ANY_DATA_CACHE_FILLS"),
            "{events:?}"
        );
        assert!(
            events[1].choices[0].spellings[0].contains("RETIRED_INSTRUCTIONS"),
            "{events:?}"
        );
        assert_eq!(
            events[2].choices[0].spellings,
            ["page-faults", "cpu/page-faults/"]
        );
        assert_eq!(
            (&*events[3].name, &events[3].choices[0].spellings[0][..]),
            ("misses", "r412e")
        );
    }

    #[test]
    fn names_with_a_colon_are_tried_as_they_are() {
        let found = request(&["sched:sched_switch,context_switches:u"]).unwrap();
        let spellings = |at: usize| &found.sets[0].events[at].choices[0].spellings;
        assert_eq!(spellings(0)[..], ["sched:sched_switch"]);
        assert_eq!(
            spellings(1)[..],
            ["context_switches:u", "context-switches:u"]
        );
    }

    #[test]
    fn formulas_find_the_kernel_s_name_of_an_event_that_the_profile_lacks() {
        let mut found = request(&["cycles"]).unwrap();
        let mut profile = profile("zen4");
        profile
            .events
            .retain(|event| &*event.name != "llc_references");
        found.need(&["llc_references"], &profile, Space::User);
        let spellings = &found.sets[0].events[1].choices[0].spellings;
        assert!(
            spellings.contains(&"cache-references:u".to_owned()),
            "{spellings:?}"
        );
    }

    #[test]
    fn thresholds() {
        let every = |text: &str| request(&[text]).map(|found| found.sets[0].events[0].every);
        assert_eq!(every("instructions:every=500M"), Ok(Some(500_000_000)));
        assert_eq!(every("page-faults:every=1"), Ok(Some(1)));
        for most in ["99999999999999999999", "1e300", "9300000000000000000"] {
            let refused = every(&format!("cycles:every={most}")).unwrap_err();
            assert!(refused.contains("at most 9e18"), "{refused}");
        }
        assert_eq!(every("cycles:every=2.5k"), Ok(Some(2500)));
        for wrong in [
            "cycles:every=",
            "cycles:every=-1",
            "cycles:every=0",
            "cycles:every=xM",
            "cycles:every=é",
        ] {
            assert!(
                every(wrong).unwrap_err().contains("not a number of events"),
                "{wrong}"
            );
        }
        assert!(
            request(&["my-faults=page-faults"])
                .unwrap_err()
                .contains("`my-faults` cannot name an event")
        );
        assert!(
            request(&["a:every=1,b:every=2"])
                .unwrap_err()
                .contains("only one event")
        );
    }

    #[test]
    fn what_two_metrics_need_is_counted_once() {
        let profile = profile("generic");
        let mut request = request(&["page-faults"]).unwrap();
        request.need(
            &["instructions", "cycles", "instructions", "page-faults"],
            &profile,
            Space::All,
        );
        let names: Vec<_> = request.sets[0]
            .events
            .iter()
            .map(|event| &*event.alias)
            .collect();
        assert_eq!(names, ["page_faults", "instructions", "cycles"]);
    }

    #[test]
    fn sets_that_make_no_sense() {
        assert!(request(&[""]).unwrap_err().contains("names no event"));
        assert!(request(&[" , "]).unwrap_err().contains("names no event"));
        assert!(request(&["cycles,cycles"]).unwrap_err().contains("twice"));
        assert!(request(&["x="]).unwrap_err().contains("missing after `x=`"));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "\\PC{0,40}") {
            let profile = profile("generic");
            let _ = Request::parse(std::slice::from_ref(&text), &profile, Space::User);
            let parts = split(&text);
            prop_assert!(parts.iter().all(|part| part.contains('/') || !part.contains(',')));
        }
    }
}
