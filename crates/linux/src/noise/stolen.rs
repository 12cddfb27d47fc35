//! Time that a virtual machine's PUs or a control group did not get: what no tracepoint shows.

use super::tracefs::read;
use std::{collections::BTreeMap, path::Path};

/// What was withheld so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Stolen {
    /// Steal time of each PU in nanoseconds, as the hypervisor tells it in clock ticks of 10 ms (`/proc/stat`).
    steal: BTreeMap<u32, u64>,
    /// Time for which threads of perch's own control group were stopped by its limit, in nanoseconds.
    throttled: u64,
}

impl Stolen {
    /// As it is now; what cannot be read is 0.
    pub fn now() -> Self {
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let stat = read(Path::new("/proc/stat")).unwrap_or_default();
        let steal = steal_ticks(&stat)
            .map(|(pu, steal)| (pu, steal.saturating_mul(1_000_000_000 / ticks)))
            .collect();
        Self {
            steal,
            throttled: throttled(Path::new("/"), &own_groups()).unwrap_or(0),
        }
    }

    /// What a PU's steal time has grown by.
    pub fn steal_since(&self, before: &Self, pu: u32) -> u64 {
        let of = |stolen: &Self| stolen.steal.get(&pu).copied().unwrap_or(0);
        of(self).saturating_sub(of(before))
    }

    /// For how long the control group was stopped meanwhile.
    pub fn throttled_since(&self, before: &Self) -> u64 {
        self.throttled.saturating_sub(before.throttled)
    }
}

/// PU and steal time in ticks of each line of `/proc/stat`.
fn steal_ticks(stat: &str) -> impl Iterator<Item = (u32, u64)> + '_ {
    stat.lines().filter_map(|line| {
        let (pu, times) = line.strip_prefix("cpu")?.split_once(' ')?;
        let steal = times.split_ascii_whitespace().nth(7)?.parse().ok()?;
        Some((pu.parse().ok()?, steal))
    })
}

fn own_groups() -> String {
    read(Path::new("/proc/self/cgroup")).unwrap_or_default()
}

/// `throttled_usec` (cgroup v2) or `throttled_time` (v1, nanoseconds) of the groups in `/proc/PID/cgroup` and of those above
/// them.
fn throttled(root: &Path, groups: &str) -> Option<u64> {
    let mounts = root.join("sys/fs/cgroup");
    let value = |path: &Path, key: &str| -> Option<u64> {
        let text = read(&path.join("cpu.stat"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line?.trim().parse().ok()
    };
    // Any of the groups above has a limit too, which counts only what itself has stopped.
    let of_all = |mount: &Path, group: &str, key: &str| {
        let groups = Path::new(group).ancestors();
        let withheld = groups.filter_map(|group| value(&mount.join(group), key));
        withheld.reduce(u64::saturating_add)
    };
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        match controllers {
            "" => of_all(&mounts, group, "throttled_usec ").and_then(|time| time.checked_mul(1000)),
            _ if controllers.split(',').any(|name| name == "cpu") => {
                of_all(&mounts.join(controllers), group, "throttled_time ")
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn steal_is_the_eighth_time() {
        let stat = "cpu  1 2 3 4 5 6 7 80 9 0\ncpu0 1 2 3 4 5 6 7 8 9 0\ncpu3 1 2 3 4\nintr 5\n";
        assert_eq!(steal_ticks(stat).collect::<Vec<_>>(), [(0, 8)]);
        let before = Stolen {
            steal: BTreeMap::from([(0, 100)]),
            throttled: 7,
        };
        let after = Stolen {
            steal: BTreeMap::from([(0, 150), (1, 9)]),
            throttled: 9,
        };
        assert_eq!(after.steal_since(&before, 0), 50);
        assert_eq!(after.steal_since(&before, 2), 0);
        assert_eq!(after.throttled_since(&before), 2);
    }

    #[test]
    fn either_version_of_control_groups_tells_how_long_it_was_throttled() {
        let root = tempfile::tempdir().unwrap();
        let group = |path: &str, text: &str| {
            let path = root.path().join("sys/fs/cgroup").join(path);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cpu.stat"), text).unwrap();
        };
        group("a.slice", "nr_throttled 3\nthrottled_usec 12\n");
        group("cpu,cpuacct/b", "nr_throttled 3\nthrottled_time 77\n");
        assert_eq!(throttled(root.path(), "0::/a.slice\n"), Some(12_000));
        group("a.slice/b.service", "nr_throttled 1\nthrottled_usec 5\n");
        assert_eq!(
            throttled(root.path(), "0::/a.slice/b.service\n"),
            Some(17_000)
        );
        assert_eq!(
            throttled(root.path(), "3:memory:/b\n4:cpu,cpuacct:/b\n"),
            Some(77)
        );
        assert_eq!(throttled(root.path(), "0::/gone\n"), None);
    }
}
