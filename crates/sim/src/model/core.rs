//! A kind of core: its pipeline, units and queues.

use super::pace::{Pace, STOP};
use crate::units::{Ps, SECOND};
use serde::{Deserialize, Serialize};

/// What an instruction does, as far as units and latencies are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Op {
    /// Integer arithmetic, logic, moves.
    Alu,
    /// Integer multiplication.
    Multiply,
    /// Integer division.
    Divide,
    /// Floating-point or SIMD arithmetic.
    Fp,
    /// Floating-point division or square root.
    FpDivide,
    /// Reads memory.
    Load,
    /// Writes memory.
    Store,
    /// Changes the flow.
    Branch,
}

impl Op {
    /// How many there are.
    pub const COUNT: usize = 8;

    /// All of them, in the order of their numbers.
    pub const ALL: [Op; Op::COUNT] = [
        Op::Alu,
        Op::Multiply,
        Op::Divide,
        Op::Fp,
        Op::FpDivide,
        Op::Load,
        Op::Store,
        Op::Branch,
    ];

    /// Their names in files, in the order of their numbers.
    pub const NAMES: [&'static str; Op::COUNT] = [
        "alu",
        "multiply",
        "divide",
        "fp",
        "fp-divide",
        "load",
        "store",
        "branch",
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        Op::NAMES[self as usize]
    }
}

/// How the contexts of a core share its pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Multithreading {
    /// One context issues in a cycle: round robin over the ready ones (Laudon et al.; paper 004, section 3).
    FineGrained,
    /// Several contexts share the issue slots of a cycle, round robin.
    Simultaneous,
}

/// Some execution units of one sort.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnitPool {
    /// What they are called: `alu`, `fpu`.
    pub name: String,
    /// What they can do.
    pub ops: Vec<Op>,
    /// How many there are, in the core or in each context's own cluster.
    pub count: u32,
    /// Whether each context has its own (Bulldozer's integer clusters), rather than all of the core sharing them.
    pub private: bool,
    /// Whether they are divided evenly among the core's parts while there are any ([`CoreKind::partition`]).
    #[serde(default, skip_serializing_if = "is_false")]
    pub partitioned: bool,
}

/// When the contexts of a core stop sharing all of it: POWER7's halves in SMT4 mode (Sinharoy et al., IBM J. R&D 55(3),
/// 2011), which it leaves as soon as contexts are idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Neighbouring contexts that share a part of the core.
    pub contexts: u32,
    /// The core is in parts while at least this many contexts have a thread.
    pub from: u32,
}

/// Who may take the entries of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueSharing {
    /// Each context has a queue of this size of its own.
    Private,
    /// Any context of the core takes any entry, first come, first served, up to [`Queue::per_context`].
    Shared,
    /// The entries are divided evenly among the contexts that have a thread (Marr et al., Intel Technology Journal 6(1),
    /// 2002: static partitions, recombined when a context halts).
    Split,
}

/// Until when an operation keeps its entry of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Until {
    /// Until its execution begins: a scheduler (issue queue, reservation station).
    Start,
    /// Until its result is there: a load queue that leaves the order of loads to another, larger structure.
    Data,
    /// Until it retires, or for a store until its line is there and written: a load or store buffer.
    End,
}

/// Queues of different names that a machine has at most.
pub const QUEUES: usize = 16;

/// A queue of an out-of-order core in which operations wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// What it is called: `fp-scheduler`, `store-buffer`.
    pub name: String,
    /// Its number among the names of all queues of the machine, by which what is in it is counted.
    #[serde(default)]
    pub number: u8,
    /// The operations that take an entry.
    pub ops: Vec<Op>,
    /// Entries, of the core or of each context.
    pub entries: u32,
    /// Who may take them.
    pub sharing: QueueSharing,
    /// Of a shared queue, the entries that one context takes at most while another has a thread (a watermark); `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_context: Option<u32>,
    /// Until when they are kept.
    pub until: Until,
    /// Whether the entries of a shared queue are divided evenly among the core's parts while there are any
    /// ([`CoreKind::partition`]), and with them what one context takes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partitioned: bool,
}

impl Queue {
    /// The entries that one context may have while this many contexts have a thread and the core is not in parts; a shared
    /// queue itself has `entries`.
    pub fn of_one(&self, busy: u32) -> u32 {
        let entries = match self.sharing {
            QueueSharing::Split => self.entries / busy.max(1),
            QueueSharing::Shared if busy > 1 => self.per_context.unwrap_or(self.entries),
            QueueSharing::Shared | QueueSharing::Private => self.entries,
        };
        entries.max(1)
    }

    /// Whether floating-point operations wait in it for a unit.
    pub fn is_fp_scheduler(&self) -> bool {
        self.until == Until::Start && self.ops.contains(&Op::Fp)
    }
}

/// How long one sort of instruction takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Cycles from issue until a dependent instruction may issue; of loads and stores this is the time besides that of
    /// the memory.
    pub cycles: u32,
    /// Cycles for which it keeps its unit: 1 if the unit is pipelined.
    pub busy: u32,
}

/// The value in a machine that an earlier perch wrote.
fn yes() -> bool {
    true
}

fn one() -> u32 {
    1
}

fn is_one(count: &u32) -> bool {
    *count == 1
}

fn one_each() -> [u32; Op::COUNT] {
    [1; Op::COUNT]
}

fn is_one_each(micro_ops: &[u32; Op::COUNT]) -> bool {
    *micro_ops == one_each()
}

fn stop() -> Ps {
    STOP
}

fn is_usual_stop(stop: &Ps) -> bool {
    *stop == STOP
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_true(flag: &bool) -> bool {
    *flag
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The TLB of a kind of core, where kinds have different ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindTlb {
    /// Pages that it holds.
    pub entries: u32,
    /// Ways of each set.
    pub ways: u32,
    /// What a miss costs.
    pub miss: Ps,
}

/// One kind of core.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoreKind {
    /// Its name: `big`, `little`.
    pub name: String,
    /// Picoseconds of a cycle, at the highest clock.
    pub cycle: Ps,
    /// The clocks at which its cores can run, in kHz, the highest last; none if there is only that one.
    pub clocks: Vec<u64>,
    /// What it does per MHz, in relation to other kinds, as device trees tell the kernel (`capacity-dmips-mhz`); `None`
    /// where they say nothing.
    pub dmips_per_mhz: Option<u32>,
    /// Hardware contexts (PUs).
    pub contexts: u32,
    /// How they share the pipeline.
    pub multithreading: Multithreading,
    /// Instructions issued in a cycle, all contexts together; where some are of several micro-operations, these.
    pub width: u32,
    /// Micro-operations of each instruction, by [`Op`] number: issue slots, and places in the window.
    #[serde(default = "one_each", skip_serializing_if = "is_one_each")]
    pub micro_ops: [u32; Op::COUNT],
    /// Cycles after which an operation is sent again that was sent to its unit when the first level of cache should have
    /// had its operand, and had not (NetBurst's replay); 0: operations wait until their operands are there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replay: u32,
    /// Instructions of one context in flight at most, counted from the oldest that is not complete. 1: each waits for
    /// the one before it (the simple pipeline of paper 004). Shared evenly by the contexts that have a thread if
    /// `window_shared`.
    pub window: u32,
    /// Whether `window` is the core's, partitioned among its busy contexts.
    pub window_shared: bool,
    /// When some of its units and queues are divided among parts of its contexts, if ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<Partition>,
    /// Whether instructions issue in program order: a stalled one holds up those behind it.
    pub in_order: bool,
    /// Units; each op is done by one pool, or by two: the second where the first is busy.
    pub units: Vec<UnitPool>,
    /// Schedulers and buffers of bounded size, if the core is out of order; what is in none of them, only the window bounds.
    pub queues: Vec<Queue>,
    /// Misses of a first-level data cache under way at a time at most (miss status holding registers, line fill buffers);
    /// 0: as many as the window allows.
    pub misses: u32,
    /// Those that one context has at most while another has a thread (a watermark); `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses_per_context: Option<u32>,
    /// Whether stores that miss take one too: not if the first level is written through and does not allocate their lines.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub misses_of_stores: bool,
    /// Stores that a first-level data cache takes from the store buffer per cycle at most.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub store_commits: u32,
    /// Whether each context has a first-level data cache, and so misses, of its own.
    pub misses_private: bool,
    /// Its TLB, if that is another than the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlb: Option<KindTlb>,
    /// Latencies, by [`Op`] number.
    pub latencies: [Latency; Op::COUNT],
    /// Cycles for which every branch delays the instruction behind it.
    pub branch_delay: u32,
    /// Cycles that a mispredicted branch costs besides.
    pub mispredict: u32,
    /// Share of the time in which the clock runs, 0 to 1 (clock modulation); 1 if not throttled.
    pub duty: f64,
    /// For how long modulation stops the clock each time.
    #[serde(default = "stop", skip_serializing_if = "is_usual_stop")]
    pub modulation: Ps,
    /// Steps of the duty cycle that can be set while the machine runs: state N leaves 1 - N / steps of the time; 0 if it
    /// cannot be set.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duty_steps: u32,
}

/// The parts of a core.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    /// How many there are; 1 if the core never falls into parts.
    pub number: u32,
    /// Contexts of each.
    contexts: u32,
    from: u32,
}

impl Parts {
    /// How many there are while this many contexts have a thread; 1 if the core is whole then.
    pub fn among(self, busy: usize) -> u32 {
        match busy >= self.from as usize {
            true => self.number,
            false => 1,
        }
    }

    /// The number of a context's part.
    pub fn of(self, context: usize) -> usize {
        context / self.contexts as usize
    }
}

impl CoreKind {
    /// Its highest clock, in kHz.
    pub fn highest_clock(&self) -> u64 {
        let only = || SECOND / self.cycle.max(1) / 1_000;
        self.clocks.last().copied().unwrap_or_else(only)
    }

    /// Its parts.
    pub(crate) fn parts(&self) -> Parts {
        let partition = self.partition.unwrap_or(Partition {
            contexts: self.contexts,
            from: u32::MAX,
        });
        let contexts = partition.contexts.max(1);
        Parts {
            number: (self.contexts / contexts).max(1),
            contexts,
            from: partition.from,
        }
    }

    /// The pace of its clock at the highest clock.
    pub(crate) fn pace(&self) -> Pace {
        Pace::modulated(self.cycle, self.duty, self.modulation)
    }

    /// The point at which its cores begin.
    pub fn first_point(&self) -> OperatingPoint {
        OperatingPoint {
            clock: self.highest_clock(),
            throttling: ((1.0 - self.duty) * f64::from(self.duty_steps)).round() as u32,
        }
    }

    /// The same kind at an operating point, as far as its cores can be set to it.
    #[must_use]
    pub(crate) fn at(&self, point: OperatingPoint) -> Self {
        let mut kind = self.clone();
        if self.clocks.contains(&point.clock) {
            kind.cycle = cycle_of(point.clock * 1_000);
        }
        if self.duty_steps > 0 {
            let steps = f64::from(self.duty_steps);
            kind.duty = 1.0 - f64::from(point.throttling.min(self.duty_steps - 1)) / steps;
        }
        kind
    }
}

/// What can be set of a core while the machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OperatingPoint {
    /// The clock, in kHz; one of [`CoreKind::clocks`] if there are any.
    pub clock: u64,
    /// The state of its clock modulation, below [`CoreKind::duty_steps`] if there are any; 0: the clock never stops.
    pub throttling: u32,
}

/// Picoseconds of a cycle at a clock, in Hz, to the nearest: less than a thousandth is lost below 2 GHz, and at most half a
/// percent at 10.
pub(crate) fn cycle_of(clock: u64) -> Ps {
    (SECOND + clock / 2) / clock
}
