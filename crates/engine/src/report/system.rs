//! The operating system's work in a session that places it too: who was moved, who was not, and what those cost.

use super::SystemReport;
use crate::observer::{IrqMove, Period};
use perch_core::{
    Outcome, PuSet, Setting, SettingValue, ThreadId, ThreadSample, ThreadState, Unmanaged, Work,
};
use std::collections::BTreeMap;

/// At most this many threads that were not moved are listed, the busiest.
const LISTED: usize = 20;

/// A thread that was not moved.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LeftThread {
    /// The thread, by TID and start time.
    pub thread: ThreadId,
    /// Its name.
    pub name: String,
    /// Why it was left; `None` if the kernel lets nobody move it.
    pub why: Option<Unmanaged>,
    /// Its CPU time, in nanoseconds.
    pub cpu_time: u64,
}

/// What is known of one thread.
#[derive(Debug, Clone)]
struct Known {
    name: std::sync::Arc<str>,
    fixed: bool,
    unmanaged: Option<Unmanaged>,
    bound: Option<PuSet>,
    cpu_time: u64,
}

/// The operating system's threads and interrupts so far.
#[derive(Debug, Default)]
pub(super) struct System {
    threads: BTreeMap<ThreadId, Known>,
    /// Threads that ended after they were bound, and those that ended otherwise.
    ended: [u64; 2],
    /// CPU time by PU, in nanoseconds.
    by_pu: BTreeMap<u32, u64>,
    irqs: BTreeMap<u32, bool>,
    /// Settings with the values that perch gave them.
    settings: BTreeMap<Setting, SettingValue>,
}

impl System {
    /// One period of a thread.
    pub fn thread(&mut self, sample: &ThreadSample, state: Option<&ThreadState>, ended: bool) {
        if let Some(pu) = sample.last_pu {
            *self.by_pu.entry(pu).or_default() += sample.cpu_time;
        }
        let id = sample.info.id;
        let known = self.threads.entry(id).or_insert_with(|| Known {
            name: sample.info.name.clone(),
            fixed: false,
            unmanaged: None,
            bound: None,
            cpu_time: 0,
        });
        known.cpu_time += sample.cpu_time;
        known.fixed = sample.info.work == Work::SystemFixed;
        if let Some(state) = state.filter(|_| !ended) {
            known.unmanaged = state.unmanaged;
            known.bound.clone_from(&state.bound);
        }
        if ended && let Some(known) = self.threads.remove(&id) {
            self.ended[usize::from(known.bound.is_none())] += 1;
        }
    }

    /// A move of a thread that is the operating system's; false if it is not known.
    pub fn moved(&mut self, thread: ThreadId, to: Option<&PuSet>, outcome: Outcome) -> bool {
        let Some(known) = self.threads.get_mut(&thread) else {
            return false;
        };
        match outcome {
            // In a dry run everything counts.
            Outcome::Applied | Outcome::NotApplied => known.bound = to.cloned(),
            Outcome::NotPermitted => known.unmanaged = Some(Unmanaged::NotPermitted),
            Outcome::ChangedByOthers => known.unmanaged = Some(Unmanaged::ChangedByOthers),
            Outcome::Gone | Outcome::Failed | Outcome::NoUsablePu => {}
        }
        true
    }

    /// What became of interrupts and settings in a period.
    pub fn period(&mut self, period: &Period) {
        for IrqMove {
            irq, to, outcome, ..
        } in &period.irq_moves
        {
            let done = matches!(outcome, Outcome::Applied | Outcome::NotApplied);
            self.irqs.insert(*irq, done && to.is_some());
        }
        let done = |outcome| matches!(outcome, Outcome::Applied | Outcome::NotApplied);
        for made in period
            .setting_moves
            .iter()
            .filter(|made| done(made.outcome))
        {
            let setting = made.setting.clone();
            match made.found.clone().or_else(|| made.to.clone()) {
                Some(value) if made.to.is_some() => self.settings.insert(setting, value),
                _ => self.settings.remove(&setting),
            };
        }
    }

    /// The report; `None` in a session that does not place the operating system's work.
    pub fn finish(&self) -> Option<SystemReport> {
        if self.threads.is_empty() && self.ended == [0, 0] {
            return None;
        }
        let bound: Vec<&PuSet> = (self.threads.values())
            .filter_map(|known| known.bound.as_ref())
            .collect();
        let pus = PuSet::union(bound.iter().copied());
        let (mut inside, mut outside) = (0, 0);
        for (pu, time) in &self.by_pu {
            *(match pus.contains(*pu) {
                true => &mut inside,
                false => &mut outside,
            }) += time;
        }
        let mut left: Vec<LeftThread> = (self.threads.iter())
            .filter(|(_, known)| known.bound.is_none())
            .filter(|(_, known)| known.fixed || known.unmanaged.is_some())
            .map(|(id, known)| LeftThread {
                thread: *id,
                name: known.name.to_string(),
                why: known.unmanaged.filter(|_| !known.fixed),
                cpu_time: known.cpu_time,
            })
            .collect();
        let mut names = Vec::new();
        for known in self.threads.values().filter(|known| known.bound.is_some()) {
            super::collect::count(&mut names, super::name_pattern(&known.name));
        }
        names.sort();
        let mut reasons = Vec::new();
        for thread in &left {
            super::collect::count(&mut reasons, thread.why);
        }
        left.sort_by_key(|thread| (u64::MAX - thread.cpu_time, thread.thread));
        left.truncate(LISTED);
        let irqs = |bound| {
            let irqs = self.irqs.iter().filter(|(_, of)| **of == bound);
            irqs.map(|(irq, _)| *irq).collect()
        };
        Some(SystemReport {
            pus,
            threads: self.threads.len() as u64 + self.ended.iter().sum::<u64>(),
            bound: bound.len() as u64 + self.ended[0],
            names,
            left_by_reason: reasons,
            left,
            cpu_time_there: inside,
            cpu_time_elsewhere: outside,
            irqs: irqs(true),
            irqs_failed: irqs(false),
            settings: self.settings.clone().into_iter().collect(),
        })
    }
}
