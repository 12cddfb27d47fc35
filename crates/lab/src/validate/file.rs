//! What others measured on a real processor: `measurements/*.toml`.

use include_dir::{Dir, include_dir};
use perch_sim::model::Op;
use serde::{Deserialize, Serialize};

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../measurements");

/// A least and a largest value: several machines or tools say different things.
pub type Range = [f64; 2];

/// All that was measured on processors like one of the shipped machines.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurements {
    /// Where the values are from.
    #[serde(rename = "source")]
    pub sources: Vec<Source>,
    /// Times of loads.
    #[serde(rename = "latency", default)]
    pub latencies: Vec<Latency>,
    /// Times of instructions.
    #[serde(rename = "instruction", default)]
    pub instructions: Vec<Instruction>,
    /// Bandwidths.
    #[serde(rename = "bandwidth", default)]
    pub bandwidths: Vec<Bandwidth>,
    /// What the other contexts of a core add.
    #[serde(rename = "gain", default)]
    pub gains: Vec<Gain>,
}

/// Where values are from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// What values call it.
    pub key: String,
    /// Authors, title, year, place, and the processor.
    pub text: String,
}

/// In which order a chain of loads goes through memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Walk {
    /// All lines of a page, in an order that prefetchers do not know; then the next page. A TLB entry serves all of them.
    Lines,
    /// In order, this many bytes from each load to the next: prefetchers may follow.
    Steps(u64),
    /// Page after page: each load needs another TLB entry.
    Pages,
    /// At random.
    Random,
}

/// The unit of a time. Caches of a core keep their cycles at another clock, memory keeps its nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Cycles of the core.
    Cycles,
    /// Nanoseconds.
    Ns,
}

/// What a load costs if each needs the one before.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Latency {
    /// What is measured, in words.
    pub of: String,
    /// How much data, in bytes.
    pub bytes: u64,
    /// In which order.
    pub walk: Walk,
    /// Whether a number of the machine's file was read off this value, so that it is no prediction.
    #[serde(default)]
    pub read_off: bool,
    /// How long it takes.
    pub time: Range,
    /// In which unit.
    pub unit: Unit,
    /// The key of its source.
    pub source: String,
}

/// What an instruction costs, in cycles.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instruction {
    /// Which.
    pub op: Op,
    /// From one to the next if each needs the one before.
    pub latency: Option<Range>,
    /// From one to the next if none needs another.
    pub every: Option<Range>,
    /// The key of its source.
    pub source: String,
}

/// How many threads there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Threads {
    /// One.
    One,
    /// One on each context of a core.
    Core,
    /// One on each PU.
    All,
}

/// How many bytes a second threads read in order.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bandwidth {
    /// What is measured, in words.
    pub of: String,
    /// How many threads.
    pub threads: Threads,
    /// How much data each has, in bytes.
    pub bytes: u64,
    /// Gigabytes (10^9) a second, of all threads.
    pub gb_per_second: Range,
    /// The key of its source.
    pub source: String,
}

/// What a thread on each context of a core does / what one alone does, all reading in order.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gain {
    /// What is measured, in words.
    pub of: String,
    /// How much data each thread reads, in bytes.
    pub read: u64,
    /// The gain; 1 is none.
    pub gain: Range,
    /// The key of its source.
    pub source: String,
}

impl Measurements {
    /// The machines of which there are any, by name.
    pub fn machines() -> Vec<&'static str> {
        let names = FILES
            .files()
            .filter_map(|file| file.path().file_stem()?.to_str());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names
    }

    /// What was measured on processors like a shipped machine; nothing if there is no file of that name.
    ///
    /// # Panics
    /// Never with the files of this source tree: a test reads them all.
    pub fn of(machine: &str) -> Option<Self> {
        let name = format!("{machine}.toml");
        let text = FILES.get_file(&name)?.contents_utf8()?;
        Some(toml::from_str(text).unwrap_or_else(|why| panic!("measurements/{name}: {why}")))
    }
}
