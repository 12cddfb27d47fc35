//! The numbers of the report at a session's end: plain data, as docs/recording.md describes it. How they look in a
//! terminal is the command's business.

mod accumulator;
mod collect;
mod given;
mod rows;
mod system;
mod timeline;

pub use collect::{Collector, name_pattern};
pub use system::LeftThread;

use crate::{observer::Cause, restore::RestoreReport};
use perch_core::{
    CacheWays, MetricName, MetricSource, Outcome, PuSet, Reason, Remark, Setting, SettingValue,
    ThreadId, Unmanaged, Weight,
};
use serde::{Deserialize, Serialize};

/// The format's version.
pub const VERSION: u32 = 1;

/// The whole report. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// The command that was run, or the processes that were attached, as given.
    pub command: Vec<String>,
    /// The policy's name.
    pub policy: String,
    /// The profile's name.
    pub profile: String,
    /// How threads were characterised.
    pub counting: String,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Where the machine's topology is from.
    pub machine: String,
    /// The what-if topology on which threads were placed, if there was one.
    #[serde(default, rename = "paper", skip_serializing_if = "Option::is_none")]
    pub what_if: Option<String>,
    /// The period asked for.
    pub period: u64,
    /// Periods that were observed.
    pub periods: u64,
    /// From the first period's begin to the last one's end.
    pub duration: u64,
    /// At or above this FP share a thread counts as floating-point heavy.
    pub fp_threshold: f64,
    /// How far the FP shares can be trusted.
    pub trust: Trust,
    /// CPU time of threads and processes that came and went within a period, and of threads' last moments: known from
    /// the kernel's accounts of processes only.
    #[serde(default)]
    pub unmeasured: u64,
    /// Energy of the processor packages, whatever ran on them, by number; empty where it was not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub energy: Vec<PackageEnergy>,
    /// Threads, by falling CPU time. Of threads that have ended only the busiest are here.
    pub threads: Vec<ThreadReport>,
    /// The other threads that have ended, by name, by falling CPU time.
    pub groups: Vec<GroupReport>,
    /// Threads in all: those listed here one by one, those grouped by name, and the unseen.
    pub threads_seen: u64,
    /// Threads that came and went unseen within a period.
    pub unseen: u64,
    /// Threads that were alive at once, at most.
    pub most_threads: usize,
    /// Who was where.
    pub placements: Placements,
    /// What was changed.
    pub moves: Moves,
    /// Threads that were left alone, by reason.
    #[serde(rename = "hands_off")]
    pub unmanaged: Vec<(Unmanaged, u64)>,
    /// The operating system's work; `None` if the policy does not place that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<SystemReport>,
    /// perch's own cost.
    pub own: OwnCost,
    /// The remarks that were printed, in order.
    pub remarks: Vec<Remark>,
    /// Why it ended; `None` if it has not.
    pub cause: Option<Cause>,
    /// What came of giving masks back.
    pub restored: RestoreReport,
}

/// What became of the operating system's work: of all threads that belong to no program which was given to perch, and of
/// the interrupts. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemReport {
    /// The PUs to which its threads were bound.
    pub pus: PuSet,
    /// Threads in all.
    pub threads: u64,
    /// Of these, bound.
    pub bound: u64,
    /// The names of those that were bound and alive at the end, with numbers in them as `#`, and how many had each.
    pub names: Vec<(String, u64)>,
    /// Threads that were not moved, by reason; `None` for those that the kernel lets nobody move.
    pub left_by_reason: Vec<(Option<Unmanaged>, u64)>,
    /// The busiest of them that were alive at the end.
    pub left: Vec<LeftThread>,
    /// CPU time of its threads on these PUs.
    pub cpu_time_there: u64,
    /// CPU time of its threads on other PUs.
    pub cpu_time_elsewhere: u64,
    /// Interrupts that were bound, by number.
    pub irqs: Vec<u32>,
    /// Interrupts whose masks could not be changed.
    pub irqs_failed: Vec<u32>,
    /// Settings of the machine that were changed, with their values.
    pub settings: Vec<(Setting, SettingValue)>,
}

/// What a package used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PackageEnergy {
    /// The package's number.
    pub package: u32,
    /// In joules.
    pub energy: f64,
    /// The time in which that was measured, in nanoseconds: less than the report's if its counter could not be read at times.
    pub time: u64,
}

/// How far the FP shares can be trusted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trust {
    /// Share of all CPU time, 0 to 1, that was not measured thread by thread: only its amount is known.
    #[serde(default)]
    pub unmeasured: f64,
    /// Share of all CPU time for which an FP share is known, 0 to 1.
    pub known: f64,
    /// Its mean confidence over that time, 0 to 1.
    pub confidence: f64,
    /// Where it came from, with the share of the known time, the largest first.
    pub sources: Vec<(MetricSource, f64)>,
}

/// What a thread mostly was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Its FP share was at or above the threshold.
    FloatingPoint,
    /// Its FP share was below.
    Integer,
    /// Its FP share is not known.
    #[default]
    Unknown,
}

/// What threads did, one or several.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadStats {
    /// Time that it lived within the session (of several: the sum).
    pub lifetime: u64,
    /// Time on a PU.
    pub cpu_time: u64,
    /// Time runnable but waiting for a PU.
    pub wait_time: u64,
    /// Context switches; `None` where not read.
    pub switches: Option<u64>,
    /// Moves from one PU to another; `None` where not read.
    pub migrations: Option<u64>,
    /// CPU time while floating-point heavy.
    pub fp_time: u64,
    /// CPU time while not.
    pub integer_time: u64,
    /// CPU time while bound by perch.
    pub bound_time: u64,
    /// Changes of its placement that were asked for.
    pub moves: u64,
    /// Mean FP share (0 to 1) over the CPU time while floating-point heavy; `None` without such time, or in reports of
    /// older versions.
    #[serde(default)]
    pub fp_share_heavy: Option<f64>,
    /// The same while not floating-point heavy.
    #[serde(default)]
    pub fp_share_light: Option<f64>,
    /// Means over its CPU time, and sums of amounts (cycles, instructions, samples).
    pub metrics: Vec<MetricReport>,
}

impl ThreadStats {
    /// What it mostly was, by CPU time.
    pub fn role(&self) -> Role {
        match (self.fp_time, self.integer_time) {
            (0, 0) => Role::Unknown,
            (fp, integer) if fp >= integer => Role::FloatingPoint,
            _ => Role::Integer,
        }
    }

    /// CPU time / lifetime.
    pub fn activity(&self) -> f64 {
        self.cpu_time as f64 / self.lifetime.max(1) as f64
    }

    /// Adds other threads' statistics: times and counts are summed, means weighted by CPU time and confidence.
    pub fn merge(&mut self, other: &Self) {
        let mean = |a: Option<f64>, at: u64, b: Option<f64>, bt: u64| match (a, b) {
            (Some(a), Some(b)) => {
                Some((a * at as f64 + b * bt as f64) / at.saturating_add(bt).max(1) as f64)
            }
            (a, b) => a.or(b),
        };
        let heavy = mean(
            self.fp_share_heavy,
            self.fp_time,
            other.fp_share_heavy,
            other.fp_time,
        );
        let light = mean(
            self.fp_share_light,
            self.integer_time,
            other.fp_share_light,
            other.integer_time,
        );
        let (time, more) = (self.cpu_time as f64, other.cpu_time as f64);
        // Over the time of those that lack a metric its confidence is 0.
        for ours in &mut self.metrics {
            if other.metric(&ours.name).is_none() && time + more > 0.0 {
                ours.confidence *= time / (time + more);
            }
        }
        for theirs in &other.metrics {
            let Some(ours) = self.metrics.iter_mut().find(|of| of.name == theirs.name) else {
                let mut new = theirs.clone();
                if time + more > 0.0 {
                    new.confidence *= more / (time + more);
                }
                self.metrics.push(new);
                continue;
            };
            if accumulator::is_amount(&theirs.name) {
                ours.value += theirs.value;
                continue;
            }
            let weights = (time * ours.confidence, more * theirs.confidence);
            let both = weights.0 + weights.1;
            if both > 0.0 {
                ours.value = (ours.value * weights.0 + theirs.value * weights.1) / both;
                ours.confidence = both / (time + more);
            }
        }
        (self.fp_share_heavy, self.fp_share_light) = (heavy, light);
        // A report that is read back may hold any numbers.
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.lifetime, other.lifetime);
        add(&mut self.cpu_time, other.cpu_time);
        add(&mut self.wait_time, other.wait_time);
        accumulator::add_known(&mut self.switches, other.switches);
        accumulator::add_known(&mut self.migrations, other.migrations);
        add(&mut self.fp_time, other.fp_time);
        add(&mut self.integer_time, other.integer_time);
        add(&mut self.bound_time, other.bound_time);
        add(&mut self.moves, other.moves);
    }

    /// The metric of that name.
    pub fn metric(&self, name: &str) -> Option<&MetricReport> {
        self.metrics.iter().find(|metric| &*metric.name == name)
    }
}

/// A metric over a whole session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricReport {
    /// Its name.
    pub name: MetricName,
    /// The mean, weighted by CPU time and confidence; of an amount the sum.
    pub value: f64,
    /// The mean confidence.
    pub confidence: f64,
    /// Where it came from last.
    pub source: MetricSource,
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// The thread.
    pub thread: ThreadId,
    /// Its process.
    pub pid: i32,
    /// The name under which it had most of its CPU time.
    pub name: String,
    /// All its names in the order in which it had them, if it had several (up to eight).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Its process's name.
    pub process: String,
    /// When it was first seen.
    pub first: u64,
    /// When it was last seen.
    pub last: u64,
    /// Whether it had ended.
    pub ended: bool,
    /// Why it was left alone, if it was.
    #[serde(rename = "hands_off")]
    pub unmanaged: Option<Unmanaged>,
    /// Where perch had it bound last.
    pub bound: Option<PuSet>,
    /// The CPU weight that perch gave it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
    /// The ways of caches that perch last let it fill.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache_ways: Vec<CacheWays>,
    /// What it mostly was.
    pub role: Role,
    /// What it did.
    #[serde(alias = "deeds")]
    pub stats: ThreadStats,
}

/// Threads of one name that have ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// Their process's name.
    pub process: String,
    /// Their name, digits as `#`.
    pub name: String,
    /// How many.
    pub threads: u64,
    /// What they mostly were.
    pub role: Role,
    /// What they did together.
    #[serde(alias = "deeds")]
    pub stats: ThreadStats,
}

/// Who was where: a row a PU, a column a stretch of time. The columns grow wider as the session goes on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Placements {
    /// The end of each column.
    pub columns: Vec<u64>,
    /// The PUs on which threads were seen, and their siblings, core by core.
    pub rows: Vec<Row>,
}

/// One PU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its number.
    pub pu: u32,
    /// Its core, with its last-level cache where there are several: `core 7, L3 0`; empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub core: String,
    /// For each column who used it most, if anybody did.
    pub cells: Vec<Option<Cell>>,
}

/// Who used a PU most for a while.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The thread that used the PU most.
    pub thread: ThreadId,
    /// Its name then.
    pub name: String,
    /// What it was then.
    pub role: Role,
    /// Whether perch had bound it there.
    pub bound: bool,
    /// Share of the time that it was on a PU, 0 to 1.
    pub share: f64,
}

/// What was changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Moves {
    /// Threads that were bound.
    pub bound: u64,
    /// Bound threads that were put elsewhere.
    pub moved: u64,
    /// Threads that were let go.
    pub released: u64,
    /// What became of them all.
    pub outcomes: Vec<(Outcome, u64)>,
    /// The first ones.
    pub first: Vec<MoveReport>,
    /// The last ones that are not among the first.
    pub last: Vec<MoveReport>,
    /// How many between them are only counted.
    pub left_out: u64,
}

/// A change of one thread's placement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoveReport {
    /// The period, from 0.
    pub period: u64,
    /// The period's end.
    pub at: u64,
    /// The thread whose placement changed.
    pub thread: ThreadId,
    /// Its name.
    pub name: String,
    /// Where perch had bound it.
    pub from: Option<PuSet>,
    /// Where it was bound; `None` if it was let go.
    pub to: Option<PuSet>,
    /// The PU on which the thread was seen last before; `None` if unknown, or in reports of older versions.
    #[serde(default)]
    pub ran_on: Option<u32>,
    /// Why, in the words and numbers of the policy.
    pub reason: Reason,
    /// What became of it.
    pub outcome: Outcome,
}

impl MoveReport {
    /// Whether an unbound thread was bound to the PU on which it was running already.
    pub fn stays(&self) -> bool {
        let to = self.to.as_ref().filter(|_| self.from.is_none());
        to.is_some_and(|to| to.len() == 1 && to.first() == self.ran_on)
    }
}

/// perch's own cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnCost {
    /// Time on a PU.
    pub cpu_time: u64,
    /// Share of one PU's time, 0 to 1.
    pub share: f64,
}
