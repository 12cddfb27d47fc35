//! Where journals are kept, and which perch is alive.

use super::{Header, Namespaces, VERSION};
use perch_core::{ProcessId, PuSet};
use procfs::ProcResult;
use rustix::fs::{Access, FileType, Mode, Stat, access};
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
        /// Error of the operating system.
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
        /// Path of the directory.
        path: PathBuf,
    },
    /// The variable does not name a place.
    #[error(
        "{VARIABLE}={path}: not an absolute path; another directory would be meant from another place, so name it from \
         the root: {VARIABLE}=/…",
        path = path.display()
    )]
    Descendant {
        /// Value of the variable.
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
    /// `$PERCH_STATE_DIR`; else `/run/perch` for root; else [`of_user`]. All but
    /// the first live on a tmpfs or are void after a boot, as masks are.
    ///
    /// # Errors
    /// A directory that cannot be made or that others may write to.
    pub fn standard() -> Result<Self, StateDirError> {
        if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            let path = PathBuf::from(path);
            if path.is_relative() {
                return Err(StateDirError::Descendant { path });
            }
            return Self::open(path);
        }
        let user = rustix::process::geteuid();
        if user.is_root() {
            return Self::open("/run/perch");
        }
        Self::open(of_user(user.as_raw()))
    }

    /// The other directories in which the caller's perches may have kept journals, where the environment was another one
    /// or they were started before a login; none if `$PERCH_STATE_DIR` says where they are.
    pub fn others_of_caller() -> Vec<Self> {
        let user = rustix::process::geteuid();
        if user.is_root() || std::env::var_os(VARIABLE).is_some_and(|path| !path.is_empty()) {
            return Vec::new();
        }
        let user = user.as_raw();
        let usual = of_user(user);
        let places = [
            format!("/run/user/{user}/perch"),
            format!("/tmp/perch-{user}"),
        ];
        let places = places.into_iter().map(PathBuf::from);
        let places = places.filter(|path| *path != usual && path.exists());
        // One that another user has made is no place of the caller's.
        places.filter_map(|path| Self::open(path).ok()).collect()
    }

    /// The directories of all other users' perches: for root, who may undo what any of them left. They are those that
    /// [`StateDir::standard`] gives to them.
    pub fn of_other_users() -> Vec<Self> {
        // Each with the user of that number: who may put another directory in its place is no other.
        let numbered = |parent: &str, prefix: &str| {
            let entries = fs::read_dir(parent).into_iter().flatten().flatten();
            let user = |path: &Path| -> Option<u32> {
                let name = path.file_name()?.to_str()?;
                name.strip_prefix(prefix)?.parse().ok()
            };
            let paths = entries.map(|entry| entry.path());
            let found = paths.filter_map(|path| Some((user(&path)?, path)));
            found.collect::<Vec<_>>()
        };
        let runtime = numbered("/run/user", "").into_iter();
        let runtime = runtime.map(|(user, dir)| (user, dir.join("perch")));
        let all = runtime.chain(numbered("/tmp", "perch-"));
        let mut others: Vec<Self> = all
            .filter_map(|(user, path)| Self::of_other(path, user))
            .collect();
        others.sort_by(|a, b| a.path.cmp(&b.path));
        others
    }

    /// An existing directory of another user's. `None` if it is not that user's, or others may write to it.
    pub fn of_other(path: PathBuf, user: u32) -> Option<Self> {
        let found = fs::symlink_metadata(&path).ok()?;
        let owner = Some(user);
        (found.uid() == user && is_private(found.mode())).then_some(Self { path, owner })
    }

    /// Whether an opened directory is the one that it should be: its owner may have exchanged it since it was looked at.
    pub(crate) fn is(&self, opened: &Stat) -> bool {
        let owner = self
            .owner
            .unwrap_or_else(|| rustix::process::geteuid().as_raw());
        opened.st_uid == owner && is_private(opened.st_mode)
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
        if !ours || !is_private(found.mode()) {
            return Err(StateDirError::Unsafe { path });
        }
        Ok(Self { path, owner: None })
    }

    /// Path of the directory.
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

/// The usual place of a user's journals: `$XDG_RUNTIME_DIR/perch`, or `/run/user/UID/perch` where the session does not set
/// that (as cron(8)) or another user's, or `/tmp/perch-UID` where there is neither.
pub fn of_user(user: u32) -> PathBuf {
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let named = named.filter(|runtime| runtime.is_absolute());
    let usual = PathBuf::from(format!("/run/user/{user}"));
    // After `su` without `-` the session's is another user's.
    let usable =
        |dir: &PathBuf| dir.is_dir() && access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    let runtime = named.into_iter().chain([usual]).find(usable);
    match runtime {
        Some(runtime) => runtime.join("perch"),
        None => format!("/tmp/perch-{user}").into(),
    }
}

/// Whether a mode is that of a directory to which only its owner can write.
fn is_private(mode: u32) -> bool {
    let writable = Mode::WGRP | Mode::WOTH;
    let is_directory = FileType::from_raw_mode(mode) == FileType::Directory;
    is_directory && !Mode::from_raw_mode(mode).intersects(writable)
}

/// What tells this machine from others that may use the same directory: its name and `/etc/machine-id`.
pub fn machine() -> String {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let name = rustix::system::uname();
    format!("{} {}", name.nodename().to_string_lossy(), id.trim())
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
        cgroup: inode("cgroup"),
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
        machine: machine(),
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
