//! Reading lines. The other side may be newer, broken or hostile. So lines, names and numbers of objects are bounded, unknown
//! members and records are skipped, and texts are made printable.

use super::{Line, ThreadLine};
use crate::{
    check,
    frame::{Column, Frame, Moved, PuLoad, Thread},
};
use perch_core::{MetricName, Outcome, PuSet, ThreadId, Topology, text::printable};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;
use std::{
    io::{self, BufRead, Read},
    sync::Arc,
};

/// How long a line may be, in bytes: about 200,000 threads.
pub const LONGEST_LINE: u64 = 32 << 20;

/// How many threads a frame may have; and remarks and moves.
const MOST_THREADS: usize = 200_000;
const MOST_MOVES: usize = 10_000;
const MOST_REMARKS: usize = 100;
/// How many metrics, and how many different sets of PUs.
const MOST_METRICS: usize = 64;
const MOST_SETS: usize = 10_000;
/// How long names and other texts may be, in characters.
const LONGEST_NAME: usize = 128;
const LONGEST_TEXT: usize = 2000;
/// How much memory the sets of PUs of a topology may take, in bytes.
const MOST_MEMORY: u64 = 256 << 20;

/// A line that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The stream cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A line that is no frame.
    #[error("line {line} is not what `perch top --json` prints: {why}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
}

/// Reads frames line by line.
#[derive(Debug)]
pub struct Lines<R: BufRead> {
    input: R,
    line: u64,
    topology: Option<Arc<Topology>>,
    /// When the last frame was: time does not run backwards.
    at: u64,
}

impl<R: BufRead> Lines<R> {
    /// Reads what this reader gives.
    pub fn new(input: R) -> Self {
        Self {
            input,
            line: 0,
            topology: None,
            at: 0,
        }
    }

    /// The next frame; `None` at the end. A last line without line end was cut short, and is the end.
    ///
    /// # Errors
    /// A line that is too long or is no frame, a stream that cannot be read.
    pub fn read(&mut self) -> Result<Option<Frame>, WireError> {
        loop {
            let mut bytes = Vec::new();
            let mut limited = (&mut self.input).take(LONGEST_LINE);
            limited.read_until(b'\n', &mut bytes)?;
            if bytes.is_empty() {
                return Ok(None);
            }
            self.line += 1;
            if bytes.last() != Some(&b'\n') {
                if bytes.len() as u64 >= LONGEST_LINE {
                    return Err(self.wrong(format!("it is longer than {LONGEST_LINE} bytes")));
                }
                return match self.line {
                    // Nothing of a perch came before: this says what did.
                    1 => self.frame(&bytes),
                    _ => Ok(None),
                };
            }
            if let Some(frame) = self.frame(&bytes)? {
                return Ok(Some(frame));
            }
        }
    }

    fn wrong(&self, why: impl Into<String>) -> WireError {
        WireError::Line {
            line: self.line,
            why: why.into(),
        }
    }

    /// The frame of a line; `None` if it is another record.
    fn frame(&mut self, bytes: &[u8]) -> Result<Option<Frame>, WireError> {
        #[derive(Deserialize)]
        struct Kind {
            record: String,
        }
        let kind = serde_json::from_slice::<Kind>(bytes);
        match kind {
            Ok(kind) if kind.record != "snapshot" => return Ok(None),
            Ok(_) => {}
            Err(_) => {
                let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
                return Err(self.wrong(format!("`{}`", text(begin.trim_end(), 200))));
            }
        }
        let line: Line =
            serde_json::from_slice(bytes).map_err(|error| self.wrong(error.to_string()))?;
        if line.threads.len() > MOST_THREADS {
            return Err(self.wrong(format!("it has more than {MOST_THREADS} threads")));
        }
        if let Some(value) = &line.topology {
            let topology = read_topology(value).map_err(|why| self.wrong(why))?;
            self.topology = Some(Arc::new(topology));
        }
        let Some(topology) = self.topology.clone() else {
            return Err(self.wrong("it comes before any topology"));
        };
        self.at = line.at.max(self.at.saturating_add(1));
        Ok(Some(built(line, topology, self.at)))
    }
}

/// A topology, if it is affordable and holds together.
fn read_topology(value: &Value) -> Result<Topology, String> {
    if memory(value) > MOST_MEMORY {
        return Err("its topology is beyond all measure".to_owned());
    }
    let mut topology: Topology =
        serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    check::topology(&topology).map_err(|error| error.to_string())?;
    for package in &mut topology.packages {
        package.model = text(&package.model, LONGEST_NAME);
    }
    for kind in &mut topology.kinds {
        kind.name = text(&kind.name, LONGEST_NAME);
    }
    topology.source = text(topology.source.as_str(), LONGEST_NAME).as_str().into();
    Ok(topology)
}

/// About how many bytes the sets of PUs in this take: each has a bit for each number up to its highest.
fn memory(value: &Value) -> u64 {
    match value {
        Value::String(list) => {
            let numbers = list.split([',', '-']);
            let highest = numbers
                .filter_map(|number| number.parse::<u64>().ok())
                .max();
            highest.unwrap_or(0).min(65_536) / 8 + 32
        }
        Value::Array(values) => values.iter().map(memory).sum(),
        Value::Object(members) => members.values().map(memory).sum(),
        _ => 8,
    }
}

/// Text that may be shown, and not too much of it.
fn text(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => printable(&text[..end]).into_owned() + "…",
        None => printable(text).into_owned(),
    }
}

/// Sets of PUs and names, each once.
#[derive(Default)]
struct Kept {
    sets: FxHashMap<String, Option<Arc<PuSet>>>,
    names: FxHashMap<Arc<str>, Arc<str>>,
}

impl Kept {
    fn set(&mut self, list: Option<&String>) -> Option<Arc<PuSet>> {
        let list = list?;
        if let Some(known) = self.sets.get(list) {
            return known.clone();
        }
        if self.sets.len() >= MOST_SETS {
            return None;
        }
        let set = list.parse().ok().map(Arc::new);
        self.sets.insert(list.clone(), set.clone());
        set
    }

    fn name(&mut self, name: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let shown: Arc<str> = text(name, LONGEST_NAME).into();
        self.names.insert(Arc::clone(name), Arc::clone(&shown));
        shown
    }
}

fn share(value: f32) -> f32 {
    if value.is_finite() {
        value.clamp(0.0, 1.0)
    } else {
        0.0
    }
}

fn rate(value: Option<f32>) -> Option<f32> {
    value.filter(|rate| rate.is_finite() && *rate >= 0.0)
}

fn built(line: Line, topology: Arc<Topology>, at: u64) -> Frame {
    let mut kept = Kept::default();
    let mut threads = line.threads;
    threads.sort_by_key(|of| (of.tid, of.start));
    threads.dedup_by_key(|of| (of.tid, of.start));
    let metrics = columns(&threads, &mut kept);
    let mut pus: Vec<PuLoad> = line
        .pus
        .iter()
        .filter(|load| topology.pu(load.pu).is_some())
        .map(|load| PuLoad {
            pu: load.pu,
            busy: share(load.busy),
            interrupts: share(load.interrupts),
        })
        .collect();
    pus.sort_by_key(|load| load.pu);
    pus.dedup_by_key(|load| load.pu);
    let moves = line.moves.iter().take(MOST_MOVES).map(|made| Moved {
        id: ThreadId {
            tid: made.tid,
            start: made.start,
        },
        name: kept.name(&made.name),
        from: kept.set(made.from.as_ref()).map(|set| (*set).clone()),
        to: kept.set(made.to.as_ref()).map(|set| (*set).clone()),
        reason: text(&made.reason, LONGEST_TEXT),
        numbers: made
            .numbers
            .iter()
            .take(MOST_METRICS)
            .map(|(name, value)| (text(name, LONGEST_NAME), *value))
            .collect(),
        // One that only a newer perch knows.
        outcome: made
            .outcome
            .as_ref()
            .and_then(|outcome| serde_json::from_value(outcome.clone()).ok())
            .unwrap_or(Outcome::NotApplied),
    });
    let moves = moves.collect();
    let threads = threads.iter().map(|of| Thread {
        id: ThreadId {
            tid: of.tid,
            start: of.start,
        },
        pid: of.pid,
        name: kept.name(&of.name),
        process: kept.name(&of.process),
        cpu: share(of.cpu),
        waiting: share(of.waiting),
        pu: of.pu,
        switches: rate(of.switches),
        migrations: rate(of.migrations),
        bound: kept.set(of.bound.as_ref()),
    });
    Frame {
        at,
        interval: line.interval,
        topology,
        pus,
        threads: threads.collect(),
        metrics,
        moves,
        remarks: line
            .remarks
            .iter()
            .take(MOST_REMARKS)
            .map(|remark| text(remark, LONGEST_TEXT))
            .collect(),
        unseen: line.unseen,
        own: if line.own.is_finite() {
            line.own.max(0.0)
        } else {
            0.0
        },
    }
}

fn columns(threads: &[ThreadLine], kept: &mut Kept) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    let mut places: FxHashMap<MetricName, usize> = FxHashMap::default();
    for (at, thread) in threads.iter().enumerate() {
        for (name, value) in &thread.metrics {
            let place = match places.get(name) {
                Some(place) => *place,
                None if columns.len() < MOST_METRICS => {
                    columns.push(Column {
                        name: kept.name(name),
                        values: vec![f32::NAN; threads.len()],
                    });
                    places.insert(Arc::clone(name), columns.len() - 1);
                    columns.len() - 1
                }
                None => continue,
            };
            columns[place].values[at] = *value;
        }
    }
    columns
}
