//! The folder in which the processes of a program leave their reports for perch.

use crate::{FormatError, LONGEST, Report, parse};
use std::{
    fs, io,
    io::Read,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Environment variable with the folder's path.
pub const VARIABLE: &str = "PERCH_REGIONS";

/// Most processes whose reports are read.
const MOST_FILES: usize = 10_000;

/// Most bytes that are read of all reports together.
const MOST_BYTES: u64 = 256 << 20;

/// The file of one process image: another program executed by the same process is another image.
pub fn file(folder: &Path, pid: i32, image: u64) -> PathBuf {
    folder.join(format!("{pid}-{image:x}.json"))
}

/// Writes a report in one step: a reader sees the report before it, or this one.
///
/// # Errors
/// The system's.
pub fn put(file: &Path, report: &str) -> io::Result<()> {
    let draft = file.with_extension("new");
    fs::write(&draft, report)?;
    fs::rename(draft, file)
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// The reports, by rising PID.
    pub reports: Vec<Report>,
    /// What could not be read, a sentence each.
    pub problems: Vec<String>,
    /// Processes whose last report is not complete, and the age of the oldest of these reports.
    pub unfinished: Option<(usize, Duration)>,
}

impl Found {
    /// A process may have counted on since it wrote this.
    fn note_unfinished(&mut self, written: Option<SystemTime>) {
        let age = written.and_then(|written| written.elapsed().ok());
        let (known, oldest) = self.unfinished.unwrap_or_default();
        self.unfinished = Some((known + 1, oldest.max(age.unwrap_or_default())));
    }
}

/// Reads all reports.
///
/// # Errors
/// A folder that cannot be read.
pub fn read(folder: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    let (mut left, mut bytes) = (0u64, 0u64);
    for (at, entry) in fs::read_dir(folder)?.enumerate() {
        let path = entry?.path();
        // What is half-written has another ending.
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let metadata = fs::symlink_metadata(&path)
            .ok()
            .filter(fs::Metadata::is_file);
        let length = metadata.as_ref().map_or(u64::MAX, fs::Metadata::len);
        if at >= MOST_FILES || bytes.saturating_add(length) > MOST_BYTES {
            left += 1;
            continue;
        }
        match read_file(&path) {
            Ok(report) => {
                if !report.complete {
                    found.note_unfinished(metadata.and_then(|found| found.modified().ok()));
                }
                found.reports.push(report);
            }
            Err(why) => found.problems.push(format!("{}: {why}", path.display())),
        }
        bytes += length;
    }
    if left > 0 {
        found.problems.push(format!(
            "the regions of {left} processes are left out: too many, too large, or not regular files"
        ));
    }
    found.problems.truncate(10);
    found.reports.sort_by_key(|report| report.pid);
    Ok(found)
}

fn read_file(path: &Path) -> Result<Report, String> {
    let mut bytes = Vec::new();
    perch_files::input(path)
        .and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    parse(&bytes).map_err(|error: FormatError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write;

    fn report(pid: i32) -> String {
        let report = Report {
            pid,
            complete: pid != 9,
            ..Report::default()
        };
        write(&report, &|_, _| perch_stat::RowMetrics::default())
    }

    #[test]
    fn reports_are_found_and_what_is_none_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        put(&file(folder, 9, 1), &report(9)).unwrap();
        put(&file(folder, 3, 1), &report(1)).unwrap();
        // Written again.
        put(&file(folder, 3, 1), &report(3)).unwrap();
        fs::write(folder.join("half.new"), "{").unwrap();
        fs::write(folder.join("bad.json"), "{").unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.join("link.json")).unwrap();
        fs::create_dir(folder.join("folder.json")).unwrap();
        let found = read(folder).unwrap();
        let pids: Vec<i32> = found.reports.iter().map(|report| report.pid).collect();
        assert_eq!(pids, [3, 9]);
        let (unfinished, age) = found.unfinished.unwrap();
        assert!(unfinished == 1 && age < Duration::from_secs(600), "{age:?}");
        assert_eq!(found.problems.len(), 2, "{:?}", found.problems);
        assert!(
            found
                .problems
                .iter()
                .any(|text| text.contains("bad.json: not a report"))
        );
        assert!(
            found
                .problems
                .iter()
                .any(|text| text.contains("of 2 processes"))
        );
    }
}
