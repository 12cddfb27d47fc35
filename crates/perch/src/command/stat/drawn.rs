//! What pictures and traces show of rows: counts as rates, metrics, and busy time.

use super::wanted::Wanted;
use perch_stat::{By, Entity, Row};
use std::path::Path;

/// One chart, or one counter of each track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// What it shows.
    pub name: String,
    /// In which unit; may be empty.
    pub unit: String,
}

impl Column {
    /// Both.
    pub fn title(&self) -> String {
        match &*self.unit {
            "" => self.name.clone(),
            "1/s" => format!("{} per second", self.name),
            unit => format!("{} ({unit})", self.name),
        }
    }
}

/// The columns: counts per second, metrics, busy time.
pub fn columns(wanted: &Wanted) -> Vec<Column> {
    let column = |name: &str, unit: &str| Column {
        name: name.to_owned(),
        unit: unit.to_owned(),
    };
    let events = wanted.events.iter();
    let mut columns: Vec<Column> = events.map(|event| column(&event.name, "1/s")).collect();
    let metrics = wanted.metrics.iter();
    columns.extend(metrics.map(|metric| column(&metric.name, &metric.unit)));
    columns.push(column("CPU time", "% of the interval"));
    columns
}

/// Their values in a row.
pub fn values(wanted: &Wanted, row: &Row) -> Vec<Option<f64>> {
    let seconds = row.interval.max(1) as f64 / 1e9;
    let amounts = &row.amounts;
    let count = |alias: &str| Some(amounts.value(alias)?.estimate(amounts.covered)? / seconds);
    let events = wanted.events.iter().map(|event| count(&event.alias));
    let mut values: Vec<Option<f64>> = events.collect();
    values.extend(wanted.metrics.iter().map(|metric| {
        let metric = row.metrics.values.get(&metric.name);
        let known = metric.filter(|metric| metric.confidence > 0.0);
        known.map(|metric| metric.value)
    }));
    values.push(Some(amounts.cpu_time as f64 / 1e7 / seconds));
    values
}

/// A file name's extension, in small letters.
pub fn extension(path: &Path) -> Option<String> {
    let extension = path.extension()?.to_str()?;
    Some(extension.to_ascii_lowercase())
}

/// What several rows are.
pub fn kind(by: By) -> &'static str {
    match by {
        By::Thread => "threads",
        By::Process => "processes",
        By::Command => "names of threads",
        By::Pu => "PUs",
        By::Core => "cores",
        By::Package => "packages",
        By::Node => "NUMA nodes",
        By::All | By::Machine => "rows",
    }
}

/// What a row is called.
pub fn name(entity: &Entity, name: &str) -> String {
    match entity {
        Entity::Thread(_) | Entity::Process(_) => format!("{name} {entity}"),
        _ => entity.to_string(),
    }
}
