//! What all runs together show.

use super::{
    measure::{Kind, Run},
    metrics::{CompareMetric, MetricCompared},
    sides::PLAIN,
};
use perch_lab::statistics::{Beyond, Estimate, Runs, Spread, Verdict, fewest, startup};
use serde::Serialize;

/// The version of the JSON.
const VERSION: u32 = 1;

/// The probability that any verdict of a comparison is wrong if nothing differs.
pub const LEVEL: f64 = 0.05;

/// The program that does nothing. It lasts longer than what perch still sets up once the program runs: of that,
/// a program notices nothing, but one that ends at once would wait for it.
pub const NOTHING: [&str; 2] = ["sleep", "0.1"];

/// The whole comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Results {
    /// [`VERSION`].
    pub version: u32,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// The program with which start-up is measured.
    pub startup_program: String,
    /// Rounds: runs of each side.
    pub rounds: usize,
    /// The signal by which the user stopped perch before all rounds that were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
    /// The baseline and what is compared with it.
    pub sides: Vec<SideResults>,
    /// Each but the baseline, with the baseline.
    pub comparisons: Vec<Compared>,
    /// What may have spoiled the comparison.
    pub remarks: Vec<String>,
    /// All runs, in order.
    pub runs: Vec<Run>,
}

/// One side: spreads of its runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SideResults {
    /// The policy's name, or [`PLAIN`].
    pub name: String,
    /// Wall time in seconds, start-up included.
    pub wall_s: Spread,
    /// User time of the program and its descendants, in seconds.
    pub user_s: Spread,
    /// Their system time, in seconds.
    pub system_s: Spread,
    /// Their voluntary context switches.
    pub voluntary: Spread,
    /// Their involuntary context switches.
    pub involuntary: Spread,
    /// User and system time of perch itself, in seconds; `None` without perch.
    pub perch_cpu_s: Option<Spread>,
    /// Energy of all packages in joules; `None` if it cannot be read.
    pub energy_j: Option<Spread>,
    /// What perch changed in all runs together, such as threads bound; `None` without perch.
    pub changes: Option<u64>,
    /// Runs that ended with a status other than 0.
    pub failures: usize,
    /// What perch's start and end cost, in seconds; `None` without perch.
    pub startup_s: Option<Estimate>,
    /// How many pairs of runs that is from.
    pub startup_pairs: usize,
}

/// Two sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// What is compared.
    pub side: String,
    /// With what.
    pub baseline: String,
    /// The test from which the p value is.
    pub test: &'static str,
    /// Difference, ratio, p value and verdict.
    #[serde(flatten)]
    pub beyond: Beyond,
    /// Whether perch changed anything in any run of the two.
    pub placed: bool,
    /// The verdict in words.
    pub sentence: String,
    /// What else was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricCompared>,
}

impl Results {
    /// Of these runs. `sides` are the sides' names, the baseline first; the runs hold as many rounds of each. `metrics` are
    /// compared besides time.
    pub fn new(
        program: Vec<String>,
        sides: &[String],
        metrics: &[CompareMetric],
        runs: Vec<Run>,
        mut remarks: Vec<String>,
    ) -> Self {
        let comparisons = sides.len().saturating_sub(1).max(1) * (1 + metrics.len());
        // Several comparisons are several occasions for chance (Bonferroni).
        let level = LEVEL / comparisons as f64;
        let results: Vec<SideResults> = sides.iter().map(|side| of_side(side, &runs)).collect();
        let plain = nothing(&runs, PLAIN, 1);
        let walls = |side: &str| Runs {
            program: program_runs(&runs, side).map(|run| run.wall_s).collect(),
            nothing: nothing(&runs, side, 1),
        };
        let compared = results
            .split_first()
            .map_or(Vec::new(), |(baseline, others)| {
                let of_metric = |metric, side: &SideResults| {
                    let (name, other) = (&*side.name, &*baseline.name);
                    let ours: Vec<&Run> = program_runs(&runs, name).collect();
                    let theirs: Vec<&Run> = program_runs(&runs, other).collect();
                    MetricCompared::new(metric, (name, &ours), (other, &theirs), level)
                };
                let compare = |side: &SideResults| {
                    let beyond =
                        Beyond::new(&walls(&baseline.name), &walls(&side.name), &plain, level);
                    let placed = [baseline, side].iter().any(|side| side.changes > Some(0));
                    Compared {
                        sentence: sentence(baseline, side, &beyond, placed),
                        side: side.name.clone(),
                        baseline: baseline.name.clone(),
                        test: "Wilcoxon signed-rank",
                        metrics: metrics
                            .iter()
                            .map(|metric| of_metric(*metric, side))
                            .collect(),
                        beyond,
                        placed,
                    }
                };
                others.iter().map(compare).collect()
            });
        if results.iter().any(|side| side.energy_j.is_some()) {
            remarks.push(
                "energy is that of whole processor packages, whatever else ran on them".to_owned(),
            );
        }
        Self {
            version: VERSION,
            program,
            startup_program: NOTHING.join(" "),
            stopped_by: None,
            rounds: sides
                .first()
                .map_or(0, |side| program_runs(&runs, side).count()),
            comparisons: compared,
            sides: results,
            remarks,
            runs,
        }
    }
}

/// What the start of each side costs beyond the plain start, so far.
pub fn startup_of(side: &str, runs: &[Run]) -> Option<Estimate> {
    startup(&nothing(runs, side, 0), &nothing(runs, PLAIN, 0), LEVEL)
}

/// The wall times of a side's start-up runs from this round on.
fn nothing(runs: &[Run], side: &str, from: usize) -> Vec<f64> {
    let of = |run: &&Run| run.kind == Kind::StartUp && run.side == side && run.round >= from;
    runs.iter().filter(of).map(|run| run.wall_s).collect()
}

fn program_runs<'a>(runs: &'a [Run], side: &'a str) -> impl Iterator<Item = &'a Run> {
    let of = move |run: &&Run| run.kind == Kind::Program && run.side == side;
    runs.iter().filter(of)
}

fn of_side(side: &str, runs: &[Run]) -> SideResults {
    let spread = |value: fn(&Run) -> f64| {
        let values: Vec<f64> = program_runs(runs, side).map(value).collect();
        Spread::new(&values)
    };
    let known = |value: fn(&Run) -> Option<f64>| {
        let values: Option<Vec<f64>> = program_runs(runs, side).map(value).collect();
        values.map(|values| Spread::new(&values))
    };
    let changes: Option<Vec<u64>> = program_runs(runs, side).map(|run| run.changes).collect();
    let has_perch = side != PLAIN;
    SideResults {
        name: side.to_owned(),
        wall_s: spread(|run| run.wall_s),
        user_s: spread(|run| run.user_s),
        system_s: spread(|run| run.system_s),
        voluntary: spread(|run| run.voluntary as f64),
        involuntary: spread(|run| run.involuntary as f64),
        perch_cpu_s: known(|run| run.perch_cpu_s),
        energy_j: known(|run| run.energy_j),
        changes: changes.map(|changes| changes.iter().sum()),
        failures: program_runs(runs, side)
            .filter(|run| run.status != 0)
            .count(),
        startup_s: has_perch.then(|| startup_of(side, runs)).flatten(),
        startup_pairs: match has_perch {
            true => nothing(runs, side, 0).len(),
            false => 0,
        },
    }
}

/// The verdict in words.
fn sentence(baseline: &SideResults, side: &SideResults, beyond: &Beyond, placed: bool) -> String {
    let percent = |ratio: f64| format!("{:.1} %", (ratio - 1.0).abs() * 100.0);
    let size = match (beyond.ratio, beyond.difference) {
        (Some(ratio), _) => percent(ratio.estimate),
        (None, Some(difference)) => format!("{:.1} ms", difference.estimate.abs() * 1e3),
        (None, None) => String::new(),
    };
    let significant = |word: &str| {
        let cause = match placed {
            true => "",
            false => {
                "; nothing was bound in any run, so placement cannot have caused it: it is what \
                 perch itself costs, or a disturbance"
            }
        };
        format!(
            "{} is {size} {word} than {}{cause}",
            side.name, baseline.name
        )
    };
    match beyond.verdict {
        Verdict::TooFew => {
            let fewest = fewest(beyond.level);
            format!("no verdict from so few runs: use at least -N {fewest}")
        }
        Verdict::Faster => significant("faster"),
        Verdict::Slower => significant("slower"),
        Verdict::NoDifference => {
            let cost = match (baseline.startup_s, side.startup_s) {
                (None, Some(startup)) => {
                    format!("perch's start-up ({:.1} ms)", startup.estimate * 1e3)
                }
                _ => "that of their start-up".to_owned(),
            };
            let cause = match placed {
                true => "",
                false => "; nothing was bound in any run, so placement cannot have caused one",
            };
            format!("no difference beyond {cost}{cause}")
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Ten rounds of a program of 2 s, which `workover` makes faster by this factor.
    pub fn results(factor: f64, changes: u64, energy: bool) -> Results {
        results_of(factor, changes, energy, &[])
    }

    /// The same with other metrics than time.
    pub fn results_of(
        factor: f64,
        changes: u64,
        energy: bool,
        metrics: &[CompareMetric],
    ) -> Results {
        let mut runs = Vec::new();
        let run = |round: usize, side: &str, kind: Kind, wall_s: f64| {
            let perch = side != PLAIN;
            Run {
                round,
                side: side.to_owned(),
                kind,
                wall_s,
                user_s: wall_s * 1.8,
                system_s: 0.01,
                voluntary: 120 + round as u64,
                involuntary: 40,
                perch_cpu_s: perch.then_some(0.021),
                energy_j: energy.then_some(wall_s * 30.0),
                changes: perch.then_some(changes),
                status: 0,
            }
        };
        for round in 0..=10usize {
            let drift = 1.0 + 0.001 * round as f64;
            let noise = [0.001, -0.002, 0.0015, -0.001][round % 4];
            runs.push(run(round, PLAIN, Kind::StartUp, 0.101));
            runs.push(run(round, "workover", Kind::StartUp, 0.118 + noise));
            if round > 0 {
                runs.push(run(round, PLAIN, Kind::Program, 2.0 * drift));
                let wall = 2.0 * factor * drift + 0.017 - 1.5 * noise;
                runs.push(run(round, "workover", Kind::Program, wall));
            }
        }
        let sides = [PLAIN.to_owned(), "workover".to_owned()];
        let program = ["./app", "--threads", "16"].map(str::to_owned).to_vec();
        Results::new(program, &sides, metrics, runs, vec![])
    }

    #[test]
    fn verdicts() {
        let sentence = |factor, changes| {
            let results = results(factor, changes, false);
            results.comparisons[0].sentence.clone()
        };
        assert_eq!(
            sentence(0.9, 8),
            "workover is 10.0 % faster than without perch"
        );
        let unplaced = sentence(1.1, 0);
        assert!(
            unplaced.starts_with("workover is 10.0 % slower"),
            "{unplaced}"
        );
        assert!(
            unplaced.contains("placement cannot have caused it"),
            "{unplaced}"
        );
        let none = sentence(1.0, 0);
        assert!(
            none.starts_with("no difference beyond perch's start-up (1"),
            "{none}"
        );
        assert!(none.contains("cannot have caused one"), "{none}");
        assert!(!sentence(1.0, 8).contains("cannot"));
    }

    #[test]
    fn each_comparison_of_several_must_be_surer() {
        let mut runs = Vec::new();
        for of in results(0.9, 8, false).runs {
            if of.side == "workover" {
                runs.push(Run {
                    side: "cpi".to_owned(),
                    ..of.clone()
                });
            }
            runs.push(of);
        }
        let sides = [PLAIN, "workover", "cpi"].map(str::to_owned);
        let results = Results::new(vec![], &sides, &[], runs.clone(), vec![]);
        assert_eq!(results.comparisons.len(), 2);
        assert_eq!(results.comparisons[1].beyond.level, 0.025);
        let sides = ["workover", "cpi"].map(str::to_owned);
        let against = Results::new(vec![], &sides, &[], runs.clone(), vec![]);
        assert_eq!(against.comparisons[0].beyond.verdict, Verdict::NoDifference);
        assert!(against.comparisons[0].sentence.contains("their start-up"));
        // Five rounds cannot show anything.
        runs.retain(|run| run.round < 6);
        let few = Results::new(vec![], &sides, &[], runs, vec![]);
        assert!(few.comparisons[0].sentence.contains("use at least -N 6"));
    }
}
