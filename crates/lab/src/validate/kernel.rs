//! Loops whose speed others published, as mixes of instructions.

use crate::published::EXPERIMENTS;
use perch_sim::{
    config,
    model::Op,
    workload::{Depends, Mix, Pattern, WorkingSet},
};
use serde::Deserialize;
use std::{collections::BTreeMap, path::Path};

/// A loop.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// What it executes each time round.
    #[serde(default)]
    pub ops: BTreeMap<Op, f64>,
    /// How many elements it handles each time round: that of which the source gives the cycles.
    #[serde(default = "one")]
    pub elements: f64,
    /// Bytes that a load or store moves.
    #[serde(default = "word")]
    pub width: u64,
    /// Its data, each part read or written in order.
    #[serde(default)]
    pub streams: Vec<Stream>,
    /// How many instructions back the result stands that each one needs; none if 0.
    #[serde(default)]
    pub depends: u16,
    /// A mix of an experiment's workload instead: its path below `experiments/` and the mix, with a colon between.
    pub mix: Option<String>,
}

/// A part of a loop's data.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// How many of the accesses go there, relative to the other parts.
    #[serde(default = "one")]
    pub share: f64,
    /// Bytes from one access to the next. An element that is read and written is accessed twice.
    pub step: u64,
}

fn one() -> f64 {
    1.0
}

fn word() -> u64 {
    8
}

impl Kernel {
    /// Its instructions, with this much data.
    ///
    /// # Errors
    /// In words: no such mix.
    pub fn mix(&self, bytes: Option<u64>) -> Result<Mix, String> {
        if let Some(name) = &self.mix {
            return published(name);
        }
        let mut shares = [0.0; Op::COUNT];
        for (op, count) in &self.ops {
            shares[*op as usize] = *count;
        }
        let parts = self.streams.len().max(1) as u64;
        let set = |stream: &Stream| WorkingSet {
            bytes: bytes.unwrap_or_default() / parts,
            share: stream.share,
            pattern: Pattern::Stride,
            stride: stream.step,
            region: None,
        };
        Ok(Mix {
            name: self.name.clone(),
            shares,
            depends: Depends::Always(self.depends),
            code_bytes: 256,
            working_sets: self.streams.iter().map(set).collect(),
            ..Mix::default()
        })
    }

    /// Instructions of an element.
    pub fn instructions(&self) -> f64 {
        self.ops.values().sum::<f64>() / self.elements
    }

    /// Bytes that an instruction reads or writes, in the mean.
    pub fn bytes_each(&self) -> f64 {
        let accesses = [Op::Load, Op::Store].map(|op| self.ops.get(&op).copied().unwrap_or(0.0));
        self.width as f64 * accesses.iter().sum::<f64>() / self.ops.values().sum::<f64>()
    }
}

/// A mix of a published experiment's workload.
fn published(name: &str) -> Result<Mix, String> {
    let (file, mix) = name.split_once(':').ok_or("no colon")?;
    let text = EXPERIMENTS
        .get_file(file)
        .and_then(|file| file.contents_utf8());
    let text = text.ok_or_else(|| format!("no experiments/{file}"))?;
    let path = Path::new("experiments").join(file);
    let workload = config::workload_from_text(text, &path).map_err(|error| error.to_string())?;
    let found = workload.mixes.into_iter().find(|one| one.name == mix);
    found.ok_or_else(|| format!("no mix `{mix}` in experiments/{file}"))
}
