//! Small programs on the simulated machine that measure what microbenchmarks measure on a real one.

use super::file::{Threads, Walk};
use crate::{
    settled::settle,
    simulate::{begin_at, cycle},
};
use perch_sim::{
    counters::Counters,
    model::{MachineModel, Op},
    os::SchedulerModel,
    system::{SimError, System},
    units::{Ps, SECOND},
    workload::{Mix, Pattern, ProgramModel, Step, ThreadModel, WorkingSet, WorkloadModel},
};
use std::sync::Arc;

/// Cycles until caches have settled, at most, and while it is measured. A chain of loads takes long to fill a cache, but
/// few instructions.
const MOST: u64 = 300_000_000;
const MEASURED: u64 = 400_000;

/// Bytes of a word: what a load of a stream reads.
const WORD: u64 = 8;

/// Probes on one machine.
pub struct Probe<'a> {
    machine: &'a Arc<MachineModel>,
    /// The same without prefetchers.
    plain: Arc<MachineModel>,
    /// The length of a cycle.
    cycle: Ps,
}

/// Why a probe measured nothing.
#[derive(Debug, thiserror::Error)]
pub enum Unfinished {
    /// A simulation that cannot go on.
    #[error(transparent)]
    Simulation(#[from] SimError),
    /// What the caches held at first was still there.
    #[error("the caches had not settled after {0} cycles")]
    Unsettled(u64),
}

/// What the threads of a probe did.
struct Done {
    time: Ps,
    counters: Vec<Counters>,
}

impl<'a> Probe<'a> {
    /// Probes on the first core of a machine.
    pub fn new(machine: &'a Arc<MachineModel>) -> Self {
        let mut plain = MachineModel::clone(machine);
        for cache in &mut plain.caches {
            cache.prefetchers.clear();
        }
        Self {
            machine,
            plain: Arc::new(plain),
            cycle: cycle(machine),
        }
    }

    /// Cycles of a load of which each needs the one before.
    ///
    /// # Errors
    /// See [`Unfinished`].
    pub fn chase(&self, bytes: u64, walk: Walk) -> Result<f64, Unfinished> {
        let page = self.machine.tlb.map_or(4096, |tlb| tlb.page);
        let (machine, pattern, stride) = match walk {
            // Without prefetchers, any order is one that they do not know.
            Walk::Lines => (&self.plain, Pattern::Stride, self.line()),
            Walk::Steps(step) => (self.machine, Pattern::Stride, step),
            // And another line of each page.
            Walk::Pages => (self.machine, Pattern::Stride, page + self.line()),
            Walk::Random => (self.machine, Pattern::Random, WORD),
        };
        let mix = Mix {
            depends: 1,
            working_sets: vec![set(bytes, pattern, stride)],
            ..mix(Op::Load)
        };
        Ok(self.cycles_each(&self.play_on(machine, mix, &[0])?))
    }

    /// Nanoseconds of a number of cycles.
    pub fn nanoseconds(&self, cycles: f64) -> f64 {
        cycles * self.cycle as f64 * 1e-3
    }

    /// Cycles from one instruction to the next if each needs the one before.
    ///
    /// # Errors
    /// See [`Unfinished`].
    pub fn latency(&self, op: Op) -> Result<f64, Unfinished> {
        let mix = Mix {
            depends: 1,
            ..mix(op)
        };
        Ok(self.cycles_each(&self.play(mix, &[0])?))
    }

    /// The same if none needs another.
    ///
    /// # Errors
    /// See [`Unfinished`].
    pub fn every(&self, op: Op) -> Result<f64, Unfinished> {
        Ok(self.cycles_each(&self.play(mix(op), &[0])?))
    }

    /// Bytes a second that threads read in order.
    ///
    /// # Errors
    /// See [`Unfinished`].
    pub fn bandwidth(&self, bytes: u64, threads: Threads) -> Result<f64, Unfinished> {
        let all = self.machine.pus() as u32;
        let pus: Vec<u32> = match threads {
            Threads::One => vec![0],
            Threads::Core => self.first_core(),
            Threads::All => (0..all).collect(),
        };
        self.read(bytes, &pus)
    }

    /// What a thread on each context of a core reads / what one alone does.
    ///
    /// # Errors
    /// See [`Unfinished`].
    pub fn gain(&self, bytes: u64) -> Result<f64, Unfinished> {
        Ok(self.read(bytes, &self.first_core())? / self.read(bytes, &[0])?)
    }

    fn read(&self, bytes: u64, pus: &[u32]) -> Result<f64, Unfinished> {
        let mix = Mix {
            working_sets: vec![set(bytes, Pattern::Stride, WORD)],
            ..mix(Op::Load)
        };
        let done = self.play(mix, pus)?;
        let loads: u64 = done.counters.iter().map(Counters::instructions).sum();
        Ok((loads * WORD) as f64 / (done.time as f64 / SECOND as f64))
    }

    fn cycles_each(&self, done: &Done) -> f64 {
        let instructions: u64 = done.counters.iter().map(Counters::instructions).sum();
        done.time as f64 / self.cycle as f64 / instructions.max(1) as f64
    }

    fn first_core(&self) -> Vec<u32> {
        let places = self.machine.places();
        let of_first = |pu: &u32| places[*pu as usize].0 == places[0].0;
        (0..places.len() as u32).filter(of_first).collect()
    }

    fn line(&self) -> u64 {
        let lines = self.machine.caches.iter().map(|cache| cache.line);
        u64::from(lines.max().unwrap_or(64))
    }

    fn play(&self, mix: Mix, pus: &[u32]) -> Result<Done, Unfinished> {
        self.play_on(self.machine, mix, pus)
    }

    /// A thread of this mix on each PU, from when caches have settled on.
    fn play_on(
        &self,
        machine: &Arc<MachineModel>,
        mix: Mix,
        pus: &[u32],
    ) -> Result<Done, Unfinished> {
        let endless = Step::Compute {
            mix: 0,
            instructions: u64::MAX,
        };
        let workload = WorkloadModel {
            name: "probe".into(),
            about: "a microbenchmark".into(),
            sources: Vec::new(),
            mixes: vec![mix],
            devices: Vec::new(),
            programs: vec![ProgramModel {
                name: "probe".into(),
                count: 1,
                start: 0,
                restart: false,
                system: false,
                requests: None,
                threads: vec![ThreadModel {
                    name: "probe".into(),
                    count: pus.len() as u32,
                    steps: vec![endless],
                    repeat: 1,
                    nice: 0,
                }],
            }],
        };
        let machine = Arc::clone(machine);
        let scheduler = SchedulerModel::default();
        let mut system = System::new(machine, Arc::new(workload), scheduler, 1);
        begin_at(&mut system, pus)?;
        system.warm();
        if !settle(&mut system, MOST)? {
            return Err(Unfinished::Unsettled(MOST));
        }
        let counters = |system: &System| -> Vec<Counters> {
            let threads = system.threads().iter();
            threads.map(|thread| thread.counters).collect()
        };
        let (begun, before) = (system.now(), counters(&system));
        system.run(begun + MEASURED * self.cycle)?;
        let after = counters(&system);
        let done = after.iter().zip(&before);
        Ok(Done {
            time: system.now() - begun,
            counters: done.map(|(after, before)| after.since(before)).collect(),
        })
    }
}

/// One instruction again and again, without data, independent.
fn mix(op: Op) -> Mix {
    let mut shares = [0.0; Op::COUNT];
    shares[op as usize] = 1.0;
    Mix {
        name: "probe".into(),
        shares,
        code_bytes: 256,
        ..Mix::default()
    }
}

fn set(bytes: u64, pattern: Pattern, stride: u64) -> WorkingSet {
    WorkingSet {
        bytes,
        share: 1.0,
        pattern,
        stride,
        region: None,
    }
}
