//! A profile's file as it is written: what serde reads, before anything is checked against anything else.

use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// A whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub name: Spanned<String>,
    pub title: Spanned<String>,
    #[serde(default)]
    pub notes: Vec<String>,
    #[serde(default, rename = "match")]
    pub rules: Vec<Spanned<Rule>>,
    #[serde(default, rename = "kind")]
    pub kinds: Vec<Kind>,
    #[serde(default, rename = "unit")]
    pub units: Vec<Unit>,
    #[serde(default, rename = "event")]
    pub events: Vec<Event>,
    #[serde(default, rename = "set")]
    pub sets: Vec<Set>,
    #[serde(default, rename = "constant")]
    pub constants: BTreeMap<Spanned<String>, Constant>,
    #[serde(default, rename = "metric")]
    pub metrics: Vec<Metric>,
    #[serde(default)]
    #[serde(alias = "fp-threshold")]
    pub fp_threshold: FpThreshold,
    pub limits: Limits,
}

/// Which processors the file is for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    pub vendor: Option<String>,
    pub family: Option<u32>,
    pub models: Option<Vec<Spanned<String>>>,
    pub implementer: Option<u32>,
    pub parts: Option<Vec<u32>>,
    pub pvr: Option<Vec<u32>>,
    pub cpu: Option<Vec<String>>,
    #[serde(default)]
    pub any: bool,
}

/// A kind of core.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kind {
    pub pmu: Spanned<String>,
    pub title: String,
}

/// Execution units.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unit {
    pub class: Spanned<String>,
    pub count: Spanned<u32>,
    pub share: Spanned<String>,
    pub kind: Option<Spanned<String>>,
    pub source: Spanned<String>,
}

/// An event.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Event {
    pub alias: Spanned<String>,
    pub spellings: Spanned<Vec<Spanned<String>>>,
    pub kind: Option<Spanned<String>>,
    #[serde(alias = "max-per-cycle")]
    pub max_per_cycle: Option<Spanned<f64>>,
    pub source: Spanned<String>,
}

/// Events that are counted together.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Set {
    pub name: Spanned<String>,
    pub events: Spanned<Vec<Spanned<String>>>,
    pub kind: Option<Spanned<String>>,
    #[serde(default)]
    #[serde(alias = "on-demand")]
    pub on_demand: bool,
}

/// A number with a name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Constant {
    pub value: f64,
    pub source: Spanned<String>,
}

/// A metric.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Metric {
    pub name: Spanned<String>,
    pub formula: Spanned<String>,
    pub unit: String,
    #[serde(default)]
    pub scope: Option<Spanned<String>>,
    pub kind: Option<Spanned<String>>,
    pub range: Option<Spanned<[f64; 2]>>,
    #[serde(default)]
    pub total: bool,
    pub description: String,
    pub source: Spanned<String>,
}

/// From which FP share on a thread counts as floating-point heavy.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FpThreshold {
    pub counters: Option<Spanned<f64>>,
    pub sampling: Option<Spanned<f64>>,
    pub source: Option<Spanned<String>>,
}

/// What no count can be.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    #[serde(alias = "cycles-per-second")]
    pub cycles_per_second: Spanned<[f64; 2]>,
    #[serde(alias = "min-instructions-per-second")]
    pub min_instructions_per_second: Spanned<f64>,
    #[serde(alias = "max-instructions-per-cycle")]
    pub max_instructions_per_cycle: Spanned<f64>,
    #[serde(alias = "judge-after-ms")]
    pub judge_after_ms: Spanned<u32>,
    pub source: Spanned<String>,
}
