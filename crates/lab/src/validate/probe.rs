//! Small programs on the simulated machine that measure what microbenchmarks measure on a real one.

use super::file::{Threads, Walk};
use crate::{endless, settled::settle, simulate::begin_at};
use perch_sim::{
    counters::Counters,
    model::{MachineModel, Op},
    os::SchedulerModel,
    system::{SimError, System},
    units::{Ps, SECOND},
    workload::{Mix, Pattern, WorkingSet},
};
use std::sync::Arc;

/// Cycles until caches have settled, at most, and while it is measured. A chain of loads takes long to fill a cache, but
/// few instructions.
const MOST: u64 = 300_000_000;
const MEASURED: u64 = 400_000;

/// Bytes of a word: what a load of a stream reads.
pub const WORD: u64 = 8;

/// Probes on one machine.
pub struct Probe<'a> {
    machine: &'a Arc<MachineModel>,
    /// The same without prefetchers.
    plain: Arc<MachineModel>,
    /// The kind of core on which they run; all kinds if none is named.
    kind: Option<usize>,
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

impl Done {
    /// Instructions a second of each thread.
    fn rates(&self) -> Vec<f64> {
        let seconds = self.time as f64 / SECOND as f64;
        let threads = self.counters.iter();
        threads
            .map(|counters| counters.instructions() as f64 / seconds)
            .collect()
    }
}

impl<'a> Probe<'a> {
    /// Probes on the first core of a machine, or on the first one of a kind.
    pub fn new(machine: &'a Arc<MachineModel>, kind: Option<usize>) -> Self {
        let mut plain = MachineModel::clone(machine);
        for cache in &mut plain.caches {
            cache.prefetchers.clear();
        }
        Self {
            machine,
            plain: Arc::new(plain),
            kind,
            cycle: kind.map_or(machine.first_cycle(), |kind| machine.kinds[kind].cycle),
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
            depends: 1.into(),
            working_sets: vec![set(bytes, pattern, stride)],
            ..mix(Op::Load)
        };
        Ok(self.cycles_each(&self.play_on(machine, vec![mix], &self.one())?))
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
            depends: 1.into(),
            ..mix(op)
        };
        Ok(self.cycles_each(&self.play(mix, &self.one())?))
    }

    /// The same if none needs another.
    ///
    /// # Errors
    /// See [`Unfinished`].
    pub fn every(&self, op: Op) -> Result<f64, Unfinished> {
        Ok(self.cycles_each(&self.play(mix(op), &self.one())?))
    }

    /// Bytes a second that threads read in order.
    ///
    /// # Errors
    /// See [`Unfinished`].
    pub fn bandwidth(&self, bytes: u64, threads: Threads) -> Result<f64, Unfinished> {
        self.stream(reading(bytes), WORD as f64, threads)
    }

    /// Bytes per second that threads with this mix move, from the mean number of bytes per instruction.
    ///
    /// # Errors
    /// See [`Unfinished`].
    pub fn stream(&self, mix: Mix, bytes_each: f64, threads: Threads) -> Result<f64, Unfinished> {
        let pus = match threads {
            Threads::One => self.one(),
            Threads::Core => self.first_core(),
            Threads::All => self.pus(),
        };
        let rates = self.play(mix, &pus)?.rates();
        Ok(rates.iter().sum::<f64>() * bytes_each)
    }

    /// What a thread on each context of a core reads / what one alone does.
    ///
    /// # Errors
    /// See [`Unfinished`].
    pub fn gain(&self, bytes: u64) -> Result<f64, Unfinished> {
        Ok(self.bandwidth(bytes, Threads::Core)? / self.bandwidth(bytes, Threads::One)?)
    }

    /// Instructions a cycle of a thread that has the machine for itself.
    ///
    /// # Errors
    /// See [`Unfinished`].
    pub fn ipc(&self, mix: Mix) -> Result<f64, Unfinished> {
        Ok(1.0 / self.cycles_each(&self.play(mix, &self.one())?))
    }

    /// What two threads on the first two contexts of a core do together: the sum of their speeds, each as a part of its
    /// speed alone.
    ///
    /// # Errors
    /// See [`Unfinished`].
    pub fn pair(&self, mixes: [Mix; 2]) -> Result<f64, Unfinished> {
        let mut pus = self.first_core();
        pus.truncate(2);
        let mut sum = 0.0;
        let together = self.play_on(self.machine, mixes.to_vec(), &pus)?.rates();
        for (mix, together) in mixes.into_iter().zip(together) {
            let alone = self.play(mix, &self.one())?.rates();
            sum += together / alone[0];
        }
        Ok(sum)
    }

    fn cycles_each(&self, done: &Done) -> f64 {
        let instructions: u64 = done.counters.iter().map(Counters::instructions).sum();
        done.time as f64 / self.cycle as f64 / instructions.max(1) as f64
    }

    /// The PUs of the kind.
    fn pus(&self) -> Vec<u32> {
        let places = self.machine.places().into_iter().zip(0..);
        let of_kind = |core: usize| {
            let kind = self.machine.cores[core].kind;
            self.kind.is_none_or(|wanted| wanted == kind)
        };
        places
            .filter(|((core, _), _)| of_kind(*core))
            .map(|(_, pu)| pu)
            .collect()
    }

    /// The first of them.
    fn one(&self) -> Vec<u32> {
        self.pus().into_iter().take(1).collect()
    }

    /// Those of the first core.
    fn first_core(&self) -> Vec<u32> {
        let places = self.machine.places();
        let mut pus = self.pus();
        let first = pus.first().map(|pu| places[*pu as usize].0);
        pus.retain(|pu| Some(places[*pu as usize].0) == first);
        pus
    }

    fn line(&self) -> u64 {
        let lines = self.machine.caches.iter().map(|cache| cache.line);
        u64::from(lines.max().unwrap_or(64))
    }

    /// A thread of this mix on each PU.
    fn play(&self, mix: Mix, pus: &[u32]) -> Result<Done, Unfinished> {
        self.play_on(self.machine, vec![mix], pus)
    }

    /// A thread on each PU, of each mix in turn, counted once caches have settled.
    fn play_on(
        &self,
        machine: &Arc<MachineModel>,
        mixes: Vec<Mix>,
        pus: &[u32],
    ) -> Result<Done, Unfinished> {
        let each = pus.len() / mixes.len();
        let workload = endless::workload("probe", mixes, each as u32);
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

/// Words in order.
fn reading(bytes: u64) -> Mix {
    Mix {
        working_sets: vec![set(bytes, Pattern::Stride, WORD)],
        ..mix(Op::Load)
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
