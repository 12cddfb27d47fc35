//! What `perch noise` tells, as JSON has it. Times are nanoseconds, shares 0 to 1.

use perch_linux::noise::{
    Noise, PuNoise, Share,
    event::Source,
    statistics::{Bin, Lengths, Period, histogram, period},
};
use serde::Serialize;

/// How many of the longest interruptions of each PU are listed.
const LONGEST: usize = 10;

/// What noise was measured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Quanta of fixed work.
    Fwq,
    /// Quanta of fixed time.
    Ftq,
    /// The kernel's tracer of that name.
    Osnoise,
}

/// Noise of a machine.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this format.
    pub version: u32,
    /// What it was measured with.
    pub method: Method,
    /// Each PU, by rising number.
    pub pus: Vec<Pu>,
    /// All sources of all PUs, by the time that they took, the most first.
    pub sources: Vec<Taker>,
    /// Time lost in interruptions in which no source was seen, as a share of the measured time of all PUs.
    pub unattributed: Option<f64>,
    /// The same of what is left of interruptions besides their sources: entry and exit of the kernel, refilled caches.
    pub around: Option<f64>,
    /// Why the sources are not known.
    pub untraced: Option<String>,
    /// Which of the tracers osnoise and timerlat the kernel has; null where that is not known.
    pub tracers: Option<Vec<String>>,
    /// For how long perch's control group was stopped by its CPU limit.
    pub throttled: u64,
    /// The signal that ended the measurement early.
    pub stopped: Option<String>,
}

/// Noise of a PU.
#[derive(Debug, Clone, Serialize)]
pub struct Pu {
    /// Its number.
    pub pu: u32,
    /// CLOCK_MONOTONIC time at which measuring began.
    pub start: u64,
    /// And at which it ended.
    pub end: u64,
    /// Time measured: without pauses in which perch read the kernel's events.
    pub measured: u64,
    /// Number of quanta.
    pub quanta: u64,
    /// The shortest quantum of work, or the length of a quantum of time.
    pub quantum: u64,
    /// What a quantum had to lose to count as interrupted.
    pub threshold: u64,
    /// What reading the clock takes; 0 where the kernel measures.
    pub clock: f64,
    /// Time lost in interruptions, as a share.
    pub lost: f64,
    /// Interruptions a second.
    pub rate: f64,
    /// Their lengths.
    pub lengths: Lengths,
    /// In how many there are of which length.
    pub histogram: Vec<Bin>,
    /// Their dominant period.
    pub period: Option<Period>,
    /// Who took how much on this PU, the most first.
    pub sources: Vec<Taker>,
    /// As of the whole report.
    pub unattributed: Option<f64>,
    /// As of the whole report.
    pub around: Option<f64>,
    /// The steal time that the hypervisor tells of, as a share.
    pub steal: f64,
    /// Events of the kernel that were lost.
    pub lost_events: u64,
    /// Whether measuring ended early for want of room.
    pub full: bool,
    /// The longest interruptions.
    pub longest: Vec<Long>,
}

/// Who took time.
#[derive(Debug, Clone, Serialize)]
pub struct Taker {
    /// Who.
    #[serde(flatten)]
    pub source: Source,
    /// The PUs on which it did.
    pub pus: perch_core::PuSet,
    /// As a share of the measured time of all PUs, or of its PU.
    pub share: f64,
    /// How often a second, on all PUs together.
    pub rate: f64,
    /// How long it took each time.
    pub lengths: Lengths,
    /// Its dominant period on the PU where it came most often.
    pub period: Option<Period>,
}

/// One interruption.
#[derive(Debug, Clone, Serialize)]
pub struct Long {
    /// When, from the start of measuring.
    pub at: u64,
    /// The time lost.
    pub lost: u64,
    /// Who had most of it; null if no source was seen.
    pub source: Option<Source>,
}

impl Report {
    /// In numbers.
    pub fn of(noise: &Noise, method: Method, stopped: Option<String>) -> Self {
        let measured: u64 = noise.pus.iter().map(time).sum();
        let traced = noise.untraced.is_none();
        let of_all = |nanoseconds: u64| share(nanoseconds, measured);
        let (unattributed, around) = noise
            .pus
            .iter()
            .map(left)
            .fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        let known = |nanoseconds| traced.then(|| of_all(nanoseconds));
        Self {
            version: 1,
            method,
            pus: noise.pus.iter().map(|of| pu(of, traced)).collect(),
            sources: takers(&noise.pus, measured),
            unattributed: known(unattributed),
            around: known(around),
            untraced: noise.untraced.clone(),
            tracers: noise.tracers.clone(),
            throttled: noise.throttled,
            stopped,
        }
    }
}

fn share(part: u64, of: u64) -> f64 {
    match of {
        0 => 0.0,
        of => part as f64 / of as f64,
    }
}

/// The time that was measured on a PU.
fn time(of: &PuNoise) -> u64 {
    let windows = of.measured.windows.iter();
    windows.map(|(from, to)| to - from).sum()
}

/// Time lost without any source, and beside sources.
fn left(of: &PuNoise) -> (u64, u64) {
    let pairs = of.measured.interruptions.iter().zip(&of.causes);
    pairs.fold((0, 0), |(nobody, beside), (found, cause)| {
        match cause.source {
            None => (nobody + found.lost, beside),
            Some(_) => (nobody, beside + (found.lost - cause.known)),
        }
    })
}

fn pu(of: &PuNoise, traced: bool) -> Pu {
    let measured = &of.measured;
    let time = time(of);
    let lengths = || measured.interruptions.iter().map(|found| found.lost);
    let starts: Vec<u64> = measured
        .interruptions
        .iter()
        .map(|found| found.start)
        .collect();
    let (nobody, beside) = left(of);
    let known = |nanoseconds| traced.then(|| share(nanoseconds, time));
    let start = measured.windows.first().map_or(0, |window| window.0);
    Pu {
        pu: of.pu,
        start,
        end: measured.windows.last().map_or(0, |window| window.1),
        measured: time,
        quanta: measured.quanta,
        quantum: measured.quantum,
        threshold: measured.threshold,
        clock: measured.clock,
        lost: share(of.lost, time),
        rate: starts.len() as f64 / (time as f64 * 1e-9).max(1e-9),
        lengths: Lengths::of(lengths().collect()),
        histogram: histogram(lengths()),
        period: period(&starts),
        sources: takers(std::slice::from_ref(of), time),
        unattributed: known(nobody),
        around: known(beside),
        steal: share(of.steal, time),
        lost_events: of.lost_events,
        full: of.full,
        longest: longest(of, start),
    }
}

fn longest(of: &PuNoise, start: u64) -> Vec<Long> {
    let found = &of.measured.interruptions;
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by_key(|at| (std::cmp::Reverse(found[*at].lost), *at));
    order.truncate(LONGEST);
    let long = |at: usize| {
        let source = of.causes.get(at).and_then(|cause| cause.source);
        let source = source.and_then(|source| of.sources.get(source as usize));
        Long {
            at: found[at].start - start,
            lost: found[at].lost,
            source: source.map(|share| share.source.clone()),
        }
    };
    order.into_iter().map(long).collect()
}

/// Sources of some PUs, where `time` is the measured time of all of them.
fn takers(pus: &[PuNoise], time: u64) -> Vec<Taker> {
    let mut all = std::collections::BTreeMap::<&Source, Vec<(u32, &Share)>>::new();
    for of in pus {
        for share in &of.sources {
            all.entry(&share.source).or_default().push((of.pu, share));
        }
    }
    // Of all PUs that were measured at the same time.
    let seconds = time as f64 * 1e-9 / pus.len().max(1) as f64;
    let taker = |(source, shares): (&Source, Vec<(u32, &Share)>)| {
        let runs = || shares.iter().flat_map(|(_, share)| &share.taken.runs);
        let most = shares
            .iter()
            .max_by_key(|(_, share)| share.taken.runs.len());
        let starts: Vec<u64> = most
            .iter()
            .flat_map(|(_, share)| share.taken.runs.iter().map(|run| run.0))
            .collect();
        Taker {
            source: source.clone(),
            pus: shares.iter().map(|(pu, _)| *pu).collect(),
            share: share(
                shares.iter().map(|(_, share)| share.taken.total).sum(),
                time,
            ),
            rate: runs().count() as f64 / seconds.max(1e-9),
            lengths: Lengths::of(runs().map(|run| run.1).collect()),
            period: period(&starts),
        }
    };
    let mut takers: Vec<Taker> = all.into_iter().map(taker).collect();
    takers.sort_by(|a, b| b.share.total_cmp(&a.share));
    takers
}
