//! Events of the Trace Event Format, one JSON object a line.

use serde::Serialize;
use serde_json::Value;
use std::io::{self, Write};

/// Before the events of a file.
const HEAD: &str = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
/// After them.
const TAIL: &str = "\n]}\n";

/// One event. Times are in microseconds.
#[derive(Debug, Serialize)]
pub(super) struct Event<'a> {
    pub name: &'a str,
    /// Its type: `X` a slice, `i` an instant, `C` a counter, `M` a name.
    pub ph: &'static str,
    pub pid: u32,
    pub tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dur: Option<f64>,
    /// Of an instant: `t`, it belongs to its thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s: Option<&'static str>,
    pub args: Value,
}

/// Where events are written to. The first error ends it.
#[derive(Debug)]
pub(super) struct Events<W> {
    pub out: W,
    any: bool,
    pub error: Option<io::Error>,
}

impl<W: Write> Events<W> {
    pub fn new(out: W) -> Self {
        Self {
            out,
            any: false,
            error: None,
        }
    }

    pub fn head(&mut self) {
        self.bytes(HEAD.as_bytes());
    }

    pub fn tail(&mut self) {
        self.bytes(TAIL.as_bytes());
    }

    pub fn add(&mut self, event: &Event<'_>) {
        match serde_json::to_vec(event) {
            Ok(line) => self.lines(&line),
            Err(error) => self.error = Some(error.into()),
        }
    }

    /// Adds events that are text already.
    pub fn lines(&mut self, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        if std::mem::replace(&mut self.any, true) {
            self.bytes(b",\n");
        }
        self.bytes(lines);
    }

    pub fn flush(&mut self) {
        if self.error.is_none() {
            self.error = self.out.flush().err();
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if self.error.is_none() {
            self.error = self.out.write_all(bytes).err();
        }
    }
}

/// Nanoseconds as microseconds.
pub(super) fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}
