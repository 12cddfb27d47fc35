//! Counters of threads, processes or PUs over time as a trace, without a session: what `perch stat --timeline` writes.

use super::events::{Event, Events, us};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

/// Where a counter or a slice is shown: a process of the trace, and one of its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Track {
    /// The process's number.
    pub process: u32,
    /// The thread's number.
    pub thread: u32,
}

/// Writes the trace. The first error ends it, and [`CounterTrace::finish`] returns it.
#[derive(Debug)]
pub struct CounterTrace<W: Write> {
    events: Events<W>,
}

impl CounterTrace<BufWriter<File>> {
    /// Writes to a new file; one of that name is written over.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self::new(BufWriter::new(perch_files::output(path)?)))
    }
}

impl<W: Write> CounterTrace<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        let mut events = Events::new(out);
        events.head();
        Self { events }
    }

    /// Names the track's process.
    pub fn process(&mut self, track: Track, name: &str) {
        self.add("process_name", "M", track, None, json!({ "name": name }));
    }

    /// Names the track's thread.
    pub fn thread(&mut self, track: Track, name: &str) {
        self.add("thread_name", "M", track, None, json!({ "name": name }));
    }

    /// From this time on (nanoseconds), a counter has this value. Its name must be the only one of its kind in the process.
    pub fn counter(&mut self, track: Track, name: &str, unit: &str, at: u64, value: f64) {
        self.add(name, "C", track, Some(at), json!({ unit: value }));
    }

    /// Something that happened at a time (nanoseconds).
    pub fn instant(&mut self, track: Track, name: &str, at: u64) {
        self.add(name, "i", track, Some(at), json!({}));
    }

    /// Something that lasted from a time to another (nanoseconds). Slices of a track contain each other, or do not overlap.
    pub fn slice(&mut self, track: Track, name: &str, (from, to): (u64, u64), args: Value) {
        self.events.add(&Event {
            name,
            ph: "X",
            pid: track.process,
            tid: track.thread,
            ts: Some(us(from)),
            dur: Some(us(to.saturating_sub(from))),
            s: None,
            args,
        });
    }

    /// What has been written so far can be read by others.
    pub fn flush(&mut self) {
        self.events.flush();
    }

    /// Ends the file; returns the first error, if there was one.
    ///
    /// # Errors
    /// What could not be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.events.tail();
        self.events.flush();
        match self.events.error.take() {
            Some(error) => Err(error),
            None => Ok(self.events.out),
        }
    }

    fn add(&mut self, name: &str, ph: &'static str, track: Track, at: Option<u64>, args: Value) {
        self.events.add(&Event {
            name,
            ph,
            pid: track.process,
            tid: track.thread,
            ts: at.map(us),
            dur: None,
            s: (ph == "i").then_some("t"),
            args,
        });
    }
}
