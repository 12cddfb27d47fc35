//! `perch report`: a page for a browser of what was recorded.

use crate::{
    args::ReportArgs,
    command::replay::{not_a_recording, without_periods},
    exit,
    render::page::{course::Course, page, totals::Totals},
};
use anyhow::{Context, Result, bail};
use perch_core::Topology;
use perch_engine::{
    Recording, RecordingError,
    recording::{PeriodRecord, Record},
};
use perch_profile::Profile;
use perch_top::check;
use std::{
    io::{self, BufReader, Seek},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};
use tempfile::NamedTempFile;

/// Makes the page.
///
/// # Errors
/// A file that is no recording or holds no period, an output that cannot be written.
pub fn report(args: &ReportArgs) -> Result<ExitCode> {
    let file = &args.file;
    let html = match &args.html {
        Some(html) => html.clone(),
        None => beside(file)?,
    };
    let kept = Kept::new(file)?;
    let recording = kept.open()?;
    let header = Arc::clone(recording.header());
    let wrong = || format!("{}: the recorded machine", file.display());
    check::topology(&header.topology).with_context(wrong)?;
    if let Some(what_if) = &header.what_if {
        check::topology(what_if).with_context(wrong)?;
    }
    let name = format!("{}: profile {}", file.display(), header.profile);
    let profile = Profile::parse(&header.profile_text, &name)?;
    let mut totals = Totals::new(header, profile);
    let mut periods = Periods::new(recording);
    while let Some(period) = periods.next() {
        totals.period(&period);
    }
    totals.ended.clone_from(&periods.end);
    let damage = periods.damage();
    if totals.periods == 0 {
        match damage.first() {
            Some(why) => bail!(
                "{}: it holds no period that can be read. {why}",
                file.display()
            ),
            None => bail!(without_periods(file)),
        }
    }
    let mut course = Course::new(&totals);
    let mut periods = Periods::new(kept.open()?);
    while let Some(period) = periods.next() {
        course.period(&period);
    }
    let disorder = periods.disorder();
    let text = page(course, &totals, damage)?;
    // Not before there is something to write: a page that is there is not lost to a recording that cannot be read.
    let cannot = || format!("--html: {}: cannot be written", html.display());
    match html.as_os_str() == "-" {
        true => crate::command::print(&text)?,
        false => perch_files::replace(&html, text.as_bytes()).with_context(cannot)?,
    }
    if let Some(disorder) = disorder {
        exit::say(&format!("{}: {disorder}", file.display()));
    }
    if args.html.is_none() {
        exit::note(&format!("the page is {}", html.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The page's name where none is given: that of the recording, but ending in `.html`.
fn beside(file: &Path) -> Result<PathBuf> {
    std::fs::metadata(file).with_context(|| file.display().to_string())?;
    let html = file.with_extension("html");
    if html == file || !file.is_file() {
        bail!("{}: give the page a name: --html OUT", file.display());
    }
    if html.exists() {
        bail!("{} exists: --html {0} writes it anew", html.display());
    }
    Ok(html)
}

/// A recording that can be read twice.
struct Kept {
    path: PathBuf,
    /// What came through a pipe.
    copy: Option<NamedTempFile>,
}

impl Kept {
    fn new(path: &Path) -> Result<Self> {
        let copy = match path.is_file() || !path.exists() {
            true => None,
            false => Some(copy(path).with_context(|| path.display().to_string())?),
        };
        let path = path.to_owned();
        Ok(Self { path, copy })
    }

    fn open(&self) -> Result<Recording> {
        let opened = match &self.copy {
            None => Recording::open(&self.path),
            // Its errors name what the user gave.
            Some(copy) => {
                let path = self.path.display().to_string();
                match perch_files::input(copy.path()) {
                    Ok(file) => Recording::new(BufReader::new(file), &path),
                    Err(error) => Err(RecordingError::Io { path, error }),
                }
            }
        };
        opened.map_err(|error| not_a_recording(error, &self.path))
    }
}

fn copy(pipe: &Path) -> io::Result<NamedTempFile> {
    let mut input = perch_files::input(pipe)?;
    let mut copy = NamedTempFile::new()?;
    io::copy(&mut input, &mut copy)?;
    copy.rewind()?;
    Ok(copy)
}

/// The periods of a recording, as far as they can be read.
struct Periods {
    recording: Recording,
    end: Option<perch_engine::recording::EndRecord>,
    /// When the last period ended.
    at: Option<u64>,
    unreadable: Lines,
    disordered: Lines,
    wrong_machine: Lines,
    unread: Option<String>,
}

/// Lines that are left out.
#[derive(Default)]
struct Lines {
    number: u64,
    /// The first one, and why.
    first: Option<(usize, String)>,
}

impl Lines {
    fn add(&mut self, line: usize, why: impl ToString) {
        self.number += 1;
        self.first.get_or_insert_with(|| (line, why.to_string()));
    }

    /// A sentence, if there are any: what was done with them, and what they are.
    fn told(&self, done: &str, what: &str) -> Option<String> {
        let (line, why) = self.first.as_ref()?;
        let lines = crate::render::count(self.number as usize, "line");
        Some(format!(
            "{done} {lines} of the recording{what}. The first is line {line}: {why}."
        ))
    }
}

impl Periods {
    fn new(recording: Recording) -> Self {
        Self {
            recording,
            end: None,
            at: None,
            unreadable: Lines::default(),
            disordered: Lines::default(),
            wrong_machine: Lines::default(),
            unread: None,
        }
    }

    fn next(&mut self) -> Option<PeriodRecord> {
        while self.end.is_none() && self.unread.is_none() {
            let read = self.recording.read();
            let line = self.recording.line();
            match read {
                Ok(None) => break,
                Ok(Some(Record::Header(_))) => {}
                Ok(Some(Record::End(end))) => self.end = Some(*end),
                Ok(Some(Record::Period(period))) => {
                    let at = period.observation.at;
                    if self.at.is_some_and(|last| at <= last) {
                        self.disordered
                            .add(line, "it is not later than the period before");
                        continue;
                    }
                    let period = self.checked(*period, line);
                    self.at = Some(at);
                    return Some(period);
                }
                Err(RecordingError::Line { why, .. }) => self.unreadable.add(line, why),
                Err(error @ RecordingError::Io { .. }) => self.unread = Some(error.to_string()),
            }
        }
        None
    }

    /// A period without a machine that cannot be.
    fn checked(&mut self, mut period: PeriodRecord, line: usize) -> PeriodRecord {
        // Version 1 has it elsewhere.
        if let Some(topology) = period.topology.take() {
            Arc::make_mut(&mut period.observation).topology = Some(topology);
        }
        let topology: Option<&Topology> = period.observation.topology.as_deref();
        if let Some(Err(why)) = topology.map(check::topology) {
            self.wrong_machine.add(line, why);
            Arc::make_mut(&mut period.observation).topology = None;
        }
        period
    }

    /// What is left out though it can be read: only that makes the page differ from what the file seems to hold.
    fn disorder(&self) -> Option<String> {
        self.disordered.told("Left out:", " out of order")
    }

    /// What could not be read, one sentence each.
    fn damage(&self) -> Vec<String> {
        let mut damage: Vec<String> = [
            self.unreadable.told("Left out:", " that cannot be read"),
            self.disorder(),
            self.wrong_machine
                .told("Ignored: the machine in", ", which cannot be"),
        ]
        .into_iter()
        .flatten()
        .collect();
        if self.recording.is_torn() {
            damage.push(
                "The last line of the recording was cut short, and is left out: perch was killed while it wrote."
                    .to_owned(),
            );
        }
        if let Some(why) = &self.unread {
            damage.push(format!(
                "The recording could not be read to its end: {why}."
            ));
        }
        if self.end.is_none() && !self.recording.is_torn() && self.unread.is_none() {
            damage.push(
                "The recording has no end: perch was killed, or is still recording.".to_owned(),
            );
        }
        damage
    }
}
