//! The processes of a control group and of all groups below it (cgroups(7), cgroup v1 and v2).

use rustix::io::Errno;
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

/// Where groups lie, in the order in which a relative name is looked for: v2, its place beside v1, and v1's hierarchies.
const MOUNT: &str = "/sys/fs/cgroup";

/// The types of their file systems, v1 and v2 (statfs(2)).
const FILE_SYSTEMS: [u32; 2] = [0x0027_e0eb, 0x6367_7270];

/// A control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    directory: PathBuf,
}

/// A text that names no control group.
#[derive(Debug, thiserror::Error)]
#[error(
    "no control group `{0}`: give its path below /sys/fs/cgroup, as in `cat /proc/PID/cgroup`, or its directory"
)]
pub struct NoCgroup(String);

impl Cgroup {
    /// The group of that name: a directory, or a path below a hierarchy, such as `system.slice/nginx.service`.
    ///
    /// # Errors
    /// There is none.
    pub fn open(name: &str) -> Result<Self, NoCgroup> {
        Self::open_below(name, Path::new(MOUNT), is_of_cgroups)
    }

    /// The same, with groups below `mount`, in file systems that `is_of_cgroups` knows.
    fn open_below(
        name: &str,
        mount: &Path,
        is_of_cgroups: fn(&Path) -> bool,
    ) -> Result<Self, NoCgroup> {
        let relative = name.trim_start_matches('/');
        let mut hierarchies: Vec<PathBuf> = vec![mount.to_owned(), mount.join("unified")];
        hierarchies.extend(folders(mount));
        let as_given = Path::new(name).is_absolute().then(|| PathBuf::from(name));
        let below = hierarchies.iter().map(|mount| mount.join(relative));
        let is_group = |path: &PathBuf| path.join("cgroup.procs").is_file() && is_of_cgroups(path);
        match as_given.into_iter().chain(below).find(is_group) {
            Some(directory) if !name.is_empty() => Ok(Self { directory }),
            _ => Err(NoCgroup(name.to_owned())),
        }
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The processes in it and in the groups below it, without this one, by rising PID. A group that is removed
    /// meanwhile has none.
    ///
    /// # Errors
    /// The group cannot be read.
    pub fn processes(&self) -> io::Result<Vec<i32>> {
        let mut pids = BTreeSet::new();
        let mut groups = vec![self.directory.clone()];
        while let Some(group) = groups.pop() {
            match of_group(&group) {
                Ok(found) => pids.extend(found),
                Err(error) if group == self.directory => return Err(error),
                Err(_) => {}
            }
            groups.extend(folders(&group));
        }
        pids.remove(&(std::process::id() as i32));
        // Those of another PID namespace are shown as 0.
        pids.remove(&0);
        Ok(pids.into_iter().collect())
    }
}

/// Whether a file is in a file system of control groups: any other folder may have a file of that name.
fn is_of_cgroups(path: &Path) -> bool {
    let found = rustix::fs::statfs(path);
    found.is_ok_and(|found| {
        FILE_SYSTEMS
            .iter()
            .any(|kind| found.f_type as u64 == u64::from(*kind))
    })
}

/// The processes of one group. In a threaded group (v2) the kernel lists threads only.
fn of_group(group: &Path) -> io::Result<Vec<i32>> {
    let numbers = |text: String| {
        text.lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect()
    };
    match fs::read_to_string(group.join("cgroup.procs")) {
        Ok(text) => Ok(numbers(text)),
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
            let threads: Vec<i32> = numbers(fs::read_to_string(group.join("cgroup.threads"))?);
            Ok(threads.into_iter().filter_map(process_of).collect())
        }
        Err(error) => Err(error),
    }
}

/// The process of a thread.
fn process_of(tid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(mount: &Path, name: &str, pids: &str) {
        let folder = mount.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("cgroup.procs"), pids).unwrap();
    }

    #[test]
    fn groups_are_found_in_any_hierarchy_with_all_below() {
        let mount = tempfile::tempdir().unwrap();
        let own = std::process::id();
        group(mount.path(), "unified/a.slice", "3\n0\n");
        group(
            mount.path(),
            "unified/a.slice/b.service",
            &format!("2\n{own}\n"),
        );
        group(mount.path(), "cpuset/job", "7\n");
        let open = |name: &str| Cgroup::open_below(name, mount.path(), |_| true);
        assert_eq!(open("a.slice").unwrap().processes().unwrap(), [2, 3]);
        assert_eq!(
            open("/a.slice/b.service").unwrap().processes().unwrap(),
            [2]
        );
        assert_eq!(open("job").unwrap().processes().unwrap(), [7]);
        let whole = mount.path().join("unified/a.slice");
        assert_eq!(open(whole.to_str().unwrap()).unwrap().directory(), whole);
        for wrong in ["", "/", "gone", "unified"] {
            assert!(open(wrong).is_err(), "{wrong}");
        }
        // The root of a hierarchy is a group too.
        group(mount.path(), "unified", "1\n");
        let root = open("/").unwrap();
        assert_eq!(root.directory(), mount.path().join("unified/"));
        assert_eq!(root.processes().unwrap(), [1, 2, 3]);
    }

    #[test]
    fn a_folder_elsewhere_is_no_group() {
        let folder = tempfile::tempdir().unwrap();
        group(folder.path(), "fake", "1\n");
        let fake = folder.path().join("fake");
        assert!(Cgroup::open(fake.to_str().unwrap()).is_err());
        for (place, is_one) in [("/sys/fs/cgroup", true), ("/tmp", false), ("/gone", false)] {
            let place = Path::new(place);
            if place.join("cgroup.procs").exists() || !is_one {
                assert_eq!(is_of_cgroups(place), is_one, "{}", place.display());
            }
        }
    }

    #[test]
    fn the_process_of_a_thread_is_found() {
        let own = std::process::id() as i32;
        let tid = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get());
        assert_eq!(process_of(own), Some(own));
        // A thread that has ended.
        assert_eq!(process_of(tid.join().unwrap()), None);
    }
}
