//! Frames as JSON lines: what `perch top --json` prints, and what is read of a perch on another machine.
//!
//! The other side may be newer, broken or hostile. So lines, names and numbers of objects are bounded, unknown members and
//! records are skipped, and texts are made printable.

use crate::{
    check,
    frame::{Column, Frame, Moved, PuLoad, Thread},
};
use perch_core::{MetricName, Outcome, PuSet, ThreadId, Topology, text::printable};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io::{self, BufRead, Read},
    sync::Arc,
};

/// Version of the format. A higher one may have further members and records.
pub const VERSION: u32 = 1;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::machine;
    use proptest::prelude::*;

    fn frame() -> Frame {
        let thread = |tid: i32, cpu: f32| Thread {
            id: ThreadId { tid, start: 5 },
            pid: 10,
            name: "worker".into(),
            process: "app".into(),
            cpu,
            waiting: 0.125,
            pu: Some(1),
            switches: Some(2.5),
            migrations: None,
            bound: (tid == 11).then(|| Arc::new(PuSet::single(1))),
        };
        Frame {
            at: 1_000_000_000,
            interval: 1_000_000_000,
            pus: vec![PuLoad {
                pu: 1,
                busy: 0.5,
                interrupts: 0.25,
            }],
            threads: vec![thread(11, 0.5), thread(12, 0.0)],
            metrics: vec![Column {
                name: "ipc".into(),
                values: vec![1.5, 2.0],
            }],
            moves: vec![Moved {
                id: ThreadId { tid: 11, start: 5 },
                name: "worker".into(),
                from: None,
                to: Some(PuSet::single(1)),
                reason: "FP rank 1".into(),
                numbers: vec![("fp_share".into(), 0.5)],
                outcome: Outcome::Applied,
            }],
            remarks: vec!["a remark".into()],
            unseen: 3,
            own: 0.001,
            ..Frame::empty(machine(1, 2, 1))
        }
    }

    fn read(text: &str) -> Result<Option<Frame>, WireError> {
        Lines::new(text.as_bytes()).read()
    }

    #[test]
    fn what_is_written_is_read() {
        let written = frame();
        let later = Frame {
            at: 2_000_000_000,
            ..frame()
        };
        let stream = format!(
            "{}\n{}\n{{\"record\":\"newer\",\"x\":1}}\n{}\n{{\"rec",
            line(&written, true).unwrap(),
            line(&later, false).unwrap(),
            line(&later, false).unwrap(),
        );
        let mut lines = Lines::new(stream.as_bytes());
        assert_eq!(lines.read().unwrap().unwrap(), written);
        assert_eq!(lines.read().unwrap().unwrap(), later);
        // Time goes on, whatever the other side says.
        assert_eq!(lines.read().unwrap().unwrap().at, later.at + 1);
        // The last one is torn.
        assert!(lines.read().unwrap().is_none());
    }

    #[test]
    fn names_are_made_printable_and_unknown_members_are_skipped() {
        let mut value: Value = serde_json::from_str(&line(&frame(), true).unwrap()).unwrap();
        value["version"] = 99.into();
        value["later"] = serde_json::json!({"x": [1]});
        value["threads"][0]["name"] = "a\u{1b}]0;x\u{7}".into();
        value["threads"][0]["cpu"] = (-3).into();
        value["moves"][0]["outcome"] = "postponed".into();
        let read = read(&format!("{value}\n")).unwrap().unwrap();
        assert_eq!(&*read.threads[0].name, "a\\x1b]0;x\\x07");
        assert_eq!(read.threads[0].cpu, 0.0);
        assert_eq!(read.moves[0].outcome, Outcome::NotApplied);
    }

    #[test]
    fn what_is_no_frame_is_told_in_words() {
        let error = |text: &str| read(text).unwrap_err().to_string();
        let told = error("bash: perch: command not found\n");
        assert!(
            told.contains("line 1") && told.contains("command not found"),
            "{told}"
        );
        assert!(error("\u{1b}[2J\n").contains("\\x1b"));
        assert!(error("{\"record\":\"snapshot\"}\n").contains("topology"));
        assert!(read("").unwrap().is_none());
        // Sets as large as they can be, very many of them.
        let cache = r#"{"level":1,"size":1,"pus":"65535"}"#;
        let caches = vec![cache; 40_000].join(",");
        let line = format!(r#"{{"record":"snapshot","topology":{{"caches":[{caches}]}}}}"#);
        assert!(error(&(line + "\n")).contains("beyond all measure"));
    }

    proptest! {
        #[test]
        fn damaged_lines_never_panic(at in 0usize..2000, byte: u8, cut in 0usize..3000) {
            let mut bytes = line(&frame(), true).unwrap().into_bytes();
            bytes.push(b'\n');
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(cut);
            let mut lines = Lines::new(&bytes[..]);
            while let Ok(Some(frame)) = lines.read() {
                // What is read can be written again.
                line(&frame, true).unwrap();
            }
        }
    }
}
