//! Writing a journal.

use super::{Header, Journal, Record, state_dir::StateDir};
use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Lines beyond twice those that the state needs, after which the file is written anew.
const SLACK: usize = 512;

/// A journal on disk, with the state that stands in it.
///
/// Every write is one write(2), without a buffer of our own. There is no fsync on purpose: what the kernel has taken
/// survives the death of the process, and a crash of the kernel takes the masks with it.
#[derive(Debug)]
pub struct JournalFile {
    file: File,
    path: PathBuf,
    journal: Journal,
    lines: usize,
    /// A write failed half-way: the next one starts a new line.
    torn: bool,
}

impl JournalFile {
    /// A new journal.
    ///
    /// # Errors
    /// A file that cannot be made or written.
    pub fn create(dir: &StateDir, header: Header) -> io::Result<Self> {
        let path = dir.journal(&header);
        let journal = Journal::new(header);
        let file = write_whole(&path, &journal)?;
        Ok(Self {
            file,
            path,
            journal,
            lines: 1,
            torn: false,
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What stands in it.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// What stands in it, to forget what has ended; the file follows when it is next made shorter.
    pub fn journal_mut(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// Writes what is about to be done. On an error it must not be done.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn announce(&mut self, records: &[Record]) -> io::Result<()> {
        self.write(records)?;
        records.iter().for_each(|record| self.journal.add(record));
        Ok(())
    }

    /// Writes what has been done. It is known from then on, even if it could not be written.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn conclude(&mut self, records: &[Record]) -> io::Result<()> {
        records.iter().for_each(|record| self.journal.add(record));
        self.write(records)?;
        let needed = 1
            + self.journal.threads.len()
            + self.journal.masks.len()
            + self.journal.processes.len()
            + self.journal.irqs.len();
        if self.lines > 2 * needed + SLACK {
            self.shorten()?;
        }
        Ok(())
    }

    /// Everything is undone: the file goes.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn remove(self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }

    fn write(&mut self, records: &[Record]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut text = Vec::new();
        if self.torn {
            text.push(b'\n');
        }
        for record in records {
            serde_json::to_writer(&mut text, record)?;
            text.push(b'\n');
        }
        let written = self.file.write_all(&text);
        self.torn = written.is_err();
        self.lines += records.len();
        written
    }

    fn shorten(&mut self) -> io::Result<()> {
        self.file = write_whole(&self.path, &self.journal)?;
        self.lines = 1 + self.journal.records().len();
        self.torn = false;
        Ok(())
    }
}

/// Writes a whole journal beside the place where it belongs and moves it there: at any moment a whole one stands there.
fn write_whole(path: &Path, journal: &Journal) -> io::Result<File> {
    let mut text = serde_json::to_vec(&journal.header)?;
    text.push(b'\n');
    for record in journal.records() {
        serde_json::to_writer(&mut text, &record)?;
        text.push(b'\n');
    }
    let new = path.with_extension("new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(&text)?;
    std::fs::rename(&new, path)?;
    Ok(file)
}
