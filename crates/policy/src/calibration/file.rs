//! Reading a calibration file, with the place of the first error.

use super::{CalibratedMetric, Calibration, Coupling, Kernel, SHARES, Share, Transfer, VERSION};
use perch_core::diagnostic::{Diagnostic, did_you_mean, from_deserializer, one_of};
use serde::Deserialize;
use std::{collections::BTreeMap, ops::Range};
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: Option<Spanned<u32>>,
    machine: Spanned<String>,
    date: Spanned<String>,
    #[serde(default)]
    notes: Vec<String>,
    #[serde(rename = "metric")]
    metrics: Vec<Spanned<Entry>>,
    #[serde(rename = "kernel", default)]
    kernels: Vec<KernelEntry>,
    #[serde(rename = "coupling", default)]
    couplings: Vec<CouplingEntry>,
    #[serde(rename = "transfer", default)]
    transfers: Vec<TransferEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KernelEntry {
    name: Spanned<String>,
    metrics: BTreeMap<String, Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CouplingEntry {
    share: Spanned<String>,
    kernel: Spanned<String>,
    beside: Spanned<Vec<Spanned<String>>>,
    slowdown: Spanned<f64>,
    spread: Option<Spanned<f64>>,
    low: Option<Spanned<f64>>,
    high: Option<Spanned<f64>>,
    significant: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TransferEntry {
    share: Spanned<String>,
    seconds: Spanned<f64>,
    low: Option<Spanned<f64>>,
    high: Option<Spanned<f64>>,
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
    significant: Option<bool>,
}

/// Only the version, so that a newer file is refused for its version and not for a field.
#[derive(Deserialize)]
struct Versioned {
    #[serde(default)]
    version: Option<Spanned<u32>>,
}

impl Calibration {
    /// Reads a text; `path` is named in errors.
    ///
    /// # Errors
    /// The first error with its place: bad TOML, an unknown field, a level that does not exist, a limit that is not
    /// above 0, a metric or a priority that comes twice.
    pub fn parse(text: &str, path: &str) -> Result<Self, Diagnostic> {
        let wrong = |at: Range<usize>, message: String, hint: Option<String>| {
            Diagnostic::at(path, text, at, message, hint)
        };
        if let Ok(Versioned {
            version: Some(given),
        }) = toml::from_str(text)
            && !(1..=VERSION).contains(given.get_ref())
        {
            let message = format!(
                "this perch reads calibrations of versions 1 to {VERSION}, not {}",
                given.get_ref()
            );
            let hint = "let `perch calibrate` write it again".to_owned();
            return Err(wrong(given.span(), message, Some(hint)));
        }
        let file: File = toml::from_str(text).map_err(|error| {
            let (message, hint) = from_deserializer(error.message(), &[]);
            wrong(error.span().unwrap_or(0..0), message, hint)
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
            let share = share(&entry.share)
                .map_err(|(message, hint)| wrong(entry.share.span(), message, hint))?;
            let limit = *entry.limit.get_ref();
            if !(limit.is_finite() && limit > 0.0) {
                let message = format!("the limit {limit} is not above 0");
                return Err(wrong(entry.limit.span(), message, None));
            }
            for (what, value) in [("ratio", &entry.ratio), ("spread", &entry.spread)] {
                if let Some(value) = value {
                    from_zero(what, value).map_err(|message| wrong(value.span(), message, None))?;
                }
            }
            metrics.push(CalibratedMetric {
                name: name.to_owned(),
                priority,
                share,
                limit,
                ratio: entry.ratio.as_ref().map(|ratio| *ratio.get_ref()),
                spread: entry.spread.as_ref().map(|spread| *spread.get_ref()),
                significant: entry.significant,
            });
        }
        if metrics.is_empty() {
            let message = "a calibration needs at least one [[metric]]".to_owned();
            return Err(wrong(0..0, message, None));
        }
        metrics.sort_by_key(|metric| metric.priority);
        let mut kernels: Vec<Kernel> = Vec::new();
        for entry in file.kernels {
            let name = entry.name.get_ref().trim();
            if name.is_empty() || kernels.iter().any(|other| other.name == name) {
                let message = match name {
                    "" => "a kernel needs a name".to_owned(),
                    _ => format!("a second kernel `{name}`"),
                };
                return Err(wrong(entry.name.span(), message, None));
            }
            for (name, value) in &entry.metrics {
                from_zero(name, value).map_err(|message| wrong(value.span(), message, None))?;
            }
            let metrics = entry.metrics.into_iter();
            kernels.push(Kernel {
                name: name.to_owned(),
                metrics: metrics
                    .map(|(name, value)| (name, value.into_inner()))
                    .collect(),
            });
        }
        let mut couplings = Vec::new();
        for entry in &file.couplings {
            let share = share(&entry.share)
                .map_err(|(message, hint)| wrong(entry.share.span(), message, hint))?;
            let beside = entry.beside.get_ref();
            if beside.is_empty() {
                let message = "`beside` is empty: name at least one co-running kernel".to_owned();
                return Err(wrong(entry.beside.span(), message, None));
            }
            for name in beside.iter().chain([&entry.kernel]) {
                if kernels.iter().all(|kernel| kernel.name != *name.get_ref()) {
                    let message = format!("no kernel `{}`", name.get_ref());
                    let names = kernels.iter().map(|kernel| kernel.name.as_str());
                    let hint = did_you_mean(name.get_ref(), names);
                    return Err(wrong(name.span(), message, hint));
                }
            }
            let slowdown = *entry.slowdown.get_ref();
            if !(slowdown.is_finite() && slowdown > 0.0) {
                let message = format!("the slowdown {slowdown} is not above 0");
                return Err(wrong(entry.slowdown.span(), message, None));
            }
            if let Some(spread) = &entry.spread {
                from_zero("spread", spread).map_err(|m| wrong(spread.span(), m, None))?;
            }
            let low = entry.low.as_ref().map_or(slowdown, |low| *low.get_ref());
            let high = entry.high.as_ref().map_or(slowdown, |high| *high.get_ref());
            let is_order = 0.0 < low && low <= slowdown && slowdown <= high && high.is_finite();
            if let Some(end) = entry.low.as_ref().or(entry.high.as_ref())
                && !is_order
            {
                let message = format!("the slowdown {slowdown} does not lie from {low} to {high}");
                return Err(wrong(end.span(), message, None));
            }
            couplings.push(Coupling {
                share,
                kernel: entry.kernel.get_ref().clone(),
                beside: beside.iter().map(|name| name.get_ref().clone()).collect(),
                slowdown,
                spread: entry.spread.as_ref().map(|spread| *spread.get_ref()),
                low: entry.low.as_ref().map(|low| *low.get_ref()),
                high: entry.high.as_ref().map(|high| *high.get_ref()),
                significant: entry.significant,
            });
        }
        let mut transfers: Vec<Transfer> = Vec::new();
        for entry in &file.transfers {
            let share = share(&entry.share)
                .map_err(|(message, hint)| wrong(entry.share.span(), message, hint))?;
            if transfers.iter().any(|other| other.share == share) {
                let message = format!("a second transfer of `{}`", entry.share.get_ref());
                return Err(wrong(entry.share.span(), message, None));
            }
            from_zero("seconds", &entry.seconds)
                .map_err(|message| wrong(entry.seconds.span(), message, None))?;
            let seconds = *entry.seconds.get_ref();
            let low = entry.low.as_ref().map(|low| *low.get_ref());
            let high = entry.high.as_ref().map(|high| *high.get_ref());
            let (least, most) = (low.unwrap_or(seconds), high.unwrap_or(seconds));
            let is_order = 0.0 <= least && least <= seconds && seconds <= most && most.is_finite();
            if let Some(end) = entry.low.as_ref().or(entry.high.as_ref())
                && !is_order
            {
                let message = format!("the cost {seconds} does not lie from {least} to {most}");
                return Err(wrong(end.span(), message, None));
            }
            transfers.push(Transfer {
                share,
                seconds,
                low,
                high,
            });
        }
        Ok(Self {
            version: file.version.map_or(1, Spanned::into_inner),
            machine: file.machine.into_inner(),
            date: file.date.into_inner(),
            notes: file.notes,
            metrics,
            kernels,
            couplings,
            transfers,
        })
    }
}

/// The level of that name, or what is wrong and what may be meant.
fn share(given: &Spanned<String>) -> Result<Share, (String, Option<String>)> {
    let given = given.get_ref();
    let found = SHARES.iter().find(|(name, _)| name == given);
    found.map(|(_, share)| *share).ok_or_else(|| {
        let names = SHARES.map(|(name, _)| name);
        let message = format!(
            "unknown value `{}`, {}",
            given.escape_debug(),
            one_of(&names)
        );
        (message, did_you_mean(given, names))
    })
}

fn from_zero(what: &str, value: &Spanned<f64>) -> Result<(), String> {
    let sound = value.get_ref().is_finite() && *value.get_ref() >= 0.0;
    sound
        .then_some(())
        .ok_or_else(|| format!("`{what}` is a number from 0 on"))
}
