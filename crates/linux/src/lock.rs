//! Several perch processes on one machine: the one that places threads on a PU holds that PU's lock.
//!
//! The locks are bytes of one file, locked with open file description locks (fcntl(2)): byte N stands for PU N. The
//! kernel releases them when their holder exits, however it exits. A user without write permission cannot lock anything
//! in the file, so no user can block root or another user. An ordinary user's perch yields to root's: it finds root's
//! locks in `/proc/locks`.

mod holders;
#[cfg(test)]
mod tests;

pub use holders::Holder;
use holders::another;

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
};
use perch_core::PuSet;
use rustix::fs::{Mode, OFlags, major, minor};
use std::{
    fmt,
    fs::{self, File},
    io::{self, Read},
    ops::Range,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// The file's name in its directory.
const NAME: &str = "pus.lock";

/// The byte for interrupts, far beyond any PU.
const IRQS: u64 = 1 << 40;

/// The byte for the CPU weights of threads, wherever these are placed: a thread has one weight on all PUs.
const WEIGHTS: u64 = IRQS + 1;

/// The byte for settings of the machine.
const SETTINGS: u64 = IRQS + 2;

/// How often a lock is retried if its holder exited before it could be queried.
const TRIES: usize = 3;

/// The lock file of a user (`pus.lock`), with one byte per PU.
#[derive(Debug, Clone)]
pub struct LockFile {
    path: PathBuf,
    /// Another one, of which only is asked what is locked in it.
    honoured: Option<PathBuf>,
}

/// A lock; given up when dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    /// Gives the lock up at once: a process that is being started shares the open file until it is executed, and closing
    /// the file here alone would leave the lock to it until then.
    fn drop(&mut self) {
        let everything = libc::flock {
            l_type: libc::F_UNLCK as libc::c_short,
            ..flock(&(0..0))
        };
        // If it fails, the lock goes with the last descriptor.
        let _ = fcntl(&self.file, FcntlArg::F_OFD_SETLK(&everything));
    }
}

/// Why a lock cannot be had. The processes that hold it are named where they can be found: not another user's, and not
/// those of another PID namespace.
#[derive(Debug)]
pub enum LockError {
    /// Other perch processes place threads on these PUs.
    Pus {
        /// Those of the PUs that are held.
        pus: PuSet,
        /// Who holds them.
        holders: Vec<Holder>,
    },
    /// Another perch places interrupts.
    Irqs(Vec<Holder>),
    /// Another perch gives threads CPU weights.
    Weights(Vec<Holder>),
    /// Another perch changes settings of the machine.
    Settings(Vec<Holder>),
    /// The file cannot be used.
    Unusable {
        /// Path of the lock file.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pus { pus, holders } => write!(
                f,
                "{} places threads on PUs {pus}; give each its own with --pus, or let one observe (--policy observe)",
                another(holders)
            ),
            Self::Irqs(holders) => write!(
                f,
                "{} places interrupts (`perch irq --apply`, or the policy irq): stop it first",
                another(holders)
            ),
            Self::Weights(holders) => write!(
                f,
                "{} gives threads CPU weights; let one at a time have --weight, or stop that one first",
                another(holders)
            ),
            Self::Settings(holders) => write!(
                f,
                "{} changes settings of the machine (clocks, work queues): stop it first",
                another(holders)
            ),
            Self::Unusable { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for LockError {}

impl LockFile {
    /// The file in this directory, which no other user may write to.
    pub fn new(directory: &Path) -> Self {
        Self {
            path: directory.join(NAME),
            honoured: None,
        }
    }

    /// Makes way for those who lock PUs in that directory's file, which need not be accessible.
    #[must_use]
    pub fn honouring(mut self, directory: &Path) -> Self {
        self.honoured = Some(directory.join(NAME));
        self
    }

    /// Takes the right to place threads on all of these PUs, or on none.
    ///
    /// # Errors
    /// The PUs that others hold; a file that cannot be used.
    pub fn pus(&self, pus: &PuSet) -> Result<Lock, LockError> {
        let wanted = ranges(pus);
        for _ in 0..TRIES {
            let file = self.open()?;
            match self.take_all(&file, &wanted) {
                Ok(()) => {
                    // Looked at with the lock in hand, so that of two that start at once one sees the other.
                    let held = self.held_elsewhere(&wanted);
                    return match held.is_empty() {
                        true => Ok(Lock { file }),
                        false => {
                            // Else this process would be named as a holder.
                            drop(file);
                            Err(self.held(held, &wanted))
                        }
                    };
                }
                Err(Errno::EAGAIN | Errno::EACCES) => {}
                Err(errno) => return Err(self.unusable(errno.into())),
            }
            // Locks taken up to the refusal are released before the holders are queried.
            drop(file);
            let file = self.open()?;
            let mut held = self.held_elsewhere(&wanted);
            for range in &wanted {
                add_locked(&file, range.clone(), &mut held).map_err(|e| self.unusable(e.into()))?;
            }
            if !held.is_empty() {
                return Err(self.held(held, &wanted));
            }
        }
        Err(self.held(pus.clone(), &wanted))
    }

    fn held(&self, pus: PuSet, wanted: &[Range<u64>]) -> LockError {
        let holders = self.holders(wanted);
        LockError::Pus { pus, holders }
    }

    /// The processes that have locked some of these bytes, here or in the file that is honoured.
    fn holders(&self, wanted: &[Range<u64>]) -> Vec<Holder> {
        let files = [Some(&self.path), self.honoured.as_ref()];
        holders::of(files.into_iter().flatten(), wanted)
    }

    /// Takes the right to place interrupts.
    ///
    /// # Errors
    /// Another perch has it; a file that cannot be used.
    pub fn irqs(&self) -> Result<Lock, LockError> {
        self.one(IRQS)
            .map_err(|error| error.unwrap_or_else(|| LockError::Irqs(self.holders_of(IRQS))))
    }

    /// Takes the right to change settings of the machine: two perch would each put the other's values back.
    ///
    /// # Errors
    /// Another perch has it; a file that cannot be used.
    pub fn settings(&self) -> Result<Lock, LockError> {
        let taken = || LockError::Settings(self.holders_of(SETTINGS));
        self.one(SETTINGS)
            .map_err(|error| error.unwrap_or_else(taken))
    }

    /// Takes the right to give threads CPU weights.
    ///
    /// # Errors
    /// Another perch has it; a file that cannot be used.
    pub fn weights(&self) -> Result<Lock, LockError> {
        let taken = || LockError::Weights(self.holders_of(WEIGHTS));
        let lock = self
            .one(WEIGHTS)
            .map_err(|error| error.unwrap_or_else(taken))?;
        let wanted = WEIGHTS..WEIGHTS + 1;
        let held = self.locked_elsewhere();
        // As with PUs, looked at with the lock in hand.
        match held.iter().any(|held| !common(held, &wanted).is_empty()) {
            true => {
                drop(lock);
                Err(taken())
            }
            false => Ok(lock),
        }
    }

    fn holders_of(&self, byte: u64) -> Vec<Holder> {
        self.holders(std::slice::from_ref(&(byte..byte + 1)))
    }

    /// Takes one byte; no error if another perch has it.
    fn one(&self, byte: u64) -> Result<Lock, Option<LockError>> {
        let file = self.open()?;
        match set(&file, &(byte..byte + 1)) {
            Ok(()) => Ok(Lock { file }),
            Err(Errno::EAGAIN | Errno::EACCES) => Err(None),
            Err(errno) => Err(Some(self.unusable(errno.into()))),
        }
    }

    fn take_all(&self, file: &File, wanted: &[Range<u64>]) -> Result<(), Errno> {
        wanted.iter().try_for_each(|range| set(file, range))
    }

    /// Opens the file, made if it is not there. Only its owner may open it: who may open it may lock it.
    fn open(&self) -> Result<File, LockError> {
        let flags = OFlags::RDWR
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let checked = || {
            let file = File::from(rustix::fs::open(&self.path, flags, mode)?);
            let found = file.metadata()?;
            if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() {
                return Err(io::Error::other("not a file of your own; remove it"));
            }
            if found.mode() & 0o077 != 0 {
                file.set_permissions(fs::Permissions::from_mode(0o600))?;
            }
            Ok(file)
        };
        checked().map_err(|error| self.unusable(error))
    }

    fn unusable(&self, error: io::Error) -> LockError {
        LockError::Unusable {
            path: self.path.clone(),
            error,
        }
    }

    /// Which of these PUs are locked in the file that is honoured.
    fn held_elsewhere(&self, wanted: &[Range<u64>]) -> PuSet {
        let mut held = PuSet::new();
        for locked in self.locked_elsewhere() {
            wanted
                .iter()
                .for_each(|range| insert(&mut held, &common(range, &locked)));
        }
        held
    }

    /// The bytes that are locked in the file that is honoured. None where it is not root's: then it says nothing.
    fn locked_elsewhere(&self) -> Vec<Range<u64>> {
        let Some(path) = &self.honoured else {
            return Vec::new();
        };
        let Ok(found) = fs::symlink_metadata(path) else {
            return Vec::new();
        };
        if found.uid() != 0 || !found.is_file() {
            return Vec::new();
        }
        let mut locks = String::new();
        let read = File::open("/proc/locks").and_then(|mut file| file.read_to_string(&mut locks));
        if read.is_err() {
            return Vec::new();
        }
        let file = (major(found.dev()), minor(found.dev()), found.ino());
        let lines = locks.lines();
        lines.filter_map(|line| locked_range(line, file)).collect()
    }
}

/// The contiguous parts of a set of PUs.
fn ranges(pus: &PuSet) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for pu in pus.iter().map(u64::from) {
        match ranges.last_mut() {
            Some(last) if last.end == pu => last.end += 1,
            _ => ranges.push(pu..pu + 1),
        }
    }
    ranges
}

fn common(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.max(other.start)..one.end.min(other.end)
}

fn insert(pus: &mut PuSet, range: &Range<u64>) {
    for pu in range.clone().filter_map(|pu| u32::try_from(pu).ok()) {
        pus.insert(pu);
    }
}

/// The lock of a range, as fcntl(2) wants it.
fn flock(range: &Range<u64>) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: range.start as libc::off_t,
        l_len: range.end.saturating_sub(range.start) as libc::off_t,
        l_pid: 0,
    }
}

fn set(file: &File, range: &Range<u64>) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&flock(range))).map(|_| ())
}

/// Adds the bytes of a range that others have locked. The kernel tells one lock at a time: what lies before and behind
/// it is asked for again.
fn add_locked(file: &File, range: Range<u64>, held: &mut PuSet) -> Result<(), Errno> {
    if range.is_empty() {
        return Ok(());
    }
    let mut asked = flock(&range);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut asked))?;
    if i32::from(asked.l_type) == libc::F_UNLCK {
        return Ok(());
    }
    let start = asked.l_start as u64;
    let end = match asked.l_len {
        0 => u64::MAX,
        length => start + length as u64,
    };
    let locked = common(&range, &(start..end));
    insert(held, &locked);
    add_locked(file, range.start..locked.start, held)?;
    add_locked(file, locked.end..range.end, held)
}

/// The bytes that a line of `/proc/locks` (proc_locks(5)) shows to be locked by an open file description in this file,
/// given as major, minor and inode.
fn locked_range(line: &str, file: (u32, u32, u64)) -> Option<Range<u64>> {
    let mut words = line.split_ascii_whitespace().skip(1);
    // A request that waits has an arrow in its place.
    if words.next()? != "OFDLCK" {
        return None;
    }
    let mut words = words.skip(3);
    let mut id = words.next()?.split(':');
    let major = u32::from_str_radix(id.next()?, 16).ok()?;
    let minor = u32::from_str_radix(id.next()?, 16).ok()?;
    if (major, minor, id.next()?.parse().ok()?) != file {
        return None;
    }
    let start: u64 = words.next()?.parse().ok()?;
    let last = match words.next()? {
        "EOF" => u64::MAX - 1,
        last => last.parse().ok()?,
    };
    Some(start..last.saturating_add(1))
}
