//! Occupancy of the last-level cache and memory traffic of processes, by monitoring groups of resctrl: a module.
//!
//! Each process gets a group with a counter ID (RMID). There are few of these: half of them is left to others, and processes
//! that find none wait in the order in which they came. The kernel hands out the ID that was freed first, and none before
//! hardly any line of its last owner is in the cache (`Documentation/filesystems/resctrl.rst`, `max_threshold_occupancy`):
//! the allocation that PMCTrack found best (section 4.3).

mod group;
mod tree;

pub use group::{Leftovers, remove_leftovers};

use group::{Group, NoGroup, remove_leftovers_of};
use perch_core::{
    MachineError, Metric, MetricInfo, MetricKind, MetricName, MetricScope, MetricSource, Module,
    ModuleContext, ModuleValues, Need, Reading, Remark, Scope, Subject, ThreadEvent, WantedEvents,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tree::Tree;

/// The name of the module.
pub const NAME: &str = "cache";

/// The counters: files of `mon_data`, how they are combined, and what they are.
const COUNTERS: [(&str, MetricKind, &str); 3] = [
    (
        OCCUPANCY,
        MetricKind::Level,
        "bytes of the last-level cache that it occupies",
    ),
    (
        "mbm_total_bytes",
        MetricKind::Amount,
        "bytes between the cache and all memory",
    ),
    (
        "mbm_local_bytes",
        MetricKind::Amount,
        "bytes between the cache and its own node's memory",
    ),
];

const OCCUPANCY: &str = "llc_occupancy";

/// The module.
pub struct ResctrlModule {
    tree: Tree,
    /// How many groups perch makes at most.
    most: usize,
    groups: BTreeMap<i32, Group>,
    /// Processes without a group, those that came first in front.
    waiting: VecDeque<i32>,
    /// Processes that have one, wait for one, or cannot have one.
    known: BTreeSet<i32>,
    begun: bool,
    remarks: Vec<Remark>,
}

impl ResctrlModule {
    /// Finds what the processor can monitor; makes nothing yet.
    ///
    /// # Errors
    /// resctrl is not there or not mounted, or not permitted: with the remedy.
    pub fn open() -> Result<Self, MachineError> {
        let tree = Tree::mounted()?;
        tree.check_writable()?;
        // The root group has one of its own.
        let most = (tree.rmids.saturating_sub(1) / 2).max(1);
        Ok(Self {
            tree,
            most,
            groups: BTreeMap::new(),
            waiting: VecDeque::new(),
            known: BTreeSet::new(),
            begun: false,
            remarks: Vec::new(),
        })
    }

    fn counters(&self) -> impl Iterator<Item = (&'static str, MetricKind, &'static str)> {
        let has = |(file, ..): &(&str, _, _)| self.tree.features.contains(*file);
        COUNTERS.into_iter().filter(has)
    }

    /// Makes groups for the processes that wait, as far as there are IDs.
    fn admit(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.begun, true) {
            let leftovers = remove_leftovers_of(&self.tree);
            if leftovers.removed > 0 {
                let text = format!(
                    "a killed perch has left monitoring groups; removed: {}",
                    leftovers.removed
                );
                self.remarks.push(Remark::note("recovered", text));
            }
        }
        while let Some(pid) = self.waiting.front().copied() {
            if self.groups.len() >= self.most {
                return self.say_full("perch leaves the other half to others");
            }
            match Group::create(&self.tree, pid) {
                Ok(group) => {
                    self.waiting.pop_front();
                    self.fill(pid, group);
                }
                Err(NoGroup::NoId) => return self.say_full("all are in use, or were just freed"),
                Err(NoGroup::Failed(error)) => {
                    let status = self.tree.last_status();
                    let text = format!(
                        "no monitoring group can be made in {}: {error} ({status})",
                        self.tree.groups().display()
                    );
                    let remark = Remark::warning("resctrl-refused", text);
                    self.remarks.push(remark.once());
                    return;
                }
            }
        }
    }

    fn say_full(&mut self, why: &str) {
        let text = format!(
            "of {} processes the cache is not monitored for want of counter IDs ({} in use of {}): {why}",
            self.waiting.len(),
            self.groups.len(),
            self.tree.rmids.saturating_sub(1),
        );
        let remark = Remark::warning("resctrl-ids", text);
        self.remarks.push(remark.once());
    }

    /// Moves a process into its group.
    fn fill(&mut self, pid: i32, mut group: Group) {
        let names = self.groups.values().map(|group| group.name.clone());
        let mut own: BTreeSet<String> = names.collect();
        own.insert(group.name.clone());
        let gathered = group.gather(pid, &own);
        if gathered.left_alone > 0 {
            let text = format!(
                "{} threads of process {pid} are in another program's resctrl group and stay there; they are not \
                 monitored",
                gathered.left_alone
            );
            let remark = Remark::warning("resctrl-others", text);
            self.remarks.push(remark.about(Scope::Process(pid)));
        }
        if let Some(error) = gathered.failed {
            let text = format!(
                "threads of process {pid} cannot be monitored: {error} ({})",
                self.tree.last_status()
            );
            let remark = Remark::warning("resctrl-refused", text);
            self.remarks.push(remark.about(Scope::Process(pid)));
        }
        if gathered.moved == 0 {
            // It has exited, or all its threads are others'.
            return;
        }
        // From here on bytes are counted.
        for (file, kind, _) in self.counters() {
            if kind == MetricKind::Amount {
                group.counted(file);
            }
        }
        self.groups.insert(pid, group);
    }

    fn wait_for_group(&mut self, pid: i32) {
        if self.known.insert(pid) {
            self.waiting.push_back(pid);
        }
    }
}

/// What the module needs.
pub(crate) fn needs() -> Vec<Need> {
    vec![
        Need::File(
            "a mounted resctrl (mount -t resctrl resctrl /sys/fs/resctrl) with info/L3_MON".into(),
        ),
        Need::Permission("to make groups in its mon_groups: root".into()),
    ]
}

/// The metrics of processors that monitor all there is.
pub(crate) fn usual_metrics() -> Vec<MetricInfo> {
    COUNTERS.map(info).into()
}

fn info((name, kind, about): (&'static str, MetricKind, &'static str)) -> MetricInfo {
    MetricInfo::new(name, "B", MetricScope::Process, kind, about)
}

impl Module for ResctrlModule {
    fn name(&self) -> &str {
        NAME
    }

    fn provides(&self) -> Vec<MetricInfo> {
        self.counters().map(info).collect()
    }

    fn needs(&self) -> Vec<Need> {
        needs()
    }

    fn wants(&self) -> WantedEvents {
        WantedEvents {
            starts: true,
            ..WantedEvents::default()
        }
    }

    fn thread_event(&mut self, event: ThreadEvent<'_>) {
        if let ThreadEvent::Started(info) = event {
            self.wait_for_group(info.pid);
            // The program itself is monitored from its first instruction; others come at the period's end.
            if !self.begun {
                self.admit();
            }
        }
    }

    fn period(&mut self, context: &ModuleContext<'_>) -> Result<ModuleValues, MachineError> {
        let counters: Vec<_> = self.counters().collect();
        let mut readings = Vec::new();
        for (pid, group) in &mut self.groups {
            for (file, kind, _) in &counters {
                let value = match kind {
                    MetricKind::Amount => group.counted(file),
                    MetricKind::Level | MetricKind::Ratio => group.occupancy(),
                };
                let reading = value.map(|value| Reading {
                    subject: Subject::Process(*pid),
                    name: MetricName::from(*file),
                    kind: *kind,
                    metric: Metric {
                        value: value as f64,
                        confidence: 1.0,
                        source: MetricSource::Sensor,
                    },
                });
                readings.extend(reading);
            }
        }
        let ended: BTreeSet<_> = context.ended.iter().copied().collect();
        let live = context.threads.iter().map(|thread| &thread.info);
        let live = live.filter(|info| !ended.contains(&info.id));
        let live: BTreeSet<i32> = live.map(|info| info.pid).collect();
        self.groups.retain(|pid, _| live.contains(pid));
        self.known.retain(|pid| live.contains(pid));
        self.waiting.retain(|pid| live.contains(pid));
        for pid in live {
            self.wait_for_group(pid);
        }
        self.admit();
        Ok(ModuleValues {
            threads: Vec::new(),
            readings,
        })
    }

    fn remarks(&mut self) -> Vec<Remark> {
        std::mem::take(&mut self.remarks)
    }

    fn description(&self) -> String {
        let counters: Vec<&str> = self.counters().map(|(file, ..)| file).collect();
        format!(
            "{} by resctrl, of at most {} processes at a time",
            counters.join(", "),
            self.most
        )
    }
}
