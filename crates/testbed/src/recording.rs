//! perch's recording while perch still writes it. What was read once is not read again: where a dozen threads are busy on
//! an emulated machine, reading everything at every look takes longer than a period.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// How a complete period begins in a recording.
const PERIOD: &str = r#"{"record":"period""#;

/// A recording that grows.
pub(crate) struct Recording {
    path: PathBuf,
    file: Option<File>,
    /// The line that is being written.
    rest: Vec<u8>,
    periods: Vec<String>,
}

impl Recording {
    /// The file need not exist yet.
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            rest: Vec::new(),
            periods: Vec::new(),
        }
    }

    /// The complete period records that there are now, one line each.
    pub(crate) fn periods(&mut self) -> &[String] {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let read = self
            .file
            .as_mut()
            .map(|file| file.read_to_end(&mut self.rest));
        if read.is_some_and(|read| read.is_ok_and(|bytes| bytes > 0))
            && let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n')
        {
            let rest = self.rest.split_off(end + 1);
            let complete = std::mem::replace(&mut self.rest, rest);
            let complete = String::from_utf8_lossy(&complete);
            let periods = complete.lines().filter(|line| line.starts_with(PERIOD));
            self.periods.extend(periods.map(str::to_owned));
        }
        &self.periods
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_whole_period_records_count() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut recording = Recording::new(file.path());
        let mut add = |text: String| {
            file.write_all(text.as_bytes()).unwrap();
            recording.periods().len()
        };
        assert_eq!(add(String::new()), 0);
        assert_eq!(
            add(format!("{{\"record\":\"header\"}}\n{PERIOD}}}\n{PERIOD}")),
            1
        );
        assert_eq!(add(",\"number\":1}".to_owned()), 1);
        assert_eq!(add(format!("\n{PERIOD}}}\n{{\"record\":\"end\"}}\n")), 3);
        assert_eq!(recording.periods()[1], format!("{PERIOD},\"number\":1}}"));
    }

    #[test]
    fn a_file_may_come_later() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut recording = Recording::new(&path);
        assert!(recording.periods().is_empty());
        std::fs::write(&path, format!("{PERIOD}}}\n")).unwrap();
        assert_eq!(recording.periods().len(), 1);
    }
}
