//! A period as the policy sees it: which threads are busy, where each runs, and its demand.

use super::{
    CpiConfig, Memory, Variant,
    cores::Cores,
    demand::{self, Basis, Reading},
    predict::Observed,
    solo::{Running, SoloCpi},
};
use crate::{
    busy::{Census, is_busy},
    history::PerThread,
};
use perch_core::{Snapshot, ThreadState};

/// What is known of a thread's demand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// What it is predicted to ask for while it runs, in instructions a cycle.
    pub demand: f64,
    /// What was measured, or estimated from its mix.
    pub measured: f64,
    /// How far the demand can be trusted.
    pub confidence: f64,
}

/// A thread that can be placed by its demand.
pub(super) type Candidate = crate::busy::Candidate<Demand>;

/// The busy threads and what they ask for.
#[derive(Debug)]
pub(super) struct Demands {
    /// The busy threads, by falling demand.
    pub threads: Census<Demand>,
    /// What all candidates delivered in the period, in instructions a cycle; nothing where cycles are not counted.
    pub delivered: Option<f64>,
    /// How many instructions a cycle each kind of core can issue.
    pub widths: Vec<f64>,
}

/// The core on which a thread spent the period: where it is bound, or pinned by others, else where it was last seen.
pub(crate) fn core_of(thread: &ThreadState, cores: &Cores) -> Option<usize> {
    let bound = thread.bound.as_ref().and_then(|pus| cores.of_all(pus));
    let pinned = || match thread.unmanaged {
        Some(_) => cores.of_all(&thread.allowed),
        None => None,
    };
    let last = || thread.last_pu.and_then(|pu| cores.of(pu));
    bound.or_else(pinned).or_else(last)
}

/// Reads all threads' demand and takes it into the memory.
pub(super) fn demands(
    snapshot: &Snapshot,
    cores: &Cores,
    learned: &mut Vec<f64>,
    memory: &mut PerThread<Memory>,
    config: &CpiConfig,
) -> Demands {
    let threads = &snapshot.threads;
    let busy: Vec<bool> = threads
        .iter()
        .map(|thread| is_busy(thread, config.min_activity))
        .collect();
    let counted: Vec<Option<Reading>> = threads
        .iter()
        .map(|thread| demand::counted(thread, config))
        .collect();
    let any = counted
        .iter()
        .zip(&busy)
        .any(|(reading, busy)| *busy && reading.is_some());
    let (basis, readings) = if any {
        (Basis::Counted, counted)
    } else {
        let mix = threads
            .iter()
            .map(|thread| demand::from_mix(thread, config));
        (Basis::Mix, mix.collect())
    };
    let kinds = cores.iter().map(|core| core.kind + 1).max().unwrap_or(0);
    learned.resize(learned.len().max(kinds), 1.0);
    let mut widths = vec![1.0; learned.len()];
    let observed = match basis {
        // The delays of the mix are those of a pipeline that issues one instruction a cycle, and no co-runner changes
        // them.
        Basis::Mix => readings.iter().map(|r| r.map(as_read)).collect::<Vec<_>>(),
        Basis::Counted => {
            let beside = beside(snapshot, cores, &readings);
            learn(snapshot, cores, learned, &readings, &beside);
            widths.clone_from(learned);
            if config.width > 0.0 {
                widths.fill(config.width);
            }
            match config.variant {
                Variant::Paper => readings.iter().map(|r| r.map(as_read)).collect(),
                Variant::Perch => infer(snapshot, cores, &widths, &readings, &beside),
            }
        }
    };
    // Those that are not busy are followed too: their demand is known once they are.
    let mut predicted: Vec<Option<Demand>> = Vec::with_capacity(threads.len());
    for (at, seen) in observed.into_iter().enumerate() {
        predicted.push(seen.map(|seen| Demand {
            demand: match config.variant {
                Variant::Perch => {
                    let predictor = &mut memory[at].predictor;
                    predictor.follow(seen, config.smoothing, config.patience)
                }
                Variant::Paper => seen.at_least,
            },
            measured: seen.at_least,
            confidence: seen.confidence,
        }));
    }
    let mut census = Census::new(snapshot, |at, _| busy[at], |at, _| predicted[at]);
    let delivered = |c: &Candidate| c.known.measured * c.activity;
    let delivered = (basis == Basis::Counted).then(|| census.ranked.iter().map(delivered).sum());
    // What tells two threads apart is what they do and where, not what they are called.
    census.ranked.sort_unstable_by(|a, b| {
        (b.known.demand.total_cmp(&a.known.demand))
            .then_with(|| a.last_pu.cmp(&b.last_pu))
            .then(a.at.cmp(&b.at))
    });
    Demands {
        threads: census,
        delivered,
        widths,
    }
}

fn as_read(reading: Reading) -> Observed {
    Observed {
        demand: reading.ipc,
        at_least: reading.ipc,
        confidence: reading.confidence,
    }
}

/// The threads (of known demand) on each core.
fn beside(snapshot: &Snapshot, cores: &Cores, readings: &[Option<Reading>]) -> Vec<Vec<usize>> {
    let mut beside: Vec<Vec<usize>> = vec![Vec::new(); cores.len()];
    for (at, thread) in snapshot.threads.iter().enumerate() {
        if let Some(core) = core_of(thread, cores).filter(|_| readings[at].is_some()) {
            beside[core].push(at);
        }
    }
    // By what they do, lest rounding make a difference of what they are called.
    let key = |at: &usize| running(snapshot, readings, *at);
    for threads in &mut beside {
        threads.sort_by(|a, b| {
            let (a, b) = (key(a), key(b));
            (a.ipc.total_cmp(&b.ipc)).then(a.presence.total_cmp(&b.presence))
        });
    }
    beside
}

fn running(snapshot: &Snapshot, readings: &[Option<Reading>], at: usize) -> Running {
    Running {
        ipc: readings[at].map_or(0.0, |reading| reading.ipc),
        presence: snapshot.threads[at].activity.clamp(0.0, 1.0),
    }
}

/// A kind of core is as wide as the most that any core of it was seen to do.
fn learn(
    snapshot: &Snapshot,
    cores: &Cores,
    learned: &mut [f64],
    readings: &[Option<Reading>],
    beside: &[Vec<usize>],
) {
    for (core, threads) in cores.iter().zip(beside) {
        let running = threads.iter().map(|at| running(snapshot, readings, *at));
        let sum: f64 = running.map(|thread| thread.ipc * thread.presence).sum();
        learned[core.kind] = learned[core.kind].max(sum);
    }
}

/// What each thread asks for alone.
fn infer(
    snapshot: &Snapshot,
    cores: &Cores,
    widths: &[f64],
    readings: &[Option<Reading>],
    beside: &[Vec<usize>],
) -> Vec<Option<Observed>> {
    let mut observed: Vec<Option<Observed>> = readings.iter().map(|r| r.map(as_read)).collect();
    for (core, threads) in cores.iter().zip(beside) {
        let running: Vec<Running> = (threads.iter())
            .map(|at| running(snapshot, readings, *at))
            .collect();
        let solo = SoloCpi {
            width: widths[core.kind],
            contexts: core.pus.len(),
        };
        for (at, solo) in threads.iter().zip(solo.infer(&running)) {
            if let Some(seen) = &mut observed[*at] {
                seen.demand = solo.demand.max(seen.at_least);
                // However full the core, a first guess is better than none.
                seen.confidence *= solo.confidence.max(1e-3);
            }
        }
    }
    observed
}
