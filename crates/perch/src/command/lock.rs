//! Where this user's perch takes its locks, and what is said where none can be had.

use perch_core::{PuSet, Remark};
use perch_engine::{StateDir, StateDirError, journal::state_dir};
use perch_linux::lock::{Lock, LockError, LockFile};
use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Where root's perch takes them.
const ROOTS: &str = "/run/perch";

/// Locks these PUs against other perch. `Err` tells which of them another one holds; a remark, why there is no lock
/// although no other process holds it.
pub fn pus(pus: &PuSet, remarks: &mut Vec<Remark>) -> Result<Option<Lock>, LockError> {
    taken(file().map(|file| file.pus(pus)), remarks)
}

/// Locks interrupts, as [`pus`] does PUs.
pub fn irqs(remarks: &mut Vec<Remark>) -> Result<Option<Lock>, LockError> {
    taken(file().map(|file| file.irqs()), remarks)
}

/// Locks the CPU weights of threads, as [`pus`] does PUs.
pub fn weights(remarks: &mut Vec<Remark>) -> Result<Option<Lock>, LockError> {
    taken(file().map(|file| file.weights()), remarks)
}

/// Locks the settings of the machine, as [`pus`] does PUs.
pub fn settings(remarks: &mut Vec<Remark>) -> Result<Option<Lock>, LockError> {
    taken(file().map(|file| file.settings()), remarks)
}

/// perch continues without a lock rather than not at all: a user with no place for the lock file rarely runs two perch.
fn taken(
    tried: Result<Result<Lock, LockError>, String>,
    remarks: &mut Vec<Remark>,
) -> Result<Option<Lock>, LockError> {
    let why = match tried {
        Ok(Ok(lock)) => return Ok(Some(lock)),
        Ok(Err(unusable @ LockError::Unusable { .. })) => unusable.to_string(),
        Ok(Err(held)) => return Err(held),
        Err(why) => why,
    };
    let text =
        format!("no lock against another perch, so do not let two place the same threads: {why}");
    remarks.push(Remark::warning("no-lock", text));
    Ok(None)
}

/// The lock file of this user. `PERCH_STATE_DIR` says nothing of it: two perch with their journals in different places
/// are still two.
fn file() -> Result<LockFile, String> {
    let user = rustix::process::geteuid();
    if user.is_root() {
        // Others look up which file it is.
        return Ok(LockFile::new(&directory(Path::new(ROOTS), 0o755)?));
    }
    let path = state_dir::of_user(user.as_raw());
    let file = LockFile::new(&directory(&path, 0o700)?);
    Ok(file.honouring(Path::new(ROOTS)))
}

/// That directory, created if it does not exist; only if no other user can write to it.
fn directory(path: &Path, mode: u32) -> Result<PathBuf, String> {
    let dir = StateDir::open(path).map_err(|error| match error {
        StateDirError::Io { path, error } => format!("{}: {error}", path.display()),
        // In /tmp another user may have been first.
        StateDirError::Unsafe { path } => format!(
            "{}: not a directory that only you can write to; remove it, or have its owner or root do so, or set \
             XDG_RUNTIME_DIR to a directory of your own",
            path.display()
        ),
        other => other.to_string(),
    })?;
    // If it is refused, ordinary users' perch do not see root's locks; nothing else changes.
    let _ = std::fs::set_permissions(path, PermissionsExt::from_mode(mode));
    Ok(dir.path().to_owned())
}
