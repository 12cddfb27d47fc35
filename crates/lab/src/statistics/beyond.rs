//! Whether one way of running a program is faster than another, apart from what it costs to start it.
//!
//! In each round a program that does nothing is run each way besides the program itself. The difference of the two
//! programs' differences is free of start-up costs, and symmetric about 0 if nothing else differs, whatever the
//! distribution of start-up costs is: they enter it twice, with either sign. That is what the signed-rank test needs.

use super::rank::{Estimate, fewest, signed_rank};
use serde::Serialize;

/// The wall times of one way, in seconds, round by round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Runs {
    /// Of the program.
    pub program: Vec<f64>,
    /// Of the program that does nothing.
    pub nothing: Vec<f64>,
}

/// What the runs show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// There are fewer rounds than can show anything.
    TooFew,
    /// The interval of the difference includes 0.
    NoDifference,
    /// Significantly faster than the baseline.
    Faster,
    /// Significantly slower than the baseline.
    Slower,
}

/// A difference of two ways beyond that of their start-up costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Beyond {
    /// Rounds, each a pair of runs of the program and a pair of runs of the program that does nothing.
    pub pairs: usize,
    /// The probability that a verdict is wrong if nothing differs.
    pub level: f64,
    /// Wall time minus the baseline's, in seconds; below 0 it is faster.
    pub difference: Option<Estimate>,
    /// Wall time divided by the baseline's, both without start-up; below 1 it is faster. `None` where the program is so
    /// short that start-up costs vary by more than it takes.
    pub ratio: Option<Estimate>,
    /// The p value of the difference (Wilcoxon signed-rank test, two-sided).
    pub p: f64,
    /// What follows.
    pub verdict: Verdict,
}

impl Beyond {
    /// Compares a way with a baseline; `plain` are the program that does nothing's times without anything to start, round
    /// by round. All have equally many rounds.
    pub fn new(baseline: &Runs, way: &Runs, plain: &[f64], level: f64) -> Self {
        let net = |runs: &Runs| -> Vec<f64> {
            let nothing = runs.nothing.iter().zip(plain);
            let startup = nothing.map(|(nothing, plain)| nothing - plain);
            let program = runs.program.iter().zip(startup);
            program
                .map(|(program, startup)| program - startup)
                .collect()
        };
        let (baseline, way) = (net(baseline), net(way));
        let both = || way.iter().zip(&baseline);
        let differences: Vec<f64> = both().map(|(way, baseline)| way - baseline).collect();
        let ratios: Vec<f64> = both()
            .filter(|(way, baseline)| **way > 0.0 && **baseline > 0.0)
            .map(|(way, baseline)| (way / baseline).ln())
            .collect();
        let difference = Estimate::new(&differences, level);
        let ratio = (ratios.len() == differences.len())
            .then(|| Some(Estimate::new(&ratios, level)?.map(f64::exp)))
            .flatten();
        // Both must agree: of programs that take a different time in each round one may be misled.
        let significant = difference.is_some_and(|difference| difference.excludes(0.0))
            && ratio.is_none_or(|ratio| ratio.excludes(1.0));
        let faster = difference.is_some_and(|difference| difference.estimate < 0.0);
        Self {
            pairs: differences.len(),
            level,
            verdict: match (significant, faster) {
                _ if differences.len() < fewest(level) => Verdict::TooFew,
                (false, _) => Verdict::NoDifference,
                (true, true) => Verdict::Faster,
                (true, false) => Verdict::Slower,
            },
            p: signed_rank(&differences),
            difference,
            ratio,
        }
    }
}

/// What a way costs at the start of a program, in seconds: from the program that does nothing, with and without it.
pub fn startup(with: &[f64], plain: &[f64], level: f64) -> Option<Estimate> {
    let pairs = with.iter().zip(plain);
    let differences: Vec<f64> = pairs.map(|(with, plain)| with - plain).collect();
    Estimate::new(&differences, level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_sim::stream::Random;

    /// Start-up costs 20 ms and up to some ms more, rarely far more, as measured ones do.
    fn startup_cost(random: &mut Random) -> f64 {
        let rare = if random.unit() < 0.05 { 0.1 } else { 0.0 };
        0.02 - 0.004 * (1.0 - random.unit()).ln() + rare * random.unit()
    }

    /// A run of a program of `seconds`, with noise that is skewed and grows with it, on a machine that drifts.
    fn run(seconds: f64, round: usize, random: &mut Random) -> f64 {
        let drift = 1.0 + 0.01 * round as f64;
        let noise = -0.01 * (1.0 - random.unit()).ln();
        let disturbed = if random.unit() < 0.05 { 0.2 } else { 0.0 };
        seconds * (drift + noise + disturbed * random.unit()) + 0.001 * random.unit()
    }

    fn experiment(seconds: f64, factor: f64, rounds: usize, random: &mut Random) -> Beyond {
        let (mut without, mut with) = (Runs::default(), Runs::default());
        for round in 0..rounds {
            without.nothing.push(run(0.001, round, random));
            with.nothing
                .push(run(0.001, round, random) + startup_cost(random));
            without.program.push(run(seconds, round, random));
            with.program
                .push(run(seconds * factor, round, random) + startup_cost(random));
        }
        Beyond::new(&without, &with, &without.nothing.clone(), 0.05)
    }

    /// The share of experiments that call a difference significant.
    fn called(seconds: f64, factor: f64, rounds: usize) -> f64 {
        const EXPERIMENTS: u32 = 2000;
        let mut random = Random::new(17);
        let calls = |_: &u32| {
            let found = experiment(seconds, factor, rounds, &mut random);
            matches!(found.verdict, Verdict::Faster | Verdict::Slower)
        };
        (0..EXPERIMENTS).filter(calls).count() as f64 / f64::from(EXPERIMENTS)
    }

    #[test]
    fn of_experiments_without_effect_at_most_one_in_twenty_is_called_significant() {
        for seconds in [0.002, 0.05, 0.2, 2.0] {
            for rounds in [6, 7, 10, 20, 60] {
                // 2,000 experiments: three standard errors above 5 % are 6.5 %.
                let rate = called(seconds, 1.0, rounds);
                assert!(rate <= 0.065, "{rate} of {rounds} rounds of {seconds} s");
            }
        }
        // Without the subtraction start-up would be significant in nearly all.
        let mut random = Random::new(3);
        let p = |_: &u32| {
            let differences: Vec<f64> = (0..7)
                .map(|round| {
                    run(0.2, round, &mut random) + startup_cost(&mut random)
                        - run(0.2, round, &mut random)
                })
                .collect();
            signed_rank(&differences) <= 0.05
        };
        assert!((0..200).filter(p).count() > 150);
    }

    #[test]
    fn effects_are_found() {
        assert!(called(2.0, 0.9, 7) > 0.7);
        assert!(called(2.0, 1.1, 10) > 0.9);
        assert!(called(0.2, 1.3, 10) > 0.9);
        let mut random = Random::new(5);
        let found = experiment(2.0, 0.8, 20, &mut random);
        assert_eq!(found.verdict, Verdict::Faster);
        let ratio = found.ratio.unwrap();
        assert!(
            ratio.low.unwrap() < 0.8 && 0.8 < ratio.high.unwrap(),
            "{ratio:?}"
        );
        assert!((ratio.estimate - 0.8).abs() < 0.02, "{ratio:?}");
        let found = experiment(2.0, 1.2, 20, &mut random);
        assert_eq!(found.verdict, Verdict::Slower);
    }

    #[test]
    fn five_rounds_show_nothing_and_no_program_has_no_ratio() {
        let mut random = Random::new(7);
        let found = experiment(1.0, 2.0, 5, &mut random);
        assert_eq!(found.verdict, Verdict::TooFew);
        assert_eq!(found.difference.unwrap().low, None);
        let short = experiment(0.0, 1.0, 30, &mut random);
        assert_eq!(short.ratio, None);
        assert_eq!(short.verdict, Verdict::NoDifference);
    }

    #[test]
    fn two_ways_with_start_up_costs_are_compared_without_them() {
        let plain = vec![0.001; 8];
        let way = |startup: f64, seconds: f64| Runs {
            program: (0..8)
                .map(|round| startup + seconds * (1.0 + 0.001 * f64::from(round)))
                .collect(),
            nothing: vec![0.001 + startup; 8],
        };
        let found = Beyond::new(&way(0.5, 1.0), &way(0.02, 0.5), &plain, 0.05);
        let ratio = found.ratio.unwrap().estimate;
        assert!((ratio - 0.5).abs() < 1e-9, "{ratio}");
        assert_eq!(found.verdict, Verdict::Faster);
        let cost = startup(&[0.021, 0.023, 0.022], &[0.001; 3], 0.05).unwrap();
        assert!((cost.estimate - 0.021).abs() < 1e-12 && cost.low.is_none());
    }
}
