//! Reading a recording.

use super::{Header, Record, RecordingError, VERSION};
use perch_core::text;
use serde::Deserialize;
use serde_json::Value;
use std::{
    borrow::Cow,
    io::{BufRead, BufReader},
    path::Path,
    sync::Arc,
};

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
        let none = "not a recording: it does not begin with a header";
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
            Err(error) => Err(lines.wrong(damage(&error))),
        }
    }

    /// The first line: machine, policy, profile and settings of the recorded session.
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

    /// An error about the line that was read last.
    pub(crate) fn wrong(&self, why: impl ToString) -> RecordingError {
        self.lines.wrong(why)
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
            Err(error) => {
                let before = self.lines.line - 1;
                let why = damage(&error);
                Err(self.lines.wrong(format!(
                    "{why}; the lines before it can be used (head -n {before})"
                )))
            }
        }
    }
}

/// What is wrong with a line. The parser counts lines of its own.
fn damage(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    match error.column() {
        0 => format!("a damaged line: {what}"),
        column => format!("a damaged line, column {column}: {what}"),
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
