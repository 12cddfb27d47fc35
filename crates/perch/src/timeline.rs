//! `--timeline FILE`: which thread was on which PU when, as a picture if FILE ends in `.svg`, else for Perfetto.

use crate::{
    command::place::Output,
    render::svg::{
        Canvas,
        timeline::{Run, of_placements, timeline},
    },
};
use anyhow::{Context, Result};
use perch_core::Topology;
use perch_engine::{Period, SessionEnd, SessionSink, Start, report::Report, timeline::Timeline};
use std::{
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Whether a picture is wanted, not a trace.
pub fn is_picture(file: &Path) -> bool {
    let extension = file.extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("svg"))
}

/// The file of a session.
pub enum TimelineFile {
    /// A trace, written while the session runs.
    Trace(Box<Timeline<BufWriter<File>>>, PathBuf),
    /// A picture, drawn at its end; with the machine on which threads are placed.
    Picture(Option<Output>, Option<Arc<Topology>>),
}

impl TimelineFile {
    /// Makes the file, or empties it.
    ///
    /// # Errors
    /// One that cannot be written.
    pub fn create(path: &Path) -> Result<Self> {
        if is_picture(path) {
            let output = Output::open(path).context("--timeline")?;
            return Ok(Self::Picture(Some(output), None));
        }
        let cannot = || format!("--timeline: {}: cannot be written", path.display());
        let timeline = Timeline::create(path).with_context(cannot)?;
        Ok(Self::Trace(Box::new(timeline), path.to_owned()))
    }

    /// Completes the file.
    ///
    /// # Errors
    /// What could not be written.
    pub fn finish(&mut self, report: &Report) -> Result<()> {
        let (output, topology) = match self {
            Self::Trace(timeline, path) => {
                let written = timeline.finish();
                let cannot = || format!("--timeline: {}: cannot be written", path.display());
                return written.with_context(cannot);
            }
            Self::Picture(output, topology) => (output.take(), topology),
        };
        let (Some(output), Some(topology)) = (output, topology) else {
            return Ok(());
        };
        let run = Run {
            title: format!("{}: policy {}", report.command.join(" "), report.policy),
            topology,
            segments: of_placements(&report.placements),
            end: report.placements.columns.last().copied().unwrap_or(0),
        };
        let mut canvas = Canvas::default();
        timeline(&mut canvas, &[run]);
        output.write(&canvas.svg()).context("--timeline")
    }
}

impl SessionSink for TimelineFile {
    fn start(&mut self, start: &Start) {
        match self {
            Self::Trace(timeline, _) => timeline.start(start),
            Self::Picture(_, topology) => *topology = Some(Arc::clone(&start.topology)),
        }
    }

    fn period(&mut self, period: &Period) {
        if let Self::Trace(timeline, _) = self {
            timeline.period(period);
        }
    }

    fn end(&mut self, end: &SessionEnd) {
        if let Self::Trace(timeline, _) = self {
            timeline.end(end);
        }
    }
}
