//! What runs on a simulated machine: plain data, read from `workloads/*.toml`.

mod depends;
mod device;
mod requests;
mod trace;

pub use depends::{Depends, FURTHEST};
pub use device::DeviceModel;
pub use requests::{Arrivals, Gaps, RequestsModel};
pub use trace::{Layout, Trace};

use crate::model::Op;
use serde::{Deserialize, Serialize};

/// How a working set is walked through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Every word is as likely as any other.
    #[default]
    Random,
    /// From the beginning to the end in equal steps, then again.
    Stride,
}

/// Data that a mix touches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkingSet {
    /// How much, in bytes.
    pub bytes: u64,
    /// Share of the loads and stores that go there; relative to the other working sets of the mix.
    pub share: f64,
    /// In which order addresses are accessed.
    pub pattern: Pattern,
    /// Bytes of a step.
    pub stride: u64,
    /// The name of a region that all threads of the program share; each thread has its own data if there is none.
    pub region: Option<String>,
}

impl WorkingSet {
    /// Bytes from its beginning to that of the thread's next one: whole pages.
    pub(crate) fn room(&self) -> u64 {
        self.bytes.next_multiple_of(4096)
    }
}

/// A mix of instructions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Mix {
    /// Its name.
    pub name: String,
    /// Share of each operation, by [`Op`] number; relative.
    pub shares: [f64; Op::COUNT],
    /// How many instructions back the result stands that an instruction needs: 1 is a chain, 0 none. It bounds the
    /// thread's own parallelism.
    pub depends: Depends,
    /// Cycles by which every instruction takes longer than on the machine: for hand-made mixes of a given CPI.
    pub extra: u16,
    /// Share of the branches that are mispredicted, 0 to 1.
    pub mispredicted: f64,
    /// Bytes of code that it runs through.
    pub code_bytes: u64,
    /// Its data; loads and stores of a mix without any touch one line.
    pub working_sets: Vec<WorkingSet>,
    /// A recording, instead of all that: then `code_bytes` is the memory of its program.
    #[serde(skip)]
    pub trace: Option<Trace>,
}

impl Mix {
    /// Bytes of distinct lines that `accesses` loads and stores are expected to touch; 0 for a recording, of which that
    /// is not known.
    pub fn touched(&self, accesses: u64) -> u64 {
        const LINE: f64 = 64.0;
        let all: f64 = self.working_sets.iter().map(|set| set.share).sum();
        let lines = self.working_sets.iter().map(|set| {
            let there = accesses as f64 * set.share / all;
            let lines = (set.bytes as f64 / LINE).max(1.0);
            match set.pattern {
                // The expected number of lines that this many random accesses hit at least once.
                Pattern::Random => lines * -(-there / lines).exp_m1(),
                Pattern::Stride => (there * (set.stride as f64 / LINE).min(1.0)).min(lines),
            }
        });
        (lines.sum::<f64>() * LINE) as u64
    }
}

/// One thing that a thread does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Executes instructions.
    Compute {
        /// Of which mix: an index of [`WorkloadModel::mixes`].
        mix: usize,
        /// How many; `u64::MAX` for ever.
        instructions: u64,
    },
    /// Waits until all threads of the program that have this barrier are there.
    Barrier(String),
    /// Takes a lock of the program, or waits for it.
    Lock(String),
    /// Lets it go.
    Unlock(String),
    /// Sleeps, in nanoseconds of the operating system.
    Sleep(u64),
    /// Waits for a request of the program and takes it; ends if none will come any more.
    Receive,
    /// Is done with the request that it took.
    Reply,
    /// Reads or writes, and waits until that is done.
    Io {
        /// Which device: an index of [`WorkloadModel::devices`].
        device: usize,
        /// How long the device takes until the first byte, in nanoseconds of the operating system.
        time: u64,
        /// Bytes that are moved.
        bytes: u64,
    },
    /// Starts threads of its program.
    Spawn {
        /// What they do: an index of [`ProgramModel::threads`].
        kind: usize,
        /// How many.
        count: u32,
    },
    /// Waits until all threads of this kind that it has started have ended: an index of [`ProgramModel::threads`].
    Join(usize),
}

/// Threads that do the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadModel {
    /// Their name; numbered if there are several.
    pub name: String,
    /// How many there are from the beginning; 0 if all are started by others.
    pub count: u32,
    /// What each does.
    pub steps: Vec<Step>,
    /// How often; `u64::MAX` for ever.
    pub repeat: u64,
    /// Its nice value, -20 to 19.
    pub nice: i32,
    /// The PUs to which it is pinned from its start, as by `taskset`; empty: it may run on all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pus: Vec<u32>,
}

impl ThreadModel {
    /// Whether it never ends; `requests` are those of its program.
    pub fn is_endless(&self, requests: Option<&RequestsModel>) -> bool {
        let served_for_ever = match self.steps.first() {
            Some(Step::Receive) => requests.is_none_or(|requests| requests.count == u64::MAX),
            _ => self.repeat == u64::MAX,
        };
        let forever = u64::MAX;
        let goes_on = |step: &Step| matches!(step, Step::Compute { instructions, .. } if *instructions == forever);
        served_for_ever || self.steps.iter().any(goes_on)
    }
}

/// A program: an address space with threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgramModel {
    /// Its name.
    pub name: String,
    /// How often it is started, each time a process of its own.
    pub count: u32,
    /// When, in nanoseconds of the operating system.
    pub start: u64,
    /// Whether it is started again whenever it ends, until every program has ended once (papers 000 and 001).
    pub restart: bool,
    /// Whether it is work of the operating system, such as a daemon: it is not given to perch, nobody waits for its end,
    /// and what it does is no result.
    pub system: bool,
    /// The requests that its threads serve, if there are any.
    pub requests: Option<RequestsModel>,
    /// Its threads.
    pub threads: Vec<ThreadModel>,
}

impl ProgramModel {
    /// Whether its processes may have more than one thread.
    pub fn has_several_threads(&self) -> bool {
        let steps = self.threads.iter().flat_map(|thread| &thread.steps);
        let mut spawns = steps.filter(|step| matches!(step, Step::Spawn { .. }));
        self.threads
            .iter()
            .map(|thread| u64::from(thread.count))
            .sum::<u64>()
            > 1
            || spawns.next().is_some()
    }
}

impl WorkloadModel {
    /// Whether a program of it never ends.
    pub fn is_endless(&self) -> bool {
        let endless = |program: &ProgramModel| {
            let mut threads = program.threads.iter();
            threads.any(|thread| thread.is_endless(program.requests.as_ref()))
        };
        self.programs.iter().any(endless)
    }

    /// The program with whose code a program runs: the first one of its name.
    pub(crate) fn code_of(&self, program: usize) -> usize {
        let name = &self.programs[program].name;
        let first = self.programs.iter().position(|other| other.name == *name);
        first.unwrap_or(program)
    }
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadModel {
    /// Its name: the file's.
    pub name: String,
    /// What it is, in a sentence.
    pub about: String,
    /// Where the numbers come from.
    pub sources: Vec<String>,
    /// The mixes.
    pub mixes: Vec<Mix>,
    /// The devices, which all programs share.
    pub devices: Vec<DeviceModel>,
    /// The programs.
    pub programs: Vec<ProgramModel>,
}
