//! Frames as JSON lines: what `perch top --json` prints, and what is read of a perch on another machine.

mod read;
#[cfg(test)]
mod tests;

pub use read::{LONGEST_LINE, Lines, WireError};

use crate::Frame;
use perch_core::PuSet;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// Version of the format. A higher one may have further members and records.
pub const VERSION: u32 = 1;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Line {
    record: String,
    #[serde(default)]
    version: u32,
    #[serde(default)]
    at: u64,
    #[serde(default)]
    interval: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    topology: Option<Value>,
    #[serde(default)]
    pus: Vec<PuLine>,
    #[serde(default)]
    threads: Vec<ThreadLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    moves: Vec<MoveLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    remarks: Vec<String>,
    #[serde(default)]
    unseen: u64,
    #[serde(default)]
    own: f32,
}

#[derive(Debug, Serialize, Deserialize)]
struct PuLine {
    pu: u32,
    busy: f32,
    #[serde(default)]
    interrupts: f32,
}

#[derive(Debug, Serialize, Deserialize)]
struct ThreadLine {
    tid: i32,
    #[serde(default)]
    start: u64,
    pid: i32,
    name: Arc<str>,
    process: Arc<str>,
    cpu: f32,
    waiting: f32,
    #[serde(default)]
    pu: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    switches: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    migrations: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bound: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metrics: BTreeMap<Arc<str>, f32>,
}

#[derive(Debug, Serialize, Deserialize)]
struct MoveLine {
    tid: i32,
    #[serde(default)]
    start: u64,
    name: Arc<str>,
    #[serde(default)]
    from: Option<String>,
    #[serde(default)]
    to: Option<String>,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    numbers: BTreeMap<String, f64>,
    #[serde(default)]
    outcome: Option<Value>,
}

/// A frame as a line, without line end. The topology goes with the first one and when it has changed.
///
/// # Errors
/// Never with a frame of this perch: its numbers are finite.
pub fn line(frame: &Frame, with_topology: bool) -> serde_json::Result<String> {
    let finite = |value: f32| if value.is_finite() { value } else { 0.0 };
    let topology = match with_topology {
        true => Some(serde_json::to_value(&*frame.topology)?),
        false => None,
    };
    let metrics = |at: usize| {
        let columns = frame.metrics.iter();
        let known = columns.filter_map(|column| {
            let value = column.values.get(at).copied()?;
            value.is_finite().then(|| (Arc::clone(&column.name), value))
        });
        known.collect()
    };
    let threads = frame.threads.iter().enumerate().map(|(at, of)| ThreadLine {
        tid: of.id.tid,
        start: of.id.start,
        pid: of.pid,
        name: Arc::clone(&of.name),
        process: Arc::clone(&of.process),
        cpu: finite(of.cpu),
        waiting: finite(of.waiting),
        pu: of.pu,
        switches: of.switches.map(finite),
        migrations: of.migrations.map(finite),
        bound: of.bound.as_ref().map(|pus| pus.to_string()),
        metrics: metrics(at),
    });
    let moves = frame.moves.iter().map(|made| MoveLine {
        tid: made.id.tid,
        start: made.id.start,
        name: Arc::clone(&made.name),
        from: made.from.as_ref().map(PuSet::to_string),
        to: made.to.as_ref().map(PuSet::to_string),
        reason: made.reason.clone(),
        numbers: made
            .numbers
            .iter()
            .filter(|(_, value)| value.is_finite())
            .cloned()
            .collect(),
        outcome: serde_json::to_value(made.outcome).ok(),
    });
    serde_json::to_string(&Line {
        record: "snapshot".to_owned(),
        version: VERSION,
        at: frame.at,
        interval: frame.interval,
        topology,
        pus: frame
            .pus
            .iter()
            .map(|load| PuLine {
                pu: load.pu,
                busy: finite(load.busy),
                interrupts: finite(load.interrupts),
            })
            .collect(),
        threads: threads.collect(),
        moves: moves.collect(),
        remarks: frame.remarks.clone(),
        unseen: frame.unseen,
        own: finite(frame.own),
    })
}
