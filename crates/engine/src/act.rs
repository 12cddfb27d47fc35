//! Acting: journals and makes the changes of a plan, and undoes them at the end.

use crate::{
    journal::{
        Header, Knob, ProcessRecord, Record, SetRecord,
        file::JournalFile,
        state_dir::{self, StateDir},
    },
    observer::{Move, unread},
    ownership::Noticed,
    plan_check,
    restore::{ROUNDS, RestoreReport, restore},
    session::Session,
};
use perch_core::{Affinity, Machine, MaskChange, Outcome, ProcessId, Reason, Snapshot, ThreadId};
use std::{
    collections::{BTreeMap, HashSet},
    io,
};

/// Where changes are journaled: a file for each target, made before its first change.
pub(crate) struct JournalPlace {
    pub dir: StateDir,
    pub header: Header,
    pub files: BTreeMap<u32, JournalFile>,
    /// A write failed; nothing is changed any more.
    pub failed: Option<String>,
    pub clock: fn() -> u64,
}

impl JournalPlace {
    fn fail(&mut self, error: &io::Error) -> String {
        let why = format!(
            "{}: {error}: without a journal nothing is changed any more; make room there, or set {}",
            self.dir.path().display(),
            state_dir::VARIABLE
        );
        self.failed = Some(why.clone());
        why
    }

    /// Writes what has been done or found, to those journals that there are.
    pub(crate) fn conclude(
        &mut self,
        records: BTreeMap<u32, Vec<Record>>,
        remarks: &mut Vec<String>,
    ) {
        for (target, records) in records {
            if let Some(file) = self.files.get_mut(&target)
                && let Err(error) = file.conclude(&records)
            {
                remarks.push(format!("{}: {error}", file.path().display()));
            }
        }
    }
}

impl<M: Machine> Session<M> {
    /// The target to which a thread belongs, with its process.
    fn target_of(&self, thread: ThreadId) -> (u32, i32) {
        let pid = self.ownership.get(thread).map_or(0, |owned| owned.pid);
        (self.ownership.target(pid), pid)
    }

    /// What the journal must know of a thread that was found in some state, with its target.
    pub(crate) fn record(&mut self, noticed: &Noticed) -> Option<(u32, Record)> {
        let (Noticed::Foreign(thread)
        | Noticed::Inherited(thread)
        | Noticed::Refitted(thread)
        | Noticed::Doubted(thread)
        | Noticed::Executed(thread)) = *noticed;
        let (target, process) = self.target_of(thread);
        let record = match noticed {
            Noticed::Foreign(_) => self.freed(thread)?,
            Noticed::Doubted(_) => Record::Doubt {
                thread,
                mask: self.ownership.get(thread)?.current.clone(),
            },
            Noticed::Executed(_) => {
                if !self.has_journal(target) {
                    return None;
                }
                let id = *self.processes.get(&process)?;
                self.process_record(id)
            }
            Noticed::Inherited(_) | Noticed::Refitted(_) => {
                let owned = self.ownership.get(thread)?;
                Record::Set(SetRecord {
                    thread,
                    process,
                    knob: Knob::Affinity,
                    before: owned.before.clone(),
                    whole: Some(owned.whole),
                    from: Vec::new(),
                    set: owned.asked.clone()?,
                    let_go: Some(false),
                    // What it starts has the mask too.
                    at: match noticed {
                        Noticed::Inherited(_) => thread.start,
                        _ => u64::MAX,
                    },
                })
            }
        };
        Some((target, record))
    }

    /// A thread that must be left alone.
    fn freed(&self, thread: ThreadId) -> Option<Record> {
        let owned = self.ownership.get(thread)?;
        let process = owned.pid;
        Some(match owned.is_foreign() {
            true => Record::Placed {
                thread,
                process,
                mask: owned.before.clone(),
            },
            false => Record::Free { thread, process },
        })
    }

    /// A process with the program that it executes now.
    pub(crate) fn process_record(&mut self, id: ProcessId) -> Record {
        let image = self.machine.affinity().image(id);
        Record::Process(ProcessRecord {
            id,
            image,
            unseen: false,
        })
    }

    /// Journals and makes changes, and fills in what became of them.
    pub(crate) fn apply(
        &mut self,
        snapshot: &Snapshot,
        moves: &mut Vec<Move>,
        remarks: &mut Vec<String>,
    ) {
        self.let_lapsed_go(moves);
        let changes = self.changes(snapshot, moves);
        if changes.is_empty() {
            return;
        }
        if let Err(why) = self.announce(&changes) {
            remarks.push(why);
            return;
        }
        let mut records = BTreeMap::<u32, Vec<Record>>::new();
        for (at, change) in &changes {
            let thread = change.thread;
            let (target, _) = self.target_of(thread);
            let before = self.machine.now();
            let outcome = self.machine.affinity().change(change);
            let span = before.zip(self.machine.now());
            self.ownership.outcome(thread, &change.set, outcome, span);
            moves[*at].outcome = outcome;
            let done = Record::Done { thread, outcome };
            records.entry(target).or_default().push(done);
        }
        if let Some(place) = &mut self.journal {
            place.conclude(records, remarks);
        }
    }

    /// Threads whose binding the kernel has replaced, and that the plan does not bind anew, are let go: else the kernel
    /// would bring the binding back when the PUs are back.
    fn let_lapsed_go(&mut self, moves: &mut Vec<Move>) {
        let moved: HashSet<ThreadId> = moves.iter().map(|made| made.thread).collect();
        let mut lapsed: Vec<ThreadId> = self
            .ownership
            .lapsed()
            .filter(|thread| !moved.contains(thread))
            .collect();
        lapsed.sort_unstable();
        moves.extend(lapsed.into_iter().map(|thread| {
            Move {
                thread,
                from: self
                    .ownership
                    .get(thread)
                    .and_then(|owned| owned.asked.clone()),
                to: None,
                reason: Reason::new(
                    "its PUs went offline or left its cpuset, so the kernel has undone the binding",
                ),
                outcome: Outcome::NotApplied,
            }
        }));
    }

    /// The changes of masks that moves need, each with its move's place. Moves that need none are taken out.
    fn changes(&mut self, snapshot: &Snapshot, moves: &mut Vec<Move>) -> Vec<(usize, MaskChange)> {
        let mut changes = Vec::new();
        let affinity: &dyn Affinity = self.machine.affinity();
        let allowed = |thread| affinity.allowed(thread);
        moves.retain_mut(|made| {
            if self.ownership.get(made.thread).is_none() {
                let pid = snapshot
                    .thread(made.thread)
                    .map_or(0, |thread| thread.info.pid);
                match affinity.mask(made.thread) {
                    Ok(mask) => {
                        self.ownership.learn(made.thread, pid, &mask, &allowed);
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
                // To be bound to all that it may use is not to be bound.
                to_default: owned.whole && set == owned.before,
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

    /// Writes to the journals what is about to be changed.
    fn announce(&mut self, changes: &[(usize, MaskChange)]) -> Result<(), String> {
        let Some(place) = &self.journal else {
            return Ok(());
        };
        if let Some(why) = &place.failed {
            return Err(why.clone());
        }
        let at = (place.clock)();
        let mut records = BTreeMap::<u32, Vec<Record>>::new();
        for (_, change) in changes {
            let (target, process) = self.target_of(change.thread);
            let Some(owned) = self.ownership.get(change.thread) else {
                continue;
            };
            records
                .entry(target)
                .or_default()
                .push(Record::Set(SetRecord {
                    thread: change.thread,
                    process,
                    knob: Knob::Affinity,
                    before: owned.before.clone(),
                    whole: Some(owned.whole),
                    from: owned.asked.iter().cloned().collect(),
                    set: change.set.clone(),
                    let_go: Some(change.set == owned.before),
                    at,
                }));
        }
        for (target, sets) in records {
            self.announce_to(target, sets)?;
        }
        Ok(())
    }

    /// Writes to one target's journal, which is made if there is none, and tells it of processes that it does not know.
    fn announce_to(&mut self, target: u32, sets: Vec<Record>) -> Result<(), String> {
        let mut records = Vec::new();
        let file = self
            .journal
            .as_ref()
            .and_then(|place| place.files.get(&target));
        let known: HashSet<ProcessId> =
            file.map_or_else(HashSet::new, |file| file.journal().processes().collect());
        let is_new = file.is_none();
        let new: Vec<ProcessId> = self
            .processes
            .values()
            .filter(|id| !known.contains(id) && self.ownership.target(id.pid) == target)
            .copied()
            .collect();
        for id in &new {
            let record = self.process_record(*id);
            records.push(record);
        }
        if is_new {
            let foreign = self.ownership.iter().filter(|(_, owned)| {
                owned.is_foreign() && self.ownership.target(owned.pid) == target
            });
            records.extend(foreign.filter_map(|(thread, _)| self.freed(thread)));
        }
        records.extend(sets);
        // Its own default: the first of its processes is the one that was given to perch.
        let default = new.first().map(|id| self.ownership.default_of(id.pid));
        let default = default.map(|(default, whole)| (default.clone(), whole));
        let Some(place) = &mut self.journal else {
            return Ok(());
        };
        if is_new {
            let mut header = place.header.clone();
            header.target = target;
            if let Some((default, whole)) = default {
                (header.default, header.whole) = (default, whole);
            }
            match JournalFile::create(&place.dir, header) {
                Ok(file) => place.files.insert(target, file),
                Err(error) => return Err(place.fail(&error)),
            };
        }
        let Some(file) = place.files.get_mut(&target) else {
            return Ok(());
        };
        file.announce(&records).map_err(|error| place.fail(&error))
    }

    /// Gives every thread its mask back. Harmless when called again.
    pub(crate) fn give_back(&mut self) -> RestoreReport {
        let mut all = RestoreReport::default();
        let Some(place) = &mut self.journal else {
            return all;
        };
        for (target, mut file) in std::mem::take(&mut place.files) {
            let mut report = restore(self.machine.affinity(), file.journal(), None);
            // No perch mask can be inherited any more. Daemons that were forked meanwhile by processes that have since
            // exited are known only to the machine.
            for _ in 0..ROUNDS {
                let known: HashSet<ProcessId> = file.journal().processes().collect();
                let mut new = self.machine.processes();
                new.retain(|(process, of)| *of == target && !known.contains(process));
                if new.is_empty() {
                    break;
                }
                let records: Vec<Record> = new
                    .into_iter()
                    .map(|(id, _)| {
                        Record::Process(ProcessRecord {
                            id,
                            image: None,
                            unseen: true,
                        })
                    })
                    .collect();
                // If the disk is full, this perch knows them all the same.
                let _ = file.conclude(&records);
                report.and_then(restore(self.machine.affinity(), file.journal(), None));
            }
            // Left for `perch restore` if that needs more privileges than perch has.
            if report.failed.is_empty() {
                let path = file.path().to_owned();
                if let Err(error) = file.remove() {
                    let nobody = ThreadId { tid: 0, start: 0 };
                    report
                        .failed
                        .push((nobody, format!("{}: {error}", path.display())));
                }
            }
            all.add(report);
        }
        all
    }
}
