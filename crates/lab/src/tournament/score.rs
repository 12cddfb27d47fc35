//! What came of a tournament: per workload, per policy, and what the cycle level says of it.

use super::{Rules, alone::Alone};
use crate::{placement::Placement, sample::Sample};
use serde::Serialize;

/// Speedups that differ by less than this part are a draw.
const DRAW: f64 = 0.005;

/// One workload under one policy, or the default scheduler: means over seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Sum over threads of how fast each went on while it wanted a PU, 1 as alone, by the part of the time that it wants
    /// one alone: weighted speedup.
    pub speedup: f64,
    /// How far that is below the best, as a part of it.
    pub regret: f64,
    /// 1, and by how much it is above the default scheduler with the same seeds, as a part of the default scheduler's
    /// mean over all of its seeds. A policy that moves no thread has 1, however lucky the seeds are.
    pub ratio: f64,
    /// Moves of threads from one PU to another, a second of the operating system.
    pub moves: f64,
    /// Threads / sum of their slowdowns (harmonic speedup; Luo, Gummaraju and Franklin, ISPASS 2001), thus 1 if nobody is
    /// disturbed and 0 if one that wants a PU never gets on: unlike `speedup` it does not pay to starve one for the others.
    pub harmonic: f64,
    /// Smallest slowdown of a thread / largest: 1 is fair, 0 if one that wants a PU never gets on.
    pub fairness: f64,
    /// Where the threads were at the end, with the first seed.
    pub placement: Placement,
}

/// One workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Match {
    /// The machine.
    pub machine: String,
    /// The workload's number on that machine.
    pub workload: u64,
    /// How many threads.
    pub threads: usize,
    /// The best speedup that was found.
    pub best: f64,
    /// The best placement that does not change.
    pub best_placement: Placement,
    /// Whether all placements were tried.
    pub exhaustive: bool,
    /// The default scheduler.
    pub default: Line,
    /// The policies, in the order of the rules.
    pub lines: Vec<Line>,
}

/// A policy over all workloads, or those of one machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Standing {
    /// The policy's name in the rules, or `default`.
    pub name: String,
    /// The machine; all if it is empty.
    pub machine: String,
    /// Of how many workloads.
    pub workloads: usize,
    /// Mean regret.
    pub mean_regret: f64,
    /// The largest.
    pub worst_regret: f64,
    /// Mean of [`Line::ratio`].
    pub ratio: f64,
    /// The least of that.
    pub worst_ratio: f64,
    /// Workloads on which it was better than the default scheduler's mean, and worse, by more than 0.5 %.
    pub wins: usize,
    /// See `wins`.
    pub losses: usize,
    /// Mean of moves a second.
    pub moves: f64,
    /// Mean of [`Line::harmonic`].
    pub harmonic: f64,
    /// Mean of [`Line::fairness`].
    pub fairness: f64,
}

/// A result that was judged again: speedup of the policy's last placement (or of the best one) / of the default scheduler's
/// last one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Again {
    /// The machine.
    pub machine: String,
    /// The workload's number.
    pub workload: u64,
    /// The policy, or `best`.
    pub contestant: String,
    /// At the interval level.
    pub interval: f64,
    /// At the cycle level.
    pub cycle: f64,
    /// Whether the caches of the cycle level had settled with both placements.
    pub settled: bool,
}

/// Whether this ratio of speedups says clearly which is better.
pub(super) fn is_decided(ratio: f64) -> bool {
    (ratio - 1.0).abs() > DRAW
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The default scheduler and the policies over all machines, in the order of the rules.
    pub standings: Vec<Standing>,
    /// The same for each machine.
    pub by_machine: Vec<Standing>,
    /// Every workload.
    pub matches: Vec<Match>,
    /// Those that were judged again.
    pub again: Vec<Again>,
}

impl Match {
    pub(super) fn new(
        machine: &str,
        workload: u64,
        exhaustive: bool,
        fixed: &Sample,
        alone: &[Alone],
        default: &[Sample],
        played: &[Vec<Sample>],
    ) -> Self {
        let speedup = |sample: &Sample| speedup(sample, alone);
        let all = played.iter().flatten().chain(default).chain([fixed]);
        let best = all.map(speedup).fold(0.0, f64::max);
        let usual = mean(default.iter().map(speedup));
        let line = |samples: &[Sample]| {
            let same = mean(default.iter().take(samples.len()).map(speedup));
            let speedup = mean(samples.iter().map(speedup));
            Line {
                speedup,
                regret: 1.0 - speedup / best,
                ratio: 1.0 + (speedup - same) / usual,
                moves: mean(samples.iter().map(Sample::moves)),
                harmonic: mean(samples.iter().map(|sample| harmonic(sample, alone))),
                fairness: mean(samples.iter().map(|sample| fairness(sample, alone))),
                placement: samples.first().map(Sample::placement).unwrap_or_default(),
            }
        };
        Self {
            machine: machine.to_owned(),
            workload,
            threads: alone.len(),
            best,
            best_placement: fixed.placement(),
            exhaustive,
            default: line(default),
            lines: played.iter().map(|samples| line(samples)).collect(),
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| {
        (sum + value, count + 1)
    });
    sum / count.max(1) as f64
}

/// How fast all threads went on while they wanted a PU, each by the part of the time that it would want one in
/// isolation: as many as there are if no thread is disturbed. This is weighted speedup (Snavely and Tullsen, ASPLOS
/// 2000), without the time in which threads sleep.
pub(super) fn speedup(sample: &Sample, alone: &[Alone]) -> f64 {
    let threads = sample.threads.iter().zip(alone);
    threads
        .map(|(stats, alone)| alone.progress(stats).unwrap_or(1.0) * alone.present)
        .sum()
}

/// How fast each thread went on that wanted a PU at all, 1 as alone.
fn progress(sample: &Sample, alone: &[Alone]) -> Vec<f64> {
    let threads = sample.threads.iter().zip(alone);
    threads
        .filter_map(|(stats, alone)| alone.progress(stats))
        .collect()
}

fn harmonic(sample: &Sample, alone: &[Alone]) -> f64 {
    let progress = progress(sample, alone);
    // A thread without progress has an infinite slowdown.
    let slowdowns: f64 = progress.iter().map(|progress| progress.recip()).sum();
    match progress.len() {
        0 => 1.0,
        threads => threads as f64 / slowdowns,
    }
}

fn fairness(sample: &Sample, alone: &[Alone]) -> f64 {
    let progress = progress(sample, alone);
    let least = progress.iter().copied().fold(f64::INFINITY, f64::min);
    let most = progress.iter().copied().fold(0.0, f64::max);
    if most > 0.0 { least / most } else { 1.0 }
}

impl Outcome {
    pub(super) fn new(rules: &Rules, matches: Vec<Match>, again: Vec<Again>) -> Self {
        let standings = |machine: &str| -> Vec<Standing> {
            let there = |found: &&Match| machine.is_empty() || found.machine == machine;
            let of: Vec<&Match> = matches.iter().filter(there).collect();
            let names = rules.contestants.iter().map(|c| c.name.as_str());
            let names = std::iter::once("default").chain(names).enumerate();
            names
                .map(|(at, name)| {
                    let line = |found: &&Match| match at.checked_sub(1) {
                        Some(at) => found.lines[at].clone(),
                        None => found.default.clone(),
                    };
                    let lines: Vec<Line> = of.iter().map(line).collect();
                    standing(name, machine, &lines)
                })
                .collect()
        };
        let by_machine = rules.machines.iter().flat_map(|m| standings(&m.name));
        Self {
            standings: standings(""),
            by_machine: by_machine.collect(),
            again,
            matches: matches.clone(),
        }
    }
}

fn standing(name: &str, machine: &str, lines: &[Line]) -> Standing {
    let all = || lines.iter();
    let count = |is: &dyn Fn(f64) -> bool| all().filter(|line| is(line.ratio)).count();
    Standing {
        name: name.to_owned(),
        machine: machine.to_owned(),
        workloads: lines.len(),
        mean_regret: mean(all().map(|line| line.regret)),
        worst_regret: all().map(|line| line.regret).fold(0.0, f64::max),
        ratio: mean(all().map(|line| line.ratio)),
        worst_ratio: all().map(|line| line.ratio).fold(f64::INFINITY, f64::min),
        wins: count(&|ratio| ratio > 1.0 + DRAW),
        losses: count(&|ratio| ratio < 1.0 - DRAW),
        moves: mean(all().map(|line| line.moves)),
        harmonic: mean(all().map(|line| line.harmonic)),
        fairness: mean(all().map(|line| line.fairness)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::ThreadStats;

    fn sample(instructions: &[u64]) -> Sample {
        let thread = |done: &u64| ThreadStats {
            instructions: *done,
            wanted: 1.0,
            ..ThreadStats::default()
        };
        Sample {
            cycles: 1.0,
            threads: instructions.iter().map(thread).collect(),
            moves: Vec::new(),
            seconds: 1.0,
            responses: Vec::new(),
            energy: None,
            settled: true,
        }
    }

    /// The best is the best of all that was simulated, of any seed; a policy is compared with the default scheduler under
    /// the same seeds, in parts of what that has on average.
    #[test]
    fn regret_and_ratio_are_those_of_the_samples() {
        let alone = vec![Alone::steady(1e-3)];
        let samples = |speedups: &[u64]| -> Vec<Sample> {
            let of = |speedup: &u64| sample(&[*speedup]);
            speedups.iter().map(of).collect()
        };
        let default = samples(&[400, 800, 600]);
        let policies = [samples(&[600, 900]), samples(&[400]), samples(&[300, 300])];
        let lines = |fixed: u64| {
            let fixed = sample(&[fixed]);
            let found = Match::new("m", 0, true, &fixed, &alone, &default, &policies);
            let of = |line: &Line| [line.speedup, line.regret, line.ratio];
            let lines = std::iter::once(&found.default).chain(&found.lines);
            (found.best, lines.map(of).collect::<Vec<_>>())
        };
        let close = |found: &[f64; 3], expected: [f64; 3]| {
            for (one, other) in found.iter().zip(expected) {
                assert!(
                    (one - other).abs() < 1e-9,
                    "{found:?}, expected {expected:?}"
                );
            }
        };
        let (best, found) = lines(700);
        assert!((best - 0.9).abs() < 1e-9, "one sample of a policy: {best}");
        close(&found[0], [0.6, 1.0 / 3.0, 1.0]);
        close(&found[1], [0.75, 1.0 / 6.0, 1.25]);
        close(&found[2], [0.4, 5.0 / 9.0, 1.0]);
        close(&found[3], [0.3, 2.0 / 3.0, 0.5]);
        let (best, found) = lines(1_000);
        assert!((best - 1.0).abs() < 1e-9, "the placement: {best}");
        close(&found[1], [0.75, 0.25, 1.25]);
    }

    #[test]
    fn who_starves_is_neither_left_out_of_fairness_nor_of_the_harmonic_speedup() {
        let alone = Alone::steady(1e-3);
        let all = |instructions: &[u64]| {
            let (sample, alone) = (
                sample(instructions),
                vec![alone.clone(); instructions.len()],
            );
            [speedup, harmonic, fairness].map(|of| of(&sample, &alone))
        };
        assert_eq!(all(&[1000, 1000]), [2.0, 1.0, 1.0]);
        assert_eq!(all(&[1000, 500]), [1.5, 2.0 / 3.0, 0.5]);
        assert_eq!(all(&[1000, 0]), [1.0, 0.0, 0.0]);
    }
}
