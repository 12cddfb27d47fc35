//! Energy and the energy-delay product of two sides, tested like their times.
//!
//! Start-up is not taken off: its energy is that of a machine that is mostly idle, and is not known by itself.

use super::measure::Run;
use clap::ValueEnum;
use perch_lab::statistics::{Estimate, fewest, signed_rank};
use serde::Serialize;

/// What is compared. Time always is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompareMetric {
    /// Wall time beyond start-up
    Time,
    /// Energy of all processor packages
    Energy,
    /// Energy-delay product: that energy times wall time
    Edp,
}

impl CompareMetric {
    /// Its name in sentences.
    pub fn title(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Energy => "energy",
            Self::Edp => "energy-delay product",
        }
    }

    /// Of one run; `None` if energy was not measured.
    fn of(self, run: &Run) -> Option<f64> {
        match self {
            Self::Time => Some(run.wall_s),
            Self::Energy => run.energy_j,
            Self::Edp => Some(run.energy_j? * run.wall_s),
        }
    }
}

/// A metric of two sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricCompared {
    /// Which one.
    pub metric: CompareMetric,
    /// Pairs of runs in which it is known and not 0.
    pub pairs: usize,
    /// The probability of a wrong verdict if nothing differs.
    pub level: f64,
    /// The side's value divided by the baseline's.
    pub ratio: Option<Estimate>,
    /// The p value of the ratio's logarithm (Wilcoxon signed-rank test, two-sided).
    pub p: f64,
    /// Whether the interval excludes 1.
    pub significant: bool,
    /// The verdict in words.
    pub sentence: String,
}

impl MetricCompared {
    /// Of the runs of two sides, round by round.
    pub fn new(
        metric: CompareMetric,
        (side, runs): (&str, &[&Run]),
        (baseline, baseline_runs): (&str, &[&Run]),
        level: f64,
    ) -> Self {
        let logs: Vec<f64> = runs
            .iter()
            .zip(baseline_runs)
            .filter_map(|(run, baseline)| {
                let ratio = metric.of(run)? / metric.of(baseline)?;
                (ratio.is_finite() && ratio > 0.0).then(|| ratio.ln())
            })
            .collect();
        let ratio = Estimate::new(&logs, level).map(|ratio| ratio.map(f64::exp));
        let significant = ratio.is_some_and(|ratio| ratio.excludes(1.0));
        let title = metric.title();
        let sentence = match ratio {
            _ if logs.len() < fewest(level) => format!(
                "no verdict on {title} from so few runs: use at least -N {}",
                fewest(level)
            ),
            Some(ratio) if significant => {
                let part = (ratio.estimate - 1.0).abs() * 100.0;
                let word = |less, more| if ratio.estimate < 1.0 { less } else { more };
                match metric {
                    CompareMetric::Edp => format!(
                        "the {title} of {side} is {part:.1} % {} than {baseline}",
                        word("lower", "higher")
                    ),
                    CompareMetric::Time | CompareMetric::Energy => format!(
                        "{side} takes {part:.1} % {} {title} than {baseline}",
                        word("less", "more")
                    ),
                }
            }
            _ => format!("no difference in {title}"),
        };
        Self {
            metric,
            pairs: logs.len(),
            level,
            ratio,
            p: signed_rank(&logs),
            significant,
            sentence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::compare::results::{Results, tests::results_of};

    fn metrics(factor: f64, energy: bool) -> Results {
        results_of(
            factor,
            8,
            energy,
            &[CompareMetric::Energy, CompareMetric::Edp],
        )
    }

    #[test]
    fn energy_and_its_product_with_time() {
        let results = metrics(0.9, true);
        let compared = &results.comparisons[0];
        // Three tests share the level.
        assert!((compared.beyond.level - 0.05 / 3.0).abs() < 1e-12);
        let [energy, product] = compared.metrics.as_slice() else {
            panic!("{:?}", compared.metrics);
        };
        // The model's power is constant, and start-up is not taken off.
        let ratio = energy.ratio.unwrap().estimate;
        assert!((ratio - 0.9085).abs() < 2e-3, "{ratio}");
        assert!((product.ratio.unwrap().estimate - ratio * ratio).abs() < 1e-6);
        assert!(energy.significant && product.significant);
        assert!(
            energy.sentence.starts_with("workover takes 9."),
            "{}",
            energy.sentence
        );
        assert!(energy.sentence.ends_with("less energy than without perch"));
        let words = "the energy-delay product of workover is 17.";
        assert!(product.sentence.starts_with(words), "{}", product.sentence);
    }

    #[test]
    fn no_difference_and_no_counter() {
        let same = metrics(0.9915, true);
        let energy = &same.comparisons[0].metrics[0];
        assert!(
            !energy.significant && energy.sentence == "no difference in energy",
            "{energy:?}"
        );
        let none = metrics(0.9, false);
        let energy = &none.comparisons[0].metrics[0];
        assert!(energy.pairs == 0 && energy.ratio.is_none(), "{energy:?}");
        assert!(energy.sentence.contains("so few runs"));
    }
}
