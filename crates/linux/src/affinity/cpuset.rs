//! The CPU sets of control groups, version 1 and 2 (`Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/cpusets.rst`
//! of the kernel).

use crate::proc::{Reader, task_numbers};
use perch_core::PuSet;
use procfs::{FromRead, ProcessCGroup, ProcessCGroups, process::MountInfo};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A mounted hierarchy that controls CPU sets.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    mount: PathBuf,
    /// The group that is mounted there, `/` for the root as far as this namespace shows it.
    top: PathBuf,
    version: u8,
}

/// Finds the hierarchy in `/proc/self/mountinfo` (proc(5)): version 1's cpuset controller if it is mounted, else
/// version 2.
fn hierarchy(mountinfo: &str) -> Option<Hierarchy> {
    let mut unified = None;
    // Line by line: one that cannot be read must not hide the others.
    let mounts = mountinfo.lines().map(MountInfo::from_line);
    for mount in mounts.flatten() {
        let version = match &*mount.fs_type {
            "cgroup" if mount.super_options.contains_key("cpuset") => 1,
            "cgroup2" => 2,
            _ => continue,
        };
        let found = Hierarchy {
            mount: PathBuf::from(unescape(&mount.mount_point.to_string_lossy())),
            top: PathBuf::from(unescape(&mount.root)),
            version,
        };
        if version == 1 {
            return Some(found);
        }
        unified = unified.or(Some(found));
    }
    unified
}

/// Where cgroup v2 is mounted, with the group that is mounted there.
pub(super) fn unified(mountinfo: &str) -> Option<(PathBuf, PathBuf)> {
    let mounts = mountinfo.lines().map(MountInfo::from_line);
    let mount = mounts
        .flatten()
        .find(|mount| &*mount.fs_type == "cgroup2")?;
    let point = unescape(&mount.mount_point.to_string_lossy());
    Some((point.into(), unescape(&mount.root).into()))
}

/// mountinfo writes blanks in names in octal, and procfs leaves them as they are there.
fn unescape(name: &str) -> String {
    name.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

/// The group of a process in that hierarchy, from its `/proc/PID/cgroup` (cgroups(7)).
pub(super) fn group_in(cgroup: &str, version: u8) -> Option<String> {
    let groups = ProcessCGroups::from_read(cgroup.as_bytes()).ok()?;
    let wanted = |group: &ProcessCGroup| match version {
        1 => group.controllers.iter().any(|name| name == "cpuset"),
        _ => group.hierarchy == 0 && group.controllers.is_empty(),
    };
    groups.into_iter().find(wanted).map(|group| group.pathname)
}

/// Where a process' CPU set can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpusetFile {
    path: PathBuf,
    /// Whether it belongs to the root group, whose threads may use all PUs, also those that come online later.
    is_root: bool,
}

impl CpusetFile {
    /// The file for a process, if CPU sets are controlled at all.
    pub fn of(pid: i32) -> Option<Self> {
        Cpusets::new().file(&group_text(pid, pid)?)
    }

    /// The nearest group upwards that has the controller.
    fn find(hierarchy: &Hierarchy, group: &Path) -> Option<Self> {
        let below = group.strip_prefix(&hierarchy.top).unwrap_or(group);
        let below = below.strip_prefix("/").unwrap_or(below);
        let mut directory = hierarchy.mount.join(below);
        let names: &[&str] = match hierarchy.version {
            1 => &[
                "cpuset.effective_cpus",
                "effective_cpus",
                "cpuset.cpus",
                "cpus",
            ],
            _ => &["cpuset.cpus.effective"],
        };
        loop {
            for name in names {
                let path = directory.join(name);
                if path.is_file() {
                    return Some(Self {
                        path,
                        is_root: directory == hierarchy.mount && hierarchy.top == Path::new("/"),
                    });
                }
            }
            if directory == hierarchy.mount || !directory.pop() {
                return None;
            }
        }
    }

    /// The PUs that the set allows and that are online.
    pub fn effective(&self) -> Option<PuSet> {
        fs::read_to_string(&self.path).ok()?.parse().ok()
    }
}

/// `/proc/PID/task/TID/cgroup`: in which groups a thread is.
pub fn group_text(pid: i32, tid: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/task/{tid}/cgroup")).ok()
}

/// The groups of a process that lives: those of its first thread, or of another one if that has exited, since of such a
/// thread cgroup v1 shows the root.
pub fn process_group_text(pid: i32) -> Option<String> {
    let mut reader = Reader::new();
    let mut lives = |tid: i32| {
        let stat = reader.stat(pid, tid);
        stat.is_ok_and(|stat| !stat.is_exiting() && !stat.is_dead())
    };
    let tid = match lives(pid) {
        true => pid,
        false => task_numbers(pid).into_iter().find(|tid| lives(*tid))?,
    };
    group_text(pid, tid)
}

/// What a CPU set allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// The mask of threads that have not been placed: all PUs that could ever be there, or those of the CPU set where
    /// that is narrower.
    pub unplaced: PuSet,
    /// The PUs that are online and in the CPU set.
    pub online: PuSet,
}

/// The CPU sets of the machine.
#[derive(Debug)]
pub struct Cpusets {
    hierarchy: Option<Hierarchy>,
}

impl Cpusets {
    /// Looks which hierarchy controls CPU sets here.
    pub fn new() -> Self {
        let mountinfo = fs::read("/proc/self/mountinfo").unwrap_or_default();
        Self {
            hierarchy: hierarchy(&String::from_utf8_lossy(&mountinfo)),
        }
    }

    fn file(&self, groups: &str) -> Option<CpusetFile> {
        let hierarchy = self.hierarchy.as_ref()?;
        let group = group_in(groups, hierarchy.version)?;
        CpusetFile::find(hierarchy, Path::new(&group))
    }

    /// What a thread may use that is in these groups (see [`group_text`]); `possible` and `online` are the machine's PUs.
    pub fn allowed(&self, groups: &str, possible: &PuSet, online: &PuSet) -> Allowed {
        let everything = || Allowed {
            unplaced: possible.clone(),
            online: online.clone(),
        };
        let Some(file) = self.file(groups) else {
            return everything();
        };
        // A container may show its own group as the root; then only the set itself tells.
        let unlimited = |set: &PuSet| set.is_empty() || file.is_root && online.is_subset(set);
        match file.effective() {
            Some(set) if !unlimited(&set) => Allowed {
                online: set.and(online),
                unplaced: set,
            },
            _ => everything(),
        }
    }
}

impl Default for Cpusets {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "31 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
        33 31 0:28 /docker/12 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
        34 31 0:29 /docker/12 /sys/fs/cgroup/my\\040set rw - cgroup cgroup rw,cpuset\n\
        35 31 0:30 / /sys/fs/cgroup/unified rw shared:3 - cgroup2 cgroup2 rw\n";

    #[test]
    fn version_1_goes_before_version_2() {
        let found = hierarchy(V1).unwrap();
        assert_eq!(
            (found.version, found.mount.to_str()),
            (1, Some("/sys/fs/cgroup/my set"))
        );
        assert_eq!(found.top.to_str(), Some("/docker/12"));
        let only_2 = V1.lines().last().unwrap();
        assert_eq!(hierarchy(only_2).unwrap().version, 2);
        assert_eq!(hierarchy("1 2 0:3 / / rw - ext4 /dev/vda rw"), None);
        // A line that cannot be read hides no other.
        let damaged = format!("33 31\n{V1}");
        assert_eq!(hierarchy(&damaged).unwrap().version, 1);
    }

    #[test]
    fn groups_of_a_process() {
        let text = "4:memory:/a\n3:cpuset,cpu:/b/c\n0::/d:e\n";
        assert_eq!(group_in(text, 1).as_deref(), Some("/b/c"));
        assert_eq!(group_in(text, 2).as_deref(), Some("/d:e"));
        assert_eq!(group_in("", 2), None);
    }

    #[test]
    fn the_nearest_group_with_the_controller_counts() {
        let root = tempfile::tempdir().unwrap();
        let leaf = root.path().join("user/app");
        fs::create_dir_all(&leaf).unwrap();
        fs::write(root.path().join("cpuset.cpus.effective"), "0-7\n").unwrap();
        let hierarchy = Hierarchy {
            mount: root.path().to_owned(),
            top: "/".into(),
            version: 2,
        };
        let file = CpusetFile::find(&hierarchy, Path::new("/user/app")).unwrap();
        assert!(file.is_root);
        fs::write(root.path().join("user/cpuset.cpus.effective"), "2-3\n").unwrap();
        let file = CpusetFile::find(&hierarchy, Path::new("/user/app")).unwrap();
        assert!(!file.is_root);
        assert_eq!(file.effective().unwrap().to_string(), "2-3");
    }

    #[test]
    fn a_cpuset_limits_its_members_and_the_root_group_no_process() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("job")).unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        write("cpuset.cpus.effective", "0-2\n");
        write("job/cpuset.cpus.effective", "1-2\n");
        let mut cpusets = Cpusets {
            hierarchy: Some(Hierarchy {
                mount: root.path().to_owned(),
                top: "/".into(),
                version: 2,
            }),
        };
        let (possible, online) = ("0-3".parse().unwrap(), "0-2".parse().unwrap());
        let told = |cpusets: &Cpusets, groups: &str| {
            let allowed = cpusets.allowed(groups, &possible, &online);
            (allowed.unplaced.to_string(), allowed.online.to_string())
        };
        let both = |unplaced: &str, online: &str| (unplaced.to_owned(), online.to_owned());
        // PU 3 is offline: threads that have not been placed may use it when it is back.
        assert_eq!(told(&cpusets, "0::/\n"), both("0-3", "0-2"));
        assert_eq!(told(&cpusets, "0::/job\n"), both("1-2", "1-2"));
        // A set that is empty, or that cannot be read, says nothing.
        write("job/cpuset.cpus.effective", "\n");
        assert_eq!(told(&cpusets, "0::/job\n"), both("0-3", "0-2"));
        cpusets.hierarchy = None;
        assert_eq!(told(&cpusets, "0::/job\n"), both("0-3", "0-2"));
    }
}
