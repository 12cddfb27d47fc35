//! What a simulated machine is made of: plain data, read from `machines/*.toml`.

mod core;
mod energy;
mod os;
mod pace;
mod wiring;

pub use self::core::{
    CoreKind, KindTlb, Latency, Multithreading, Op, OperatingPoint, Partition, QUEUES, Queue,
    QueueSharing, UnitPool, Until,
};
pub(crate) use self::energy::LEVELS;
pub use self::energy::{EnergyModel, KindEnergy};
pub use self::pace::Pace;
pub(crate) use self::wiring::{PuUses, Wired, wiring};
pub(crate) use self::{
    core::{Parts, cycle_of},
    pace::STOP,
};
pub use os::{CostModel, IrqModel, OsModel};

use crate::units::{NANOSECOND, Ps};
use serde::{Deserialize, Serialize};

/// The scheduler of the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchedulerKind {
    /// The fair class of Linux 2.6.23 to 6.5: who has had least comes next.
    #[default]
    Cfs,
    /// That of Linux since 6.6: of those who have had no more than their share, the one with the earliest deadline.
    Eevdf,
    /// The O(1) scheduler, that of Linux 2.6.11: the thread with the highest dynamic priority comes next.
    #[serde(rename = "linux-2.6.11")]
    Linux2611,
    /// That of Linux 2.4: one queue for all PUs.
    #[serde(rename = "linux-2.4")]
    Linux24,
}

impl SchedulerKind {
    /// All, by name.
    pub const ALL: [(&str, Self); 4] = [
        ("cfs", Self::Cfs),
        ("eevdf", Self::Eevdf),
        ("linux-2.6.11", Self::Linux2611),
        ("linux-2.4", Self::Linux24),
    ];

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// One core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreAt {
    /// Its kind, an index of [`MachineModel::kinds`].
    pub kind: usize,
    /// Its package.
    pub package: u32,
    /// Its NUMA node, counted over the machine.
    pub numa_node: u32,
}

/// What a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holds {
    /// Instructions only.
    Instructions,
    /// Data only.
    Data,
    /// Both.
    Both,
}

/// What a prefetcher looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Nothing: it asks for the lines behind the one that was needed.
    NextLine,
    /// Nothing: it asks for the other line of an aligned pair of lines.
    AdjacentLine,
    /// Lines needed in rising or falling order.
    Stream,
    /// Lines needed at a constant distance.
    Stride,
}

/// A hardware prefetcher of a cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefetcher {
    /// What it looks for.
    pub pattern: Pattern,
    /// Pages in which it follows a stream or stride at a time.
    pub streams: u32,
    /// It begins with this many needed lines in a row that fit the pattern.
    pub after: u32,
    /// Lines (of a stride: steps) ahead of the one that was needed last.
    pub ahead: u32,
    /// The longest stride, in lines.
    pub longest: u32,
    /// Bytes of a page, which it does not leave.
    pub page: u64,
    /// It asks for no more while this many prefetched lines are on their way to the cache.
    pub under_way: u32,
    /// It asks for no more while this many lines wait for memory.
    pub backlog: u32,
}

/// A level of caches: all caches of one sort in the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheLevel {
    /// 1, 2 or 3.
    pub level: u8,
    /// What they hold.
    pub holds: Holds,
    /// Bytes of each.
    pub size: u64,
    /// Ways of each set.
    pub ways: u32,
    /// Bytes of a line; the same in all levels.
    pub line: u32,
    /// From the request at this level to the data, when it hits.
    pub latency: Ps,
    /// The contexts that share each cache: a list of PU numbers each. A PU that is in none goes to the next level.
    pub shared_by: Vec<Vec<u32>>,
    /// Each cache has prefetchers of its own, which learn from loads and stores.
    pub prefetchers: Vec<Prefetcher>,
    /// Whether lines come into it only when the caches before it evict them: a victim cache.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub victim: bool,
    /// Time to move one line between it and the caches before it, which share this port; 0 without limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub line_transfer: Ps,
    /// Whether stores go on to the next level at once, which alone is written to; and bytes of the buffer behind it, where
    /// stores to one line are merged: all such caches before a cache share one. `None`: it is written back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_through: Option<u64>,
}

fn is_zero(time: &Ps) -> bool {
    *time == 0
}

fn is_unlimited(bandwidth: &f64) -> bool {
    *bandwidth == 0.0
}

/// Address translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlbModel {
    /// Pages that it holds.
    pub entries: u32,
    /// Ways of each set.
    pub ways: u32,
    /// Bytes of a page.
    pub page: u64,
    /// What a miss costs.
    pub miss: Ps,
    /// Whether each context has its own, rather than all of a core sharing one.
    pub private: bool,
}

/// Memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryModel {
    /// From the request that leaves the caches to the data, in the own NUMA node without a queue.
    pub latency: Ps,
    /// Bytes a second that one NUMA node's memory delivers: requests beyond queue.
    pub bandwidth: f64,
    /// Bytes a second that the link from each node to each other one moves: lines beyond queue. 0 without limit.
    #[serde(default, skip_serializing_if = "is_unlimited")]
    pub link_bandwidth: f64,
    /// By how much the latency is multiplied, by the requesting core's node and the memory's node.
    pub distance: Vec<Vec<f64>>,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineModel {
    /// Its name: the file's.
    pub name: String,
    /// What it is, in a sentence.
    pub about: String,
    /// Where the numbers come from.
    pub sources: Vec<String>,
    /// How many nanoseconds of the operating system correspond to one nanosecond of the machine: 1 at real clocks;
    /// 1,000 if a second of periods and time slices is simulated in a millisecond.
    pub scale: f64,
    /// How its operating system shares PUs.
    #[serde(default, skip_serializing_if = "SchedulerKind::is_default")]
    pub scheduler: SchedulerKind,
    /// What its operating system does besides.
    #[serde(default, skip_serializing_if = "OsModel::is_default")]
    pub os: OsModel,
    /// The kinds of cores.
    pub kinds: Vec<CoreKind>,
    /// The cores, in the order of their PUs: PU numbers rise core by core, context by context.
    pub cores: Vec<CoreAt>,
    /// The caches, by rising level.
    pub caches: Vec<CacheLevel>,
    /// Address translation, if it is modelled.
    pub tlb: Option<TlbModel>,
    /// Memory.
    pub memory: MemoryModel,
    /// What its parts take of energy, if that is modelled.
    pub energy: Option<EnergyModel>,
}

/// Binary digits after the point of an exact scale: a double of 1 or more has no more.
const POINT: u32 = f64::MANTISSA_DIGITS - 1;

impl MachineModel {
    /// The length of a cycle of the first core, at its first operating point; 1 ps without cores.
    pub fn first_cycle(&self) -> Ps {
        let core = self.cores.first();
        core.map_or(1, |core| self.kind(core).cycle)
    }

    /// The same machine with clocks that are not scaled down: its threads share PUs in time slices of the length that
    /// they have in the operating system.
    #[must_use]
    pub fn at_real_clocks(&self) -> Self {
        Self {
            scale: 1.0,
            ..self.clone()
        }
    }

    /// Nanoseconds of the operating system as time of the machine, to the nearest picosecond.
    ///
    /// Exact: floating point would round times of days, and some would come back as another nanosecond.
    pub fn machine_time(&self, ns: u64) -> Ps {
        let scale = self.exact_scale();
        let scaled = (u128::from(ns) * u128::from(NANOSECOND)) << POINT;
        Ps::try_from((scaled + scale / 2) / scale).unwrap_or(Ps::MAX)
    }

    /// Time of the machine as the operating system's, to the nearest nanosecond. Exact as well.
    pub fn os_time(&self, ps: Ps) -> u64 {
        let half = u128::from(NANOSECOND / 2) << POINT;
        let scaled = u128::from(ps).saturating_mul(self.exact_scale());
        u64::try_from((scaled.saturating_add(half) >> POINT) / u128::from(NANOSECOND))
            .unwrap_or(u64::MAX)
    }

    /// The scale as a fixed-point number: it is at least 1, so none of its binary digits is lost.
    fn exact_scale(&self) -> u128 {
        (self.scale * (1u64 << POINT) as f64) as u128
    }

    /// How many PUs there are.
    pub fn pus(&self) -> usize {
        self.cores
            .iter()
            .map(|core| self.kind(core).contexts as usize)
            .sum()
    }

    /// The same machine with its cores at these operating points: more kinds, if cores of one kind are at different ones.
    #[must_use]
    pub fn at_points(&self, points: &[OperatingPoint]) -> Self {
        let mut kinds: Vec<(usize, OperatingPoint)> = Vec::new();
        let mut machine = self.clone();
        machine.kinds.clear();
        for (core, point) in machine.cores.iter_mut().zip(points) {
            let this = (core.kind, *point);
            let known = kinds.iter().position(|kind| *kind == this);
            core.kind = known.unwrap_or_else(|| {
                machine.kinds.push(self.kinds[this.0].at(this.1));
                kinds.push(this);
                kinds.len() - 1
            });
        }
        if let (Some(energy), Some(before)) = (&mut machine.energy, &self.energy) {
            let kinds = kinds.iter().map(|(kind, _)| before.kinds[*kind].clone());
            energy.kinds = kinds.collect();
        }
        machine
    }

    /// The operating points at which its cores begin.
    pub fn first_points(&self) -> Vec<OperatingPoint> {
        let cores = self.cores.iter();
        cores.map(|core| self.kind(core).first_point()).collect()
    }

    /// The TLB of a core, or of each of its contexts.
    pub fn tlb_of(&self, core: &CoreAt) -> Option<TlbModel> {
        let tlb = self.tlb?;
        Some(match self.kind(core).tlb {
            None => tlb,
            Some(KindTlb {
                entries,
                ways,
                miss,
            }) => TlbModel {
                entries,
                ways,
                miss,
                ..tlb
            },
        })
    }

    /// The kind of a core.
    pub fn kind(&self, core: &CoreAt) -> &CoreKind {
        &self.kinds[core.kind]
    }

    /// The core and the context in it of every PU.
    pub fn places(&self) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        for (number, core) in self.cores.iter().enumerate() {
            places.extend((0..self.kind(core).contexts as usize).map(|context| (number, context)));
        }
        places
    }
}
