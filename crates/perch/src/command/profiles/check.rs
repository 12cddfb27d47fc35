//! `perch profiles check`: whether a profile's file is valid, and whether its events exist.

use crate::render::{
    count,
    table::{Align, table},
    wrapped,
};
use anyhow::{Context, Result};
use perch_core::EventChoice;
use perch_linux::perf::encode::Encoder;
use perch_profile::{EventCheck, Profile, Spelling};
use serde::Serialize;
use std::{collections::BTreeSet, path::Path, process::ExitCode};

/// An event as `--json` tells it.
#[derive(Serialize)]
struct Checked {
    event: String,
    resolves_to: Option<String>,
    problem: Option<String>,
    needed_by: Vec<String>,
    /// Names of libpfm4 that its table of their PMU lacks.
    not_in_libpfm4: Vec<String>,
}

/// Checks a file. The exit code is 1 if libpfm4 knows a PMU but not the event that the file names of it.
///
/// # Errors
/// A file that cannot be read or has a mistake.
pub fn check(file: &Path, json: bool) -> Result<ExitCode> {
    let text = perch_files::read_to_string(file)
        .with_context(|| format!("{}: cannot be read", file.display()))?;
    let profile = Profile::parse(&text, &file.to_string_lossy())?;
    let encoder = Encoder::new();
    let checks = profile.check(&|choice| resolve(&encoder, choice));
    let names = Names::of(&profile);
    let is_good = names.wrong.is_empty();
    if json {
        let events = checks.into_iter().map(|check| checked(check, &names));
        crate::command::print_json(&events.collect::<Vec<_>>())?;
    } else {
        crate::command::print(&render(&profile, &checks, &names))?;
    }
    Ok(ExitCode::from(u8::from(!is_good)))
}

/// The first spelling that means something here.
fn resolve(encoder: &Encoder, choice: &EventChoice) -> Result<String, String> {
    let mut why = Vec::new();
    for spelling in &choice.spellings {
        match encoder.encode(spelling, choice.pmu.as_deref()) {
            Ok(encoded) => return Ok(encoded.spelling),
            Err(error) => why.push(error.to_string()),
        }
    }
    Err(why.join("; "))
}

/// What libpfm4's tables say of the names that a profile uses, of whatever processor.
#[derive(Debug, Default)]
struct Names {
    /// How many it knows.
    known: usize,
    /// Events, by their alias, with names that its table of that PMU lacks.
    wrong: Vec<(String, String)>,
    /// PMUs of which it has no table, so that nothing is known of their names.
    no_table: BTreeSet<String>,
    /// How many names those are.
    unchecked: usize,
    /// Why there are no tables at all.
    no_library: Option<String>,
}

impl Names {
    fn of(profile: &Profile) -> Self {
        let mut names = Self::default();
        // SAFETY: this command has no other threads.
        let encoder = match unsafe { Encoder::with_all_tables() } {
            Ok(encoder) => Some(encoder),
            Err(why) => {
                names.no_library = Some(why);
                None
            }
        };
        for event in &profile.events {
            for spelling in &event.choice.spellings {
                let Ok(Spelling::Pfm { pmu, .. }) = Spelling::parse(spelling) else {
                    continue;
                };
                match &encoder {
                    Some(encoder) if encoder.has_table(pmu) => {
                        match encoder.encode(spelling, None) {
                            Ok(_) => names.known += 1,
                            Err(_) => names
                                .wrong
                                .push((event.choice.alias.to_string(), spelling.clone())),
                        }
                    }
                    Some(_) => {
                        names.no_table.insert(pmu.to_owned());
                        names.unchecked += 1;
                    }
                    None => names.unchecked += 1,
                }
            }
        }
        names
    }

    /// In sentences, for the user.
    fn told(&self) -> String {
        let mut told = Vec::new();
        if self.known > 0 {
            told.push(format!(
                "libpfm4 knows {} of these events, of this processor or of others.",
                count(self.known, "name")
            ));
        }
        for (event, name) in &self.wrong {
            told.push(format!(
                "WRONG: event `{event}`: libpfm4's table of that PMU has no `{name}`; `showevtinfo` lists what it has."
            ));
        }
        let unchecked = count(self.unchecked, "name");
        match &self.no_library {
            Some(why) if self.unchecked > 0 => {
                told.push(format!("Not checked: {unchecked} of libpfm4, as {why}."));
            }
            _ if self.unchecked > 0 => {
                let pmus: Vec<&str> = self.no_table.iter().map(String::as_str).collect();
                told.push(format!(
                    "Not checked: {unchecked}, as this libpfm4 has no table of {}.",
                    pmus.join(", ")
                ));
            }
            _ => {}
        }
        told.iter().map(|line| wrapped("", line)).collect()
    }
}

fn checked(check: EventCheck, names: &Names) -> Checked {
    let wrong = names
        .wrong
        .iter()
        .filter(|(event, _)| **event == *check.alias);
    let not_in_libpfm4 = wrong.map(|(_, name)| name.clone()).collect();
    let (resolves_to, problem) = match check.result {
        Ok(encoding) => (Some(encoding), None),
        Err(why) => (None, Some(why)),
    };
    Checked {
        event: check.alias.to_string(),
        resolves_to,
        problem,
        needed_by: check.needed_by.iter().map(ToString::to_string).collect(),
        not_in_libpfm4,
    }
}

fn render(profile: &Profile, checks: &[EventCheck], names: &Names) -> String {
    let good = checks.iter().filter(|check| check.result.is_ok()).count();
    let columns = [
        ("event", Align::Left),
        ("here", Align::Left),
        ("needed by", Align::Left),
    ];
    let rows = checks.iter().map(|check| {
        let here = match &check.result {
            Ok(encoding) => encoding.clone(),
            Err(why) => format!("no: {why}"),
        };
        let needed: Vec<String> = check.needed_by.iter().map(ToString::to_string).collect();
        vec![check.alias.to_string(), here, needed.join(", ")]
    });
    let summary = format!(
        "{}: {} ({}), {}, {}: the file is valid; {good} of {} resolve here.",
        profile.path,
        profile.name,
        profile.title,
        count(profile.events.len(), "event"),
        count(profile.metrics.len(), "metric"),
        count(checks.len(), "event"),
    );
    format!(
        "{}{}\n{}",
        wrapped("", &summary),
        names.told(),
        table(&columns, rows)
    )
}
