//! The operating system's work in a session that places it too: who was moved, who was not, and what those cost.

use super::SystemReport;
use crate::observer::{Period, SettingMove};
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

/// Whether a change was made; in a dry run all are.
fn is_done(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Applied | Outcome::NotApplied)
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
            Outcome::Applied | Outcome::NotApplied => known.bound = to.cloned(),
            Outcome::NotPermitted => known.unmanaged = Some(Unmanaged::NotPermitted),
            Outcome::ChangedByOthers => known.unmanaged = Some(Unmanaged::ChangedByOthers),
            Outcome::Gone | Outcome::Failed | Outcome::NoUsablePu => {}
        }
        true
    }

    /// What became of interrupts and settings in a period.
    pub fn period(&mut self, period: &Period) {
        for made in &period.irq_moves {
            match (made.outcome, &made.to) {
                (outcome, Some(_)) if is_done(outcome) => self.irqs.insert(made.irq, true),
                // Given back, or not there any more.
                (outcome, _) if is_done(outcome) || outcome == Outcome::Gone => {
                    self.irqs.remove(&made.irq)
                }
                _ => self.irqs.insert(made.irq, false),
            };
        }
        let done = |made: &&SettingMove| is_done(made.outcome);
        for made in period.setting_moves.iter().filter(done) {
            let setting = made.setting.clone();
            match made.to.as_ref().map(|to| made.found.as_ref().unwrap_or(to)) {
                Some(value) => self.settings.insert(setting, value.clone()),
                None => self.settings.remove(&setting),
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

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::{Metrics, ThreadInfo};

    fn sample(tid: i32, work: Work, pu: u32, cpu_time: u64) -> ThreadSample {
        ThreadSample {
            info: ThreadInfo {
                id: ThreadId { tid, start: 1 },
                pid: tid,
                name: format!("daemon-{tid}").into(),
                process: "daemon".into(),
                work,
            },
            interval: 1_000,
            cpu_time,
            wait_time: 0,
            switches: None,
            migrations: None,
            last_pu: Some(pu),
            mask: None,
            counts: Vec::new(),
            event_set: None,
            metrics: Metrics::default(),
        }
    }

    #[test]
    fn who_was_moved_and_who_was_not_with_what_it_cost() {
        let mut system = System::default();
        assert_eq!(system.finish(), None);
        for (tid, work, pu, time) in [
            (1, Work::System, 0, 10),
            (2, Work::System, 1, 20),
            (3, Work::SystemFixed, 1, 40),
            (4, Work::System, 1, 80),
        ] {
            system.thread(&sample(tid, work, pu, time), None, false);
        }
        let (os, id) = (PuSet::single(0), |tid| ThreadId { tid, start: 1 });
        assert!(system.moved(id(1), Some(&os), Outcome::Applied));
        assert!(system.moved(id(2), Some(&os), Outcome::Applied));
        assert!(system.moved(id(4), Some(&os), Outcome::NotPermitted));
        assert!(
            !system.moved(id(9), Some(&os), Outcome::Applied),
            "a program's"
        );
        // One that was moved ends.
        system.thread(&sample(2, Work::System, 0, 5), None, true);
        let report = system.finish().unwrap();
        assert_eq!((report.pus, report.threads, report.bound), (os, 4, 2));
        assert_eq!(report.names, [("daemon-#".to_owned(), 1)]);
        assert_eq!(
            (report.cpu_time_there, report.cpu_time_elsewhere),
            (15, 140)
        );
        let left: Vec<_> = report
            .left
            .iter()
            .map(|of| (of.thread.tid, of.why))
            .collect();
        assert_eq!(left, [(4, Some(Unmanaged::NotPermitted)), (3, None)]);
        let reasons = [(None, 1), (Some(Unmanaged::NotPermitted), 1)];
        assert_eq!(report.left_by_reason, reasons);
    }
}
