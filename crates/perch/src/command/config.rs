//! `perch config`: the settings in force, their defaults, their schema.

use crate::{
    args::{ConfigArgs, Counters, PlaceArgs, TuningArgs, environment, hinted},
    config::{CALIBRATED_POLICY, ConfigFile, DEFAULT_POLICY, Settings},
};
use anyhow::{Context, Result};
use clap::{CommandFactory, FromArgMatches, Parser};
use perch_policy::registry;
use std::process::ExitCode;

/// Prints what was asked for.
///
/// # Errors
/// A configuration file that is wrong.
pub fn config(args: &ConfigArgs) -> Result<ExitCode> {
    if args.schema {
        super::print_json(&schema()?)?;
    } else if args.defaults {
        super::print(&defaults()?)?;
    } else {
        let (text, settings) = in_force(args)?;
        super::print(&text)?;
        // They are shown all the same: to see which of them has to change.
        super::place::can_be_used(&settings)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The file's schema with each policy's own below `policies`.
fn schema() -> Result<serde_json::Value> {
    let mut schema = serde_json::to_value(schemars::schema_for!(ConfigFile))?;
    let policies = registry::names()
        .map(|name| {
            Ok((
                name.to_owned(),
                serde_json::to_value(registry::schema(name)?)?,
            ))
        })
        .collect::<Result<serde_json::Map<_, _>>>()?;
    schema["properties"]["policies"] = serde_json::json!({
        "description": "Settings of the policies, a table each.",
        "type": "object",
        "properties": policies,
        "additionalProperties": false,
    });
    Ok(schema)
}

/// Every setting with its default, commented; a file that can be read as it is.
fn defaults() -> Result<String> {
    let schema = schema()?;
    let mut text = String::from(
        "# perch's settings and their defaults. A line without '#' is in force.\n# Keys may be written with hyphens or with underscores.\n",
    );
    let default = |name: &str| match name {
        "policy" => format!(
            "# policy = \"{DEFAULT_POLICY}\"    # {CALIBRATED_POLICY} on a machine that was calibrated"
        ),
        "counters" => "counters = \"auto\"".to_owned(),
        "take-over" => "take-over = false".to_owned(),
        "period" => "# period = \"1s\"          # the policy's own".to_owned(),
        "sampling-rate" => "# sampling-rate = 251    # by privileges and need".to_owned(),
        "profile" => "# profile = \"zen4\"       # detected".to_owned(),
        "pus" => "# pus = \"0-7\"            # all that are usable".to_owned(),
        "weight" => "# weight = [\"backup*=10\"]".to_owned(),
        "ways" => "# ways = [\"stream*=L3:0x3\"]".to_owned(),
        "pin" => "# pin = [\"solver*=core:0-3\"]".to_owned(),
        other => format!("# {other} ="),
    };
    let properties = schema["properties"]
        .as_object()
        .context("the schema has no properties")?;
    for (name, property) in properties.iter().filter(|(name, _)| *name != "policies") {
        text += &format!("\n{}{}\n", comment(property), default(name));
    }
    for name in registry::names() {
        let table = registry::default_config(name)?;
        if table.is_empty() || name == "fixed" {
            continue;
        }
        text += &format!("\n[policies.{name}]\n");
        let described = &schema["properties"]["policies"]["properties"][name]["properties"];
        for (option, value) in table {
            text += &format!(
                "{}{option} = {value}\n",
                comment(&described[option.as_str()])
            );
        }
    }
    Ok(text)
}

fn comment(property: &serde_json::Value) -> String {
    let description = property["description"].as_str().unwrap_or("");
    description
        .lines()
        .map(|line| format!("# {line}\n"))
        .collect()
}

/// The options of `perch run`, as clap reads them from the environment.
#[derive(Debug, Parser)]
#[command(name = "perch config")]
struct Environment {
    #[command(flatten)]
    place: PlaceArgs,
}

/// What a `perch run` without flags would use, as text and for checks.
fn in_force(args: &ConfigArgs) -> Result<(String, Settings)> {
    let command = environment::without_empty(Environment::command());
    let matches = command.try_get_matches_from(["perch config"]);
    let place = match matches.and_then(|matches| Environment::from_arg_matches(&matches)) {
        Ok(environment) => PlaceArgs {
            tuning: TuningArgs {
                config: args.config.clone(),
                ..environment.place.tuning
            },
            ..environment.place
        },
        Err(error) => hinted(error, &[]).exit(),
    };
    let (given, path) = ConfigFile::load_from(place.tuning.config.as_deref())?;
    let (settings, calibration) = super::place::settings_with(&place, given.clone())?;
    let mut policy = registry::default_config(&settings.policy)?;
    policy.extend(settings.policy_config.clone());
    // The policy `fixed` cannot be built without rules; its period is then not known either.
    let own = || settings.build().ok().map(|policy| policy.period());
    let period = settings.period.or_else(own);
    let name = settings.policy.clone();
    let mut in_force = settings.clone();
    if let Some(calibration) = &calibration {
        in_force.calibrated_by(calibration);
    }
    let file = ConfigFile {
        policy: Some(settings.policy.clone()),
        period: period.map(|period| humantime::format_duration(period).to_string()),
        interval: settings
            .interval
            .map(|time| humantime::format_duration(time).to_string()),
        profile: settings.profile,
        counters: Some(settings.counters).or(Some(Counters::Auto)),
        sampling_rate: settings.sampling_rate,
        take_over: Some(settings.take_over),
        pus: settings.pus.map(|pus| pus.to_string()),
        weight: Some(settings.weight).filter(|weights| !weights.is_empty()),
        ways: Some(settings.ways).filter(|ways| !ways.is_empty()),
        pin: Some(settings.pin).filter(|pins| !pins.is_empty()),
        policies: [(settings.policy, toml::Value::Table(policy))]
            .into_iter()
            .collect(),
    };
    let path = path.map(|path| path.display().to_string());
    let from_file = || format!("from {}", path.as_deref().unwrap_or("the file"));
    let text = annotated(&toml::to_string(&file)?, |table, key| match table {
        true => match given.policies.get(&name).and_then(|own| own.get(key)) {
            Some(_) => from_file(),
            None => format!("default of policy {name}"),
        },
        false => match source(key, &place, &given) {
            Source::Environment(variable) => format!("from {variable}"),
            Source::File => from_file(),
            Source::Default if key == "period" => format!("default of policy {name}"),
            Source::Default if key == "policy" && name == CALIBRATED_POLICY => {
                "default on a machine that was calibrated".to_owned()
            }
            Source::Default => "default".to_owned(),
        },
    });
    Ok((text, in_force))
}

/// Where a setting's value comes from.
enum Source {
    Environment(&'static str),
    File,
    Default,
}

fn source(key: &str, environment: &PlaceArgs, file: &ConfigFile) -> Source {
    let (variable, is_set, is_in_file) = match key {
        "policy" => (
            "PERCH_POLICY",
            environment.policy.is_some(),
            file.policy.is_some(),
        ),
        "period" => (
            "PERCH_PERIOD",
            environment.tuning.period.is_some(),
            file.period.is_some(),
        ),
        "interval" => (
            "PERCH_INTERVAL",
            environment.tuning.interval.is_some(),
            file.interval.is_some(),
        ),
        "profile" => (
            "PERCH_PROFILE",
            environment.tuning.profile.is_some(),
            file.profile.is_some(),
        ),
        "counters" => (
            "PERCH_COUNTERS",
            environment.tuning.counters.is_some(),
            file.counters.is_some(),
        ),
        "sampling-rate" => (
            "PERCH_SAMPLING_RATE",
            environment.tuning.sampling_rate.is_some(),
            file.sampling_rate.is_some(),
        ),
        "take-over" => (
            "PERCH_TAKE_OVER",
            environment.tuning.take_over,
            file.take_over.is_some(),
        ),
        "pus" => (
            "PERCH_PUS",
            environment.tuning.pus.is_some(),
            file.pus.is_some(),
        ),
        // Those that no variable sets.
        _ => ("", false, true),
    };
    match (is_set, is_in_file) {
        (true, _) => Source::Environment(variable),
        (false, true) => Source::File,
        (false, false) => Source::Default,
    }
}

/// The column of comments behind values.
const COMMENTS: usize = 32;

/// The settings with a comment behind each that says where its value comes from; `source` is asked with whether the key
/// is in a table of a policy, and the key.
fn annotated(settings: &str, source: impl Fn(bool, &str) -> String) -> String {
    let mut in_table = false;
    let mut text = String::new();
    for line in settings.lines() {
        in_table |= line.starts_with('[');
        // Not the inside of a string of several lines.
        let is_whole = line.parse::<toml::Table>().is_ok();
        text += &match line.split_once(" = ").filter(|_| is_whole) {
            Some((key, _)) => format!("{line:<COMMENTS$} # {}\n", source(in_table, key)),
            None => format!("{line}\n"),
        };
    }
    let same = |text: &str| text.parse::<toml::Table>().ok();
    match same(&text) == same(settings) {
        true => text,
        false => settings.to_owned(),
    }
}
