//! Rows and totals of `perch stat` for programs: CSV and JSON lines.

use super::{Heading, regions};
use crate::{
    command::stat::{
        regions::Found,
        wanted::{MetricColumn, Wanted},
    },
    render::json as json_text,
};
use anyhow::Result;
use perch_stat::{Amounts, Collector, Event, Row, RowMetrics};
use serde_json::{Map, Value, json};

/// The totals as rows, for CSV.
pub fn total_rows(collector: &Collector) -> Vec<Row> {
    let totals = collector.totals();
    let row = |total: &&perch_stat::Total| Row {
        at: totals.interval,
        interval: total.interval,
        entity: total.entity.clone(),
        name: total.name.clone(),
        pid: total.pid,
        event: Event::Total,
        set: None,
        round: 0,
        phase: 0,
        new_phase: false,
        amounts: total.amounts.clone(),
        readings: total.readings.clone(),
        metrics: collector.metrics(&total.amounts, &total.readings, total.interval),
    };
    totals.by_cpu_time().iter().map(row).collect()
}

/// Comma-separated values, with a header before the first. A count that is scaled up stands as it is; `share_EVENT` says
/// for which share of `counted_s` it was counted: of the rest of `cpu_s` nothing is known. `of_METRIC` says what a module's
/// metric is about: `row`, or what the row is a part of.
pub fn csv(wanted: &Wanted, rows: &[Row], first: bool) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    if first {
        let mut header: Vec<String> = [
            "time_s",
            "interval_s",
            "event",
            "id",
            "pid",
            "name",
            "threads",
            "set",
            "round",
            "phase",
            "cpu_s",
            "counted_s",
            "calls",
        ]
        .map(str::to_owned)
        .into();
        header.extend(wanted.events.iter().map(|event| event.name.to_string()));
        header.extend(
            wanted
                .events
                .iter()
                .map(|event| format!("share_{}", event.name)),
        );
        header.extend(wanted.metrics.iter().map(|metric| metric.name.to_string()));
        let modules = wanted.of_modules();
        header.extend(modules.map(|metric| format!("of_{}", metric.name)));
        writer.write_record(&header)?;
    }
    for row in rows {
        writer.write_record(record(wanted, row, event_name(row.event), None))?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// A row's fields. `calls` is for regions.
pub(super) fn record(wanted: &Wanted, row: &Row, event: &str, calls: Option<u64>) -> Vec<String> {
    let known = |number: Option<i64>| number.map_or_else(String::new, |number| number.to_string());
    let mut record = vec![
        format!("{:.6}", row.at as f64 / 1e9),
        format!("{:.6}", row.interval as f64 / 1e9),
        event.to_owned(),
        known(row.entity.number()),
        known(row.pid.map(i64::from)),
        row.name.to_string(),
        row.amounts.members.to_string(),
        known(row.set.map(|set| i64::from(set) + 1)),
        row.round.to_string(),
        row.phase.to_string(),
        format!("{:.9}", row.amounts.cpu_time as f64 / 1e9),
        format!("{:.9}", row.amounts.covered as f64 / 1e9),
        calls.map_or_else(String::new, |calls| calls.to_string()),
    ];
    let value = |alias: &str| {
        row.amounts
            .value(alias)
            .filter(|value| value.doubt.is_none())
    };
    for event in &wanted.events {
        let estimate = value(&event.alias).and_then(|value| value.estimate(row.amounts.covered));
        record.push(estimate.map_or_else(String::new, |value| format!("{value:.0}")));
    }
    for event in &wanted.events {
        let share = value(&event.alias).map(|value| value.share(row.amounts.covered));
        record.push(share.map_or_else(String::new, |share| format!("{share:.4}")));
    }
    for metric in &wanted.metrics {
        let value = row.metrics.values.value(&metric.name);
        record.push(value.map_or_else(String::new, |value| value.to_string()));
    }
    for metric in wanted.of_modules() {
        let scope = row.metrics.wider.get(&metric.name);
        record.push(scope.map_or("row", |scope| scope.name()).to_owned());
    }
    record
}

fn event_name(event: Event) -> &'static str {
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
    object.insert("threads".into(), amounts.members.into());
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
            Some((name.to_string(), told))
        })
        .collect();
    object.insert("metrics".into(), values.into());
    object
}

/// Rows, an object a line.
pub fn json_rows(wanted: &Wanted, rows: &[Row]) -> Result<String> {
    let mut out = String::new();
    for row in rows {
        let mut object = Map::new();
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
    let object = json!({
        "totals": entities,
        "all": json_amounts(wanted, &all, &of_all),
        "command": heading.title,
        "counting": heading.counting,
        "wall_s": heading.took.as_secs_f64(),
        "unseen_threads": totals.unseen,
        "unmeasured_s": totals.unmeasured as f64 / 1e9,
        "broken_rounds": collector.broken_rounds(),
        "perch_cpu_s": totals.own_cpu_time as f64 / 1e9,
        "regions": regions::json(found, collector),
        "region_remarks": found.remarks,
    });
    Ok(json_text(&serde_json::to_string(&object)?) + "\n")
}
