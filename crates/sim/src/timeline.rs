//! Who was on which PU when, as a trace that Perfetto and Chrome open (Trace Event Format: "complete" events).

use crate::{system::System, units::NANOSECOND};
use serde::Serialize;

/// One event of the trace. Times are microseconds of the operating system.
#[derive(Debug, Serialize)]
struct Event<'a> {
    name: &'a str,
    ph: &'static str,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: serde_json::Value,
}

/// The stays that a system remembers, as JSON text: each core is a process of the trace, each PU a thread of it.
///
/// # Errors
/// None that a `String` could have.
pub fn trace(system: &System) -> serde_json::Result<String> {
    let places = system.machine().places();
    let microseconds = |ps: u64| ps as f64 * system.machine().scale / (NANOSECOND as f64 * 1e3);
    let mut events = Vec::new();
    for (pu, (core, _)) in places.iter().enumerate() {
        let named = |what, name: String| Event {
            name: what,
            ph: "M",
            pid: *core as u32,
            tid: pu as u32,
            ts: None,
            dur: None,
            args: serde_json::json!({ "name": name }),
        };
        events.push(named("process_name", format!("core {core}")));
        events.push(named("thread_name", format!("PU {pu}")));
    }
    for stay in system.stays() {
        let thread = &system.threads()[stay.thread];
        let process = &system.processes()[thread.identity.process];
        events.push(Event {
            name: &thread.identity.name,
            ph: "X",
            pid: places[stay.pu as usize].0 as u32,
            tid: stay.pu,
            ts: Some(microseconds(stay.from)),
            dur: Some(microseconds(stay.to - stay.from)),
            args: serde_json::json!({ "thread": thread.identity.tid, "program": process.name }),
        });
    }
    serde_json::to_string(&serde_json::json!({ "displayTimeUnit": "ms", "traceEvents": events }))
}
