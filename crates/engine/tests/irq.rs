//! Masks of interrupts: journaled before they are changed, and restored unless another process has changed them since.

use perch_core::{
    Affinity, IrqChange, IrqState, MaskChange, MaskError, Outcome, ProcessId, PuSet, ThreadId,
    affinity::Relative,
};
use perch_engine::{
    IrqKeeper, Journal, StateDir,
    journal::{IrqRecord, Record, file::JournalFile, state_dir},
    restore,
};
use proptest::prelude::*;
use std::{
    collections::BTreeMap,
    sync::{Arc, RwLock},
};

fn set(text: &str) -> PuSet {
    text.parse().unwrap()
}

/// Interrupts in memory.
#[derive(Clone, Default)]
struct Irqs(Arc<RwLock<BTreeMap<u32, IrqState>>>);

impl Irqs {
    fn of(masks: &[(u32, &str)]) -> Self {
        let irqs = Self::default();
        for (irq, mask) in masks {
            irqs.put(*irq, "eth0", set(mask));
        }
        irqs
    }

    fn put(&self, irq: u32, device: &str, mask: PuSet) {
        let state = IrqState {
            device: device.to_owned(),
            mask,
            movable: true,
        };
        self.0.write().unwrap().insert(irq, state);
    }

    fn state(&self, irq: u32) -> IrqState {
        self.0.read().unwrap()[&irq].clone()
    }

    fn masks(&self) -> BTreeMap<u32, String> {
        let all = self.0.read().unwrap();
        all.iter()
            .map(|(irq, state)| (*irq, state.mask.to_string()))
            .collect()
    }
}

impl Affinity for Irqs {
    fn mask(&self, _: ThreadId) -> Result<PuSet, MaskError> {
        Err(MaskError::Gone)
    }

    fn change(&mut self, _: &MaskChange) -> Outcome {
        Outcome::Gone
    }

    fn irq(&self, irq: u32) -> Result<IrqState, MaskError> {
        self.0
            .read()
            .unwrap()
            .get(&irq)
            .cloned()
            .ok_or(MaskError::Gone)
    }

    fn change_irq(&mut self, change: &IrqChange) -> Outcome {
        let mut all = self.0.write().unwrap();
        match all.get_mut(&change.irq) {
            Some(state) if state.device != change.device => Outcome::Gone,
            Some(state) if !state.movable => Outcome::NotPermitted,
            Some(state) if state.mask == change.expect => {
                state.mask = change.set.clone();
                Outcome::Applied
            }
            Some(_) => Outcome::ChangedByOthers,
            None => Outcome::Gone,
        }
    }

    fn allowed(&self, _: ThreadId) -> Option<PuSet> {
        None
    }

    fn relatives(
        &self,
        _: &str,
        _: &[ProcessId],
        _: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Relative>, MaskError> {
        Ok(Vec::new())
    }
}

fn journals(dir: &tempfile::TempDir) -> Vec<std::path::PathBuf> {
    StateDir::open(dir.path()).unwrap().journals().unwrap()
}

fn keeper(irqs: &Irqs, dir: &tempfile::TempDir) -> IrqKeeper<Irqs> {
    IrqKeeper::new(irqs.clone(), StateDir::open(dir.path()).unwrap())
}

#[test]
fn moved_twice_and_given_back_to_where_it_was_at_first() {
    let irqs = Irqs::of(&[(24, "0-3"), (25, "0-1")]);
    let dir = tempfile::tempdir().unwrap();
    let mut keeper = keeper(&irqs, &dir);
    assert!(keeper.apply(&[]).unwrap().is_empty() && journals(&dir).is_empty());
    for to in [2, 3] {
        let state = irqs.state(24);
        assert_eq!(keeper.allowed(24, &state), Some(set("0-3")));
        assert_eq!(
            keeper.apply(&[(24, state, to)]).unwrap(),
            [(24, Outcome::Applied)]
        );
    }
    assert_eq!(irqs.masks()[&24], "3");
    assert_eq!(journals(&dir).len(), 1);
    let report = keeper.give_back();
    assert_eq!((report.restored, report.left_alone), (1, 0));
    assert_eq!(
        (irqs.masks()[&24].as_str(), irqs.masks()[&25].as_str()),
        ("0-3", "0-1")
    );
    assert!(journals(&dir).is_empty());
}

#[test]
fn what_others_change_or_cannot_be_moved_is_left_alone() {
    let irqs = Irqs::of(&[(24, "0-3"), (25, "0-3"), (26, "0-3")]);
    let dir = tempfile::tempdir().unwrap();
    let mut keeper = keeper(&irqs, &dir);
    let states = [24, 25].map(|irq| (irq, irqs.state(irq), 2));
    // Between look and deed.
    irqs.put(25, "eth0", set("1"));
    let outcomes = keeper.apply(&states).unwrap();
    assert_eq!(
        outcomes,
        [(24, Outcome::Applied), (25, Outcome::ChangedByOthers)]
    );
    assert_eq!(keeper.allowed(25, &irqs.state(25)), None);
    // After it.
    irqs.put(24, "eth0", set("0"));
    assert_eq!(keeper.allowed(24, &irqs.state(24)), None);
    let managed = IrqState {
        movable: false,
        ..irqs.state(26)
    };
    assert_eq!(keeper.allowed(26, &managed), None);
    assert_eq!(keeper.give_back().left_alone, 1);
    assert_eq!(
        irqs.masks().into_values().collect::<Vec<_>>(),
        ["0", "1", "0-3"]
    );
}

#[test]
fn another_devices_interrupt_of_the_same_number_is_not_touched() {
    let irqs = Irqs::of(&[(24, "0-3")]);
    let dir = tempfile::tempdir().unwrap();
    let mut keeper = keeper(&irqs, &dir);
    keeper.apply(&[(24, irqs.state(24), 2)]).unwrap();
    irqs.put(24, "eth1", set("2"));
    assert_eq!(keeper.give_back().gone, 1);
    assert_eq!(irqs.masks()[&24], "2");
}

#[test]
fn a_panic_leaves_nothing_behind() {
    let irqs = Irqs::of(&[(24, "0-3")]);
    let dir = tempfile::tempdir().unwrap();
    {
        let mut keeper = keeper(&irqs, &dir);
        keeper.apply(&[(24, irqs.state(24), 2)]).unwrap();
        assert_eq!(irqs.masks()[&24], "2");
    }
    assert_eq!(irqs.masks()[&24], "0-3");
    assert!(journals(&dir).is_empty());
}

proptest! {
    /// Whenever perch is killed, reading its journal and restoring gives back all masks that it alone has changed.
    #[test]
    fn killed_at_any_moment_all_comes_back(
        moves in proptest::collection::vec((0u32..4, 0u32..4, any::<bool>()), 1..20),
        cut in 0usize..60,
    ) {
        let mut irqs = Irqs::of(&[(0, "0-3"), (1, "0-3"), (2, "0-1"), (3, "2-3")]);
        let first = irqs.masks();
        let mut written = Vec::new();
        for (irq, to, made) in moves {
            let state = irqs.state(irq);
            let before = set(&first[&irq]);
            written.push(Record::Irq(IrqRecord {
                irq,
                device: state.device.clone(),
                before,
                from: state.mask.clone(),
                set: PuSet::single(to),
            }));
            if written.len() > cut {
                // Killed between the announcement and the deed, or between that and its outcome.
                if made {
                    irqs.put(irq, "eth0", PuSet::single(to));
                }
                break;
            }
            irqs.put(irq, "eth0", PuSet::single(to));
            written.push(Record::IrqDone { irq, outcome: Outcome::Applied });
            if written.len() > cut {
                break;
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let dir = StateDir::open(dir.path()).unwrap();
        let header = state_dir::header(PuSet::new()).unwrap();
        let mut file = JournalFile::create(&dir, header).unwrap();
        file.announce(&written).unwrap();
        let journal = Journal::parse(&std::fs::read(file.path()).unwrap()).unwrap();
        prop_assert_eq!(journal.damaged, 0);
        // Made shorter it says the same.
        let mut shortened = Journal::new(journal.header.clone());
        journal.records().iter().for_each(|record| shortened.add(record));
        prop_assert_eq!(journal.irqs().collect::<Vec<_>>(), shortened.irqs().collect::<Vec<_>>());
        let report = restore(&mut irqs, &journal, None);
        prop_assert_eq!(irqs.masks(), first);
        prop_assert!(!report.has_failed() && report.irqs.left_alone == 0);
    }
}
