//! PUs that come and go while perch runs: on- and offline, into and out of its CPU set.

use super::LiveMachine;
use crate::{
    affinity::cpuset::CpusetFile,
    perf::task_events::monotonic,
    topology::{self, OnlineWatch, Source},
};
use perch_core::{PuSet, Remark, Topology};
use std::sync::Arc;

/// Notices changes by three small reads a period.
#[derive(Debug)]
pub(super) struct Changes {
    online: OnlineWatch,
    /// The groups that perch is in, as `/proc/self/cgroup` lists them.
    groups: Vec<u8>,
    cpuset: Option<CpusetFile>,
    allowed: Option<PuSet>,
    restrict: Option<PuSet>,
    /// The topology has changed, and could not be read.
    unread: bool,
}

impl Changes {
    pub(super) fn new(restrict: Option<PuSet>) -> Self {
        let mut changes = Self {
            online: OnlineWatch::new(),
            groups: Vec::new(),
            cpuset: None,
            allowed: None,
            restrict,
            unread: false,
        };
        changes.noticed();
        changes
    }

    fn noticed(&mut self) -> bool {
        // perch may be moved into another group.
        let groups = std::fs::read("/proc/self/cgroup").unwrap_or_default();
        if groups != self.groups {
            self.groups = groups;
            self.cpuset = CpusetFile::of(std::process::id() as i32);
        }
        let allowed = self.cpuset.as_ref().and_then(CpusetFile::effective);
        let online = self.online.changed();
        let changed = allowed != self.allowed;
        self.allowed = allowed;
        online || changed
    }

    /// The new topology, if it differs; else what went wrong or nothing.
    fn look(&mut self, before: &Topology) -> Result<Option<Topology>, String> {
        if !self.noticed() && !self.unread {
            return Ok(None);
        }
        self.unread = true;
        let mut now = topology::load(&Source::Native)
            .map_err(|error| {
                format!("the topology changed but cannot be read: perch tries again in each period ({error})")
            })?
            .topology;
        self.unread = false;
        topology::keep_offline(&mut now, before);
        if let Some(pus) = &self.restrict
            && topology::restrict(&mut now, pus).is_err()
        {
            // None of the user's PUs is left: then nothing is usable, rather than what was excluded.
            topology::disallow_all(&mut now);
        }
        Ok((now != *before).then_some(now))
    }
}

/// What changed, in words.
fn describe(before: &Topology, now: &Topology, at: u64) -> Vec<Remark> {
    let mut words = Vec::new();
    let mut say = |pus: PuSet, what: &str| {
        if !pus.is_empty() {
            // The same PU may go twice: that is news each time.
            let key = format!("{pus} {what} {at}");
            words.push(Remark::note("pus-changed", format!("PU {pus} {what}")).keyed(key));
        }
    };
    let (online, was_online) = (now.online(), before.online());
    say(was_online.minus(&online), "went offline");
    say(online.minus(&was_online), "came online");
    let (usable, was_usable) = (now.usable(), before.usable());
    let both = online.and(&was_online);
    say(
        was_usable.minus(&usable).and(&both),
        "left the CPU set of perch",
    );
    say(
        usable.minus(&was_usable).and(&both),
        "joined the CPU set of perch",
    );
    words
}

impl LiveMachine {
    /// Reads the topology again if it changed; true if it did.
    pub(super) fn follow_topology(&mut self) -> bool {
        let Some(changes) = &mut self.changes else {
            return false;
        };
        let now = match changes.look(&self.topology) {
            Ok(Some(now)) => now,
            Ok(None) => return false,
            Err(text) => {
                self.remarks
                    .push(Remark::warning("topology-unreadable", text));
                return false;
            }
        };
        self.remarks
            .extend(describe(&self.topology, &now, monotonic() - self.opened));
        if now.usable().is_empty() {
            let text =
                "no PU is left on which perch may put threads: nothing is bound until one is back";
            self.remarks.push(Remark::warning("no-pus", text));
        }
        self.topology = Arc::new(now);
        self.tracker.read_masks_again();
        if let Some(events) = &mut self.task_events
            && let Err(error) = events.follow_cpus()
        {
            let text = format!(
                "threads that start on a PU that has come online are found by looking into /proc alone: {error}"
            );
            self.remarks.push(Remark::warning("task-records", text));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_put_into_words() {
        let load = || {
            topology::load(&Source::Synthetic("package:1 core:2 pu:2".into()))
                .unwrap()
                .topology
        };
        let (before, mut now) = (load(), load());
        let describe = |before: &Topology, now: &Topology| -> Vec<String> {
            let remarks = describe(before, now, 0).into_iter();
            remarks.map(|remark| remark.text).collect()
        };
        assert!(describe(&before, &now).is_empty());
        now.pus[1].state = perch_core::topology::PuState::Offline;
        now.pus[3].state = perch_core::topology::PuState::Disallowed;
        assert_eq!(
            describe(&before, &now),
            ["PU 1 went offline", "PU 3 left the CPU set of perch"]
        );
        assert_eq!(
            describe(&now, &before),
            ["PU 1 came online", "PU 3 joined the CPU set of perch"]
        );
    }
}
