//! Undoing what dead perches have left in a directory.

use super::{RestoreReport, restore};
use crate::journal::{
    Header, Journal,
    state_dir::{Boot, StateDir, StateDirError, machine, namespaces},
};
use perch_core::{Affinity, PuSet};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, renameat, statat, unlinkat};
use std::{
    ffi::OsStr,
    fs::{File, TryLockError},
    io::{self, Read},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// A journal that is longer is none: this is 100 times what 20,000 threads need.
const LONGEST: u64 = 1 << 30;

/// The same for another user's, who may want to hinder: three times what 20,000 threads need.
const LONGEST_OF_OTHERS: u64 = 32 << 20;

/// PUs up to this one may always be named in a journal.
const SMALL: u32 = 1023;

/// The PUs that this machine can ever have.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// The result of restoring from one journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovery {
    /// Its perch is running, or another process is restoring it. Nothing was done.
    Alive {
        /// The process number of its perch, in that one's namespace.
        pid: i32,
    },
    /// Its thread IDs belong to another machine or namespace, so they may name unrelated threads here. Nothing was done.
    Elsewhere,
    /// From another boot: void, and removed.
    OtherBoot,
    /// Undone. The file is removed unless a thread could not be restored.
    Restored(RestoreReport),
    /// Undone as far as the journal could be read. The file is kept under another name.
    Damaged {
        /// The result for the records that could be read.
        report: RestoreReport,
        /// Path of the file now.
        kept: PathBuf,
    },
    /// Not readable; the file is left for a person to look at.
    Unreadable {
        /// Error of the operating system or in the file, for the user.
        why: String,
    },
}

impl Recovery {
    /// Whether something is left that should have been restored.
    pub fn has_failed(&self) -> bool {
        match self {
            Self::Restored(report) => report.has_failed(),
            Self::Damaged { .. } | Self::Unreadable { .. } | Self::Elsewhere => true,
            Self::Alive { .. } | Self::OtherBoot => false,
        }
    }
}

/// Undoes what every dead perch has left behind in a directory. Journals of a perch that is alive are not touched; one
/// that cannot be read does not keep the others from being undone.
///
/// # Errors
/// A directory that cannot be read.
pub fn recover_all(
    dir: &StateDir,
    affinity: &mut dyn Affinity,
) -> Result<Vec<(PathBuf, Recovery)>, StateDirError> {
    let fail = |error: io::Error| StateDirError::Io {
        path: dir.path().to_owned(),
        error,
    };
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let at = openat(CWD, dir.path(), flags, Mode::empty()).map_err(|error| fail(error.into()))?;
    if !dir.is(&fstat(&at).map_err(|error| fail(error.into()))?) {
        return Err(StateDirError::Unsafe {
            path: dir.path().to_owned(),
        });
    }
    let mut all = Vec::new();
    for path in dir.journals()? {
        if let Some(recovery) = recover(&at, &path, affinity, dir.owner())? {
            all.push((path, recovery));
        }
    }
    for path in dir.unfinished()? {
        remove_unfinished(&at, &path);
    }
    Ok(all)
}

/// Undoes what one journal records, no matter which user it belongs to.
///
/// # Errors
/// A directory that cannot be opened, a /proc that cannot be read.
pub fn recover_one(
    path: &Path,
    affinity: &mut dyn Affinity,
) -> Result<Option<Recovery>, StateDirError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let at = openat(CWD, parent, flags, Mode::empty()).map_err(|error| StateDirError::Io {
        path: parent.to_owned(),
        error: error.into(),
    })?;
    recover(&at, path, affinity, None)
}

/// One journal; `None` if it went away meanwhile.
fn recover(
    dir: &OwnedFd,
    path: &Path,
    affinity: &mut dyn Affinity,
    owner: Option<u32>,
) -> Result<Option<Recovery>, StateDirError> {
    let name = path.file_name().unwrap_or_default();
    let unreadable = |why: String| Ok(Some(Recovery::Unreadable { why }));
    let mut file = match open(dir, name) {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(None),
        Err(error) => return unreadable(error.to_string()),
    };
    // Another process that restores it holds the lock too, so it is restored only once.
    let locked = match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => {
            return unreadable(format!("it cannot be locked: {error}"));
        }
    };
    let longest = owner.map_or(LONGEST, |_| LONGEST_OF_OTHERS);
    let bytes = match read(&mut file, longest) {
        Ok(bytes) => bytes,
        Err(_) if !locked => return Ok(Some(Recovery::Alive { pid: 0 })),
        Err(error) => return unreadable(error.to_string()),
    };
    let journal = match Journal::parse_for(&bytes, largest_pu()) {
        Ok(journal) => journal,
        Err(_) if !locked => return Ok(Some(Recovery::Alive { pid: 0 })),
        Err(error) => return unreadable(error.to_string()),
    };
    let boot = Boot::now()?;
    let is_old = journal.header.journal == 1;
    if !locked || is_old && boot.is_alive(&journal.header) {
        let pid = journal.header.perch.pid;
        return Ok(Some(Recovery::Alive { pid }));
    }
    // Its perch may have put a new file in its place between opening and locking, and ended.
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if fstat(&file).is_ok_and(|this| this.st_ino == found.st_ino) => {}
        Ok(_) => return recover(dir, path, affinity, owner),
        Err(_) => return Ok(None),
    }
    let there = &journal.header.machine;
    if journal.header.boot != boot.id && !there.is_empty() && *there != machine() {
        return Ok(Some(Recovery::Elsewhere));
    }
    if journal.header.boot != boot.id {
        return Ok(Some(match remove(dir, name) {
            Ok(()) => Recovery::OtherBoot,
            Err(why) => Recovery::Unreadable { why },
        }));
    }
    if is_elsewhere(&journal.header) {
        return Ok(Some(Recovery::Elsewhere));
    }
    let mut report = restore(affinity, &journal, owner);
    if journal.damaged > 0 && report.has_failed() {
        // What could not be restored now is tried again, from the same file.
        let kept = path.to_owned();
        return Ok(Some(Recovery::Damaged { report, kept }));
    }
    if journal.damaged > 0 {
        let kept = path.with_extension("damaged");
        let to = kept.file_name().unwrap_or_default();
        return match renameat(dir, name, dir, to) {
            Ok(()) => Ok(Some(Recovery::Damaged { report, kept })),
            Err(error) => unreadable(format!("it is damaged and cannot be renamed: {error}")),
        };
    }
    if !report.has_failed()
        && let Err(why) = remove(dir, name)
    {
        report.masks.fail_all(why);
    }
    Ok(Some(Recovery::Restored(report)))
}

/// All of a journal, if it is not longer than that.
fn read(file: &mut File, longest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // A sparse file may be long and take no room.
    let length = file.metadata()?.len();
    if length <= longest {
        file.take(longest + 1).read_to_end(&mut bytes)?;
    }
    let length = length.max(bytes.len() as u64);
    if length > longest {
        let why = format!(
            "its {length} bytes are more than the {longest} that are read; name the file to have a longer one read"
        );
        return Err(io::Error::other(why));
    }
    Ok(bytes)
}

/// No record of this machine names a greater PU.
fn largest_pu() -> u32 {
    let possible = std::fs::read_to_string(POSSIBLE).ok();
    let possible = possible.and_then(|text| text.parse::<PuSet>().ok());
    let last = possible.and_then(|pus| pus.last());
    last.unwrap_or(u32::from(u16::MAX)).max(SMALL)
}

/// Opens a journal, which must be a regular file: anything else may block or belong to another user.
fn open(dir: &OwnedFd, name: &OsStr) -> io::Result<Option<File>> {
    let flags =
        OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(dir, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => {
            return Err(io::Error::other("a symbolic link, which is not followed"));
        }
        Err(rustix::io::Errno::ISDIR) => return Err(io::Error::other("a directory")),
        Err(error) => return Err(error.into()),
    };
    let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
    if kind != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(Some(file.into()))
}

/// Whether its thread IDs belong to another namespace.
fn is_elsewhere(header: &Header) -> bool {
    let (here, there) = (namespaces(), header.namespaces);
    differs(here.pid, there.pid) || differs(here.time, there.time)
}

/// Whether two namespaces are known not to be the same.
pub(super) fn differs(here: u64, there: u64) -> bool {
    here != 0 && there != 0 && here != there
}

fn remove(dir: &OwnedFd, name: &OsStr) -> Result<(), String> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(format!("it cannot be removed: {}", io::Error::from(error))),
    }
}

/// Removes the remains of a perch that was killed while it wrote a new journal. The old journal, if there was one, is
/// intact.
fn remove_unfinished(dir: &OwnedFd, path: &Path) {
    let name = path.file_name().unwrap_or_default();
    if let Ok(Some(file)) = open(dir, name)
        && file.try_lock().is_ok()
    {
        let _ = unlinkat(dir, name, AtFlags::empty());
    }
}
