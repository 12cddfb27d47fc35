//! `perch config`: the settings in force, their defaults, their schema.

use crate::{
    args::{ConfigArgs, Counters, PlaceArgs, TuningArgs},
    config::{CALIBRATED_POLICY, ConfigFile, DEFAULT_POLICY},
};
use anyhow::{Context, Result};
use clap::Parser;
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
        super::print(&in_force(args)?)?;
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
    let mut text =
        String::from("# perch's settings and their defaults. A line without '#' is in force.\n");
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

/// What a `perch run` without flags would use.
fn in_force(args: &ConfigArgs) -> Result<String> {
    let place = match Environment::try_parse_from(["perch config"]) {
        Ok(environment) => PlaceArgs {
            tuning: TuningArgs {
                config: args.config.clone(),
                ..environment.place.tuning
            },
            ..environment.place
        },
        Err(error) => error.exit(),
    };
    let (settings, _) = super::place::settings(&place)?;
    let mut policy = registry::default_config(&settings.policy)?;
    policy.extend(settings.policy_config.clone());
    // The policy `fixed` cannot be built without rules; its period is then not known either.
    let own = || settings.build().ok().map(|policy| policy.period());
    let period = settings.period.or_else(own);
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
        pin: Some(settings.pin).filter(|pins| !pins.is_empty()),
        policies: [(settings.policy, toml::Value::Table(policy))]
            .into_iter()
            .collect(),
    };
    Ok(toml::to_string(&file)?)
}
