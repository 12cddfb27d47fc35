//! The simulated kernels and the load metrics, as `crates/lab/kernels.toml` has them, made for a machine.

use perch_core::Topology;
use perch_policy::Share;
use perch_sim::{
    model::Op,
    workload::{Mix, Pattern, WorkingSet},
};
use serde::Deserialize;
use std::collections::BTreeMap;

const FILE: &str = include_str!("../../kernels.toml");

/// Bytes of a line, in perch's view of all machines.
const LINE: u64 = 64;

/// A step from page to page: larger than the pages of the machines, and not a multiple of a line's power of two, so that
/// the lines lie in all sets of the caches.
const PAGE: u64 = 64 * 1024 + LINE;

/// Bytes of code: small enough for any first level.
const CODE: u64 = 2048;

/// Caches of a machine that says nothing of them.
const L1: u64 = 32 * 1024;
const L2: u64 = 512 * 1024;

/// A load metric that is calibrated if it is measured.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadMetric {
    /// What it is the load of; of the metrics of one resource the first that was measured is taken.
    pub resource: String,
    /// Its name, as profiles give it.
    pub name: String,
    /// Which PUs share the resource.
    pub share: Share,
}

/// What a plan and its evaluation must know of a kernel, on the host or in the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it stands for one resource and fills cores and caches in groups.
    pub pure: bool,
    /// Whether only PUs of one core can slow it down.
    pub core: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    kernel: Vec<Entry>,
    transfer: Entry,
    metric: Vec<LoadMetric>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    about: String,
    #[serde(default)]
    pure: bool,
    #[serde(default)]
    core: bool,
    needs: Option<Needs>,
    shares: BTreeMap<String, f64>,
    depends: u16,
    #[serde(default)]
    mispredicted: f64,
    #[serde(default)]
    data: Vec<Data>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Needs {
    Llc,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    of: Of,
    times: f64,
    #[serde(default = "one")]
    share: f64,
    #[serde(default)]
    pattern: Pattern,
    #[serde(default)]
    stride: Stride,
}

fn one() -> f64 {
    1.0
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Of {
    L1,
    L2,
    Llc,
    Share,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Stride {
    Word,
    #[default]
    Line,
    Page,
}

/// A kernel for a simulated machine.
#[derive(Debug, Clone, PartialEq)]
pub struct SimKernel {
    /// What it does, in a line.
    pub about: String,
    /// See [`Kind::pure`].
    pub pure: bool,
    /// See [`Kind::core`].
    pub core: bool,
    /// Its instructions and data, with its name.
    pub mix: Mix,
}

impl SimKernel {
    /// What must be known of it beyond its mix.
    pub fn kind(&self) -> Kind<'_> {
        Kind {
            name: &self.mix.name,
            pure: self.pure,
            core: self.core,
        }
    }
}

/// The sizes of caches as a topology shows them, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The smallest first level.
    pub l1: u64,
    /// The smallest second level.
    pub l2: u64,
    /// The smallest last level; the second if there is none beyond.
    pub llc: u64,
    /// The last level / the cores that share it.
    pub share: u64,
    /// Whether the last level is beyond the second.
    pub beyond: bool,
}

impl Sizes {
    /// Those of a machine; usual ones where it does not tell.
    pub fn of(topology: &Topology) -> Self {
        let last = topology.llc_level().unwrap_or(0);
        let l1 = topology.cache_size(1).unwrap_or(L1);
        let l2 = topology.cache_size(2).unwrap_or(L2);
        let llc = topology.cache_size(last).filter(|_| last > 2);
        let smallest = topology
            .caches
            .iter()
            .filter(|cache| cache.level == last && Some(cache.size) == topology.cache_size(last))
            .min_by_key(|cache| cache.pus.len());
        let cores = smallest.map_or(1, |cache| {
            let cores = topology.cores.iter();
            cores
                .filter(|core| !core.pus.is_disjoint(&cache.pus))
                .count() as u64
        });
        let llc_or_l2 = llc.unwrap_or(l2);
        Self {
            l1,
            l2,
            llc: llc_or_l2,
            share: llc_or_l2 / cores.max(1),
            beyond: llc.is_some(),
        }
    }

    fn bytes(&self, of: Of) -> u64 {
        match of {
            Of::L1 => self.l1,
            Of::L2 => self.l2,
            Of::Llc => self.llc,
            Of::Share => self.share,
        }
    }
}

fn file() -> File {
    toml::from_str(FILE).unwrap_or_else(|error| panic!("crates/lab/kernels.toml: {error}"))
}

/// The load metrics, those of one resource together and the best first.
///
/// # Panics
/// Never with the file of this source tree: a test reads it.
pub fn load_metrics() -> Vec<LoadMetric> {
    file().metric
}

/// What two threads do whose lines go from one to the other, each on data of its own so far.
///
/// # Panics
/// Never with the file of this source tree: a test reads it.
pub fn transfer(topology: &Topology) -> Mix {
    kernel(file().transfer, &Sizes::of(topology)).mix
}

/// The kernels for a machine of which only its topology is known.
///
/// # Panics
/// Never with the file of this source tree: a test reads it.
pub fn kernels(topology: &Topology) -> Vec<SimKernel> {
    let sizes = Sizes::of(topology);
    let there = |entry: &Entry| entry.needs.is_none() || sizes.beyond;
    let entries = file().kernel.into_iter().filter(there);
    entries.map(|entry| kernel(entry, &sizes)).collect()
}

fn kernel(entry: Entry, sizes: &Sizes) -> SimKernel {
    let mut shares = [0.0; Op::COUNT];
    for (name, share) in &entry.shares {
        let op = Op::NAMES.iter().position(|known| known == name);
        let op = op.unwrap_or_else(|| panic!("crates/lab/kernels.toml: no operation `{name}`"));
        shares[op] = *share;
    }
    SimKernel {
        about: entry.about,
        pure: entry.pure,
        core: entry.core,
        mix: Mix {
            name: entry.name,
            shares,
            depends: entry.depends.into(),
            mispredicted: entry.mispredicted,
            code_bytes: CODE,
            working_sets: entry.data.iter().map(|data| data.set(sizes)).collect(),
            ..Mix::default()
        },
    }
}

impl Data {
    fn set(&self, sizes: &Sizes) -> WorkingSet {
        let bytes = (sizes.bytes(self.of) as f64 * self.times) as u64;
        let lines = (bytes / LINE).max(1);
        let (bytes, stride) = match self.stride {
            Stride::Word => (lines * LINE, 8),
            Stride::Line => (lines * LINE, LINE),
            Stride::Page => (lines * PAGE, PAGE),
        };
        WorkingSet {
            bytes,
            share: self.share,
            pattern: self.pattern,
            stride,
            region: None,
        }
    }
}
