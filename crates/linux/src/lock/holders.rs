//! Which processes hold locks: the kernel tells each descriptor's in `/proc/PID/fdinfo`, not in fcntl(2).

use super::{common, locked_range};
use perch_core::text::printable;
use rustix::fs::{major, minor};
use std::{
    fmt, fs,
    ops::Range,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// How much of a command line is shown, in characters.
const SHOWN: usize = 48;

/// A process that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its PID.
    pub pid: u32,
    /// Its command line, as much of it as is shown; empty if it cannot be read.
    pub command: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.command.as_str() {
            "" => write!(f, "PID {}", self.pid),
            command => write!(f, "PID {}, `{command}`", self.pid),
        }
    }
}

/// `another perch`, and which.
pub(super) fn another(holders: &[Holder]) -> String {
    let named: Vec<String> = holders.iter().map(Holder::to_string).collect();
    match named.as_slice() {
        [] => "another perch".to_owned(),
        named => format!("another perch ({})", named.join("; ")),
    }
}

/// The processes that have locked some of these bytes of one of the files, by PID. Those that this user may not look into
/// are left out.
pub(super) fn of<'a>(
    files: impl Iterator<Item = &'a PathBuf>,
    wanted: &[Range<u64>],
) -> Vec<Holder> {
    let known: Vec<(u64, u64)> = files.filter_map(|file| identity(file)).collect();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut holders: Vec<Holder> = pids
        .filter(|pid| holds(*pid, &known, wanted))
        .map(|pid| Holder {
            pid,
            command: command(pid),
        })
        .collect();
    holders.sort_by_key(|holder| holder.pid);
    holders
}

/// A file's device and inode.
fn identity(file: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(file).ok()?;
    Some((found.dev(), found.ino()))
}

fn holds(pid: u32, files: &[(u64, u64)], wanted: &[Range<u64>]) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
    let mut descriptors = descriptors.into_iter().flatten().flatten();
    descriptors.any(|descriptor| {
        let Some((device, inode)) = identity(&descriptor.path()).filter(|id| files.contains(id))
        else {
            return false;
        };
        let name = descriptor.file_name();
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", name.display()));
        let file = (major(device), minor(device), inode);
        info.unwrap_or_default()
            .lines()
            .filter_map(|line| locked_range(line.strip_prefix("lock:")?.trim_start(), file))
            .any(|locked| {
                wanted
                    .iter()
                    .any(|range| !common(range, &locked).is_empty())
            })
    })
}

/// A process's command line, with blanks between its words.
fn command(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let line = words.collect::<Vec<_>>().join(" ");
    let line = printable(line.trim_end());
    match line.chars().count() <= SHOWN {
        true => line.into_owned(),
        false => line.chars().take(SHOWN - 1).chain(['…']).collect(),
    }
}
