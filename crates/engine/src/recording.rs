//! Recordings of sessions: JSON lines, as docs/recording.md describes them.

use crate::{
    journal::state_dir::Boot,
    observer::{ActionTaken, Cause, IrqMove, Move, Observer, Period, SessionEnd, Start},
    restore::RestoreReport,
};
use perch_core::{Observation, Plan, PuSet, Remark, Topology, text};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Write},
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The format's version. Version 1 is read too: there a machine that changed stood beside the observation, masks and CPU
/// sets that were asked for are missing, and every period but the last one has a plan.
pub const VERSION: u32 = 2;

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub version: u32,
    /// perch's own version.
    pub perch: String,
    /// The kernel's boot, empty if unknown.
    pub boot: String,
    /// When the session began, in seconds since 1970 (UTC).
    pub started: u64,
    /// The command that was run, or the processes that were attached, as given.
    pub command: Vec<String>,
    /// The settings in force, by name.
    pub configuration: BTreeMap<String, serde_json::Value>,
    /// The machine on which the threads ran.
    pub topology: Arc<Topology>,
    /// The what-if topology on which they were placed, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Arc<Topology>>,
    /// The policy's name.
    pub policy: String,
    /// The profile's name.
    pub profile: String,
    /// The profile's text.
    pub profile_text: String,
    /// The period asked for; written in nanoseconds.
    #[serde(with = "nanoseconds")]
    pub period: Duration,
    /// How threads were characterised.
    pub counting: String,
    /// The mask of threads whose affinity was not set.
    pub default_mask: PuSet,
    /// How often the machine was observed, if not once a period; written in nanoseconds.
    #[serde(
        default,
        with = "maybe_nanoseconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub interval: Option<Duration>,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Whether threads that others had placed were placed all the same.
    pub take_over: bool,
    /// The PUs to which perch was limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pus: Option<PuSet>,
    /// The text of a calibration of the machine, if there was one: the one that the policy read, else the machine's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<String>,
}

/// One period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeriodRecord {
    /// Its number, from 0.
    pub number: u64,
    /// In version 1, the machine from this period on, if it has changed.
    #[serde(default, skip_serializing)]
    pub topology: Option<Arc<Topology>>,
    /// What the machine saw.
    pub observation: Arc<Observation>,
    /// What the policy asked for, without what was invalid; `None` where it was not asked.
    pub plan: Option<Plan>,
    /// The number of the period about which the policy was asked, if it is not this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<u64>,
    /// What was changed, and what became of it.
    pub moves: Vec<Move>,
    /// What was changed of interrupts, and what became of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub irq_moves: Vec<IrqMove>,
    /// What else was done to threads, and what became of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<ActionTaken>,
    /// What was reported to the user.
    pub remarks: Vec<Remark>,
    /// Whether it is the session's last.
    #[serde(default)]
    pub last: bool,
}

/// The last line of a session that came to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRecord {
    /// Why it ended.
    pub cause: Cause,
    /// Periods that were observed.
    pub periods: u64,
    /// What came of giving masks back.
    pub restored: RestoreReport,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// The first.
    Header(Box<Header>),
    /// A period.
    Period(Box<PeriodRecord>),
    /// The last.
    End(Box<EndRecord>),
}

/// Writes a recording. It goes on disk period by period; the first error ends it, and [`Recorder::finish`] tells.
#[derive(Debug)]
pub struct Recorder<W: Write = File> {
    out: W,
    path: String,
    command: Vec<String>,
    configuration: BTreeMap<String, serde_json::Value>,
    calibration: Option<String>,
    error: Option<io::Error>,
}

impl Recorder<File> {
    /// Records to a new file; one of that name is written over.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn create(path: &Path, command: &[String]) -> Result<Self, RecordingError> {
        let name = path.display().to_string();
        match perch_files::output(path) {
            Ok(file) => Ok(Self::new(file, &name, command)),
            Err(error) => Err(RecordingError::Io { path: name, error }),
        }
    }
}

impl<W: Write> Recorder<W> {
    /// Records to `out`, which is written to once a period. `path` is for error messages.
    pub fn new(out: W, path: &str, command: &[String]) -> Self {
        Self {
            out,
            path: path.to_owned(),
            command: command.to_vec(),
            configuration: BTreeMap::new(),
            calibration: None,
            error: None,
        }
    }

    /// The settings in force, for the header.
    #[must_use]
    pub fn with_configuration(mut self, settings: BTreeMap<String, serde_json::Value>) -> Self {
        self.configuration = settings;
        self
    }

    /// The text of the calibration, for the header.
    #[must_use]
    pub fn with_calibration(mut self, text: Option<String>) -> Self {
        self.calibration = text;
        self
    }

    /// Tells the first error, if there was one.
    ///
    /// # Errors
    /// What could not be written.
    pub fn finish(&mut self) -> Result<(), RecordingError> {
        match self.error.take() {
            Some(error) => Err(RecordingError::Io {
                path: self.path.clone(),
                error,
            }),
            None => Ok(()),
        }
    }

    /// What was recorded to.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn write(&mut self, record: &Record) {
        if self.error.is_some() {
            return;
        }
        let written = serde_json::to_vec(record)
            .map_err(io::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                self.out.write_all(&line)
            })
            .and_then(|()| self.out.flush());
        self.error = written.err();
    }
}

impl<W: Write + Send> Observer for Recorder<W> {
    fn start(&mut self, start: &Start) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let elsewhere = start.topology != start.machine;
        self.write(&Record::Header(Box::new(Header {
            version: VERSION,
            perch: env!("CARGO_PKG_VERSION").to_owned(),
            boot: Boot::now().map(|boot| boot.id).unwrap_or_default(),
            started: now.map_or(0, |now| now.as_secs()),
            command: self.command.clone(),
            configuration: self.configuration.clone(),
            topology: Arc::clone(&start.machine),
            paper: elsewhere.then(|| Arc::clone(&start.topology)),
            policy: start.policy.clone(),
            profile: start.profile.clone(),
            profile_text: start.profile_text.clone(),
            period: start.period,
            counting: start.counting.clone(),
            default_mask: start.default_mask.clone(),
            interval: (start.interval != start.period).then_some(start.interval),
            dry_run: start.dry_run,
            take_over: start.take_over,
            pus: start.pus.clone(),
            calibration: self.calibration.clone(),
        })));
    }

    fn period(&mut self, period: &Period) {
        let decision = period.decision.as_ref();
        let basis = decision.map(|decision| decision.basis.period);
        self.write(&Record::Period(Box::new(PeriodRecord {
            number: period.snapshot.period,
            topology: None,
            observation: Arc::clone(&period.observation),
            plan: period.plan().cloned(),
            basis: basis.filter(|basis| *basis != period.snapshot.period),
            moves: period.moves.clone(),
            irq_moves: period.irq_moves.clone(),
            actions: period.actions.clone(),
            remarks: period.remarks.clone(),
            last: period.last,
        })));
    }

    fn end(&mut self, end: &SessionEnd) {
        self.write(&Record::End(Box::new(EndRecord {
            cause: end.cause,
            periods: end.periods,
            restored: end.restored.clone(),
        })));
    }
}

/// A recording that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file.
    #[error("{path}: {error}")]
    Io {
        /// The recording.
        path: String,
        /// The system's reason.
        #[source]
        error: io::Error,
    },
    /// A line that is none of a recording.
    #[error("{path}:{line}: {why}")]
    Line {
        /// The recording.
        path: String,
        /// From 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

/// A recording in a file.
pub type Recording = Reader<BufReader<perch_files::Input>>;

impl Recording {
    /// Opens a recording and reads its header.
    ///
    /// # Errors
    /// A file that cannot be read or is no recording.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let name = path.display().to_string();
        match perch_files::input(path) {
            Ok(file) => Self::new(BufReader::new(file), &name),
            Err(error) => Err(RecordingError::Io { path: name, error }),
        }
    }
}

/// Reads a recording line by line, whatever its length.
#[derive(Debug)]
pub struct Reader<R: BufRead> {
    lines: Lines<R>,
    header: Arc<Header>,
    torn: bool,
}

/// Texts of the header that are read by machines, and have line ends.
const TEXTS: [&str; 2] = ["profile_text", "calibration"];

/// Reads a line. Its strings are made printable: names of threads, remarks and reasons are shown.
fn record(line: &str) -> serde_json::Result<Record> {
    // JSON writes control characters as escapes; the others that are not printable are not ASCII.
    if line.is_ascii() && !line.contains('\\') && !line.contains('\x7f') {
        return serde_json::from_str(line);
    }
    let mut value = serde_json::from_str(line)?;
    make_printable(&mut value);
    serde_json::from_value(value)
}

fn make_printable(value: &mut Value) {
    match value {
        Value::String(string) => {
            if let Cow::Owned(printable) = text::printable(string) {
                *string = printable;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(make_printable),
        Value::Object(fields) => {
            let names: Vec<String> = fields.keys().cloned().collect();
            for name in names {
                let Some(mut value) = fields.remove(&name) else {
                    continue;
                };
                if !TEXTS.contains(&name.as_str()) {
                    make_printable(&mut value);
                }
                fields.insert(text::printable(&name).into_owned(), value);
            }
        }
        _ => {}
    }
}

/// A text file's lines, counted.
#[derive(Debug)]
struct Lines<R: BufRead> {
    input: R,
    path: String,
    line: usize,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header. `path` is for error messages.
    ///
    /// # Errors
    /// A file that cannot be read or does not begin with a header.
    pub fn new(input: R, path: &str) -> Result<Self, RecordingError> {
        let mut lines = Lines {
            input,
            path: path.to_owned(),
            line: 0,
        };
        let none = "no recording: it does not begin with a header";
        let Some(line) = lines.next()? else {
            return Err(lines.wrong("no recording: the file is empty"));
        };
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let version: Version = serde_json::from_str(&line).map_err(|_| lines.wrong(none))?;
        if !(1..=VERSION).contains(&version.version) {
            return Err(lines.wrong(format!(
                "recording format {} is not known to this perch (it knows 1 to {VERSION})",
                version.version
            )));
        }
        match record(&line) {
            Ok(Record::Header(header)) => Ok(Self {
                lines,
                header: Arc::from(header),
                torn: false,
            }),
            Ok(_) => Err(lines.wrong(none)),
            Err(error) => Err(lines.wrong(error)),
        }
    }

    /// The header.
    pub fn header(&self) -> &Arc<Header> {
        &self.header
    }

    /// The number of the line that was read last.
    pub fn line(&self) -> usize {
        self.lines.line
    }

    /// The file's name, as given.
    pub fn path(&self) -> &str {
        &self.lines.path
    }

    /// Whether the last line was cut short: the session was killed while it wrote.
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    /// The next record; `None` at the end. A last line without its line end that cannot be read was cut short, and is
    /// the end.
    ///
    /// # Errors
    /// A line that is no record, with its number.
    pub fn read(&mut self) -> Result<Option<Record>, RecordingError> {
        let Some(line) = self.lines.next()? else {
            return Ok(None);
        };
        match record(&line) {
            Ok(Record::Header(_)) => Err(self.lines.wrong("a second header")),
            Ok(mut record) => {
                if self.header.version == 1
                    && let Record::Period(period) = &mut record
                {
                    period.last = period.plan.is_none();
                }
                Ok(Some(record))
            }
            Err(_) if !line.ends_with('\n') => {
                self.torn = true;
                Ok(None)
            }
            Err(error) => Err(self.lines.wrong(error)),
        }
    }
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<Option<String>, RecordingError> {
        let mut line = Vec::new();
        let read = self.input.read_until(b'\n', &mut line);
        self.line += 1;
        match read {
            Ok(0) => Ok(None),
            // A character that was cut in half is no error of its own: the line will not be JSON.
            Ok(_) => Ok(Some(String::from_utf8_lossy(&line).into_owned())),
            Err(error) => Err(RecordingError::Io {
                path: self.path.clone(),
                error,
            }),
        }
    }

    fn wrong(&self, why: impl ToString) -> RecordingError {
        RecordingError::Line {
            path: self.path.clone(),
            line: self.line,
            why: why.to_string(),
        }
    }
}

/// A duration as a whole number of nanoseconds.
mod nanoseconds {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(time.as_nanos() as u64)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_nanos)
    }
}

/// The same of a duration that may be missing.
mod maybe_nanoseconds {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        let time = time.map(|time| time.as_nanos() as u64);
        time.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let time = Option::<u64>::deserialize(from)?;
        Ok(time.map(Duration::from_nanos))
    }
}
