//! What `perch noise --tracer timerlat` tells, as JSON has it. Times are nanoseconds.

use perch_linux::noise::{
    statistics::{Bin, Lengths, histogram},
    tracer::{Context, Latencies},
};
use serde::Serialize;
use std::collections::BTreeMap;

/// How late timers and the threads that they wake up were.
#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    /// Version of this format.
    pub version: u32,
    /// `timerlat`.
    pub tracer: &'static str,
    /// By rising number of the PU, and by context.
    pub rows: Vec<Row>,
    /// The signal that ended the measurement early.
    pub stopped: Option<String>,
}

/// Latencies of one context on one PU.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The PU.
    pub pu: u32,
    /// The handler of the interrupt, or the thread.
    pub context: Context,
    /// Latencies.
    pub lengths: Lengths,
    /// How many there are of which length.
    pub histogram: Vec<Bin>,
    /// How many times events of the PU were lost.
    pub lost_events: u64,
}

impl Latency {
    /// In numbers.
    pub fn of(found: &BTreeMap<u32, Latencies>, stopped: Option<String>) -> Self {
        let rows = found.iter().flat_map(|(pu, latencies)| {
            latencies.of.iter().map(|(context, lengths)| Row {
                pu: *pu,
                context: *context,
                lengths: Lengths::of(lengths.clone()),
                histogram: histogram(lengths.iter().copied()),
                lost_events: latencies.lost_events,
            })
        });
        Self {
            version: 1,
            tracer: "timerlat",
            rows: rows.collect(),
            stopped,
        }
    }
}
