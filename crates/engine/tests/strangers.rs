//! Processes in the process group of a bound process that do not descend from it, when masks are restored.

use perch_core::{
    Affinity, MaskChange, MaskError, NiceChange, Outcome, ProcessId, PuSet, ThreadId, Weights,
    affinity::{ByGroup, Descendant},
};
use perch_engine::{
    Journal, RestoreReport,
    journal::{MaskRecord, NiceSetRecord, ProcessRecord, Record, state_dir},
    restore,
};
use std::collections::BTreeMap;

/// The process in the journal.
const BOUND: i32 = 10;
/// When a mask and a nice value were set in it.
const SET: u64 = 100;

/// A thread of a process that is found by its parent, or by the group alone: then whether strangers are seen in that.
fn thread(tid: i32, start: u64, process: (i32, u64), group: Option<bool>) -> Descendant {
    let (pid, began) = process;
    Descendant {
        thread: ThreadId { tid, start },
        process: ProcessId { pid, start: began },
        parent: if group.is_some() { 1 } else { BOUND },
        mask: one(),
        by_group: group.map(|shared| ByGroup {
            leader: BOUND,
            shared,
        }),
    }
}

/// The mask that was set.
fn one() -> PuSet {
    PuSet::single(3)
}

fn all() -> PuSet {
    (0..4).collect()
}

/// Threads with masks and nice values, as they are found.
struct Found {
    threads: Vec<Descendant>,
    nices: BTreeMap<ThreadId, i32>,
}

impl Found {
    fn new(threads: &[Descendant]) -> Self {
        Self {
            nices: threads.iter().map(|of| (of.thread, 5)).collect(),
            threads: threads.to_vec(),
        }
    }

    /// Restores; whether each thread has its mask and its nice value back, and whether something failed.
    fn restore(mut self) -> (Vec<bool>, RestoreReport) {
        let mut journal = Journal::new(state_dir::header(all()).unwrap());
        journal.add(&Record::Process(ProcessRecord {
            id: ProcessId {
                pid: BOUND,
                start: 50,
            },
            image: None,
            unseen: false,
            first_ended: false,
            ended: None,
        }));
        journal.add(&Record::Mask(MaskRecord {
            process: BOUND,
            set: one(),
            before: all(),
            whole: Some(true),
            at: SET,
        }));
        journal.add(&Record::NiceSet(NiceSetRecord {
            process: BOUND,
            set: 5,
            before: 0,
            at: SET,
        }));
        let report = restore(&mut self, &journal, None);
        let back = self.threads.iter().map(|of| {
            let (mask, nice) = (of.mask == all(), self.nices[&of.thread] == 0);
            assert_eq!(mask, nice, "{of:?}");
            mask
        });
        (back.collect(), report)
    }
}

impl Affinity for Found {
    fn settle(&self) {}

    fn mask(&self, thread: ThreadId) -> Result<PuSet, MaskError> {
        let of = self.threads.iter().find(|of| of.thread == thread);
        of.map(|of| of.mask.clone()).ok_or(MaskError::Gone)
    }

    fn change(&mut self, change: &MaskChange) -> Outcome {
        let of = self.threads.iter_mut();
        let Some(of) = of.into_iter().find(|of| of.thread == change.thread) else {
            return Outcome::Gone;
        };
        of.mask = change.set.clone();
        Outcome::Applied
    }

    fn weights(&mut self) -> Option<&mut dyn Weights> {
        Some(self)
    }

    fn allowed(&self, _: ThreadId) -> Option<PuSet> {
        Some(all())
    }

    fn belongs_to(&self, _: ThreadId, _: u32) -> bool {
        true
    }

    fn descendants(
        &self,
        _: &str,
        _: &[ProcessId],
        known: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Descendant>, MaskError> {
        let unknown = self.threads.iter().filter(|of| !known(of.thread));
        Ok(unknown.cloned().collect())
    }
}

impl Weights for Found {
    fn nice(&self, thread: ThreadId) -> Result<i32, MaskError> {
        self.nices.get(&thread).copied().ok_or(MaskError::Gone)
    }

    fn permitted(&self, _: &NiceChange) -> Result<(), String> {
        Ok(())
    }

    fn may_be_lowered(&self, _: ThreadId, _: i32) -> bool {
        true
    }

    fn change_nice(&mut self, change: &NiceChange) -> Outcome {
        self.nices.insert(change.thread, change.set);
        Outcome::Applied
    }
}

#[test]
fn what_was_there_before_perch_set_anything_and_is_not_known_has_inherited_nothing() {
    // A new thread of an old process, in the group or child of what is; and one of the bound process.
    let (back, report) = Found::new(&[
        thread(21, 200, (20, 60), Some(false)),
        thread(31, 200, (30, 60), None),
        thread(11, 200, (BOUND, 50), None),
    ])
    .restore();
    assert_eq!(back, [false, false, true]);
    assert!(!report.has_failed(), "{report:?}");
}

#[test]
fn an_orphan_is_an_heir_by_its_group_unless_the_group_holds_strangers() {
    let orphan = |shared| thread(40, 200, (40, 200), Some(shared));
    let (back, report) = Found::new(&[orphan(false)]).restore();
    assert_eq!((back, report.has_failed()), (vec![true], false));
    // Strangers that are seen to be ones, or were there before.
    let older = thread(20, 60, (20, 60), Some(false));
    for threads in [vec![orphan(true)], vec![orphan(false), older]] {
        let (back, report) = Found::new(&threads).restore();
        assert!(back.iter().all(|back| !back), "{threads:?}");
        let told = |failed: &[(Option<ThreadId>, String)]| {
            failed.len() == 1 && failed[0].1.contains("process group")
        };
        assert!(told(&report.masks.failed), "{report:?}");
        assert!(told(&report.weights.failed), "{report:?}");
    }
}
