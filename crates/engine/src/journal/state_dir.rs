//! Where journals are kept, and which perch is alive.

use super::{Header, VERSION};
use perch_core::{ProcessId, PuSet};
use procfs::ProcResult;
use rustix::fs::Mode;
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

/// The environment variable that says where journals are kept.
pub const VARIABLE: &str = "PERCH_STATE_DIR";

/// A directory of journals that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// It cannot be made or read.
    #[error("{path}: {error}: perch keeps its journal there; set {VARIABLE} to a directory of your own", path = path.display())]
    Io {
        /// The directory, or a file in it.
        path: PathBuf,
        /// The system's reason.
        #[source]
        error: io::Error,
    },
    /// It belongs to somebody else, or others may write to it.
    #[error(
        "{path}: not a directory that only you can write to; remove it, or set {VARIABLE} to a directory of your own",
        path = path.display()
    )]
    Unsafe {
        /// The directory.
        path: PathBuf,
    },
    /// /proc does not tell who perch is.
    #[error("/proc does not tell boot and process: {0}; mount it (`mount -t proc proc /proc`)")]
    Proc(String),
}

/// A directory of journals.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// `$PERCH_STATE_DIR`; else `/run/perch` for root; else `$XDG_RUNTIME_DIR/perch`; else `/tmp/perch-UID`. All but
    /// the first live on a tmpfs or are void after a boot, as masks are.
    ///
    /// # Errors
    /// A directory that cannot be made or that others may write to.
    pub fn standard() -> Result<Self, StateDirError> {
        if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            return Self::open(path);
        }
        let user = rustix::process::geteuid();
        if user.is_root() {
            return Self::open("/run/perch");
        }
        match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
            Some(runtime) if runtime.is_dir() => Self::open(runtime.join("perch")),
            _ => Self::open(format!("/tmp/perch-{}", user.as_raw())),
        }
    }

    /// That directory, made if it is not there.
    ///
    /// # Errors
    /// A directory that cannot be made or that others may write to.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StateDirError> {
        let path = path.into();
        let fail = |error| StateDirError::Io {
            path: path.clone(),
            error,
        };
        match fs::DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&path)
        {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(fail(error)),
            _ => {}
        }
        // Of a link's target nobody knows who may exchange it: the link itself is looked at.
        let found = fs::symlink_metadata(&path).map_err(fail)?;
        let ours = found.uid() == rustix::process::geteuid().as_raw();
        let writable = Mode::WGRP | Mode::WOTH;
        if !found.is_dir() || !ours || Mode::from_raw_mode(found.mode()).intersects(writable) {
            return Err(StateDirError::Unsafe { path });
        }
        Ok(Self { path })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a session's journal.
    pub fn journal(&self, header: &Header) -> PathBuf {
        let ProcessId { pid, start } = header.perch;
        self.path.join(format!("{pid}-{start}.journal"))
    }

    /// The journals in it, in the order of their names.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn journals(&self) -> Result<Vec<PathBuf>, StateDirError> {
        let fail = |error| StateDirError::Io {
            path: self.path.clone(),
            error,
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "journal")
            {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Who is who on this boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// The kernel's boot.
    pub id: String,
}

impl Boot {
    /// This boot.
    ///
    /// # Errors
    /// A /proc that cannot be read.
    pub fn now() -> Result<Self, StateDirError> {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        id.map(|id| Self {
            id: id.trim().to_owned(),
        })
        .map_err(|error| StateDirError::Proc(error.to_string()))
    }

    /// Whether the perch that wrote a journal still runs. A zombie does not.
    pub fn is_alive(&self, header: &Header) -> bool {
        header.boot == self.id
            && process(header.perch.pid).is_ok_and(|(id, state)| id == header.perch && state != 'Z')
    }
}

/// A header for the calling process.
///
/// # Errors
/// A /proc that cannot be read.
pub fn header(default: PuSet) -> Result<Header, StateDirError> {
    let boot = Boot::now()?;
    let (perch, _) = process(std::process::id() as i32)
        .map_err(|error| StateDirError::Proc(error.to_string()))?;
    let unique: String = boot.id.chars().take(8).collect();
    Ok(Header {
        journal: VERSION,
        session: format!("{}-{}-{unique}", perch.pid, perch.start),
        boot: boot.id,
        perch,
        default,
    })
}

/// Clock ticks since boot, the unit of threads' starts.
pub fn boot_ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let per_second = rustix::param::clock_ticks_per_second();
    now.tv_sec as u64 * per_second + now.tv_nsec as u64 * per_second / 1_000_000_000
}

fn process(pid: i32) -> ProcResult<(ProcessId, char)> {
    let stat = procfs::process::Process::new(pid)?.stat()?;
    let id = ProcessId {
        pid,
        start: stat.starttime,
    };
    Ok((id, stat.state))
}
