//! The experiment's result and the limits that it is held to.

use crate::catalogue::Program;
use crate::estimate::{Estimate, Shares};
use crate::truth::Truth;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Mean absolute error of the floating-point share over the floating-point programs, in points, must be below.
pub const MOST_MEAN_ERROR: f64 = 4.0;
/// perch's threshold between floating-point and integer threads, in percent.
pub const THRESHOLD: f64 = 5.0;
/// Up to here a program is an integer program, in percent of its instructions.
pub const INTEGER: f64 = 2.0;
/// From here on it is floating-point heavy.
pub const HEAVY: f64 = 10.0;
/// No stationary program's floating-point share may change by a larger factor between two seconds.
pub const LARGEST_STEP: f64 = 1.5;
/// The stated 90 % interval must hold the truth for at least this share of the floating-point programs, in percent.
pub const LEAST_COVERED: f64 = 80.0;
/// The standard error of a truth, in points, up to which the program is the same all along, so that its truth is that of any
/// second of it.
pub const STEADY: f64 = 1.0;
/// Two-sided 90 % quantile of the normal distribution.
const Z90: f64 = 1.645;
/// At least this many programs, and this many of them floating-point.
pub const FEWEST: (usize, usize) = (20, 12);

/// What a program is by its true share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// At most [`INTEGER`]: perch has to put it below the threshold.
    Integer,
    /// Between: either side is right.
    Between,
    /// At least [`HEAVY`]: perch has to put it above.
    Heavy,
}

impl Class {
    /// Of a share in percent.
    pub fn of(truth: f64) -> Self {
        match truth {
            share if share <= INTEGER => Class::Integer,
            share if share >= HEAVY => Class::Heavy,
            _ => Class::Between,
        }
    }

    /// Whether an estimate in percent is on the right side of the threshold.
    pub fn allows(self, estimate: f64) -> bool {
        match self {
            Class::Integer => estimate < THRESHOLD,
            Class::Between => true,
            Class::Heavy => estimate >= THRESHOLD,
        }
    }
}

/// A program's true counts, in the table's form.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrueShares {
    /// Floating-point instructions, in percent.
    pub fp_percent: f64,
    /// One standard error of it, in points; 0 for complete counts.
    pub standard_error: f64,
    /// What it makes the program.
    pub class: Class,
    /// How they were counted.
    pub method: String,
    /// Instructions counted.
    pub instructions: f64,
    /// The other shares that perch gives, by the metric's name, 0 to 1.
    pub others: BTreeMap<String, f64>,
    /// Shares of instruction classes, 0 to 1.
    pub mix: BTreeMap<String, f64>,
    /// Floating-point instructions in each stretch that was counted, in percent, in the order of time.
    pub stretches: Vec<f64>,
    /// Whether the stretches are spread over all of the program, to its end.
    pub to_the_end: bool,
}

impl TrueShares {
    /// From counts.
    pub fn new(truth: &Truth, method: &'static str) -> Self {
        let mix = &truth.mix;
        let fp_percent = 100.0 * mix.fp_share();
        Self {
            fp_percent,
            standard_error: 100.0 * truth.error,
            class: Class::of(fp_percent),
            method: method.to_string(),
            instructions: truth.instructions,
            others: [
                ("vector_share", mix.vector_share()),
                ("load_share", mix.load_share()),
                ("store_share", mix.store_share()),
                ("branch_share", mix.branch_share()),
                ("divide_share", mix.divide_share()),
            ]
            .map(|(name, share)| (name.to_string(), share))
            .into(),
            mix: perch_sampling::Class::ALL
                .map(|class| (class.name().to_string(), mix.share(class)))
                .into(),
            stretches: truth.stretches.iter().map(|share| 100.0 * share).collect(),
            to_the_end: truth.to_the_end,
        }
    }
}

impl TrueShares {
    /// Whether the program is the same all along.
    pub fn is_steady(&self) -> bool {
        self.standard_error <= STEADY
    }

    /// Whether the truth, itself not quite certain where it was sampled, lies in the 90 % interval that perch states.
    pub fn is_in_interval(&self, shares: &Shares) -> bool {
        let error = (100.0 * shares.fp_error).hypot(self.standard_error);
        (100.0 * shares.fp - self.fp_percent).abs() <= Z90 * error
    }
}

impl Shares {
    /// Half-width of the 90 % interval of the floating-point share that perch states, in points.
    pub fn half_width(&self) -> f64 {
        100.0 * Z90 * self.fp_error
    }
}

/// One program's result.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Its name.
    pub program: String,
    /// What sort of program it is.
    pub kind: String,
    /// Whether it does the same in every second.
    pub stationary: bool,
    /// The truth.
    pub truth: Option<TrueShares>,
    /// What perch says with its caller's rights.
    pub privileged: Option<Estimate>,
    /// What perch says as nobody.
    pub unprivileged: Option<Estimate>,
    /// Why the program could not run here: what to install.
    pub missing: Option<String>,
    /// Why its instructions could not be counted.
    pub uncounted: Option<String>,
    /// What went wrong in asking perch.
    pub failures: Vec<String>,
}

impl Row {
    /// A row without results.
    pub fn new(program: &Program) -> Self {
        Self {
            program: program.name.clone(),
            kind: program.kind.clone(),
            stationary: program.stationary,
            truth: None,
            privileged: None,
            unprivileged: None,
            missing: None,
            uncounted: None,
            failures: Vec::new(),
        }
    }

    /// Whether perch's verdicts are right, after one second where that is judged, else at the end; `None` if nothing is.
    pub fn class_is_right(&self) -> Option<bool> {
        let verdict =
            |first: Asked, whole: Asked| self.judged(first).or_else(|| self.judged(whole));
        let mut verdicts = [
            verdict(Asked::PrivilegedFirstSecond, Asked::PrivilegedWhole),
            verdict(Asked::UnprivilegedFirstSecond, Asked::UnprivilegedWhole),
        ]
        .into_iter()
        .flatten()
        .map(|(truth, shares)| truth.class.allows(100.0 * shares.fp))
        .peekable();
        verdicts.peek()?;
        Some(verdicts.all(|right| right))
    }

    /// What perch said, with the truth that it is held to: the truth has to be of the same stretch of execution. That of a
    /// steady program is the truth of every stretch. Any other program's is that of the whole run, and only where both runs
    /// went to the program's end.
    pub fn judged(&self, asked: Asked) -> Option<(&TrueShares, &Shares)> {
        let truth = self.truth.as_ref()?;
        let (estimate, shares) = asked.answer(self)?;
        let all = asked.is_whole() && truth.to_the_end && estimate.to_the_end;
        (truth.is_steady() || all).then_some((truth, shares))
    }
}

/// One way to ask perch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Asked {
    /// With rights, after one second.
    PrivilegedFirstSecond,
    /// With rights, at the end.
    PrivilegedWhole,
    /// As nobody, after one second.
    UnprivilegedFirstSecond,
    /// As nobody, at the end.
    UnprivilegedWhole,
}

impl Asked {
    /// All of them.
    pub const ALL: [Asked; 4] = [
        Asked::PrivilegedFirstSecond,
        Asked::PrivilegedWhole,
        Asked::UnprivilegedFirstSecond,
        Asked::UnprivilegedWhole,
    ];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Asked::PrivilegedFirstSecond => "privileged, after 1 s",
            Asked::PrivilegedWhole => "privileged, at the end",
            Asked::UnprivilegedFirstSecond => "unprivileged, after 1 s",
            Asked::UnprivilegedWhole => "unprivileged, at the end",
        }
    }

    /// Whether it is about all of the run.
    pub const fn is_whole(self) -> bool {
        matches!(self, Asked::PrivilegedWhole | Asked::UnprivilegedWhole)
    }

    /// What perch said then about a program, and all that it said with the same rights.
    pub fn answer(self, row: &Row) -> Option<(&Estimate, &Shares)> {
        let estimate = match self {
            Asked::PrivilegedFirstSecond | Asked::PrivilegedWhole => row.privileged.as_ref(),
            Asked::UnprivilegedFirstSecond | Asked::UnprivilegedWhole => row.unprivileged.as_ref(),
        }?;
        let shares = match self.is_whole() {
            true => &estimate.whole,
            false => &estimate.first_second,
        };
        Some((estimate, shares))
    }
}

/// Errors over the floating-point programs (true share above [`INTEGER`]).
#[derive(Debug, Clone, Serialize)]
pub struct Errors {
    /// How perch was asked.
    pub asked: Asked,
    /// Programs.
    pub programs: usize,
    /// Mean absolute error, in points.
    pub mean: f64,
    /// The largest absolute error, in points.
    pub largest: f64,
    /// The program that has it.
    pub worst: String,
    /// Share of the programs whose truth lies in the 90 % interval that perch states, in percent.
    pub covered: f64,
    /// Mean half-width of these intervals, in points.
    pub half_width: f64,
    /// Mean absolute error of the other shares over all programs (the packed share: over the floating-point
    /// ones), in points, by the metric's name.
    pub others: BTreeMap<String, f64>,
}

/// The whole result.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// One for each way that perch was asked.
    pub errors: Vec<Errors>,
    /// The stationary floating-point program whose share changes most between two seconds, and the factor.
    pub largest_step: Option<(String, f64)>,
    /// Programs with a truth and an estimate.
    pub programs: usize,
    /// Limits that are not met, as sentences; empty if all is well.
    pub violations: Vec<String>,
}

/// Judges the rows. With `everything`, the numbers of programs have to suffice too.
pub fn judge(rows: &[Row], everything: bool) -> Summary {
    let errors: Vec<Errors> = Asked::ALL
        .into_iter()
        .filter_map(|asked| errors(rows, asked))
        .collect();
    let judged: Vec<(&Row, bool)> = rows
        .iter()
        .filter_map(|row| Some((row, row.class_is_right()?)))
        .collect();
    let mut violations = Vec::new();
    for row in rows {
        violations.extend(
            row.failures
                .iter()
                .map(|failure| format!("{}: {failure}", row.program)),
        );
    }
    for error in &errors {
        if error.mean >= MOST_MEAN_ERROR {
            violations.push(format!(
                "mean error {}: {:.1} points, not below {MOST_MEAN_ERROR}",
                error.asked.name(),
                error.mean
            ));
        }
    }
    for error in &errors {
        if error.covered < LEAST_COVERED {
            violations.push(format!(
                "the 90 % interval {} holds the truth of {:.0} % of the programs, not of {LEAST_COVERED} %",
                error.asked.name(),
                error.covered
            ));
        }
    }
    let steps = steps(rows);
    for (program, step) in &steps {
        if *step > LARGEST_STEP {
            violations.push(format!(
                "{program} is stationary, but its share changes by a factor of {step:.2} between two seconds"
            ));
        }
    }
    for (row, right) in &judged {
        if !right {
            violations.push(format!(
                "{} is on the wrong side of the {THRESHOLD} % threshold",
                row.program
            ));
        }
    }
    let floating_point = errors.iter().map(|error| error.programs).min().unwrap_or(0);
    if everything && (judged.len() < FEWEST.0 || floating_point < FEWEST.1) {
        violations.push(format!(
            "{} programs, {floating_point} of them floating-point, are too few: {} and {} are needed; install the \
             missing ones",
            judged.len(),
            FEWEST.0,
            FEWEST.1
        ));
    }
    Summary {
        errors,
        largest_step: steps.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)),
        programs: judged.len(),
        violations,
    }
}

/// Stationary programs of class [`Class::Heavy`], with the largest factor between two seconds. Of smaller shares the
/// sampling noise alone makes such factors.
fn steps(rows: &[Row]) -> Vec<(String, f64)> {
    rows.iter()
        .filter(|row| row.stationary && row.truth.as_ref().is_some_and(|t| t.class == Class::Heavy))
        .filter_map(|row| {
            let estimates = [&row.privileged, &row.unprivileged];
            let steps = estimates.into_iter().flatten().map(|e| e.largest_step);
            Some((row.program.clone(), steps.reduce(f64::max)?))
        })
        .collect()
}

/// `None` if perch was not asked that way about any floating-point program.
fn errors(rows: &[Row], asked: Asked) -> Option<Errors> {
    let pairs: Vec<(&Row, &TrueShares, &Shares)> = rows
        .iter()
        .filter_map(|row| {
            let (truth, shares) = row.judged(asked)?;
            Some((row, truth, shares))
        })
        .collect();
    let is_fp = |truth: &TrueShares| truth.class != Class::Integer;
    let covered = pairs
        .iter()
        .filter(|(_, truth, shares)| is_fp(truth) && truth.is_in_interval(shares));
    let covered = covered.count();
    let half_width: f64 = pairs
        .iter()
        .filter(|(_, truth, _)| is_fp(truth))
        .map(|(_, _, shares)| shares.half_width())
        .sum();
    let fp: Vec<(f64, &str)> = pairs
        .iter()
        .filter(|(_, truth, _)| is_fp(truth))
        .map(|(row, truth, shares)| {
            (
                (100.0 * shares.fp - truth.fp_percent).abs(),
                row.program.as_str(),
            )
        })
        .collect();
    let worst = fp.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let mut others: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (_, truth, shares) in &pairs {
        for (name, value) in &truth.others {
            // Without floating point there is nothing for the packed share to be a share of.
            let defined = name != "vector_share" || truth.class != Class::Integer;
            if let Some(estimate) = shares.others.get(name).filter(|_| defined) {
                let entry = others.entry(name).or_default();
                entry.0 += 100.0 * (estimate - value).abs();
                entry.1 += 1.0;
            }
        }
    }
    Some(Errors {
        asked,
        programs: fp.len(),
        mean: fp.iter().map(|(error, _)| error).sum::<f64>() / fp.len() as f64,
        largest: worst.0,
        worst: worst.1.to_string(),
        covered: 100.0 * covered as f64 / fp.len() as f64,
        half_width: half_width / fp.len() as f64,
        others: others
            .into_iter()
            .map(|(name, (sum, count))| (name.to_string(), sum / count))
            .collect(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn row(name: &str, truth: f64, after: f64, end: f64) -> Row {
        let shares = |percent: f64| Shares {
            fp: percent / 100.0,
            fp_error: 0.02,
            others: BTreeMap::new(),
            cpu_seconds: 1.0,
        };
        Row {
            program: name.into(),
            kind: "test".into(),
            stationary: true,
            truth: Some(TrueShares {
                fp_percent: truth,
                standard_error: 0.0,
                class: Class::of(truth),
                method: "callgrind".into(),
                instructions: 1e9,
                others: BTreeMap::new(),
                mix: BTreeMap::new(),
                stretches: Vec::new(),
                to_the_end: false,
            }),
            privileged: Some(Estimate {
                first_second: shares(after),
                whole: shares(end),
                to_the_end: false,
                largest_step: 1.2,
            }),
            unprivileged: None,
            missing: None,
            uncounted: None,
            failures: Vec::new(),
        }
    }

    #[test]
    fn integer_programs_do_not_dilute_the_error() {
        let rows = [
            row("a", 20.0, 26.0, 22.0),
            row("b", 0.0, 0.0, 0.0),
            row("c", 40.0, 36.0, 40.0),
        ];
        let summary = judge(&rows, false);
        assert_eq!(summary.errors.len(), 2);
        assert_eq!(summary.errors[0].programs, 2);
        assert!((summary.errors[0].mean - 5.0).abs() < 1e-9);
        assert!((summary.errors[0].largest - 6.0).abs() < 1e-9);
        assert_eq!(summary.errors[0].worst, "a");
        assert!((summary.errors[1].mean - 1.0).abs() < 1e-9);
        assert_eq!(
            summary.violations[0],
            "mean error privileged, after 1 s: 5.0 points, not below 4"
        );
    }

    #[test]
    fn a_truth_is_only_held_against_an_estimate_of_the_same_stretch() {
        let mut unsteady = row("a", 20.0, 2.0, 19.0);
        let judged = |row: &Row| {
            [Asked::PrivilegedFirstSecond, Asked::PrivilegedWhole].map(|a| row.judged(a).is_some())
        };
        assert_eq!(judged(&unsteady), [true, true]);
        unsteady.truth.as_mut().unwrap().standard_error = 3.0;
        assert_eq!(judged(&unsteady), [false, false]);
        assert_eq!(unsteady.class_is_right(), None);
        unsteady.truth.as_mut().unwrap().to_the_end = true;
        assert_eq!(judged(&unsteady), [false, false]);
        unsteady.privileged.as_mut().unwrap().to_the_end = true;
        assert_eq!(judged(&unsteady), [false, true]);
        assert_eq!(unsteady.class_is_right(), Some(true));
        let summary = judge(&[unsteady], false);
        assert_eq!(summary.errors.len(), 1);
        assert!((summary.errors[0].mean - 1.0).abs() < 1e-9);
    }

    #[test]
    fn every_kind_of_failure_is_a_violation() {
        let mut broken = row("broken", 0.0, 0.0, 0.0);
        broken.failures.push("perch failed".into());
        let rows = [
            row("integer", 1.9, 5.1, 0.0),
            row("heavy", 10.1, 4.9, 10.0),
            row("between", 6.0, 4.0, 7.0),
            broken,
        ];
        let violations = judge(&rows, true).violations;
        assert_eq!(violations.len(), 5, "{violations:?}");
        assert!(violations[0].starts_with("broken"));
        assert!(violations[1].starts_with("the 90 % interval"));
        assert!(violations[2].starts_with("integer"));
        assert!(violations[3].starts_with("heavy"));
        assert!(violations[4].contains("too few"));
    }

    #[test]
    fn nobody_s_verdict_counts_too() {
        let mut both = row("x", 30.0, 30.0, 30.0);
        assert_eq!(both.class_is_right(), Some(true));
        both.unprivileged = row("x", 30.0, 1.0, 30.0).privileged;
        assert_eq!(both.class_is_right(), Some(false));
    }

    proptest! {
        #[test]
        fn a_perfect_estimate_is_never_wrong(truth in 0.0f64..100.0) {
            prop_assert!(Class::of(truth).allows(truth));
        }

        #[test]
        fn the_mean_is_between_zero_and_the_largest(pairs in prop::collection::vec((3.0f64..90.0, 0.0f64..100.0), 1..20)) {
            let rows: Vec<Row> = pairs.iter().map(|&(truth, estimate)| row("p", truth, estimate, estimate)).collect();
            let errors = &judge(&rows, false).errors[0];
            prop_assert!(errors.mean >= 0.0 && errors.mean <= errors.largest + 1e-9);
        }
    }
}
