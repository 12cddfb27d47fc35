//! `perch profiles`: what is known of processors.

mod check;

use crate::{
    args::{ProfilesArgs, ProfilesCommand},
    processor,
    render::{
        table::{Align, table},
        wrapped,
    },
};
use anyhow::Result;
use perch_linux::topology;
use serde::Serialize;
use std::process::ExitCode;

/// Lists, shows or checks profiles.
///
/// # Errors
/// No such profile, a file with a mistake.
pub fn profiles(args: &ProfilesArgs) -> Result<ExitCode> {
    match args.command.as_ref().unwrap_or(&ProfilesCommand::List) {
        ProfilesCommand::List => list(args.json),
        ProfilesCommand::Show { name } => show(name, args.json),
        ProfilesCommand::Check { file } => check::check(file, args.json),
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
