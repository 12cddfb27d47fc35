//! Control groups of single threads, for CPU weights: cgroup v2 in thread mode
//! (`Documentation/admin-guide/cgroup-v2.rst` of the kernel, "Threads" and "Delegation").
//!
//! A thread's group lies below the group that it is in. That one must be delegated to the user, which systemd does with
//! `Delegate=cpu`; root's perch uses nice values. In thread mode a group may have threads of its own and child groups
//! it; each of these counts as one more thread of that weight.

use super::{
    LinuxAffinity,
    cpuset::{group_in, group_text, unified},
    nice::WEIGHED,
    refused,
};
use perch_core::{GroupChange, Outcome, ThreadId, WeightGroups};
use rustix::{
    fs::{Access, XattrFlags, access, getxattr, removexattr, setxattr},
    io::Errno,
    process::geteuid,
};
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

/// What the names of perch's groups begin with.
const PREFIX: &str = "perch-";

/// Marks a group for whose threads perch has switched the CPU controller on: the last perch switches it off again.
const MARK: &str = "user.perch.cpu";

/// How often a group is emptied that is not empty yet: a thread may be starting another one.
const ROUNDS: usize = 200;

/// For how long a group that suits is not looked at again: the look takes the longer the more groups are below it.
const SUITED: Duration = Duration::from_secs(1);

/// The directory of a group of the one cgroup v2 hierarchy.
fn directory(group: &str) -> Option<PathBuf> {
    let (mount, top) = mount()?;
    let group = Path::new(group);
    let below = group.strip_prefix(&top).unwrap_or(group);
    Some(mount.join(below.strip_prefix("/").unwrap_or(below)))
}

fn mount() -> Option<(PathBuf, PathBuf)> {
    let mountinfo = fs::read("/proc/self/mountinfo").ok()?;
    unified(&String::from_utf8_lossy(&mountinfo))
}

fn is_perchs(directory: &Path) -> bool {
    let name = directory.file_name().and_then(|name| name.to_str());
    let numbers = name.and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
    let number = |text: &str| text.parse::<u64>().is_ok();
    numbers.is_some_and(|(tid, start)| number(tid) && number(start))
}

/// The words of a file of a group.
fn words(directory: &Path, file: &str) -> Vec<String> {
    let text = fs::read_to_string(directory.join(file)).unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

fn has(directory: &Path, file: &str, word: &str) -> bool {
    words(directory, file).iter().any(|found| found == word)
}

/// The groups below a group.
fn below(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| {
        let kind = entry.file_type();
        kind.is_ok_and(|kind| kind.is_dir())
    });
    folders.map(|entry| entry.path())
}

/// Whether groups of perch's may lie below this one.
fn suits(directory: &Path) -> Result<(), String> {
    let shown = directory.display();
    let delegated =
        "start the program with `systemd-run --user --scope -p Delegate=cpu …`, for example";
    let owner = fs::metadata(directory).map(|found| found.uid());
    if geteuid().is_root() || owner.ok() != Some(geteuid().as_raw()) {
        return Err(format!(
            "its group, {shown}, is not delegated to you: {delegated}"
        ));
    }
    let files = ["cgroup.procs", "cgroup.threads", "cgroup.subtree_control"];
    let writable = |file: &&str| access(directory.join(file), Access::WRITE_OK).is_ok();
    if let Some(file) = files.iter().find(|file| !writable(file)) {
        return Err(format!("you may not write {shown}/{file}: {delegated}"));
    }
    if !has(directory, "cgroup.controllers", "cpu") {
        return Err(format!(
            "{shown} has no CPU controller in cgroup v2: {delegated}"
        ));
    }
    let enabled = words(directory, "cgroup.subtree_control");
    if enabled.iter().any(|word| word == "cpuset") {
        // A thread that moves between CPU sets loses its mask.
        return Err(format!(
            "{shown} gives the groups below it CPU sets of their own"
        ));
    }
    if below(directory).any(|group| !is_perchs(&group)) {
        // They could get no groups of processes any more, as containers do.
        return Err(format!("{shown} has other groups below it"));
    }
    Ok(())
}

/// Switches the CPU controller on for groups below, and remembers it.
fn enable(directory: &Path) -> io::Result<()> {
    if has(directory, "cgroup.subtree_control", "cpu") {
        return Ok(());
    }
    setxattr(directory, MARK, b"1", XattrFlags::empty())?;
    fs::write(directory.join("cgroup.subtree_control"), "+cpu")
}

/// Switches it off again if perch had switched it on and no group is below any more.
fn disable(directory: &Path) {
    let mut value = [0; 8];
    let marked = getxattr(directory, MARK, &mut value[..]).is_ok();
    if !marked || below(directory).next().is_some() {
        return;
    }
    if fs::write(directory.join("cgroup.subtree_control"), "-cpu").is_ok() {
        let _ = removexattr(directory, MARK);
    }
}

fn outcome(error: &io::Error) -> Outcome {
    match Errno::from_io_error(error) {
        Some(Errno::SRCH) => Outcome::Gone,
        Some(Errno::ACCESS | Errno::PERM) => Outcome::NotPermitted,
        _ => Outcome::Failed,
    }
}

/// The group above a group that perch may have made, if the path is one of such a group.
fn above(group: &str) -> Option<(PathBuf, PathBuf)> {
    let path = PathBuf::from(group);
    let (mount, _) = mount()?;
    // One spelling for each group: a journal with many of one would keep a restore busy.
    let plain = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        && path.components().collect::<PathBuf>().as_os_str() == path.as_os_str();
    let inside = path.strip_prefix(&mount).is_ok();
    let parent = path.parent()?.to_owned();
    (plain && inside && is_perchs(&path)).then_some((path, parent))
}

impl LinuxAffinity {
    /// The directory of the group that a thread is in; that above it if it is in a group of perch's.
    fn own_group(&self, thread: ThreadId, process: i32) -> Result<PathBuf, String> {
        let text = group_text(process, thread.tid).ok_or("its group cannot be read")?;
        let group = group_in(&text, 2).and_then(|group| directory(&group));
        let mut group = group.ok_or("cgroup v2 is not mounted")?;
        if is_perchs(&group) {
            group.pop();
        }
        Ok(group)
    }
}

impl WeightGroups for LinuxAffinity {
    fn group_for(&self, thread: ThreadId, process: i32) -> Result<String, String> {
        let policy = self.stat_in(process, thread, |stat| stat.policy);
        if policy.is_ok_and(|policy| policy.is_none_or(|policy| !WEIGHED.contains(&policy))) {
            return Err("its scheduling policy knows no weights".to_owned());
        }
        let own = self.own_group(thread, process)?;
        let mut last = self.suited.borrow_mut();
        if !last
            .as_ref()
            .is_some_and(|(suited, at)| *suited == own && at.elapsed() < SUITED)
        {
            suits(&own)?;
            *last = Some((own.clone(), Instant::now()));
        }
        let group = own.join(format!("{PREFIX}{}-{}", thread.tid, thread.start));
        let group = group.into_os_string().into_string();
        group.map_err(|_| "the name of its group is not UTF-8".to_owned())
    }

    fn enter(&mut self, change: &GroupChange) -> Outcome {
        let GroupChange {
            thread,
            process,
            group,
            weight,
        } = change;
        if let Err(error) = self.stat_in(*process, *thread, |_| ()) {
            return refused(&error);
        }
        let Some((group, parent)) = above(group) else {
            return Outcome::Failed;
        };
        // Another process may have moved it since.
        if self.own_group(*thread, *process).ok().as_ref() != Some(&parent) {
            return Outcome::ChangedByOthers;
        }
        let make = || -> io::Result<()> {
            match fs::create_dir(&group) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            if !has(&group, "cgroup.type", "threaded") {
                fs::write(group.join("cgroup.type"), "threaded")?;
            }
            enable(&parent)?;
            fs::write(group.join("cpu.weight"), weight.to_string())?;
            fs::write(group.join("cgroup.threads"), thread.tid.to_string())
        };
        match make() {
            Ok(()) => Outcome::Applied,
            Err(error) => outcome(&error),
        }
    }

    fn dissolve(&mut self, group: &str, owner: Option<u32>) -> Outcome {
        let Some((group, parent)) = above(group) else {
            // No such path is perch's, unless it cannot be told where the groups are.
            return match mount() {
                Some(_) => Outcome::Gone,
                None => Outcome::Failed,
            };
        };
        if let Some(owner) = owner
            && fs::metadata(&parent).is_ok_and(|found| found.uid() != owner)
        {
            return Outcome::NotPermitted;
        }
        let mut last = Outcome::Failed;
        for round in 0..ROUNDS {
            for thread in words(&group, "cgroup.threads") {
                match fs::write(parent.join("cgroup.threads"), thread) {
                    Ok(()) => {}
                    // It has ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => last = outcome(&error),
                }
            }
            match fs::remove_dir(&group) {
                Ok(()) => {
                    disable(&parent);
                    return Outcome::Applied;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    disable(&parent);
                    return Outcome::Gone;
                }
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return outcome(&error),
            }
            if last == Outcome::NotPermitted {
                break;
            }
            if round > 2 {
                sleep(Duration::from_millis(1));
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_leads_to_no_other_directory_than_a_group_of_perch_s() {
        let Some((mount, _)) = mount() else {
            return perch_skip::skip!(Cgroup, "cgroup v2 is not mounted");
        };
        let mount = mount.to_str().unwrap();
        for path in [
            "/etc/perch-1-2".to_owned(),
            "perch-1-2".to_owned(),
            format!("{mount}/a/../../../tmp/perch-1-2"),
            format!("{mount}/user.slice"),
            format!("{mount}-other/perch-1-2"),
            format!("{mount}/a/./perch-1-2"),
            format!("{mount}//a/perch-1-2"),
        ] {
            assert_eq!(above(&path), None, "{path}");
            assert_eq!(LinuxAffinity::new().dissolve(&path, None), Outcome::Gone);
        }
        let (group, parent) = above(&format!("{mount}/a/perch-1-2")).unwrap();
        assert!(group.ends_with("a/perch-1-2") && parent.ends_with("a"));
    }

    #[test]
    fn what_is_not_delegated_is_refused_with_what_would_help() {
        let folder = tempfile::tempdir().unwrap();
        let why = suits(folder.path()).unwrap_err();
        assert!(why.contains("Delegate=cpu"), "{why}");
    }
}
