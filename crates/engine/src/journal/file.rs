//! Writing a journal.

use super::{Header, Journal, Record, codec, state_dir::StateDir};
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

/// Lines beyond twice those that the state needs, after which the file is written anew.
const SLACK: usize = 512;

/// Attempts to create the file, if another process replaces it meanwhile.
const TRIES: usize = 8;

/// A journal on disk, and the state that it describes.
///
/// The file is locked (flock(2)) as long as its perch lives. A process that gets the lock may undo what the journal
/// records, whichever namespaces the two are in. There is no fsync on purpose: data that the kernel has accepted
/// survives the death of the process, and a kernel crash takes the masks with it.
#[derive(Debug)]
pub struct JournalFile {
    file: File,
    path: PathBuf,
    journal: Journal,
    /// Bytes that are known to be there; what stands behind them was cut short.
    length: u64,
    /// The number of the next line.
    next: u64,
    /// Threads in the lines of which several share one.
    more: usize,
}

impl JournalFile {
    /// A new journal, in addition to those of other sessions and of the session's other targets.
    ///
    /// # Errors
    /// A file that cannot be made, locked or written, or is there already.
    pub fn create(dir: &StateDir, header: Header) -> io::Result<Self> {
        let path = dir.journal(&header);
        let journal = Journal::new(header);
        let (file, length, next) = write_whole(&path, &journal, RenameFlags::NOREPLACE)?;
        Ok(Self {
            file,
            path,
            journal,
            length,
            next,
            more: 0,
        })
    }

    /// Path of the journal file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The state that it describes.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The state that it describes, for removing what has ended. The file follows at the next compaction.
    pub fn journal_mut(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// Writes what is about to be done. On an error the caller must not do it, and the file contains none of it.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn log_intent(&mut self, records: &[Record]) -> io::Result<()> {
        self.keep()?;
        self.write(records)?;
        records.iter().for_each(|record| self.journal.add(record));
        Ok(())
    }

    /// Writes what has been done. It is known from then on, even if it could not be written.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn log_outcome(&mut self, records: &[Record]) -> io::Result<()> {
        records.iter().for_each(|record| self.journal.add(record));
        self.write(records)?;
        if self.next as usize + self.more > 2 * self.journal.len() + SLACK {
            self.compact()?;
        }
        Ok(())
    }

    /// Writes the whole journal anew if another process has removed its file, moved it or put another in its place: after
    /// `kill -9` nothing would tell what to undo.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn keep(&mut self) -> io::Result<()> {
        if is_at(&self.file, &self.path) {
            return Ok(());
        }
        let former = self.strayed();
        self.compact()?;
        // Or else it would tell of changes that may be undone by then.
        former.map_or(Ok(()), removed)
    }

    /// Everything is undone: the file goes. Others may have removed it before, such as systemd-tmpfiles, which cleans
    /// `/tmp` of old files, or may have moved it.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn remove(self) -> io::Result<()> {
        self.strayed().map_or(Ok(()), removed)?;
        removed(self.path)
    }

    /// Where the file is now, if that is another place than the one where it belongs.
    fn strayed(&self) -> Option<PathBuf> {
        let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let now = fs::read_link(link).ok()?;
        (!is_at(&self.file, &self.path) && is_at(&self.file, &now)).then_some(now)
    }

    fn write(&mut self, records: &[Record]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let text = codec::lines(records, self.next)?;
        let length = self.length + text.len() as u64;
        let written = self.file.write_all_at(&text, self.length).and_then(|()| {
            self.file
                .write_all_at(codec::length(length).as_bytes(), codec::LENGTH_AT)
        });
        if let Err(error) = written {
            // The change will not be made, so no reader may see its record.
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length = length;
        self.next += records.len() as u64;
        self.more += records.iter().map(Record::more).sum::<usize>();
        Ok(())
    }

    fn compact(&mut self) -> io::Result<()> {
        (self.file, self.length, self.next) =
            write_whole(&self.path, &self.journal, RenameFlags::empty())?;
        self.more = 0;
        Ok(())
    }
}

/// Whether the file at that path is this one.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(this), Ok(that)) = (file.metadata(), fs::symlink_metadata(path)) else {
        return false;
    };
    (this.dev(), this.ino()) == (that.dev(), that.ino())
}

/// Removes a file, if it is there.
fn removed(path: PathBuf) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Writes a whole journal next to its final path, locks it and moves it there: at any moment a whole and
/// locked one stands there.
fn write_whole(
    path: &Path,
    journal: &Journal,
    rename: RenameFlags,
) -> io::Result<(File, u64, u64)> {
    let (text, next) = codec::whole(journal)?;
    // Before it is locked, another perch may take the new file for one that was left behind.
    for _ in 0..TRIES {
        match place(path, &text, rename) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            placed => return Ok((placed?, text.len() as u64, next)),
        }
    }
    Ok((place(path, &text, rename)?, text.len() as u64, next))
}

/// Gives a file its name. Some file systems know no flags (NFS, 9p, ZFS before 2.2); link(2) replaces nothing either.
fn put(new: &Path, path: &Path, rename: RenameFlags) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, path, rename) {
        Err(Errno::INVAL | Errno::NOSYS) if rename == RenameFlags::NOREPLACE => {
            rustix::fs::link(new, path)?;
            // The journal is there; a name that is left is removed by the next one.
            let _ = fs::remove_file(new);
            Ok(())
        }
        renamed => Ok(renamed?),
    }
}

fn place(path: &Path, text: &[u8], rename: RenameFlags) -> io::Result<File> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    let placed = file
        .lock()
        .and_then(|()| file.write_all_at(text, 0))
        .and_then(|()| put(&new, path, rename));
    if let Err(error) = placed {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    Ok(file)
}
