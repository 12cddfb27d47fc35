//! A recording of `perch run --log`, or one that is still being written.

use super::{Next, Pace, Source, SourceError};
use crate::{assemble::Assembler, check};
use perch_core::text::printable;
use perch_engine::recording::{Reader, Record};
use perch_profile::Profile;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    sync::Arc,
    time::Duration,
};

/// How often a file that is still being written is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// A recording, period by period.
pub struct RecordingSource {
    reader: Reader<Box<dyn BufRead + Send>>,
    assembler: Assembler,
    title: String,
    pace: Pace,
}

impl RecordingSource {
    /// Opens a recording. With `follow` it is taken to be written at this time: its end is waited for.
    ///
    /// # Errors
    /// A file that cannot be read or is no recording.
    pub fn open(path: &Path, follow: bool) -> Result<Self, SourceError> {
        let name = path.display().to_string();
        let explained = |error: io::Error| format!("{name}: {error}");
        let input: Box<dyn BufRead + Send> = match follow {
            // A pipe would not grow but block.
            true => Box::new(BufReader::new(Growing(
                File::open(path).map_err(explained)?,
            ))),
            false => Box::new(BufReader::new(perch_files::input(path).map_err(explained)?)),
        };
        let reader = Reader::new(input, &name)?;
        let header = Arc::clone(reader.header());
        check::topology(&header.topology).map_err(|error| format!("{name}: {error}"))?;
        let profile = Profile::parse(
            &header.profile_text,
            &format!("{name}: profile {}", header.profile),
        )?;
        let policy = printable(&header.policy);
        let short = path.file_name().unwrap_or(path.as_os_str());
        let short = short.to_string_lossy();
        Ok(Self {
            assembler: Assembler::new(Arc::clone(&header.topology), profile),
            title: format!("{}, policy {policy}", printable(&short)),
            pace: if follow { Pace::Live } else { Pace::Recorded },
            reader,
        })
    }
}

impl Source for RecordingSource {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn pace(&self) -> Pace {
        self.pace
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        loop {
            return match self.reader.read()? {
                Some(Record::Period(mut period)) => {
                    if let Some(topology) = period.topology.take() {
                        // Version 1 has it here.
                        Arc::make_mut(&mut period.observation).topology = Some(topology);
                    }
                    if let Some(topology) = &period.observation.topology {
                        check::topology(topology)?;
                    }
                    let frame =
                        self.assembler
                            .frame(&period.observation, &period.moves, &period.remarks);
                    Ok(Next::Frame(Box::new(frame)))
                }
                Some(Record::End(_)) | None => Ok(Next::End(None)),
                Some(Record::Header(_)) => continue,
            };
        }
    }
}

/// A file that another process appends to: at its end, more is waited for.
struct Growing(File);

impl Read for Growing {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(to)? {
                0 if !to.is_empty() => std::thread::sleep(LOOK),
                read => return Ok(read),
            }
        }
    }
}
