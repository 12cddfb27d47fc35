//! What perch and a program that is a module tell each other: one JSON object a line (docs/modules.md).

use perch_core::{
    MetricInfo, MetricKind, MetricScope, ThreadEvent, ThreadInfo, ThreadSample, WantedEvents, text,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

/// The version of the protocol.
pub(super) const VERSION: u32 = 1;

/// More metrics than these are an error.
const MOST_METRICS: usize = 64;

/// More events than these are an error.
const MOST_EVENTS: usize = 32;

/// Longer names are an error; longer descriptions are cut.
const LONGEST: usize = 64;

/// From perch.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum Request<'a> {
    /// The first line: the program answers with [`Hello`].
    Hello { protocol: u32 },
    /// A thread was seen for the first time.
    Start { thread: Thread<'a> },
    /// A thread has exited.
    Exit { tid: i32, start: u64 },
    /// A thread moved to another PU, so many times in the interval.
    Migration {
        tid: i32,
        start: u64,
        pu: Option<u32>,
        times: u64,
    },
    /// A thread left a PU, so many times in the interval.
    Switch { tid: i32, start: u64, times: u64 },
    /// An interval is over: the program answers with [`Values`].
    Sample {
        seq: u64,
        interval_s: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        threads: Option<Vec<Sample<'a>>>,
    },
}

/// Who a thread is.
#[derive(Debug, Serialize)]
pub(super) struct Thread<'a> {
    tid: i32,
    start: u64,
    pid: i32,
    name: &'a str,
    process: &'a str,
}

/// What a thread did in the interval.
#[derive(Debug, Serialize)]
pub(super) struct Sample<'a> {
    #[serde(flatten)]
    thread: Thread<'a>,
    cpu_s: f64,
    wait_s: f64,
    pu: Option<u32>,
    counts: BTreeMap<&'a str, f64>,
}

impl<'a> From<&'a ThreadInfo> for Thread<'a> {
    fn from(info: &'a ThreadInfo) -> Self {
        Self {
            tid: info.id.tid,
            start: info.id.start,
            pid: info.pid,
            name: &info.name,
            process: &info.process,
        }
    }
}

impl<'a> From<&'a ThreadSample> for Sample<'a> {
    fn from(sample: &'a ThreadSample) -> Self {
        let counts = sample.counts.iter();
        Self {
            thread: (&sample.info).into(),
            cpu_s: sample.cpu_time as f64 / 1e9,
            wait_s: sample.wait_time as f64 / 1e9,
            pu: sample.last_pu,
            counts: counts.map(|count| (&*count.alias, count.value)).collect(),
        }
    }
}

impl<'a> From<ThreadEvent<'a>> for Request<'a> {
    fn from(event: ThreadEvent<'a>) -> Self {
        match event {
            ThreadEvent::Started(info) => Self::Start {
                thread: info.into(),
            },
            ThreadEvent::Exited(id) => Self::Exit {
                tid: id.tid,
                start: id.start,
            },
            ThreadEvent::Migrated(sample, times) => Self::Migration {
                tid: sample.info.id.tid,
                start: sample.info.id.start,
                pu: sample.last_pu,
                times,
            },
            ThreadEvent::Switched(sample, times) => Self::Switch {
                tid: sample.info.id.tid,
                start: sample.info.id.start,
                times,
            },
        }
    }
}

/// The program's answer to the first line.
#[derive(Debug, Deserialize)]
struct RawHello {
    protocol: u32,
    name: String,
    #[serde(default)]
    about: String,
    metrics: Vec<RawMetric>,
    #[serde(default)]
    events: Vec<String>,
    #[serde(default)]
    wants: Vec<Want>,
}

#[derive(Debug, Deserialize)]
struct RawMetric {
    name: String,
    #[serde(default)]
    unit: String,
    scope: MetricScope,
    kind: MetricKind,
    #[serde(default)]
    about: String,
}

/// What a program wants to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Want {
    Threads,
    Starts,
    Exits,
    Migrations,
    Switches,
}

/// What a program is, checked.
#[derive(Debug, Clone)]
pub(super) struct Hello {
    pub name: String,
    pub about: String,
    pub metrics: Vec<MetricInfo>,
    pub events: Vec<String>,
    pub wants: WantedEvents,
    /// Whether samples list the threads.
    pub threads: bool,
}

impl Hello {
    /// Reads the answer.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let raw: RawHello = serde_json::from_str(line)
            .map_err(|error| format!("its first line is no answer to hello: {error}"))?;
        if raw.protocol != VERSION {
            return Err(format!(
                "it speaks version {} of the protocol, perch speaks version {VERSION}",
                raw.protocol
            ));
        }
        let wrong = |name: &str, also: &str| {
            Err(format!(
                "`{}` is no name: use up to {LONGEST} lower-case letters, digits and `_`{also}, a letter first",
                text::printable(&short(name))
            ))
        };
        if !is_name(&raw.name.replace('-', "_")) {
            return wrong(&raw.name, " and `-`");
        }
        // Formulas have no dashes in names.
        if let Some(metric) = raw.metrics.iter().find(|metric| !is_name(&metric.name)) {
            return wrong(&metric.name, "");
        }
        let mut names = HashSet::new();
        if let Some(metric) = raw
            .metrics
            .iter()
            .find(|metric| !names.insert(&metric.name))
        {
            return Err(format!("it has two metrics called `{}`", metric.name));
        }
        if raw.metrics.is_empty() || raw.metrics.len() > MOST_METRICS {
            return Err(format!("it must have 1 to {MOST_METRICS} metrics"));
        }
        if raw.events.len() > MOST_EVENTS {
            return Err(format!("it needs more than {MOST_EVENTS} events"));
        }
        let wants = |want: Want| raw.wants.contains(&want);
        let plain = |text: &str| text::printable(&short(text)).into_owned();
        let metric = |metric: &RawMetric| MetricInfo {
            name: metric.name.as_str().into(),
            unit: plain(&metric.unit).into(),
            scope: metric.scope,
            kind: metric.kind,
            about: plain(&metric.about).into(),
        };
        Ok(Self {
            about: plain(&raw.about),
            metrics: raw.metrics.iter().map(metric).collect(),
            threads: wants(Want::Threads),
            wants: WantedEvents {
                starts: wants(Want::Starts),
                exits: wants(Want::Exits),
                migrations: wants(Want::Migrations),
                switches: wants(Want::Switches),
            },
            name: raw.name,
            events: raw.events,
        })
    }
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(plain)
        && name.len() <= LONGEST
}

/// The program's answer to a sample.
#[derive(Debug, Deserialize)]
pub(super) struct Values {
    pub seq: u64,
    #[serde(default)]
    pub values: Vec<Value>,
}

/// One value; it says whom it is about unless that is the machine.
#[derive(Debug, Deserialize)]
pub(super) struct Value {
    pub name: String,
    pub value: f64,
    pub tid: Option<i32>,
    pub pid: Option<i32>,
    pub pu: Option<u32>,
    pub package: Option<u32>,
    #[serde(default = "full")]
    pub confidence: f64,
}

fn full() -> f64 {
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::{Count, CountQuality, Metrics, ThreadId};
    use proptest::prelude::*;

    const HELLO: &str = r#"{"protocol":1,"name":"fans","about":"speed of fans","metrics":[{"name":"fan_speed",
        "unit":"1/min","scope":"machine","kind":"ratio"}],"events":["cycles"],"wants":["threads","exits"]}"#;

    #[test]
    fn an_answer_is_read() {
        let hello = Hello::parse(&HELLO.replace('\n', "")).unwrap();
        assert_eq!(
            (hello.name.as_str(), &*hello.metrics[0].name),
            ("fans", "fan_speed")
        );
        assert!(hello.threads && hello.wants.exits && !hello.wants.starts);
        assert_eq!(hello.events, ["cycles"]);
    }

    /// The JSON of an indented block of the page, which begins with this text; lines that belong together are joined.
    fn of_page(begins: &str) -> String {
        let page = include_str!("../../../../../docs/modules.md");
        let mut lines = page
            .lines()
            .skip_while(|line| !line.trim().starts_with(begins));
        let first = lines.next().unwrap().trim().to_owned();
        // Further lines of an object are indented by one more.
        let more = lines.take_while(|line| line.starts_with("     "));
        more.fold(first, |text, line| text + line.trim())
    }

    #[test]
    fn the_page_shows_what_is_spoken() {
        let hello = Hello::parse(&of_page("{\"protocol\":1")).unwrap();
        assert_eq!(hello.name, "fans");
        let values: Values = serde_json::from_str(&of_page("{\"seq\":1")).unwrap();
        assert_eq!((values.seq, values.values[0].value), (1, 1250.0));
        let id = ThreadId { tid: 7, start: 123 };
        let info = ThreadInfo {
            id,
            pid: 7,
            name: "app".into(),
            process: "app".into(),
            work: perch_core::Work::default(),
        };
        let sample = ThreadSample {
            info: info.clone(),
            interval: 1_000_000_000,
            cpu_time: 900_000_000,
            wait_time: 10_000_000,
            switches: Some(90),
            migrations: Some(4),
            last_pu: Some(3),
            mask: None,
            counts: vec![Count {
                alias: "cycles".into(),
                value: 3e9,
                quality: CountQuality::Exact,
            }],
            event_set: None,
            metrics: Metrics::default(),
        };
        let on_pu_2 = ThreadSample {
            last_pu: Some(2),
            ..sample.clone()
        };
        let asked = Request::Sample {
            seq: 1,
            interval_s: 1.0,
            threads: Some(vec![(&sample).into()]),
        };
        for (request, begins) in [
            (Request::Hello { protocol: VERSION }, "{\"type\":\"hello\""),
            (asked, "{\"type\":\"sample\""),
            (ThreadEvent::Started(&info).into(), "{\"type\":\"start\""),
            (ThreadEvent::Exited(id).into(), "{\"type\":\"exit\""),
            (
                ThreadEvent::Migrated(&on_pu_2, 4).into(),
                "{\"type\":\"migration\"",
            ),
            (
                ThreadEvent::Switched(&sample, 90).into(),
                "{\"type\":\"switch\"",
            ),
        ] {
            let page: serde_json::Value = serde_json::from_str(&of_page(begins)).unwrap();
            assert_eq!(serde_json::to_value(request).unwrap(), page);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let why = |from: &str, to: &str| Hello::parse(&HELLO.replace(from, to)).unwrap_err();
        assert!(why("\"protocol\":1", "\"protocol\":2").contains("version 2"));
        assert!(why("fan_speed", "Fan speed").contains("no name"));
        assert!(why("fan_speed", "fan-speed").contains("no name"));
        assert!(why("fan_speed", "a\\u001b[2J").contains("a\\x1b[2J"));
        assert!(why("\"scope\":\"machine\"", "\"scope\":\"room\"").contains("room"));
        assert!(why("{\"protocol\"", "nonsense").contains("no answer to hello"));
    }

    proptest! {
        #[test]
        fn any_line_is_survived(line in "\\PC{0,200}") {
            let _ = Hello::parse(&line);
            let _ = serde_json::from_str::<Values>(&line);
        }
    }
}
