//! An experiment's file as it is written: what serde reads, before anything is checked against anything else.

use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Spanned, Value};

pub(super) type Text = Spanned<String>;

/// A whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub title: String,
    #[serde(default)]
    pub about: String,
    pub seeds: Option<Spanned<Vec<u64>>>,
    pub time: Time,
    pub fidelity: Option<Text>,
    #[serde(default)]
    pub warm: bool,
    pub set: Option<Changes>,
    pub variation: Option<Variation>,
    pub sweep: Option<Sweep>,
    #[serde(rename = "run")]
    pub runs: Vec<Run>,
    pub measure: BTreeMap<Text, Measure>,
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    #[serde(default, rename = "left-out", alias = "left_out")]
    pub left_out: Vec<LeftOut>,
    pub figure: Option<Figure>,
}

/// How long.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Time {
    #[serde(alias = "warm_up")]
    pub warm_up: Text,
    pub length: Text,
}

/// What is varied.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Sweep {
    #[serde(alias = "working_set")]
    pub working_set: Spanned<Vec<Text>>,
    pub mix: Option<Text>,
}

/// A configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    pub name: Text,
    pub machine: Text,
    pub workload: Text,
    pub policy: Option<Text>,
    pub options: Option<Spanned<toml::Table>>,
    pub period: Option<Text>,
    pub pus: Option<Spanned<Vec<u32>>>,
    pub cores: Option<Spanned<Vec<Vec<Text>>>>,
    pub random: Option<Spanned<usize>>,
    pub search: Option<Text>,
    pub most: Option<Spanned<usize>>,
    pub shuffled: Option<Spanned<bool>>,
    pub fidelity: Option<Text>,
    pub time: Option<Time>,
}

/// A number to be measured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measure {
    pub of: Text,
    pub run: Text,
    pub per: Option<Text>,
    #[serde(default)]
    pub at: Vec<Text>,
    pub thread: Option<Text>,
    pub package: Option<Spanned<u32>>,
    pub step: Option<Spanned<usize>>,
    pub reason: Option<Text>,
    pub take: Option<Text>,
}

/// A claim.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Claim {
    pub name: Text,
    pub published: Option<Text>,
    pub aim: Option<Spanned<Aim>>,
    pub place: Option<Text>,
    pub ours: Option<Text>,
    pub rising: Option<Spanned<Vec<Text>>>,
    pub unit: Option<String>,
    pub tolerance: Option<Spanned<f64>>,
    pub between: Option<Spanned<[f64; 2]>>,
    pub kind: Option<Text>,
    pub class: Option<Text>,
    pub null: Option<Spanned<f64>>,
}

/// What perch itself wants.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Aim {
    Number(f64),
    Words(String),
}

/// A picture.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figure {
    pub title: Option<String>,
    pub x: String,
    pub y: String,
    #[serde(default, rename = "bar")]
    pub bars: Vec<Bar>,
    pub of: Option<Text>,
    #[serde(default, rename = "line")]
    pub lines: Vec<Line>,
    #[serde(default, rename = "mark")]
    pub marks: Vec<Mark>,
}

/// A bar.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bar {
    pub group: String,
    pub series: String,
    pub value: Text,
    pub range: Option<[Text; 2]>,
    pub published: Option<Text>,
    pub times: Option<Text>,
    pub divides: Option<Text>,
}

/// A line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    pub series: String,
    pub run: Text,
}

/// A published value in a picture of lines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mark {
    pub at: Text,
    pub published: Text,
    pub times: Option<Text>,
    pub divides: Option<Text>,
}

/// `[[left-out]]`: some published values with one reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeftOut {
    pub published: Spanned<Vec<Text>>,
    pub why: Text,
}

/// Values by their place in a file: `memory.latency`, `caches.2.latency`, `mixes.*.depends`; the star stands for each.
pub(super) type Places = BTreeMap<Text, Value>;

/// What is put in place of what files say.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Changes {
    #[serde(default)]
    pub machine: Places,
    #[serde(default)]
    pub workload: Places,
}

/// `[variation]`: parameters for which there is no source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variation {
    pub seeds: Option<Spanned<Vec<u64>>>,
    pub draws: Option<Spanned<usize>>,
    pub parameter: Vec<Parameter>,
}

/// A parameter with the ends of its range.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameter {
    pub name: Text,
    /// Where the range is from. For the reader.
    #[serde(rename = "source")]
    _source: String,
    pub values: Vec<Choice>,
}

/// One of its values.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Choice {
    pub name: Text,
    #[serde(default)]
    pub machine: Places,
    #[serde(default)]
    pub workload: Places,
}
