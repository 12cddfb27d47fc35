//! Regions of instrumented programs: a table, and for programs CSV and JSON.

use super::{
    export::json_amounts,
    fields::{Cell, cells},
    wrapped,
};
use crate::command::stat::{regions::Found, wanted::Wanted};
use perch_regions::{
    Merged,
    table::{Columns, table},
};
use perch_stat::{Collector, Entity, Readings, Row};
use serde_json::{Value, json};
use std::sync::Arc;

/// The table behind the totals; nothing without regions.
pub fn text(found: &Found, collector: &Collector) -> String {
    let mut out = String::new();
    if let (Some(wanted), false) = (&found.columns, found.regions.is_empty()) {
        let columns = Columns {
            events: wanted
                .events
                .iter()
                .map(|event| (Arc::clone(&event.name), Arc::clone(&event.alias)))
                .collect(),
            metrics: wanted
                .metrics
                .iter()
                .map(|metric| (metric.title.clone(), Arc::clone(&metric.name)))
                .collect(),
        };
        out += "\nregions";
        if found.processes > 1 {
            out += &format!(" of {} processes", found.processes);
        }
        out += "\n\n";
        out += &table(&found.regions, &columns, &|amounts, interval| {
            collector.metrics(amounts, &Readings::default(), interval)
        });
    }
    for remark in &found.remarks {
        out += &wrapped("regions: ", remark);
    }
    out
}

/// Values of the same columns as all other rows have: `event` is `region`, `name` the names from the outermost region to
/// this one with slashes between them, `interval_s` the time in it.
pub fn rows(wanted: &Wanted, found: &Found, collector: &Collector) -> Vec<Vec<Cell>> {
    let regions = found.regions.iter();
    let cells = |region: &Merged| {
        let row = row(region, collector);
        cells(wanted, &row, "region", Some(region.calls))
    };
    regions.map(cells).collect()
}

fn row(region: &Merged, collector: &Collector) -> Row {
    let name: Arc<str> = region.path.join("/").into();
    let (at, entity) = (
        collector.totals().interval,
        Entity::Command(Arc::clone(&name)),
    );
    Row {
        metrics: collector.metrics(&region.amounts, &Readings::default(), region.wall),
        amounts: region.amounts.clone(),
        ..Row::of_totals(at, region.wall, entity, name)
    }
}

/// A list of objects.
pub fn json(found: &Found, collector: &Collector) -> Value {
    let Some(wanted) = &found.columns else {
        return json!([]);
    };
    let region = |region: &Merged| {
        let metrics = collector.metrics(&region.amounts, &Readings::default(), region.wall);
        let mut object = json_amounts(wanted, &region.amounts, &metrics);
        object.insert("path".into(), json!(region.path));
        object.insert("calls".into(), region.calls.into());
        object.insert("processes".into(), region.processes.into());
        object.insert("open".into(), region.open.into());
        object.insert("complete".into(), (!region.incomplete).into());
        object.insert("wall_s".into(), json!(region.wall as f64 / 1e9));
        Value::Object(object)
    };
    found.regions.iter().map(region).collect()
}
