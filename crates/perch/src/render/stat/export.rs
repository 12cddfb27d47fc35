//! Rows and totals of `perch stat` for programs: CSV and JSON lines.

use super::{
    Heading,
    fields::{Cell, cells, cells_of, fields},
    regions,
    repeated::{Counted, Spread, spreads},
};
use crate::{
    command::stat::{
        regions::Found,
        wanted::{MetricColumn, Wanted},
    },
    render::json as json_text,
};
use anyhow::Result;
use perch_linux::launch::Usage;
use perch_stat::{Amounts, Collector, Entity, Event, Row, RowMetrics};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The totals as rows, for CSV.
pub fn total_rows(collector: &Collector) -> Vec<Row> {
    let totals = collector.totals();
    let row = |total: &&perch_stat::Total| {
        let (entity, name) = (total.entity.clone(), total.name.clone());
        Row {
            pid: total.pid,
            amounts: total.amounts.clone(),
            readings: total.readings.clone(),
            metrics: collector.metrics(&total.amounts, &total.readings, total.interval),
            ..Row::of_totals(totals.interval, total.interval, entity, name)
        }
    };
    totals.by_cpu_time().iter().map(row).collect()
}

/// What all of them came to, as one more row whose `event` is `all`: with what no row has, and without what several rows
/// have in common. `None` where the only row says it.
pub fn row_of_all(wanted: &Wanted, collector: &Collector) -> Option<Vec<Cell>> {
    let totals = collector.totals();
    if totals.by_cpu_time().len() == 1 && !totals.is_whole() {
        return None;
    }
    let mut amounts = totals.all();
    let metrics = collector.metrics(&amounts, totals.readings(), totals.interval);
    amounts.cpu_time = totals.cpu_time();
    let row = Row {
        amounts,
        readings: totals.readings().clone(),
        metrics,
        ..Row::of_totals(totals.interval, totals.interval, Entity::All, "all".into())
    };
    Some(cells(wanted, &row, "all", None))
}

/// Cells as a line of comma-separated values.
pub fn csv_of_cells(wanted: &Wanted, rows: impl IntoIterator<Item = Vec<Cell>>) -> Result<String> {
    let fields = fields(wanted);
    let mut writer = csv::Writer::from_writer(Vec::new());
    for cells in rows {
        let texts = cells.iter().zip(&fields);
        writer.write_record(texts.map(|(cell, field)| cell.csv(field.kind)))?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// Comma-separated values, with a header before the first. A count that is scaled up stands as it is; `share_EVENT` says
/// for which share of `counted_s` it was counted: of the rest of `cpu_s` nothing is known. `mark_METRIC` has the marks of
/// text, `of_METRIC` says what a module's metric is about: `row`, or what the row is a part of.
pub fn csv(wanted: &Wanted, rows: &[Row], first: bool) -> Result<String> {
    let rows = csv_of_cells(wanted, rows.iter().map(|row| cells_of(wanted, row)))?;
    if !first {
        return Ok(rows);
    }
    let mut header = csv::Writer::from_writer(Vec::new());
    header.write_record(fields(wanted).iter().map(|field| &field.name))?;
    Ok(String::from_utf8(header.into_inner()?)? + &rows)
}

/// Why there is a row, in files.
pub fn event_name(event: Event) -> &'static str {
    match event {
        Event::Tick => "tick",
        Event::Exit => "exit",
        Event::Window => "window",
        Event::Total => "total",
    }
}

/// Counts as JSON: each with the share of the CPU time in which it was counted.
pub(super) fn json_amounts(
    wanted: &Wanted,
    amounts: &Amounts,
    metrics: &RowMetrics,
) -> Map<String, Value> {
    let mut object = Map::new();
    let threads = amounts
        .mean_members
        .map_or(json!(amounts.members), Value::from);
    object.insert("threads".into(), threads);
    object.insert("cpu_s".into(), json!(amounts.cpu_time as f64 / 1e9));
    object.insert("counted_s".into(), json!(amounts.covered as f64 / 1e9));
    let mut counts = Map::new();
    for event in &wanted.events {
        let Some(value) = amounts.value(&event.alias) else {
            continue;
        };
        let share = value.share(amounts.covered);
        let count = match (&value.doubt, value.estimate(amounts.covered)) {
            (Some(why), _) => json!({ "doubtful": why }),
            (None, Some(estimate)) => json!({ "value": estimate, "share": share }),
            (None, None) => continue,
        };
        counts.insert(event.name.to_string(), count);
    }
    object.insert("counts".into(), counts.into());
    let values: Map<String, Value> = wanted
        .metrics
        .iter()
        .filter_map(|MetricColumn { name, unit, .. }| {
            let metric = metrics.values.get(name)?;
            let (value, confidence) = (metric.value, metric.confidence);
            let mut told = json!({ "value": value, "unit": unit, "confidence": confidence });
            if let Some(scope) = metrics.wider.get(name) {
                told["of"] = scope.name().into();
            }
            if metrics.partial.contains(name) {
                told["partial"] = true.into();
            }
            if metrics.scaled.contains(name) {
                told["scaled"] = true.into();
            }
            Some((name.to_string(), told))
        })
        .collect();
    object.insert("metrics".into(), values.into());
    object
}

/// Rows, an object a line; `run` numbers the run, where there are several.
pub fn json_rows(wanted: &Wanted, rows: &[Row], run: Option<u32>) -> Result<String> {
    let mut out = String::new();
    for row in rows {
        let mut object = Map::new();
        if let Some(run) = run {
            object.insert("run".into(), run.into());
        }
        object.insert("time_s".into(), json!(row.at as f64 / 1e9));
        object.insert("interval_s".into(), json!(row.interval as f64 / 1e9));
        object.insert("event".into(), event_name(row.event).into());
        object.insert("id".into(), json!(row.entity.number()));
        object.insert("pid".into(), json!(row.pid));
        object.insert("name".into(), json!(row.name));
        object.insert("set".into(), json!(row.set.map(|set| set + 1)));
        object.insert("round".into(), row.round.into());
        object.insert("phase".into(), row.phase.into());
        object.extend(json_amounts(wanted, &row.amounts, &row.metrics));
        out += &json_text(&serde_json::to_string(&object)?);
        out.push('\n');
    }
    Ok(out)
}

/// Totals, as one object in one line.
pub fn json_totals(
    wanted: &Wanted,
    heading: &Heading,
    collector: &Collector,
    found: &Found,
    run: Option<u32>,
) -> Result<String> {
    let totals = collector.totals();
    let mut entities = Vec::new();
    for row in total_rows(collector) {
        let mut object = Map::new();
        object.insert("id".into(), json!(row.entity.number()));
        object.insert("pid".into(), json!(row.pid));
        object.insert("name".into(), json!(row.name));
        object.insert("observed_s".into(), json!(row.interval as f64 / 1e9));
        object.extend(json_amounts(wanted, &row.amounts, &row.metrics));
        entities.push(Value::Object(object));
    }
    let all = totals.all();
    let of_all = collector.metrics(&all, totals.readings(), totals.interval);
    let of_program = |part: fn(&Usage) -> Duration| {
        let part = heading.usage.as_ref().map(part);
        part.map(|time| time.as_secs_f64())
    };
    let mut of_all = json_amounts(wanted, &all, &of_all);
    of_all.insert("cpu_s".into(), json!(totals.cpu_time() as f64 / 1e9));
    let mut object = json!({
        "totals": entities,
        "all": of_all,
        "command": heading.title,
        "counting": heading.counting,
        "wall_s": heading.took.as_secs_f64(),
        "elapsed_s": of_program(|usage| usage.elapsed),
        "user_s": of_program(|usage| usage.user),
        "system_s": of_program(|usage| usage.system),
        "unseen_threads": totals.unseen,
        "unmeasured_s": totals.unmeasured as f64 / 1e9,
        "broken_rounds": collector.broken_rounds(),
        "perch_cpu_s": totals.own_cpu_time as f64 / 1e9,
        "regions": regions::json(found, collector),
        "region_remarks": found.remarks,
    });
    if let Some(run) = run {
        object["run"] = run.into();
    }
    Ok(json_text(&serde_json::to_string(&object)?) + "\n")
}

/// Mean and spread of several runs, as one object in one line, behind those of the runs.
pub fn json_repeated(wanted: &Wanted, runs: &[Counted]) -> Result<String> {
    let spread = |(name, spread): (String, Option<Spread>)| {
        let told = spread.map(|spread| {
            json!({
                "mean": spread.mean,
                "standard_deviation": spread.deviation,
                "least": spread.least,
                "greatest": spread.greatest,
            })
        });
        (name, told.unwrap_or(Value::Null))
    };
    let all: Map<String, Value> = spreads(wanted, runs).into_iter().map(spread).collect();
    let object = json!({ "runs": runs.len(), "spread": all });
    Ok(json_text(&serde_json::to_string(&object)?) + "\n")
}
