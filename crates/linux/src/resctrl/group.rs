//! A monitoring group of perch's: the threads of one process, with a counter ID (RMID) of their own.
//!
//! Each group's folder is locked (flock(2)) as long as its perch lives. So a perch that comes later, in whatever
//! container, can tell the groups that a killed one has left behind ([`remove_leftovers`]).

use super::tree::{Tree, open_folder};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, OpenOptions},
    io::{self, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// What the names of perch's groups begin with.
const PREFIX: &str = "perch-";

/// How often the threads of a process are listed, while they create others that are not in the group yet.
const PASSES: usize = 8;

/// A group that this perch has made. Dropped, it is removed: its threads go back to the root group, where they were.
#[derive(Debug)]
pub(super) struct Group {
    pub name: String,
    path: PathBuf,
    /// Locked as long as this perch lives.
    _alive: OwnedFd,
    /// The last value of each counter of bytes.
    last: BTreeMap<String, u64>,
}

/// Why no group was made.
#[derive(Debug)]
pub(super) enum NoGroup {
    /// All RMIDs are in use, or were until a moment ago: the cache still holds lines of groups that were removed. The
    /// kernel hands out the one that was freed first, once these are gone.
    NoId,
    Failed(io::Error),
}

impl Group {
    /// Makes a group for a process.
    pub(super) fn create(tree: &Tree, pid: i32) -> Result<Self, NoGroup> {
        let _lock = tree.lock().map_err(NoGroup::Failed)?;
        let mut number = 0u32;
        loop {
            let name = format!("{PREFIX}{}-{pid}-{number}", std::process::id());
            let path = tree.groups().join(&name);
            match fs::create_dir(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {
                    number += 1;
                    continue;
                }
                Err(error) => {
                    return Err(match Errno::from_io_error(&error) {
                        Some(Errno::NOSPC | Errno::BUSY) => NoGroup::NoId,
                        _ => NoGroup::Failed(error),
                    });
                }
            }
            let locked = open_folder(&path).and_then(|folder| {
                flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
                Ok(folder)
            });
            return match locked {
                Ok(alive) => Ok(Self {
                    name,
                    path,
                    _alive: alive,
                    last: BTreeMap::new(),
                }),
                Err(error) => {
                    let _ = fs::remove_dir(&path);
                    Err(NoGroup::Failed(error))
                }
            };
        }
    }

    /// Moves the threads of a process into the group, unless they are in another program's; how many are. `own` are the
    /// names of this perch's groups, from which threads may be inherited.
    pub(super) fn gather(&self, pid: i32, own: &BTreeSet<String>) -> Gathered {
        let mut gathered = Gathered::default();
        let mut seen: BTreeSet<i32> = BTreeSet::new();
        for _ in 0..PASSES {
            // Threads of the group create threads of the group; those that others create meanwhile come in the next pass.
            let new: Vec<i32> = crate::proc::task_numbers(pid)
                .into_iter()
                .filter(|tid| seen.insert(*tid))
                .collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                let text = fs::read_to_string(format!("/proc/{tid}/cpu_resctrl_groups"));
                match text.ok().as_deref().map(|text| may_move(text, own)) {
                    Some(true) => match self.add(tid) {
                        Ok(()) => gathered.moved += 1,
                        // It has exited.
                        Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => {}
                        Err(error) => gathered.failed = Some(error),
                    },
                    Some(false) => gathered.left_alone += 1,
                    None => {}
                }
            }
        }
        gathered
    }

    /// Writes one thread, as the file takes only one at a time on older kernels.
    fn add(&self, tid: i32) -> io::Result<()> {
        let mut tasks = OpenOptions::new()
            .write(true)
            .open(self.path.join("tasks"))?;
        tasks.write_all(tid.to_string().as_bytes())
    }

    /// Bytes of the cache that are occupied now; `None` if the hardware does not tell at the moment.
    pub(super) fn occupancy(&self) -> Option<u64> {
        sum(&self.path.join("mon_data"), "llc_occupancy")
    }

    /// How many bytes a counter has counted since the last call; `None` at first, and if the hardware does not tell.
    pub(super) fn counted(&mut self, file: &str) -> Option<u64> {
        let now = sum(&self.path.join("mon_data"), file);
        match now {
            Some(now) => {
                let before = self.last.insert(file.to_owned(), now)?;
                now.checked_sub(before)
            }
            None => {
                self.last.remove(file);
                None
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It is this perch's own group. A process that holds the lock of the tree removes only those of dead perches.
        let _ = fs::remove_dir(&self.path);
    }
}

/// What became of the threads of a process.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Threads that are in the group now.
    pub moved: usize,
    /// Threads that are in another program's group.
    pub left_alone: usize,
    /// Why some are not in the group.
    pub failed: Option<io::Error>,
}

/// Whether a thread is in the root group, or in one of perch's own, by its `cpu_resctrl_groups`.
fn may_move(text: &str, own: &BTreeSet<String>) -> bool {
    let group = |key: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(key)).map(str::trim)
    };
    let (Some(control), Some(monitored)) = (group("res:"), group("mon:")) else {
        return false;
    };
    let monitored = monitored.trim_matches('/');
    control == "/" && (monitored.is_empty() || own.contains(monitored))
}

/// A counter over all caches of the machine; `None` if one of them does not tell: `Unavailable`, `Error`, `Unassigned`.
fn sum(mon_data: &Path, file: &str) -> Option<u64> {
    let mut found = None;
    for domain in fs::read_dir(mon_data).ok()?.flatten() {
        if !domain.file_name().to_string_lossy().starts_with("mon_L3_") {
            continue;
        }
        let text = fs::read_to_string(domain.path().join(file)).ok()?;
        let value: u64 = text.trim().parse().ok()?;
        found = Some(found.unwrap_or(0) + value);
    }
    found
}

/// What became of the groups that killed perches have left behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Groups that were removed.
    pub removed: usize,
    /// Why others could not be.
    pub failed: Vec<String>,
}

/// Removes the monitoring groups of perches that do not live any more; their threads go back to the root group. Nothing
/// if resctrl is not mounted, or for users who may not.
pub fn remove_leftovers() -> Leftovers {
    match Tree::mounted() {
        Ok(tree) if tree.check_writable().is_ok() => remove_leftovers_of(&tree),
        Ok(_) | Err(_) => Leftovers::default(),
    }
}

pub(super) fn remove_leftovers_of(tree: &Tree) -> Leftovers {
    let mut leftovers = Leftovers::default();
    let entries = fs::read_dir(tree.groups()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let ours: Vec<String> = names.filter(|name| is_perchs(name)).collect();
    if ours.is_empty() {
        return leftovers;
    }
    // Without it, a group that is being made would look like one whose perch is dead.
    let Ok(_lock) = tree.lock() else {
        let text = "another program holds the lock of resctrl; try again".to_owned();
        leftovers.failed.push(text);
        return leftovers;
    };
    for name in ours {
        let path = tree.groups().join(&name);
        let Ok(folder) = open_folder(&path) else {
            continue;
        };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_err() {
            // Its perch lives.
            continue;
        }
        match fs::remove_dir(&path) {
            Ok(()) => leftovers.removed += 1,
            Err(error) => {
                leftovers
                    .failed
                    .push(format!("{}: {error}", path.display()));
            }
        }
    }
    leftovers
}

/// Whether perch makes groups of such a name.
fn is_perchs(name: &str) -> bool {
    let parts = name.strip_prefix(PREFIX).map(|rest| rest.split('-'));
    let numbers = parts.map(|parts| parts.map(str::parse::<u32>).collect::<Result<Vec<_>, _>>());
    matches!(numbers, Some(Ok(numbers)) if numbers.len() == 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tree(root: &Path) -> Tree {
        fs::create_dir_all(root.join("mon_groups")).unwrap();
        fs::create_dir_all(root.join("info/L3_MON")).unwrap();
        fs::write(root.join("info/L3_MON/mon_features"), "llc_occupancy\n").unwrap();
        fs::write(root.join("info/L3_MON/num_rmids"), "8\n").unwrap();
        Tree::open(root.to_owned()).unwrap()
    }

    #[test]
    fn only_groups_of_dead_perches_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let tree = tree(folder.path());
        let alive = Group::create(&tree, 42).unwrap();
        let groups = folder.path().join("mon_groups");
        for name in ["perch-1-2-3", "perch-1-2", "perch-1-2-x", "mine", "perch-"] {
            fs::create_dir(groups.join(name)).unwrap();
        }
        let expected = Leftovers {
            removed: 1,
            failed: Vec::new(),
        };
        assert_eq!(remove_leftovers_of(&tree), expected);
        assert!(groups.join(&alive.name).exists());
        for name in ["perch-1-2", "perch-1-2-x", "mine", "perch-"] {
            assert!(groups.join(name).exists(), "{name}");
        }
        let path = groups.join(&alive.name);
        drop(alive);
        assert!(!path.exists());
    }

    #[test]
    fn a_name_that_is_taken_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let tree = tree(folder.path());
        let first = Group::create(&tree, 42).unwrap();
        let second = Group::create(&tree, 42).unwrap();
        assert_ne!(first.name, second.name);
        assert!(is_perchs(&first.name) && is_perchs(&second.name));
    }

    #[test]
    fn threads_of_others_stay_where_they_are() {
        let own = BTreeSet::from(["perch-1-2-0".to_owned()]);
        for (text, may) in [
            ("res:/\nmon:\n", true),
            ("res:/\nmon:perch-1-2-0\n", true),
            ("res:/\nmon:perch-9-2-0\n", false),
            ("res:/\nmon:theirs\n", false),
            ("res:/p0\nmon:\n", false),
            ("res:p0\nmon:m1\n", false),
            ("res:\nmon:\n", false),
            ("", false),
        ] {
            assert_eq!(may_move(text, &own), may, "{text}");
        }
    }

    #[test]
    fn counters_are_summed_over_caches_or_not_known() {
        let folder = tempfile::tempdir().unwrap();
        let tree = tree(folder.path());
        let mut group = Group::create(&tree, 1).unwrap();
        let mon_data = group.path.join("mon_data");
        let write = |cache: &str, value: &str| {
            let folder = mon_data.join(cache);
            fs::create_dir_all(&folder).unwrap();
            for file in ["llc_occupancy", "mbm_total_bytes"] {
                fs::write(folder.join(file), format!("{value}\n")).unwrap();
            }
        };
        assert_eq!(group.occupancy(), None);
        write("mon_L3_00", "100");
        write("mon_L3_01", "20");
        fs::create_dir(mon_data.join("mon_PERF_PKG_00")).unwrap();
        assert_eq!(group.occupancy(), Some(120));
        assert_eq!(group.counted("mbm_total_bytes"), None);
        write("mon_L3_01", "50");
        assert_eq!(group.counted("mbm_total_bytes"), Some(30));
        for word in ["Unavailable", "Error", "Unassigned"] {
            write("mon_L3_01", word);
            assert_eq!(group.occupancy(), None);
            assert_eq!(group.counted("mbm_total_bytes"), None);
        }
        // Nobody knows what was counted meanwhile.
        write("mon_L3_01", "90");
        assert_eq!(group.counted("mbm_total_bytes"), None);
        write("mon_L3_01", "91");
        assert_eq!(group.counted("mbm_total_bytes"), Some(1));
        fs::remove_dir_all(mon_data).unwrap();
    }

    proptest! {
        #[test]
        fn any_name_is_survived(name in "\\PC{0,30}") {
            prop_assert!(!is_perchs(&name) || name.starts_with(PREFIX));
        }
    }
}
