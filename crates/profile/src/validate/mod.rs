//! From a file as it is written to a profile that is sound: every name known, every number possible.

mod metric;

pub(crate) use metric::MOST_INPUTS;
use perch_core::diagnostic::{did_you_mean, from_deserializer, one_of};

use crate::{
    cpu::Rule,
    error::ProfileError,
    formula::is_name,
    profile::{CPU_SECONDS, Event, Kind, Profile, Set, Unit},
    schema,
    spelling::Spelling,
};
use perch_core::{EventChoice, Limits, ShareLevel, UnitClass};
use std::{ops::Range, sync::Arc};
use toml::Spanned;

const SHARE_LEVELS: [(&str, ShareLevel); 5] = [
    ("pu", ShareLevel::Pu),
    ("core", ShareLevel::Core),
    ("l2", ShareLevel::L2),
    ("llc", ShareLevel::Llc),
    ("package", ShareLevel::Package),
];

/// How tables are written, by the type that is read from them.
const FORMS: &[(&str, &str)] = &[
    ("struct Rule", "[[match]] and its keys below"),
    ("struct Kind", "[[kind]] and its keys below"),
    ("struct Unit", "[[unit]] and its keys below"),
    ("struct Event", "[[event]] and its keys below"),
    ("struct Set", "[[set]] and its keys below"),
    ("struct Metric", "[[metric]] and its keys below"),
    (
        "struct Constant",
        "NAME = { value = 64, source = \"…\" } below [constant]",
    ),
    ("struct FpThreshold", "[fp_threshold] and its keys below"),
    ("struct Limits", "[limits] and its keys below"),
];

impl Profile {
    /// Reads a profile from a TOML text; `path` is named in errors.
    ///
    /// # Errors
    /// The first error, with its place: bad TOML, an unknown field, a name that is used twice or not defined, a
    /// formula that cannot be read, a number that cannot be.
    pub fn parse(text: &str, path: &str) -> Result<Self, ProfileError> {
        let file: schema::File = toml::from_str(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let (message, hint) = from_deserializer(error.message(), FORMS);
            ProfileError::at(path, text, span, message, hint)
        })?;
        Reader { text, path }.profile(file)
    }
}

/// The text that is read, for the places of errors.
struct Reader<'a> {
    text: &'a str,
    path: &'a str,
}

type Checked<T> = Result<T, ProfileError>;

impl Reader<'_> {
    fn wrong(&self, at: Range<usize>, message: impl Into<String>) -> ProfileError {
        ProfileError::at(self.path, self.text, at, message, None)
    }

    fn wrong_hint(
        &self,
        at: Range<usize>,
        message: impl Into<String>,
        hint: Option<String>,
    ) -> ProfileError {
        ProfileError::at(self.path, self.text, at, message, hint)
    }

    fn profile(&self, file: schema::File) -> Checked<Profile> {
        let name = file.name.get_ref();
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-+._".contains(c);
        if name.is_empty() || !name.chars().all(plain) {
            return Err(self.wrong(
                file.name.span(),
                "a profile's name has small letters, digits, `-`, `+`, `.` and `_` only",
            ));
        }
        self.said(&file.title, "title")?;
        let kinds = self.kinds(&file.kinds)?;
        let mut profile = Profile {
            name: name.clone(),
            title: file.title.get_ref().clone(),
            path: self.path.to_owned(),
            text: self.text.to_owned(),
            notes: file.notes,
            rules: file
                .rules
                .iter()
                .map(|rule| self.rule(rule))
                .collect::<Checked<_>>()?,
            units: file
                .units
                .iter()
                .map(|unit| self.unit(unit, &kinds))
                .collect::<Checked<_>>()?,
            events: self.events(&file.events, &kinds)?,
            kinds,
            sets: Vec::new(),
            metrics: Vec::new(),
            limits: self.limits(&file.limits)?,
            fp_threshold_counters: None,
            fp_threshold_sampling: None,
        };
        self.one_fp_level(&file.units, &profile)?;
        self.sets(&file.sets, &file.events, &mut profile)?;
        self.metrics(&file.metrics, &file.constants, &mut profile)?;
        self.thresholds(&file.fp_threshold, &mut profile)?;
        Ok(profile)
    }

    /// A text that must say something.
    fn said(&self, text: &Spanned<String>, what: &str) -> Checked<String> {
        if text.get_ref().trim().is_empty() {
            return Err(self.wrong(text.span(), format!("an empty {what}")));
        }
        Ok(text.get_ref().clone())
    }

    /// One of a list of words.
    fn choice<T: Copy>(
        &self,
        word: &Spanned<String>,
        what: &str,
        choices: &[(&str, T)],
    ) -> Checked<T> {
        let given = word.get_ref().as_str();
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == given) {
            return Ok(*value);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        Err(self.wrong_hint(
            word.span(),
            format!(
                "unknown {what} `{}`, {}",
                given.escape_debug(),
                one_of(&names)
            ),
            did_you_mean(given, names),
        ))
    }

    fn kinds(&self, kinds: &[schema::Kind]) -> Checked<Vec<Kind>> {
        let mut read: Vec<Kind> = Vec::new();
        for kind in kinds {
            let pmu = self.said(&kind.pmu, "PMU name")?;
            if read.iter().any(|other| *other.pmu == pmu) {
                return Err(self.wrong(kind.pmu.span(), format!("a second kind `{pmu}`")));
            }
            read.push(Kind {
                pmu: pmu.into(),
                title: kind.title.clone(),
            });
        }
        Ok(read)
    }

    /// The index of the kind of core that is named, if one is.
    fn kind(&self, name: Option<&Spanned<String>>, kinds: &[Kind]) -> Checked<Option<usize>> {
        let Some(name) = name else { return Ok(None) };
        match kinds.iter().position(|kind| &*kind.pmu == name.get_ref()) {
            Some(at) => Ok(Some(at)),
            None => Err(self.wrong_hint(
                name.span(),
                format!("no `[[kind]]` has the PMU `{}`", name.get_ref()),
                did_you_mean(name.get_ref(), kinds.iter().map(|kind| &*kind.pmu)),
            )),
        }
    }

    fn rule(&self, spanned: &Spanned<schema::Rule>) -> Checked<Rule> {
        let rule = spanned.get_ref();
        let x86 = rule.vendor.is_some() || rule.family.is_some() || rule.models.is_some();
        let arm = rule.implementer.is_some() || rule.parts.is_some();
        let power = rule.pvr.is_some() || rule.cpu.is_some();
        if [x86, arm, power, rule.any].iter().filter(|x| **x).count() != 1 {
            return Err(self.wrong(
                spanned.span(),
                "a rule has `vendor`, `family` and `models` (x86), or `implementer` and `parts` (Arm), or `pvr` \
                 and `cpu` (POWER), or `any = true`",
            ));
        }
        if rule.any {
            return Ok(Rule::Any);
        }
        if power {
            return Ok(Rule::Power {
                pvr: rule.pvr.clone().unwrap_or_default(),
                cpu: rule.cpu.clone().unwrap_or_default(),
            });
        }
        if arm {
            return match (&rule.implementer, &rule.parts) {
                (Some(implementer), Some(parts)) => Ok(Rule::Arm {
                    implementer: *implementer,
                    parts: parts.clone(),
                }),
                _ => Err(self.wrong(
                    spanned.span(),
                    "a rule for Arm has both `implementer` and `parts`",
                )),
            };
        }
        let (Some(vendor), Some(family)) = (&rule.vendor, rule.family) else {
            return Err(self.wrong(
                spanned.span(),
                "a rule for x86 has both `vendor` and `family`",
            ));
        };
        let models = rule
            .models
            .iter()
            .flatten()
            .map(|range| self.models(range))
            .collect::<Checked<_>>()?;
        Ok(Rule::X86 {
            vendor: vendor.clone(),
            family,
            models,
        })
    }

    /// `0x47` or `0x30-0x3f`.
    fn models(&self, range: &Spanned<String>) -> Checked<(u32, u32)> {
        let number = |text: &str| {
            crate::spelling::number(text.trim()).and_then(|value| u32::try_from(value).ok())
        };
        let text = range.get_ref().as_str();
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok((first, last)),
            _ => Err(self.wrong(
                range.span(),
                "models are written `\"0x47\"` or `\"0x30-0x3f\"`",
            )),
        }
    }

    fn unit(&self, unit: &schema::Unit, kinds: &[Kind]) -> Checked<Unit> {
        if !(1..=64).contains(unit.count.get_ref()) {
            return Err(self.wrong(unit.count.span(), "a count of units is from 1 to 64"));
        }
        Ok(Unit {
            class: self.choice(&unit.class, "class of units", &UnitClass::ALL)?,
            count: *unit.count.get_ref(),
            share: self.choice(&unit.share, "share level", &SHARE_LEVELS)?,
            kind: self.kind(unit.kind.as_ref(), kinds)?,
            source: self.said(&unit.source, "source")?,
        })
    }

    /// A machine has one division into domains that share floating-point units.
    fn one_fp_level(&self, units: &[schema::Unit], profile: &Profile) -> Checked<()> {
        for (unit, written) in profile.units.iter().zip(units) {
            if unit.class == UnitClass::Fp && unit.share != profile.fp_share_level() {
                return Err(self.wrong(
                    written.share.span(),
                    "all units of class `fp` must have the same share level",
                ));
            }
        }
        Ok(())
    }

    fn events(&self, events: &[schema::Event], kinds: &[Kind]) -> Checked<Vec<Event>> {
        let mut read: Vec<Event> = Vec::new();
        for event in events {
            let name = event.alias.get_ref();
            if !is_name(name) || name == CPU_SECONDS {
                return Err(self.wrong(
                    event.alias.span(),
                    "an alias has letters, digits and `_`, begins with a letter and is no function or constant of \
                     formulas",
                ));
            }
            let kind = self.kind(event.kind.as_ref(), kinds)?;
            let same = |other: &Event| {
                &*other.name == name
                    && (other.kind == kind || other.kind.is_none() || kind.is_none())
            };
            if read.iter().any(same) {
                return Err(self.wrong(event.alias.span(), format!("a second event `{name}`")));
            }
            if event.spellings.get_ref().is_empty() {
                return Err(self.wrong(event.spellings.span(), "an event without a spelling"));
            }
            for spelling in event.spellings.get_ref() {
                Spelling::parse(spelling.get_ref())
                    .map_err(|error| self.wrong(spelling.span(), error.0))?;
            }
            if let Some(limit) = &event.max_per_cycle
                && !(limit.get_ref().is_finite() && *limit.get_ref() > 0.0)
            {
                return Err(self.wrong(limit.span(), "`max_per_cycle` is above 0"));
            }
            let pmu = kind.map(|kind| &kinds[kind].pmu);
            read.push(Event {
                name: name.as_str().into(),
                choice: EventChoice {
                    alias: match pmu {
                        Some(pmu) => format!("{name}@{pmu}").into(),
                        None => name.as_str().into(),
                    },
                    spellings: event
                        .spellings
                        .get_ref()
                        .iter()
                        .map(|spelling| spelling.get_ref().clone())
                        .collect(),
                    pmu: pmu.map(|pmu| pmu.to_string()),
                },
                kind,
                max_per_cycle: event.max_per_cycle.as_ref().map(|limit| *limit.get_ref()),
                source: self.said(&event.source, "source")?,
            });
        }
        Ok(read)
    }

    fn sets(
        &self,
        sets: &[schema::Set],
        events: &[schema::Event],
        profile: &mut Profile,
    ) -> Checked<()> {
        for set in sets {
            let name: Arc<str> = self.said(&set.name, "name")?.into();
            if profile.sets.iter().any(|other| other.name == name) {
                return Err(self.wrong(set.name.span(), format!("a second set `{name}`")));
            }
            let kind = self.kind(set.kind.as_ref(), &profile.kinds)?;
            if set.events.get_ref().is_empty() {
                return Err(self.wrong(set.events.span(), "a set without events"));
            }
            let mut members = Vec::new();
            for event in set.events.get_ref() {
                let Some(at) = profile.event(event.get_ref(), kind) else {
                    let names = profile.events.iter().map(|event| &*event.name);
                    return Err(self.wrong_hint(
                        event.span(),
                        format!("no event `{}`{}", event.get_ref(), of_kind(kind, profile)),
                        did_you_mean(event.get_ref(), names),
                    ));
                };
                if members.contains(&at) {
                    return Err(self.wrong(
                        event.span(),
                        format!("`{}` is in the set already", event.get_ref()),
                    ));
                }
                members.push(at);
            }
            profile.sets.push(Set {
                name,
                events: members,
                on_demand: set.on_demand,
            });
        }
        for (at, event) in events.iter().enumerate() {
            if !profile.sets.iter().any(|set| set.events.contains(&at)) {
                return Err(self.wrong(
                    event.alias.span(),
                    format!(
                        "`{}` is in no set, so it would never be counted",
                        event.alias.get_ref()
                    ),
                ));
            }
        }
        Ok(())
    }

    fn thresholds(&self, written: &schema::FpThreshold, profile: &mut Profile) -> Checked<()> {
        let positive = |value: &Option<Spanned<f64>>| match value {
            Some(value) if !(value.get_ref().is_finite() && *value.get_ref() > 0.0) => {
                Err(self.wrong(value.span(), "a threshold is above 0"))
            }
            Some(value) => Ok(Some(*value.get_ref())),
            None => Ok(None),
        };
        profile.fp_threshold_counters = positive(&written.counters)?;
        profile.fp_threshold_sampling = positive(&written.sampling)?;
        match (&written.counters, &written.sampling, &written.source) {
            (None, None, _) => Ok(()),
            (_, _, Some(source)) => self.said(source, "source").map(drop),
            (Some(value), _, None) | (None, Some(value), None) => {
                Err(self.wrong(value.span(), "a threshold without a `source`"))
            }
        }
    }

    fn limits(&self, written: &schema::Limits) -> Checked<Limits> {
        let [least, greatest] = *written.cycles_per_second.get_ref();
        if !(least >= 0.0 && least < greatest && greatest.is_finite()) {
            return Err(self.wrong(
                written.cycles_per_second.span(),
                "`cycles_per_second` is `[least, greatest]`, the least first",
            ));
        }
        let positive = |value: &Spanned<f64>| {
            if value.get_ref().is_finite() && *value.get_ref() > 0.0 {
                Ok(*value.get_ref())
            } else {
                Err(self.wrong(value.span(), "a limit is above 0"))
            }
        };
        self.said(&written.source, "source")?;
        Ok(Limits {
            cycles_per_second: (least, greatest),
            min_instructions_per_second: positive(&written.min_instructions_per_second)?,
            max_instructions_per_cycle: positive(&written.max_instructions_per_cycle)?,
            judge_after_ns: u64::from(*written.judge_after_ms.get_ref()) * 1_000_000,
        })
    }
}

fn of_kind(kind: Option<usize>, profile: &Profile) -> String {
    match kind {
        Some(kind) => format!(" of the kind `{}`", profile.kinds[kind].pmu),
        None => String::new(),
    }
}
