//! `perch policies`: what can decide, and what each needs.

use crate::{
    args::PoliciesArgs,
    render::{
        table::{Align, table},
        wrapped,
    },
};
use anyhow::Result;
use perch_policy::registry;
use serde::Serialize;
use std::process::ExitCode;

/// A policy as `--json` tells it.
#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    summary: &'static str,
    needs: &'static str,
}

impl<'a> Entry<'a> {
    fn new(name: &'a str) -> Result<Self> {
        Ok(Self {
            name,
            summary: registry::summary(name)?,
            needs: registry::needs(name)?,
        })
    }
}

/// An option of a policy.
#[derive(Serialize)]
struct PolicyOption {
    name: String,
    default: toml::Value,
    meaning: String,
}

/// A policy with its options.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    entry: Entry<'a>,
    options: Vec<PolicyOption>,
}

/// Lists the policies, or the options of one.
///
/// # Errors
/// No policy of that name; trouble with standard output.
pub fn policies(args: &PoliciesArgs) -> Result<ExitCode> {
    if let Some(name) = &args.policy {
        return one(name, args.json);
    }
    let entries: Vec<Entry<'_>> = registry::names().map(Entry::new).collect::<Result<_>>()?;
    if args.json {
        super::print_json(&entries)?;
    } else {
        let columns = [
            ("policy", Align::Left),
            ("what it does", Align::Left),
            ("needs", Align::Left),
        ];
        let rows = entries.into_iter().map(|entry| {
            vec![
                entry.name.to_owned(),
                entry.summary.to_owned(),
                entry.needs.to_owned(),
            ]
        });
        super::print(&table(&columns, rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn one(name: &str, json: bool) -> Result<ExitCode> {
    let entry = Entry::new(name)?;
    let schema = registry::schema(name)?;
    let meaning = |option: &str| {
        let properties = schema.get("properties").and_then(|all| all.get(option));
        let text = properties.and_then(|of| of.get("description"));
        text.and_then(|text| text.as_str())
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let options = registry::default_config(name)?.into_iter();
    let whole = Whole {
        entry,
        options: options
            .map(|(name, default)| PolicyOption {
                meaning: meaning(&name),
                name,
                default,
            })
            .collect(),
    };
    if json {
        super::print_json(&whole)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = wrapped(&format!("{name}: "), whole.entry.summary);
    text += &format!("{}\n\n", whole.entry.needs);
    if whole.options.is_empty() {
        text += "It has no options.\n";
    } else {
        text += &format!(
            "Options with their defaults. Set one with --set OPTION=VALUE, or in the table\n\
             [policies.{name}] of the configuration file.\n"
        );
    }
    for option in &whole.options {
        text += &format!("\n{} = {}\n", option.name, option.default);
        text += &wrapped("    ", &option.meaning);
    }
    super::print(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}
