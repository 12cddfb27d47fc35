//! Where journals are kept, and which perch is alive.

use super::{Header, Namespaces, VERSION};
use perch_core::{ProcessId, PuSet};
use procfs::ProcResult;
use rustix::fs::Mode;
use std::{
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    io,
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
    /// It belongs to another user, or other users may write to it.
    #[error(
        "{path}: not a directory that only you can write to: have its owner or root remove it, or set {VARIABLE} to a \
         directory of your own",
        path = path.display()
    )]
    Unsafe {
        /// The directory.
        path: PathBuf,
    },
    /// The variable does not name a place.
    #[error(
        "{VARIABLE}={path}: not an absolute path; another directory would be meant from another place, so name it from \
         the root: {VARIABLE}=/…",
        path = path.display()
    )]
    Relative {
        /// What it says.
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
    /// The user to whom it belongs, if it is not the caller.
    owner: Option<u32>,
}

impl StateDir {
    /// `$PERCH_STATE_DIR`; else `/run/perch` for root; else `$XDG_RUNTIME_DIR/perch`; else `/tmp/perch-UID`. All but
    /// the first live on a tmpfs or are void after a boot, as masks are.
    ///
    /// # Errors
    /// A directory that cannot be made or that others may write to.
    pub fn standard() -> Result<Self, StateDirError> {
        if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            let path = PathBuf::from(path);
            if path.is_relative() {
                return Err(StateDirError::Relative { path });
            }
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

    /// The directories of all other users' perches: for root, who may undo what any of them left. They are those that
    /// [`StateDir::standard`] gives to them.
    pub fn of_other_users() -> Vec<Self> {
        let entries = |parent: &str| {
            let entries = fs::read_dir(parent).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let runtime = entries("/run/user")
            .into_iter()
            .map(|dir| dir.join("perch"));
        let named = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let user = name.strip_prefix("perch-");
            user.is_some_and(|user| user.parse::<u32>().is_ok())
        };
        let others = runtime.chain(entries("/tmp").into_iter().filter(named));
        let mut others: Vec<Self> = others.filter_map(Self::of_its_owner).collect();
        others.sort_by(|a, b| a.path.cmp(&b.path));
        others
    }

    /// An existing directory, no matter which user owns it. `None` if users other than the owner may write to it.
    pub fn of_its_owner(path: PathBuf) -> Option<Self> {
        let found = fs::symlink_metadata(&path).ok()?;
        let user = found.uid();
        let owner = (user != rustix::process::geteuid().as_raw()).then_some(user);
        is_private(&found).then_some(Self { path, owner })
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
        // Other users may be able to replace the target of a symbolic link, so this checks the link itself.
        let found = fs::symlink_metadata(&path).map_err(fail)?;
        let ours = found.uid() == rustix::process::geteuid().as_raw();
        if !ours || !is_private(&found) {
            return Err(StateDirError::Unsafe { path });
        }
        Ok(Self { path, owner: None })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The user to whom it belongs, if it is not the caller.
    pub fn owner(&self) -> Option<u32> {
        self.owner
    }

    /// The path of the journal of a session's target.
    pub fn journal(&self, header: &Header) -> PathBuf {
        let (session, target) = (&header.session, header.target);
        self.path.join(format!("{session}-{target}.journal"))
    }

    /// The journals in it, in the order of their names.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn journals(&self) -> Result<Vec<PathBuf>, StateDirError> {
        self.files("journal")
    }

    /// Journals that were being written when their perch was killed, and say nothing yet.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn unfinished(&self) -> Result<Vec<PathBuf>, StateDirError> {
        self.files("new")
    }

    fn files(&self, wanted: &str) -> Result<Vec<PathBuf>, StateDirError> {
        let fail = |error| StateDirError::Io {
            path: self.path.clone(),
            error,
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == wanted)
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

    /// Whether the perch that wrote a journal of format 1 still runs: such journals are not locked. A zombie does not.
    pub fn is_alive(&self, header: &Header) -> bool {
        header.boot == self.id
            && process(header.perch.pid).is_ok_and(|(id, state)| id == header.perch && state != 'Z')
    }
}

/// Whether it is a directory to which only its owner can write.
fn is_private(found: &fs::Metadata) -> bool {
    let writable = Mode::WGRP | Mode::WOTH;
    found.is_dir() && !Mode::from_raw_mode(found.mode()).intersects(writable)
}

/// The namespaces of the calling process.
pub fn namespaces() -> Namespaces {
    let inode = |name: &str| {
        let found = fs::metadata(format!("/proc/self/ns/{name}"));
        found.map_or(0, |found| found.ino())
    };
    Namespaces {
        pid: inode("pid"),
        time: inode("time"),
    }
}

/// A header for a session of the calling process.
///
/// # Errors
/// A /proc that cannot be read.
pub fn header(default: PuSet) -> Result<Header, StateDirError> {
    let boot = Boot::now()?;
    let (perch, _) = process(std::process::id() as i32)
        .map_err(|error| StateDirError::Proc(error.to_string()))?;
    // Process numbers repeat in other namespaces, and one process may have several sessions.
    let unique = RandomState::new().build_hasher().finish() as u32;
    Ok(Header {
        journal: VERSION,
        session: format!("{}-{}-{unique:08x}", perch.pid, perch.start),
        target: 0,
        boot: boot.id,
        perch,
        namespaces: namespaces(),
        default,
        whole: true,
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
