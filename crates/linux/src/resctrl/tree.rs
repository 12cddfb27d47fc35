//! The mounted resctrl file system (`Documentation/filesystems/resctrl.rst` of the kernel). perch never mounts it: that
//! changes what processors do, and the user who mounts it chooses the options.

use perch_core::MachineError;
use procfs::process::MountInfo;
use rustix::{
    fs::{Access, FlockOperation, Mode, OFlags, access, flock, open},
    io::Errno,
};
use std::{
    collections::BTreeSet,
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long another program may hold the lock of the tree.
const LOCK_WITHIN: Duration = Duration::from_millis(300);

/// The tree, as far as monitoring goes.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    root: PathBuf,
    /// What each group's counters are, of the files of `mon_data`.
    pub features: BTreeSet<String>,
    /// How many groups there can be, the root one included.
    pub rmids: usize,
}

/// Where resctrl is mounted.
pub(super) fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    let mounts = mountinfo.lines().map(MountInfo::from_line);
    let mount = mounts.flatten().find(|mount| &*mount.fs_type == "resctrl");
    mount.map(|mount| mount.mount_point)
}

impl Tree {
    /// The one that is mounted.
    ///
    /// # Errors
    /// None is, the processor cannot monitor its cache, or the kernel does not tell which group a thread is in.
    pub(super) fn mounted() -> Result<Self, MachineError> {
        let other = |text: &str| Err(MachineError::Other(text.to_owned()));
        let mountinfo = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let Some(root) = mount_point(&String::from_utf8_lossy(&mountinfo)) else {
            let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
            return match known.split_whitespace().any(|word| word == "resctrl") {
                true => other(
                    "resctrl is not mounted, and perch does not mount it: `sudo mount -t resctrl resctrl \
                     /sys/fs/resctrl`",
                ),
                false => other(
                    "this kernel or processor has no resctrl (Intel RDT, AMD QoS, Arm MPAM; CONFIG_X86_CPU_RESCTRL; \
                     virtual machines hide it)",
                ),
            };
        };
        if !Path::new("/proc/self/cpu_resctrl_groups").exists() {
            return other(
                "the kernel does not tell in which group a thread is (/proc/PID/cpu_resctrl_groups, since Linux 5.6), so \
                 that perch could take it out of another program's group",
            );
        }
        Self::open(root)
    }

    /// The tree at this place.
    ///
    /// # Errors
    /// It has no monitoring.
    pub(super) fn open(root: PathBuf) -> Result<Self, MachineError> {
        let info = root.join("info/L3_MON");
        let text = |file: &str| fs::read_to_string(info.join(file)).unwrap_or_default();
        let features: BTreeSet<String> = text("mon_features")
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        if features.is_empty() {
            return Err(MachineError::Other(format!(
                "this processor does not monitor its last-level cache: {} lists nothing",
                info.join("mon_features").display()
            )));
        }
        Ok(Self {
            rmids: text("num_rmids").trim().parse().unwrap_or(0),
            features,
            root,
        })
    }

    /// Whether this user may make groups.
    ///
    /// # Errors
    /// Not permitted: with the remedy.
    pub(super) fn check_writable(&self) -> Result<(), MachineError> {
        let groups = self.groups();
        access(&groups, Access::WRITE_OK).map_err(|_| MachineError::NotPermitted {
            what: format!("making monitoring groups in {}", groups.display()),
            remedy: "run perch as root".to_owned(),
        })
    }

    /// The folder of monitoring groups of the root control group.
    pub(super) fn groups(&self) -> PathBuf {
        self.root.join("mon_groups")
    }

    /// What the kernel says of the last command that failed.
    pub(super) fn last_status(&self) -> String {
        let text = fs::read_to_string(self.root.join("info/last_cmd_status"));
        text.unwrap_or_default().trim().to_owned()
    }

    /// Takes the lock by which programs that change the tree keep apart, as the kernel's page asks for.
    ///
    /// # Errors
    /// Another program holds it.
    pub(super) fn lock(&self) -> io::Result<OwnedFd> {
        let folder = open_folder(&self.root)?;
        let until = Instant::now() + LOCK_WITHIN;
        loop {
            match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(folder),
                Err(Errno::AGAIN | Errno::INTR) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// A descriptor of a folder, to lock it.
pub(super) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_point_is_where_it_is_mounted() {
        let mountinfo = "\
            22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
            nonsense\n\
            40 22 0:36 / /mnt/rdt rw,relatime - resctrl resctrl rw,mba_MBps\n";
        assert_eq!(mount_point(mountinfo), Some("/mnt/rdt".into()));
        assert_eq!(mount_point("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"), None);
    }

    #[test]
    fn a_processor_without_monitoring_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let why = Tree::open(root.clone()).unwrap_err().to_string();
        assert!(why.contains("mon_features"), "{why}");
        fs::create_dir_all(root.join("info/L3_MON")).unwrap();
        fs::write(
            root.join("info/L3_MON/mon_features"),
            "llc_occupancy\nmbm_total_bytes\n",
        )
        .unwrap();
        fs::write(root.join("info/L3_MON/num_rmids"), "224\n").unwrap();
        let tree = Tree::open(root).unwrap();
        assert_eq!((tree.features.len(), tree.rmids), (2, 224));
    }

    #[test]
    fn the_lock_keeps_others_out() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree {
            root: folder.path().to_owned(),
            features: BTreeSet::new(),
            rmids: 0,
        };
        let held = tree.lock().unwrap();
        assert!(tree.lock().is_err());
        drop(held);
        tree.lock().unwrap();
    }
}
