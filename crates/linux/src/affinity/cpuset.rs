//! The CPU sets of control groups, version 1 and 2 (`Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/cpusets.rst`
//! of the kernel).

use perch_core::PuSet;
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
    for line in mountinfo.lines() {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1).unwrap_or(""));
        let version = match kind {
            "cgroup" if options.split(',').any(|option| option == "cpuset") => 1,
            "cgroup2" => 2,
            _ => continue,
        };
        let found = Hierarchy {
            mount: PathBuf::from(unescape(left.get(4)?)),
            top: PathBuf::from(unescape(left.get(3)?)),
            version,
        };
        if version == 1 {
            return Some(found);
        }
        unified = unified.or(Some(found));
    }
    unified
}

/// mountinfo writes blanks in names in octal.
fn unescape(name: &str) -> String {
    name.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

/// The group of a process in that hierarchy, from its `/proc/PID/cgroup` (cgroups(7)).
fn group_in(cgroup: &str, version: u8) -> Option<&str> {
    cgroup.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
        let wanted = match version {
            1 => controllers.split(',').any(|c| c == "cpuset"),
            _ => number == "0" && controllers.is_empty(),
        };
        wanted.then_some(group)
    })
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
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let hierarchy = hierarchy(&mountinfo)?;
        let group = group_in(&cgroup, hierarchy.version)?;
        Self::find(&hierarchy, Path::new(group))
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

/// The mask of a thread of that process which nobody has placed: all PUs that could ever be there, or those of its
/// CPU set where that is narrower.
pub fn unplaced_mask(pid: i32, possible: &PuSet, online: &PuSet) -> PuSet {
    let Some(file) = CpusetFile::of(pid) else {
        return possible.clone();
    };
    // A container may show its own group as the root; then only the set itself tells.
    let unlimited = |set: &PuSet| file.is_root && online.is_subset(set);
    file.effective()
        .filter(|set| !set.is_empty() && !unlimited(set))
        .unwrap_or_else(|| possible.clone())
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
    }

    #[test]
    fn groups_of_a_process() {
        let text = "4:memory:/a\n3:cpuset,cpu:/b/c\n0::/d:e\n";
        assert_eq!(group_in(text, 1), Some("/b/c"));
        assert_eq!(group_in(text, 2), Some("/d:e"));
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
    fn an_unplaced_process_of_the_root_group_may_use_all() {
        let possible: PuSet = "0-3".parse().unwrap();
        let none_online = PuSet::new();
        // Whatever this host's groups are, the answer is never empty.
        let mask = unplaced_mask(std::process::id() as i32, &possible, &none_online);
        assert!(!mask.is_empty());
        assert_eq!(unplaced_mask(0, &possible, &none_online), possible);
    }
}
