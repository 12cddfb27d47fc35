//! A period as the policy sees it: who is busy, where everybody runs, what each asks for.

use super::{
    CpiConfig, Memory, Variant,
    cores::Cores,
    demand::{self, Basis, Reading},
    predict::Observed,
    solo::{Running, SoloCpi},
};
use crate::history::PerThread;
use perch_core::{PuSet, Snapshot, ThreadState};

/// A busy thread that may be placed and whose demand is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    /// Its place in the snapshot's threads.
    pub at: usize,
    /// What it is predicted to ask for while it runs, in instructions a cycle.
    pub demand: f64,
    /// What was measured, or estimated from its mix.
    pub measured: f64,
    /// How far the demand can be trusted.
    pub confidence: f64,
    /// Share of the period on a PU.
    pub activity: f64,
}

/// The threads, sorted out.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// By falling demand.
    pub ranked: Vec<Candidate>,
    /// Busy threads of unknown demand.
    pub unknown: Vec<usize>,
    /// Busy threads that must be left alone.
    pub hands_off: Vec<usize>,
    /// What all candidates delivered in the period, in instructions a cycle; nothing where cycles are not counted.
    pub delivered: Option<f64>,
    /// How many instructions a cycle each kind of core can issue.
    pub widths: Vec<f64>,
}

impl Census {
    /// All busy threads.
    pub fn busy(&self) -> usize {
        self.ranked.len() + self.unknown.len() + self.hands_off.len()
    }
}

/// Whether a thread is busy; bound ones stay so for longer.
pub(crate) fn is_busy(thread: &ThreadState, min_activity: f64) -> bool {
    let least = min_activity * if thread.bound.is_some() { 0.5 } else { 1.0 };
    thread.activity + thread.waiting >= least
}

/// All PUs on which any busy thread that may be placed can run.
pub(crate) fn reachable(snapshot: &Snapshot, min_activity: f64) -> PuSet {
    let ours = snapshot
        .threads
        .iter()
        .filter(|thread| thread.hands_off.is_none() && is_busy(thread, min_activity));
    ours.fold(PuSet::new(), |all, thread| {
        if thread.allowed.is_subset(&all) {
            all
        } else {
            all.or(&thread.allowed)
        }
    })
}

/// The core on which a thread spent the period: where it is bound, or pinned by others, else where it was last seen.
pub(crate) fn core_of(thread: &ThreadState, cores: &Cores) -> Option<usize> {
    let bound = thread.bound.as_ref().and_then(|pus| cores.of_all(pus));
    let pinned = || match thread.hands_off {
        Some(_) => cores.of_all(&thread.allowed),
        None => None,
    };
    let last = || thread.last_pu.and_then(|pu| cores.of(pu));
    bound.or_else(pinned).or_else(last)
}

/// Reads all threads' demand and takes it into the memory.
pub(super) fn census(
    snapshot: &Snapshot,
    cores: &Cores,
    learned: &mut Vec<f64>,
    memory: &mut PerThread<Memory>,
    config: &CpiConfig,
) -> Census {
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
    let mut census = Census::default();
    let observed = match basis {
        // The delays of the mix are those of a pipeline that issues one instruction a cycle, and no co-runner changes
        // them.
        Basis::Mix => {
            census.widths = vec![1.0; learned.len()];
            readings.iter().map(|r| r.map(as_read)).collect()
        }
        Basis::Counted => {
            let beside = beside(snapshot, cores, &readings);
            learn(snapshot, cores, learned, &readings, &beside);
            census.widths.clone_from(learned);
            if config.width > 0.0 {
                census.widths.fill(config.width);
            }
            match config.variant {
                Variant::Paper => readings.iter().map(|r| r.map(as_read)).collect(),
                Variant::Perch => infer(snapshot, cores, &census.widths, &readings, &beside),
            }
        }
    };
    for (at, thread) in threads.iter().enumerate() {
        let seen = observed[at];
        let predicted = match (seen, config.variant) {
            (Some(seen), Variant::Perch) => {
                let predictor = &mut memory[at].predictor;
                Some(predictor.follow(seen, config.smoothing, config.patience))
            }
            (Some(seen), Variant::Paper) => Some(seen.at_least),
            (None, _) => None,
        };
        if !busy[at] {
            continue;
        }
        if thread.hands_off.is_some() {
            census.hands_off.push(at);
            continue;
        }
        match predicted.zip(seen) {
            Some((demand, seen)) if !thread.allowed.is_empty() => census.ranked.push(Candidate {
                at,
                demand,
                measured: seen.at_least,
                confidence: seen.confidence,
                activity: thread.activity,
            }),
            _ => census.unknown.push(at),
        }
    }
    let delivered = |c: &Candidate| c.measured * c.activity;
    census.delivered = (basis == Basis::Counted).then(|| census.ranked.iter().map(delivered).sum());
    // What tells two threads apart is what they do and where, not what they are called.
    census.ranked.sort_unstable_by(|a, b| {
        let last = |c: &Candidate| threads[c.at].last_pu;
        (b.demand.total_cmp(&a.demand))
            .then_with(|| last(a).cmp(&last(b)))
            .then(a.at.cmp(&b.at))
    });
    census
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
