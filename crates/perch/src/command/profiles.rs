//! `perch profiles`: what is known of processors.

use crate::{
    args::{ProfilesArgs, ProfilesCommand},
    processor,
    render::{
        count,
        table::{Align, table},
        wrapped,
    },
};
use anyhow::{Context, Result};
use perch_core::EventChoice;
use perch_linux::{perf::encode, topology};
use perch_profile::{EventCheck, Profile};
use serde::Serialize;
use std::{path::Path, process::ExitCode};

/// Lists, shows or checks profiles.
///
/// # Errors
/// No such profile, a file with a mistake.
pub fn profiles(args: &ProfilesArgs) -> Result<ExitCode> {
    match args.command.as_ref().unwrap_or(&ProfilesCommand::List) {
        ProfilesCommand::List => list(args.json),
        ProfilesCommand::Show { name } => show(name, args.json),
        ProfilesCommand::Check { file } => check(file, args.json),
    }
}

/// A profile as `--json` tells it.
#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    title: &'a str,
    path: &'a str,
    fp_shared_by: String,
    metrics: Vec<&'a str>,
    this_machine: bool,
}

fn list(json: bool) -> Result<ExitCode> {
    let library = processor::library()?;
    let source = topology::Source::Native;
    let chosen = processor::choose(None, &source, &topology::load(&source)?)?;
    let entries: Vec<Entry<'_>> = library
        .list()
        .iter()
        .map(|profile| Entry {
            name: &profile.name,
            title: &profile.title,
            path: &profile.path,
            fp_shared_by: format!("{:?}", profile.fp_share_level()).to_lowercase(),
            metrics: profile.metrics.iter().map(|metric| &*metric.name).collect(),
            this_machine: profile.name == chosen.profile.name,
        })
        .collect();
    if json {
        super::print_json(&entries)?;
        return Ok(ExitCode::SUCCESS);
    }
    let columns = [
        ("", Align::Left),
        ("profile", Align::Left),
        ("processors", Align::Left),
        ("FP units shared by", Align::Left),
        ("FP share", Align::Left),
    ];
    let rows = library.list().iter().zip(&entries).map(|(profile, entry)| {
        vec![
            if entry.this_machine { "→" } else { "" }.to_owned(),
            profile.name.clone(),
            profile.title.clone(),
            entry.fp_shared_by.clone(),
            if profile.counts("fp_share") {
                "counted"
            } else {
                "sampled"
            }
            .to_owned(),
        ]
    });
    let text = table(&columns, rows);
    super::print(&format!(
        "{text}\n\n{}",
        wrapped(
            &format!("This machine gets {}: ", chosen.profile.name),
            &chosen.why
        )
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The profile's file as it is, or the same as JSON.
fn show(name: &str, json: bool) -> Result<ExitCode> {
    let mut library = processor::library()?;
    let profile = library.choose(name)?;
    match json {
        true => super::print_json(&toml::from_str::<serde_json::Value>(&profile.text)?)?,
        false => super::print(&profile.text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// An event as `--json` tells it.
#[derive(Serialize)]
struct Checked {
    event: String,
    resolves_to: Option<String>,
    problem: Option<String>,
    needed_by: Vec<String>,
}

fn check(file: &Path, json: bool) -> Result<ExitCode> {
    let text = perch_files::read_to_string(file)
        .with_context(|| format!("{}: cannot be read", file.display()))?;
    let profile = Profile::parse(&text, &file.to_string_lossy())?;
    let encoder = encode::Encoder::new();
    let checks = profile.check(&|choice| resolve(&encoder, choice));
    if json {
        let events: Vec<Checked> = checks.into_iter().map(checked).collect();
        super::print_json(&events)?;
    } else {
        super::print(&render(&profile, &checks))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The first spelling that means something here.
fn resolve(encoder: &encode::Encoder, choice: &EventChoice) -> Result<String, String> {
    let mut why = Vec::new();
    for spelling in &choice.spellings {
        match encoder.encode(spelling, choice.pmu.as_deref()) {
            Ok(encoded) => return Ok(encoded.spelling),
            Err(error) => why.push(error.to_string()),
        }
    }
    Err(why.join("; "))
}

fn checked(check: EventCheck) -> Checked {
    let (resolves_to, problem) = match check.result {
        Ok(encoding) => (Some(encoding), None),
        Err(why) => (None, Some(why)),
    };
    Checked {
        event: check.alias.to_string(),
        resolves_to,
        problem,
        needed_by: check.needed_by.iter().map(ToString::to_string).collect(),
    }
}

fn render(profile: &Profile, checks: &[EventCheck]) -> String {
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
        let needed = check
            .needed_by
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ");
        vec![check.alias.to_string(), here, needed]
    });
    format!(
        "{}: {} ({}), {}, {}: the file is sound; {good} of {} resolve here.\n\n{}",
        profile.path,
        profile.name,
        profile.title,
        count(profile.events.len(), "event"),
        count(profile.metrics.len(), "metric"),
        count(checks.len(), "event"),
        table(&columns, rows)
    )
}
