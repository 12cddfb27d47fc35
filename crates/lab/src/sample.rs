//! What came of a simulation.

use crate::placement::Placement;
use perch_sim::energy::EnergyStats;
use serde::Serialize;

/// How far a thread was at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Mark {
    /// Seconds of the operating system since the beginning.
    pub at: f64,
    /// Instructions that it had executed by then.
    pub instructions: u64,
}

/// What one thread did while it was counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ThreadStats {
    /// The name of its kind.
    pub name: String,
    /// The name of its program.
    #[serde(skip)]
    pub program: String,
    /// The PU where it was last.
    pub pu: u32,
    /// Instructions.
    pub instructions: u64,
    /// Instructions before it was counted.
    #[serde(skip)]
    pub before: u64,
    /// Cycles on a PU.
    pub cycles: u64,
    /// Seconds of the operating system in which it was on a PU or waited for one.
    #[serde(skip)]
    pub wanted: f64,
    /// Loads and stores.
    pub accesses: u64,
    /// Those of them that missed L1.
    pub l1_misses: u64,
    /// Times that it went on on another PU.
    pub migrations: u64,
    /// Floating-point and SIMD instructions.
    pub fp_instructions: u64,
    /// Cycles with nothing in the floating-point units of its core; not counted under a policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp_empty_cycles: Option<u64>,
    /// Loads, stores and fetches that missed level 2.
    pub l2_misses: u64,
    /// How far it was, moment by moment; only if the job asks for it, and under a policy.
    #[serde(skip)]
    pub marks: Vec<Mark>,
}

/// What was seen of a thread in some time, besides what was counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// The PU where it was last, if that is known.
    pub pu: Option<u32>,
    /// Seconds of the operating system in which it was on a PU or waited for one.
    pub wanted: f64,
    /// Times that it went on on another PU.
    pub migrations: u64,
}

impl ThreadStats {
    /// Of a thread that has done nothing so far.
    pub(crate) fn new(name: String, program: String) -> Self {
        Self {
            name,
            program,
            ..Self::default()
        }
    }

    /// Leaves out what it had done before it was counted.
    pub(crate) fn leave_out(&mut self, mut before: Self) {
        self.before = before.instructions;
        for (ours, its) in self.counts().into_iter().zip(before.counts()) {
            *ours -= *its;
        }
        self.wanted -= before.wanted;
        let empty = self.fp_empty_cycles.zip(before.fp_empty_cycles);
        self.fp_empty_cycles = empty.map(|(after, before)| after - before);
    }

    /// What is counted of it, all that adds up.
    fn counts(&mut self) -> [&mut u64; 7] {
        [
            &mut self.instructions,
            &mut self.cycles,
            &mut self.accesses,
            &mut self.l1_misses,
            &mut self.migrations,
            &mut self.fp_instructions,
            &mut self.l2_misses,
        ]
    }

    /// Adds what was seen of it since it was last looked at.
    pub(crate) fn add<'a>(&mut self, seen: Seen, counts: impl IntoIterator<Item = (&'a str, u64)>) {
        self.pu = seen.pu.unwrap_or(self.pu);
        self.wanted += seen.wanted;
        self.migrations += seen.migrations;
        for (alias, value) in counts {
            self.count(alias, value);
        }
    }

    /// Adds a count, by the alias of its event.
    fn count(&mut self, alias: &str, value: u64) {
        match alias {
            "instructions" => self.instructions += value,
            "cycles" => self.cycles += value,
            "loads" | "stores" => self.accesses += value,
            "l1d_misses" => self.l1_misses += value,
            "l2_misses" => self.l2_misses += value,
            "fp_instructions" => self.fp_instructions += value,
            "fp_empty_cycles" => *self.fp_empty_cycles.get_or_insert(0) += value,
            _ => {}
        }
    }

    /// Whether both are of one kind of threads.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (&self.program, &self.name) == (&other.program, &other.name)
    }
}

/// What came of a simulation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    /// Cycles of the machine's first kind of core for which it was counted.
    pub cycles: f64,
    /// What each thread did.
    pub threads: Vec<ThreadStats>,
    /// Why a policy moved a thread, each time.
    #[serde(skip)]
    pub moves: Vec<String>,
    /// Seconds of the operating system for which it was counted.
    pub seconds: f64,
    /// Seconds from arrival to reply of each request that was replied to meanwhile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub responses: Vec<f64>,
    /// What the machine took meanwhile, if its energy is modelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<EnergyStats>,
    /// Whether caches had settled by then, if the job waits for that; else true.
    #[serde(skip)]
    pub settled: bool,
}

impl Sample {
    /// Instructions of all threads / cycle of the machine.
    pub fn throughput(&self) -> f64 {
        let instructions: u64 = self.threads.iter().map(|thread| thread.instructions).sum();
        instructions as f64 / self.cycles
    }

    /// The PU where each thread was last, in the order in which they started.
    pub fn placement(&self) -> Placement {
        self.threads.iter().map(|thread| thread.pu).collect()
    }

    /// Times a second that a thread went on on another PU.
    pub fn moves(&self) -> f64 {
        let moves: u64 = self.threads.iter().map(|thread| thread.migrations).sum();
        moves as f64 / self.seconds.max(1e-9)
    }
}
