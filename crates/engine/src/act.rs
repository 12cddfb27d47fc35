//! Acting: journals and makes the changes of a plan, and undoes them at the end.

use crate::{
    journal::{
        Header, Knob, Record, SetRecord,
        file::JournalFile,
        state_dir::{self, StateDir},
    },
    observer::{Move, unread},
    ownership::Noticed,
    plan_check,
    restore::{ROUNDS, RestoreReport, restore},
    session::Session,
};
use perch_core::{Machine, MaskChange, ProcessId, ThreadId};
use std::collections::{BTreeMap, HashSet};

/// Where changes are journaled: the file is made before the first one.
pub(crate) struct JournalPlace {
    pub dir: StateDir,
    pub header: Header,
    pub file: Option<JournalFile>,
    /// A write failed; nothing is changed any more.
    pub failed: Option<String>,
    pub clock: fn() -> u64,
}

impl JournalPlace {
    fn fail(&mut self, error: &std::io::Error) -> String {
        let why = format!(
            "{}: {error}: without a journal nothing is changed any more; make room there, or set {}",
            self.dir.path().display(),
            state_dir::VARIABLE
        );
        self.failed = Some(why.clone());
        why
    }
}

impl<M: Machine> Session<M> {
    /// What the journal must know of a thread that was found in some state.
    pub(crate) fn record(&self, noticed: &Noticed) -> Option<Record> {
        match noticed {
            Noticed::Foreign(thread) => Some(Record::Free { thread: *thread }),
            Noticed::Inherited(thread) | Noticed::Refitted(thread) => {
                let owned = self.ownership.get(*thread)?;
                Some(Record::Set(SetRecord {
                    thread: *thread,
                    knob: Knob::Affinity,
                    before: owned.before.clone(),
                    from: vec![owned.current.clone()],
                    set: owned.asked.clone(),
                    at: u64::MAX,
                }))
            }
        }
    }

    /// Journals and makes changes, and fills in what became of them.
    pub(crate) fn apply(&mut self, moves: &mut Vec<Move>, remarks: &mut Vec<String>) {
        let changes = self.changes(moves);
        if changes.is_empty() {
            return;
        }
        if let Err(why) = self.announce(&changes) {
            remarks.push(why);
            return;
        }
        let mut records = Vec::new();
        for (at, change) in &changes {
            self.ownership.will_set(change.thread, &change.set);
            let outcome = self.machine.affinity().change(change);
            self.ownership.outcome(change.thread, &change.set, outcome);
            moves[*at].outcome = outcome;
            let thread = change.thread;
            records.push(Record::Done { thread, outcome });
        }
        let file = self.journal.as_mut().and_then(|place| place.file.as_mut());
        if let Some(file) = file
            && let Err(error) = file.conclude(&records)
        {
            remarks.push(format!("{}: {error}", file.path().display()));
        }
    }

    /// The changes of masks that moves need, each with its move's place. Moves that need none are taken out.
    fn changes(&mut self, moves: &mut Vec<Move>) -> Vec<(usize, MaskChange)> {
        let mut changes = Vec::new();
        let usable = self.machine.topology().usable();
        moves.retain_mut(|made| {
            if self.ownership.get(made.thread).is_none() {
                match self.machine.affinity().mask(made.thread) {
                    Ok(mask) => {
                        self.ownership.learn(made.thread, &mask, &usable);
                    }
                    Err(error) => {
                        made.outcome = unread(&error);
                        return true;
                    }
                }
            }
            let Some(owned) = self.ownership.get(made.thread) else {
                return true;
            };
            if owned.hands_off.is_some()
                || made
                    .to
                    .as_ref()
                    .is_some_and(|to| !to.is_subset(&owned.before))
            {
                // Only now was its mask read: the policy will see next time that it must be left alone.
                return false;
            }
            let Some((set, true)) = plan_check::target(&self.ownership, made) else {
                return false;
            };
            let change = MaskChange {
                thread: made.thread,
                expect: owned.current.clone(),
                to_default: made.to.is_none() && set == *self.ownership.default_mask(),
                set,
            };
            changes.push((changes.len(), change));
            true
        });
        // Moves that could not be read come without a change: number the others by their place.
        let places: BTreeMap<ThreadId, usize> = moves
            .iter()
            .enumerate()
            .map(|(at, made)| (made.thread, at))
            .collect();
        for (at, change) in &mut changes {
            *at = places[&change.thread];
        }
        changes
    }

    /// Writes to the journal what is about to be changed.
    fn announce(&mut self, changes: &[(usize, MaskChange)]) -> Result<(), String> {
        let Some(place) = &mut self.journal else {
            return Ok(());
        };
        if let Some(why) = &place.failed {
            return Err(why.clone());
        }
        let mut records = Vec::new();
        if place.file.is_none() {
            match JournalFile::create(&place.dir, place.header.clone()) {
                Ok(file) => place.file = Some(file),
                Err(error) => return Err(place.fail(&error)),
            }
            let foreign = self
                .ownership
                .iter()
                .filter(|(_, owned)| owned.hands_off.is_some());
            records.extend(foreign.map(|(thread, _)| Record::Free { thread }));
        }
        let Some(file) = &mut place.file else {
            return Ok(());
        };
        let known: HashSet<ProcessId> = file.journal().processes().collect();
        let new = self
            .processes
            .values()
            .filter(|process| !known.contains(process));
        records.extend(new.copied().map(Record::Process));
        let at = (place.clock)();
        for (_, change) in changes {
            let Some(owned) = self.ownership.get(change.thread) else {
                continue;
            };
            let mut from = vec![change.expect.clone()];
            if owned.held && owned.asked != change.expect {
                from.push(owned.asked.clone());
            }
            records.push(Record::Set(SetRecord {
                thread: change.thread,
                knob: Knob::Affinity,
                before: owned.before.clone(),
                from,
                set: change.set.clone(),
                at,
            }));
        }
        file.announce(&records).map_err(|error| place.fail(&error))
    }

    /// Gives every thread its mask back. Harmless when called again.
    pub(crate) fn give_back(&mut self) -> RestoreReport {
        let Some(mut file) = self.journal.as_mut().and_then(|place| place.file.take()) else {
            return RestoreReport::default();
        };
        let usable = self.machine.topology().usable();
        let mut report = restore(self.machine.affinity(), file.journal(), &usable);
        // Nothing hands on a mask any more. Daemons that were born meanwhile of processes that are gone already are
        // known to the machine only.
        for _ in 0..ROUNDS {
            let known: HashSet<ProcessId> = file.journal().processes().collect();
            let mut new = self.machine.processes();
            new.retain(|process| !known.contains(process));
            if new.is_empty() {
                break;
            }
            let records: Vec<Record> = new.into_iter().map(Record::Process).collect();
            // If the disk is full, this perch knows them all the same.
            let _ = file.conclude(&records);
            report.and_then(restore(self.machine.affinity(), file.journal(), &usable));
        }
        // Left for `perch restore` if somebody with more rights must do it.
        if report.failed.is_empty() {
            let path = file.path().to_owned();
            if let Err(error) = file.remove() {
                let who = ThreadId { tid: 0, start: 0 };
                report
                    .failed
                    .push((who, format!("{}: {error}", path.display())));
            }
        }
        report
    }
}
