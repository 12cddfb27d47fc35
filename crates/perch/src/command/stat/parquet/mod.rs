//! `-o FILE.parquet`: rows as a Parquet file, and reading one back.

pub mod read;
pub mod write;

use crate::command::stat::{
    drawn::extension,
    wanted::{EventColumn, MetricColumn, Wanted},
};
use perch_core::text::acts;
use perch_stat::By;
use serde::{Deserialize, Serialize};
use std::{path::Path, sync::Arc};

/// The key of the metadata that tells what perch's columns are, as JSON ([`Layout`]).
const LAYOUT: &str = "perch.layout";
/// The key of the metadata that tells the unit of each column that has one, as a JSON object.
const UNITS: &str = "perch.units";

/// Whether a file's name asks for Parquet.
pub fn is_wanted(path: &Path) -> bool {
    extension(path).as_deref() == Some("parquet")
}

/// What the columns of a file are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Layout {
    /// What each row is about, as `--by` calls it.
    by: String,
    /// How many event sets took turns.
    sets: usize,
    /// The names of events.
    events: Vec<String>,
    /// The metrics.
    metrics: Vec<LayoutMetric>,
}

/// A metric's columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct LayoutMetric {
    name: String,
    title: String,
    unit: String,
    /// Whether a column tells what it is about.
    of: bool,
}

impl Layout {
    fn new(wanted: &Wanted) -> Self {
        let of: Vec<&str> = wanted.of_modules().map(|metric| &*metric.name).collect();
        let metric = |metric: &MetricColumn| LayoutMetric {
            name: metric.name.to_string(),
            title: metric.title.clone(),
            unit: metric.unit.clone(),
            of: of.contains(&&*metric.name),
        };
        let by = By::ALL.iter().find(|(_, by)| *by == wanted.by);
        Self {
            by: by.map_or("thread", |(name, _)| name).to_owned(),
            sets: wanted.request.sets.len(),
            events: wanted.events.iter().map(|e| e.name.to_string()).collect(),
            metrics: wanted.metrics.iter().map(metric).collect(),
        }
    }

    /// What is shown of such a file; `None` if no perch wrote it.
    fn wanted(&self) -> Option<Wanted> {
        let metrics = self.metrics.iter();
        let texts = metrics.flat_map(|metric| [&metric.name, &metric.title, &metric.unit]);
        if texts.chain(&self.events).any(|text| text.contains(acts)) {
            // A terminal would obey them.
            return None;
        }
        let (_, by) = By::ALL.iter().find(|(name, _)| *name == self.by)?;
        let events = self.events.iter().map(|name| {
            let name: Arc<str> = name.as_str().into();
            EventColumn {
                alias: Arc::clone(&name),
                name,
            }
        });
        let metrics = self.metrics.iter().map(|metric| MetricColumn {
            name: metric.name.as_str().into(),
            title: metric.title.clone(),
            unit: metric.unit.clone(),
        });
        let of = self.metrics.iter().filter(|metric| metric.of);
        Some(Wanted::of_file(
            *by,
            self.sets,
            events.collect(),
            metrics.collect(),
            of.map(|metric| metric.name.as_str().into()).collect(),
        ))
    }
}
