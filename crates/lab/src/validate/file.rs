//! What others measured on a real processor: `measurements/*.toml`.

use super::kernel::Kernel;
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
    /// A machine with the same cores: what was measured of it in cycles holds here too.
    pub like: Option<String>,
    /// Where the values are from.
    #[serde(rename = "source", default)]
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
    /// The loops that the following are about.
    #[serde(rename = "kernel", default)]
    pub kernels: Vec<Kernel>,
    /// How fast they are alone.
    #[serde(rename = "alone", default)]
    pub alone: Vec<Alone>,
    /// What two of them come to on one core.
    #[serde(rename = "pair", default)]
    pub pairs: Vec<Pair>,
}

/// Where values are from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The kind of core on which it was measured; that of the first core if nothing is said.
    pub on: Option<String>,
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
    /// The kind of core on which it was measured; that of the first core if nothing is said.
    pub on: Option<String>,
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

/// How many bytes a second threads read in order, or read and write.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bandwidth {
    /// What is measured, in words.
    pub of: String,
    /// How many threads.
    pub threads: Threads,
    /// How much data each has, in bytes.
    pub bytes: u64,
    /// The loop that they execute; they read words in order if none is named.
    pub kernel: Option<String>,
    /// Gigabytes (10^9) a second, of all threads. What is read counts, and what is written, as STREAM has it.
    pub gb_per_second: Range,
    /// The kind of core on which it was measured; that of the first core if nothing is said.
    pub on: Option<String>,
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

/// How fast a loop is while nothing else is on the machine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alone {
    /// Which.
    pub kernel: String,
    /// What it goes through, in words.
    pub of: Option<String>,
    /// How much data it has, in bytes.
    pub bytes: u64,
    /// Cycles that each of its elements takes.
    pub cycles: Range,
    /// The kind of core on which it was measured; that of the first core if nothing is said.
    pub on: Option<String>,
    /// The key of its source.
    pub source: String,
}

/// What two loops on one core do together: the sum of their speeds, each as a part of its speed alone.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// Which.
    pub kernels: [String; 2],
    /// What they go through, in words.
    pub of: Option<String>,
    /// How much data each has, in bytes; what its mix says if it is one of a workload.
    pub bytes: Option<u64>,
    /// The sum; 1 is no gain.
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
        let mut own: Self =
            toml::from_str(text).unwrap_or_else(|why| panic!("measurements/{name}: {why}"));
        if let Some(like) = own.like.take() {
            let other = Self::of(&like).unwrap_or_else(|| panic!("measurements/{name}: {like}?"));
            own.take_cycles_of(other);
        }
        Some(own)
    }

    /// Adds what was measured in cycles on the same cores.
    fn take_cycles_of(&mut self, other: Self) {
        let in_cycles = |one: &Latency| one.unit == Unit::Cycles;
        self.latencies
            .extend(other.latencies.into_iter().filter(in_cycles));
        self.instructions.extend(other.instructions);
        self.kernels.extend(other.kernels);
        self.alone.extend(other.alone);
        let sources = other.sources.into_iter();
        let wanted: Vec<_> = sources.filter(|source| self.needs(source)).collect();
        self.sources.extend(wanted);
    }

    /// Whether a value is from this source, which is not listed yet.
    fn needs(&self, source: &Source) -> bool {
        let key = &source.key;
        let listed = self.sources.iter().any(|other| other.key == *key);
        !listed
            && (self.latencies.iter().any(|one| one.source == *key)
                || self.instructions.iter().any(|one| one.source == *key)
                || self.alone.iter().any(|one| one.source == *key))
    }
}
