//! A CPU set that shrinks and grows under perch. Needs permission to make control groups.

use perch_core::{Machine, PuSet, topology::PuState};
use perch_linux::LinuxMachine;
use perch_skip::skip;
use std::{fs, path::PathBuf, process::id};

/// A control group of its own, removed in the end.
struct Group {
    home: PathBuf,
    path: PathBuf,
}

impl Group {
    fn new() -> Option<Self> {
        let candidates = [(1, "/sys/fs/cgroup/cpuset"), (2, "/sys/fs/cgroup")];
        candidates.into_iter().find_map(|(version, home)| {
            let home = PathBuf::from(home);
            let path = home.join(format!("perch-test-{}", id()));
            // Whether groups below the root may have CPU sets is not ours to change.
            let controlled = match version {
                1 => home.join("cpuset.mems").exists(),
                _ => fs::read_to_string(home.join("cgroup.subtree_control"))
                    .is_ok_and(|on| on.split_whitespace().any(|name| name == "cpuset")),
            };
            if !controlled {
                return None;
            }
            fs::create_dir(&path).ok()?;
            let group = Self { home, path };
            if version == 1 {
                fs::write(group.path.join("cpuset.mems"), "0").ok()?;
            }
            Some(group)
        })
    }

    fn allow(&self, pus: &PuSet) {
        fs::write(self.path.join("cpuset.cpus"), pus.to_string()).unwrap();
    }

    fn enter(&self) {
        fs::write(self.path.join("cgroup.procs"), id().to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.home.join("cgroup.procs"), id().to_string());
        let _ = fs::remove_dir(&self.path);
    }
}

#[test]
fn a_cpu_set_that_shrinks_is_noticed_and_told() {
    let mut machine = LinuxMachine::builder().build().unwrap();
    let all = machine.topology().usable();
    let (Some(first), Some(last)) = (all.first(), all.last()) else {
        panic!("no usable PU");
    };
    if first == last {
        return skip!(Pus, "a cpuset of one PU cannot shrink");
    }
    let Some(group) = Group::new() else {
        return skip!(Cgroup, "no cpuset group can be made below this one");
    };
    assert!(machine.observe().unwrap().topology.is_none());
    group.allow(&all);
    group.enter();
    // Another group, the same PUs: nothing changed.
    assert!(machine.observe().unwrap().topology.is_none());
    group.allow(&PuSet::single(first));
    let shrunk = machine.observe().unwrap();
    assert!(shrunk.topology.is_some());
    assert!(
        shrunk
            .remarks
            .iter()
            .any(|r| r.contains("left the CPU set")),
        "{:?}",
        shrunk.remarks
    );
    let topology = machine.topology();
    assert_eq!(topology.usable(), PuSet::single(first));
    assert_eq!(topology.online(), all);
    assert_eq!(topology.pu(last).unwrap().state, PuState::Disallowed);
    assert!(machine.observe().unwrap().topology.is_none());
    drop(group);
    let grown = machine.observe().unwrap();
    assert!(
        grown.topology.is_some()
            && grown
                .remarks
                .iter()
                .any(|r| r.contains("joined the CPU set"))
    );
    assert_eq!(machine.topology().usable(), all);
}
