//! The calibration file: what sharing a resource costs on one machine, as it was measured there (MASA, section 4.1).
//!
//! A TOML file that names the machine and the day, and for each load metric the order in which it is checked, the
//! **execution resource limit** (what one thread alone does at most, in events per second) and ∆T/∆L: by how many
//! seconds a program takes longer for each event more when it runs beside itself. `docs/policies.md` has an example.

use perch_core::mistake::{Mistake, did_you_mean};
use serde::{Deserialize, Serialize};
use std::{fs, ops::Range, path::Path};
use toml::Spanned;

/// Whose a resource is: the PUs that share one compete for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// Those that share floating-point units, as the processor's profile says.
    Fp,
    /// The PUs of a core.
    Core,
    /// The PUs below one L2 cache.
    L2,
    /// The PUs below one last-level cache.
    Llc,
    /// The PUs of a package.
    Package,
}

/// All levels as a file writes them.
const SHARES: [(&str, Share); 5] = [
    ("fp", Share::Fp),
    ("core", Share::Core),
    ("l2", Share::L2),
    ("llc", Share::Llc),
    ("package", Share::Package),
];

/// What was measured for one load metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CalibratedMetric {
    /// The metric's name, as profiles give it, such as `fp_load`.
    pub name: String,
    /// Its place in the order of checks, 1 the first; no two metrics have the same.
    pub priority: u32,
    /// Which PUs share the resource.
    pub share: Share,
    /// The execution resource limit: what one thread alone does at most in one such group of PUs. In the metric's unit:
    /// events per second for rates.
    pub limit: f64,
    /// ∆T/∆L: seconds by which the program takes longer beside itself, for each event more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Spread of the limit over the repetitions, as a part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
}

/// A calibration, its metrics in the order in which they are checked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// The machine on which it was measured, for people.
    pub machine: String,
    /// The day, such as `2026-11-22`.
    pub date: String,
    /// What a reader should know: turbo, frequency scaling, what did not contend.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The metrics, by priority; at least one.
    #[serde(rename = "metric")]
    pub metrics: Vec<CalibratedMetric>,
}

/// A calibration that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CalibrationError {
    /// The file cannot be opened or is no text.
    #[error(
        "{path}: {why}; give the path of a calibration file, or calibration = \"\" for the built-in limits"
    )]
    Unreadable {
        /// As given.
        path: String,
        /// What the system says.
        why: String,
    },
    /// A mistake in its text.
    #[error(transparent)]
    Mistake(#[from] Mistake),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    machine: Spanned<String>,
    date: Spanned<String>,
    #[serde(default)]
    notes: Vec<String>,
    #[serde(rename = "metric")]
    metrics: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    priority: Spanned<u32>,
    share: Spanned<String>,
    limit: Spanned<f64>,
    ratio: Option<Spanned<f64>>,
    spread: Option<Spanned<f64>>,
}

impl Calibration {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, or [`Calibration::parse`]'s.
    pub fn read(path: &Path) -> Result<Self, CalibrationError> {
        let shown = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| CalibrationError::Unreadable {
            path: shown.clone(),
            why: error.to_string(),
        })?;
        Ok(Self::parse(&text, &shown)?)
    }

    /// Reads a text; `path` is named in errors.
    ///
    /// # Errors
    /// The first mistake with its place: bad TOML, an unknown field, a level that does not exist, a limit that is not
    /// above 0, a metric or a priority that comes twice.
    pub fn parse(text: &str, path: &str) -> Result<Self, Mistake> {
        let wrong = |at: Range<usize>, message: String, hint: Option<String>| {
            Mistake::at(path, text, at, message, hint)
        };
        let file: File = toml::from_str(text).map_err(|error| {
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            wrong(error.span().unwrap_or(0..0), message, None)
        })?;
        for (what, value) in [("machine", &file.machine), ("date", &file.date)] {
            if value.get_ref().trim().is_empty() {
                return Err(wrong(value.span(), format!("`{what}` is empty"), None));
            }
        }
        let mut metrics: Vec<CalibratedMetric> = Vec::new();
        for entry in &file.metrics {
            let entry = entry.get_ref();
            let name = entry.name.get_ref().trim();
            if name.is_empty() || metrics.iter().any(|other| other.name == name) {
                let message = match name {
                    "" => "a metric needs a name".to_owned(),
                    _ => format!("a second metric `{name}`"),
                };
                return Err(wrong(entry.name.span(), message, None));
            }
            let priority = *entry.priority.get_ref();
            if metrics.iter().any(|other| other.priority == priority) {
                let message = format!("a second metric of priority {priority}");
                let hint = "metrics are checked one at a time: give each a place of its own";
                return Err(wrong(entry.priority.span(), message, Some(hint.to_owned())));
            }
            let given = entry.share.get_ref();
            let share = SHARES.iter().find(|(name, _)| name == given);
            let Some((_, share)) = share else {
                let names = SHARES.map(|(name, _)| name);
                let message = format!("`{given}` is none of `{}`", names.join("`, `"));
                let hint = did_you_mean(given, names);
                return Err(wrong(entry.share.span(), message, hint));
            };
            let limit = *entry.limit.get_ref();
            if !(limit.is_finite() && limit > 0.0) {
                let message = format!("the limit {limit} is not above 0");
                return Err(wrong(entry.limit.span(), message, None));
            }
            for (what, value) in [("ratio", &entry.ratio), ("spread", &entry.spread)] {
                if let Some(value) = value
                    && !(value.get_ref().is_finite() && *value.get_ref() >= 0.0)
                {
                    let message = format!("`{what}` is a number from 0 on");
                    return Err(wrong(value.span(), message, None));
                }
            }
            metrics.push(CalibratedMetric {
                name: name.to_owned(),
                priority,
                share: *share,
                limit,
                ratio: entry.ratio.as_ref().map(|ratio| *ratio.get_ref()),
                spread: entry.spread.as_ref().map(|spread| *spread.get_ref()),
            });
        }
        if metrics.is_empty() {
            let message = "a calibration needs at least one [[metric]]".to_owned();
            return Err(wrong(0..0, message, None));
        }
        metrics.sort_by_key(|metric| metric.priority);
        Ok(Self {
            machine: file.machine.into_inner(),
            date: file.date.into_inner(),
            notes: file.notes,
            metrics,
        })
    }

    /// The text of a file that [`Calibration::parse`] reads as this calibration.
    ///
    /// # Errors
    /// Never for a calibration that was parsed; a number that TOML cannot say.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}
