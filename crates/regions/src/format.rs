//! Reports as JSON (`docs/regions.md`). A file may come from any program that perch started: it is bounded, checked, and
//! made printable.

use crate::{DEEPEST, LONGEST_NAME, Region, Report, Sample};
use perch_core::text::printable;
use perch_stat::{Amounts, RowMetrics, Value};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

/// Longest report, in bytes.
pub const LONGEST: u64 = 16 << 20;

/// Most regions of a report, each thread's counted.
pub const MOST_REGIONS: usize = 50_000;

/// Most events of a region.
const MOST_EVENTS: usize = 256;

/// The value of `format`.
const FORMAT: &str = "perch-regions";

/// The version that is written and read.
const VERSION: u32 = 1;

/// A text that is no report.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Not JSON, or not of this form.
    #[error("not a report of regions: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON of something else.
    #[error("not a report of regions: `format` is not {FORMAT} or `version` is not {VERSION}")]
    Other,
    /// More than is read.
    #[error("{0}")]
    TooMuch(String),
}

#[derive(Serialize, Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    format: Cow<'a, str>,
    version: u32,
    pid: i32,
    program: Cow<'a, str>,
    #[serde(default)]
    counted_by: Cow<'a, str>,
    #[serde(default)]
    remarks: Vec<String>,
    /// Missing in reports of older libraries.
    #[serde(default = "yes")]
    complete: bool,
    #[serde(default)]
    events: Vec<Event>,
    regions: Vec<Entry>,
    /// Only written.
    #[serde(default, skip_deserializing, skip_serializing_if = "Vec::is_empty")]
    samples: Vec<SampleEntry>,
}

#[derive(Serialize, Deserialize)]
struct Event {
    name: Arc<str>,
    alias: Arc<str>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    path: Vec<Arc<str>>,
    tid: i32,
    thread: Arc<str>,
    calls: u64,
    #[serde(default)]
    open: bool,
    wall_s: f64,
    #[serde(flatten)]
    did: Did,
}

#[derive(Serialize, Default)]
struct SampleEntry {
    path: Vec<Arc<str>>,
    tid: i32,
    event: &'static str,
    time_s: f64,
    wall_s: f64,
    set: Option<u32>,
    #[serde(flatten)]
    did: Did,
}

#[derive(Serialize, Deserialize, Default)]
struct Did {
    /// More than one for threads that ended and were added up.
    #[serde(default = "one")]
    threads: u32,
    cpu_s: f64,
    counted_s: f64,
    #[serde(default)]
    wait_s: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    switches: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    migrations: Option<u64>,
    counts: BTreeMap<Arc<str>, CountEntry>,
    /// Only written: who reads a report can compute them.
    #[serde(
        default,
        skip_deserializing,
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    metrics: BTreeMap<Arc<str>, f64>,
    /// Only written: of metrics that are lower bounds (`>`), or from counts that are scaled up (`~`).
    #[serde(
        default,
        skip_deserializing,
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    marks: BTreeMap<Arc<str>, String>,
}

/// An event's count.
#[derive(Serialize, Deserialize)]
struct CountEntry {
    /// Occurrences while it was counted.
    counted: f64,
    /// CPU seconds in which it was counted.
    time_s: f64,
    /// Only written: the estimate for all of `counted_s`.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    doubtful: Option<String>,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Nanoseconds of a number of seconds from outside: what is no time is none.
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round().max(0.0) as u64
}

impl Did {
    fn of(amounts: &Amounts, metrics: &RowMetrics) -> Self {
        let counts = amounts.values.iter().map(|(alias, value)| {
            let entry = CountEntry {
                counted: value.counted,
                time_s: value.time / 1e9,
                value: value.estimate(amounts.covered),
                doubtful: value.doubt.clone(),
            };
            (Arc::clone(alias), entry)
        });
        Self {
            threads: amounts.members,
            cpu_s: seconds(amounts.cpu_time),
            counted_s: seconds(amounts.covered),
            wait_s: seconds(amounts.wait_time),
            switches: amounts.switches,
            migrations: amounts.migrations,
            counts: counts.collect(),
            metrics: metrics
                .values
                .iter()
                .map(|(name, metric)| (Arc::clone(name), metric.value))
                .collect(),
            marks: metrics
                .values
                .iter()
                .map(|(name, _)| (Arc::clone(name), metrics.mark(name)))
                .filter(|(_, mark)| !mark.is_empty())
                .collect(),
        }
    }

    fn amounts(self) -> Result<Amounts, FormatError> {
        if self.counts.len() > MOST_EVENTS {
            return Err(FormatError::TooMuch(format!(
                "a region has more than {MOST_EVENTS} events"
            )));
        }
        let covered = nanoseconds(self.counted_s);
        let value = |entry: CountEntry| Value {
            counted: entry.counted,
            time: (entry.time_s * 1e9).clamp(0.0, covered as f64),
            doubt: match entry.doubtful {
                None if !(entry.counted >= 0.0 && entry.counted.is_finite()) => {
                    Some("not a count".to_owned())
                }
                doubt => doubt.map(|why| printable(&why).into_owned()),
            },
        };
        let values = self
            .counts
            .into_iter()
            .map(|(alias, entry)| (shown(&alias), value(entry)));
        let mut amounts = Amounts::default();
        amounts.members = self.threads;
        amounts.cpu_time = nanoseconds(self.cpu_s);
        amounts.covered = covered;
        amounts.wait_time = nanoseconds(self.wait_s);
        amounts.set_switches(self.switches, self.migrations);
        amounts.values = values.collect();
        Ok(amounts)
    }
}

/// A name from outside.
fn shown(name: &str) -> Arc<str> {
    let mut end = name.len().min(LONGEST_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    printable(&name[..end]).into()
}

/// A report as one object in one line, with the metrics that the function computes of what was done in so many
/// nanoseconds.
pub fn write(report: &Report, metrics: &dyn Fn(&Amounts, u64) -> RowMetrics) -> String {
    let did = |amounts: &Amounts, wall: u64| Did::of(amounts, &metrics(amounts, wall));
    let region = |region: &Region| Entry {
        path: region.path.clone(),
        tid: region.tid,
        thread: Arc::clone(&region.thread),
        calls: region.calls,
        open: region.open,
        wall_s: seconds(region.wall),
        did: did(&region.amounts, region.wall),
    };
    let sample = |sample: &Sample| SampleEntry {
        path: sample.path.clone(),
        tid: sample.tid,
        event: sample.end.name(),
        time_s: seconds(sample.at),
        wall_s: seconds(sample.wall),
        set: sample.set.map(|set| set + 1),
        did: did(&sample.amounts, sample.wall),
    };
    let file = File {
        format: FORMAT.into(),
        version: VERSION,
        pid: report.pid,
        program: (*report.program).into(),
        counted_by: report.counted_by.as_str().into(),
        remarks: report.remarks.clone(),
        complete: report.complete,
        events: report
            .events
            .iter()
            .map(|(name, alias)| Event {
                name: Arc::clone(name),
                alias: Arc::clone(alias),
            })
            .collect(),
        regions: report.regions.iter().map(region).collect(),
        samples: report.samples.iter().map(sample).collect(),
    };
    // Numbers, texts and lists of them: there is nothing that JSON cannot hold.
    serde_json::to_string(&file).unwrap_or_default() + "\n"
}

/// Reads a report; samples and metrics are left out.
///
/// # Errors
/// What is no report, or too large a one.
pub fn parse(bytes: &[u8]) -> Result<Report, FormatError> {
    if bytes.len() as u64 > LONGEST {
        return Err(FormatError::TooMuch(format!(
            "the report is longer than {} MiB",
            LONGEST >> 20
        )));
    }
    let file: File = serde_json::from_slice(bytes)?;
    if file.format != FORMAT || file.version != VERSION {
        return Err(FormatError::Other);
    }
    if file.regions.len() > MOST_REGIONS {
        return Err(FormatError::TooMuch(format!(
            "the report has more than {MOST_REGIONS} regions"
        )));
    }
    let region = |entry: Entry| {
        if entry.path.is_empty() || entry.path.len() > DEEPEST {
            return Err(FormatError::TooMuch(format!(
                "a region is inside of more than {DEEPEST} others, or has no name"
            )));
        }
        Ok(Region {
            path: entry.path.iter().map(|name| shown(name)).collect(),
            tid: entry.tid,
            thread: shown(&entry.thread),
            calls: entry.calls,
            open: entry.open,
            wall: nanoseconds(entry.wall_s),
            amounts: entry.did.amounts()?,
        })
    };
    Ok(Report {
        pid: file.pid,
        program: shown(&file.program),
        counted_by: printable(&file.counted_by).into_owned(),
        remarks: file
            .remarks
            .iter()
            .take(100)
            .map(|text| printable(text).into_owned())
            .collect(),
        complete: file.complete,
        events: file
            .events
            .iter()
            .take(MOST_EVENTS)
            .map(|event| (shown(&event.name), shown(&event.alias)))
            .collect(),
        regions: file
            .regions
            .into_iter()
            .map(region)
            .collect::<Result<_, _>>()?,
        samples: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn no_metrics(_: &Amounts, _: u64) -> RowMetrics {
        RowMetrics::default()
    }

    prop_compose! {
        fn amounts()(
            times in proptest::array::uniform3(0u64..1 << 45),
            switches in proptest::option::of(0u64..1000),
            counts in proptest::collection::btree_map("[a-z_]{1,8}", (0u32.., 0.0f64..=1.0), 0..4),
        ) -> Amounts {
            let covered = times[1].min(times[0]);
            let values = counts.into_iter().map(|(name, (counted, share))| {
                let time = (covered as f64 * share).round();
                (name.into(), Value { counted: counted.into(), time, doubt: None })
            });
            let mut amounts = Amounts::default();
            (amounts.members, amounts.cpu_time, amounts.covered) = (1, times[0], covered);
            (amounts.wait_time, amounts.switches) = (times[2], switches);
            amounts.values = values.collect();
            amounts
        }
    }

    prop_compose! {
        fn region()(
            path in proptest::collection::vec("[ -~äöü]{1,12}", 1..5),
            tid in 1i32..,
            calls: u64,
            open: bool,
            wall in 0u64..1 << 45,
            amounts in amounts(),
        ) -> Region {
            let path = path.into_iter().map(Into::into).collect();
            Region { path, tid, thread: "main".into(), calls, open, wall, amounts }
        }
    }

    fn close(a: u64, b: u64) -> bool {
        a.abs_diff(b) <= 1 + a / 1_000_000_000_000
    }

    proptest! {
        #[test]
        fn reports_come_back(
            regions in proptest::collection::vec(region(), 0..6),
            pid: i32,
            complete: bool,
        ) {
            let report = Report { pid, program: "app".into(), regions, complete, ..Report::default() };
            let read = parse(write(&report, &no_metrics).as_bytes()).unwrap();
            prop_assert_eq!(read.regions.len(), report.regions.len());
            prop_assert_eq!((read.pid, read.complete), (pid, complete));
            for (read, written) in read.regions.iter().zip(&report.regions) {
                prop_assert_eq!((&read.path, read.tid, read.calls, read.open),
                    (&written.path, written.tid, written.calls, written.open));
                prop_assert!(close(read.wall, written.wall));
                prop_assert!(close(read.amounts.cpu_time, written.amounts.cpu_time));
                prop_assert!(close(read.amounts.covered, written.amounts.covered));
                for (alias, value) in &written.amounts.values {
                    let read = &read.amounts.values[alias];
                    prop_assert_eq!(read.counted, value.counted);
                    prop_assert!((read.time - value.time).abs() <= 2.0);
                }
            }
        }

        /// Reports with some bytes changed, which are read or refused, and then added up and shown.
        #[test]
        fn changed_reports_are_survived(
            regions in proptest::collection::vec(region(), 0..4),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), "[-0-9eE.,\"{}\\[\\]\\\\ua-f]"), 1..8),
        ) {
            let report = Report { program: "app".into(), regions, ..Report::default() };
            let mut bytes = write(&report, &no_metrics).into_bytes();
            for (at, with) in changes {
                let at = at.index(bytes.len());
                bytes[at] = with.as_bytes()[0];
            }
            if let Ok(report) = parse(&bytes) {
                let (merged, left_out) = crate::merge([&report, &report]);
                prop_assert_eq!(left_out, 0);
                let columns = crate::table::Columns::default();
                let text = crate::table::table(&merged, &columns, &no_metrics);
                prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
            }
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn what_acts_on_a_terminal_is_escaped_and_what_is_no_number_is_doubtful() {
        let text = r#"{"format":"perch-regions","version":1,"pid":1,"program":"a\u001b[2J",
            "regions":[{"path":["\u001b]0;x\u0007"],"tid":1,"thread":"t","calls":1,"wall_s":-3,"cpu_s":1e300,
            "counted_s":1,"counts":{"x":{"counted":-5,"time_s":9}}}]}"#;
        let report = parse(text.as_bytes()).unwrap();
        assert_eq!(&*report.program, "a\\x1b[2J");
        assert!(report.complete);
        let region = &report.regions[0];
        assert_eq!(&*region.path[0], "\\x1b]0;x\\x07");
        assert_eq!((region.wall, region.amounts.cpu_time), (0, u64::MAX));
        let value = &region.amounts.values["x"];
        assert_eq!(
            (value.doubt.as_deref(), value.time),
            (Some("not a count"), 1e9)
        );
    }

    #[test]
    fn what_is_not_a_report_is_refused() {
        let why = |text: &str| parse(text.as_bytes()).unwrap_err().to_string();
        assert!(why("{").contains("not a report"));
        let other = r#"{"format":"x","version":1,"pid":1,"program":"a","regions":[]}"#;
        assert!(why(other).contains("`format`"));
        let empty = r#"{"format":"perch-regions","version":1,"pid":1,"program":"a","regions":[{"path":[],"tid":1,
            "thread":"t","calls":1,"wall_s":1,"cpu_s":1,"counted_s":1,"counts":{}}]}"#;
        assert!(why(empty).contains("has no name"));
    }
}
