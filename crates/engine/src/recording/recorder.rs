//! Writing a recording.

use super::{EndRecord, Header, PeriodRecord, Record, RecordingError, VERSION};
use crate::{
    journal::state_dir::Boot,
    observer::{Period, SessionEnd, SessionSink, Start},
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// Writes a recording. It goes on disk period by period; the first error ends it, and [`Recorder::finish`] returns it.
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

    /// The writer that received the recording.
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

impl<W: Write + Send> SessionSink for Recorder<W> {
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
            what_if: elsewhere.then(|| Arc::clone(&start.topology)),
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
        let basis = decision.map(|decision| decision.asked_in);
        self.write(&Record::Period(Box::new(PeriodRecord {
            number: period.snapshot.period,
            topology: None,
            observation: Arc::clone(&period.observation),
            plan: period.plan().cloned(),
            basis: basis.filter(|basis| *basis != period.snapshot.period),
            moves: period.moves.clone(),
            irq_moves: period.irq_moves.clone(),
            setting_moves: period.setting_moves.clone(),
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
