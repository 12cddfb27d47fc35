//! The reconciler: journals and makes the changes of a plan, and undoes them at the end. It alone changes masks, of
//! threads and of interrupts, and settings.

mod apart;
mod entries;
mod groups;
mod irqs;
mod settings;
mod weights;

use crate::{
    control::{Control, Taken},
    journal::{
        Header, Kept, Knob, NiceKept, ProcessRecord, Record, SetRecord,
        file::JournalFile,
        state_dir::{self, StateDir, StateDirError},
    },
    observer::{Move, unread},
    ownership::{Noticed, Ownership},
    plan_check,
    restore::{ROUNDS, RestoreReport, may_have_inherited, restore},
};
use apart::Apart;
use entries::{by_target, freed, process_record, set_record, target_of, unseen};
use perch_core::{
    Affinity, Machine, MaskChange, MaskError, Outcome, ProcessId, PuSet, Reason, Remark, ThreadId,
};
use std::{
    collections::{BTreeMap, HashSet},
    io,
    time::Instant,
};

/// Where changes are journaled: a file for each target, made before its first change.
pub(crate) struct Reconciler {
    dir: StateDir,
    header: Header,
    files: BTreeMap<u32, JournalFile>,
    irqs: Apart,
    settings: Apart,
    /// The control groups of threads, each with its target.
    groups: BTreeMap<ThreadId, (u32, String)>,
    /// Those that could not be removed, since when.
    stuck: BTreeMap<ThreadId, Instant>,
    /// A write failed; nothing is changed any more.
    failed: Option<String>,
    /// Counts threads' starts, in ticks.
    pub clock: fn() -> u64,
}

impl Reconciler {
    /// Nothing changed yet.
    ///
    /// # Errors
    /// A /proc that cannot be read.
    pub fn new(dir: StateDir, default: PuSet) -> Result<Self, StateDirError> {
        Ok(Self {
            dir,
            header: state_dir::header(default)?,
            files: BTreeMap::new(),
            irqs: Apart::irqs(),
            settings: Apart::settings(),
            groups: BTreeMap::new(),
            stuck: BTreeMap::new(),
            failed: None,
            clock: state_dir::boot_ticks,
        })
    }

    /// The session's name, which its journals carry.
    pub fn session(&self) -> &str {
        &self.header.session
    }

    fn fail(&mut self, error: &io::Error) -> String {
        let why = format!(
            "{}: {error}: without a journal nothing is changed any more; make room there, or set {}",
            self.dir.path().display(),
            state_dir::VARIABLE
        );
        self.failed = Some(why.clone());
        why
    }

    /// Writes journals anew that others have removed, whether or not there is anything to change.
    fn keep_files(&mut self, remarks: &mut Vec<Remark>) {
        if self.failed.is_some() {
            return;
        }
        let mut failed = None;
        let files = self.files.values_mut().chain(&mut self.irqs.file);
        for file in files.chain(&mut self.settings.file) {
            failed = file.keep().err().or(failed);
        }
        if let Some(error) = failed {
            let why = self.fail(&error);
            remarks.push(Remark::error("journal", why));
        }
    }

    /// Writes what has been done or found, to those journals that there are.
    fn log_outcome(&mut self, records: Vec<(u32, Record)>, remarks: &mut Vec<Remark>) {
        for (target, records) in by_target(records) {
            if let Some(file) = self.files.get_mut(&target)
                && let Err(error) = file.log_outcome(&records)
            {
                let text = format!("{}: {error}", file.path().display());
                remarks.push(Remark::error("journal", text));
            }
        }
    }

    /// Journals what was observed. `ended` are threads that have ended.
    pub fn note(
        &mut self,
        taken: &Taken,
        ended: &[ThreadId],
        control: &Control,
        affinity: &dyn Affinity,
        remarks: &mut Vec<Remark>,
    ) {
        self.keep_files(remarks);
        self.release_settings(&taken.settings, remarks);
        self.release_irqs(&taken.irqs, remarks);
        if self.files.is_empty() {
            return;
        }
        let noticed = taken.noticed.iter();
        let noticed = noticed.filter_map(|noticed| self.record(noticed, control, affinity));
        let nices = taken.nices.iter();
        let nices = nices.filter_map(|noticed| Self::nice_record(*noticed, control));
        let mut records = self.ends(taken);
        records.extend(noticed.chain(nices));
        records.extend(self.seen(taken, control));
        // Journaled before anything is changed, so that a restore after perch was killed knows the process, whatever it
        // starts.
        let looked_at = taken.processes.iter();
        let looked_at = looked_at.map(|id| (id.pid, process_record(affinity, *id)));
        let unsampled = taken.unsampled.iter().map(|id| (id.pid, unseen(*id)));
        for (pid, record) in looked_at.chain(unsampled) {
            let target = control.ownership.target(pid);
            if self.files.contains_key(&target) {
                records.push((target, record));
            }
        }
        for file in self.files.values_mut() {
            for thread in ended {
                let journal = file.journal();
                let held = matches!(journal.thread(*thread), Some(Kept::Held(_)))
                    || matches!(journal.nice(*thread), Some(NiceKept::Held(_)));
                // A thread that only hides may still have the mask or the nice value.
                if !held || affinity.mask(*thread) != Err(MaskError::Hidden) {
                    file.journal_mut().forget(*thread);
                }
            }
        }
        self.log_outcome(records, remarks);
    }

    /// Which threads had not inherited what perch has set in their processes: they are not to be taken for heirs if they are
    /// given that later.
    fn seen(&self, taken: &Taken, control: &Control) -> Vec<(u32, Record)> {
        let process = |thread: &ThreadId| Some(control.ownership.get(*thread)?.pid);
        let nice_process = |thread: &ThreadId| Some(control.nices.get(*thread)?.pid);
        let mut records = Vec::new();
        for (target, file) in &self.files {
            let journal = file.journal();
            let masks = taken.seen.iter().filter_map(|id| Some((process(id)?, *id)));
            let masks = masks.filter(|(pid, _)| journal.has_set_masks(*pid));
            let nices = control.nices.seen.iter();
            let nices = nices.filter_map(|id| Some((nice_process(id)?, *id)));
            let nices = nices.filter(|(pid, _)| journal.has_set_nices(*pid));
            let all = Record::seen(masks, false).into_iter();
            let all = all.chain(Record::seen(nices, true));
            records.extend(all.map(|record| (*target, record)));
        }
        records
    }

    /// What the journals must know of processes that have ended: their numbers may be given out again.
    fn ends(&self, taken: &Taken) -> Vec<(u32, Record)> {
        let at = (self.clock)();
        let mut records = Vec::new();
        for (target, file) in &self.files {
            let known = |process: &ProcessId| file.journal().process(*process);
            let ended = taken.ended.iter().filter_map(known);
            let ended = ended.map(|record| ProcessRecord {
                ended: Some(at),
                ..*record
            });
            records.extend(ended.map(|record| (*target, Record::Process(record))));
            let departed = taken.departed.iter().filter(|id| known(id).is_some());
            records.extend(departed.map(|id| (*target, Record::Forgotten { process: *id })));
        }
        records
    }

    /// What the journal must know of a thread that was found in some state, with its target.
    fn record(
        &self,
        noticed: &Noticed,
        control: &Control,
        affinity: &dyn Affinity,
    ) -> Option<(u32, Record)> {
        let ownership = &control.ownership;
        let (Noticed::Foreign(thread)
        | Noticed::Inherited(thread)
        | Noticed::Refitted(thread)
        | Noticed::Doubted(thread)
        | Noticed::Executed(thread)) = *noticed;
        let (target, process) = target_of(ownership, thread);
        if !self.files.contains_key(&target) {
            return None;
        }
        let record = match noticed {
            Noticed::Foreign(_) => freed(ownership, thread)?,
            Noticed::Doubted(_) => Record::Doubt {
                thread,
                mask: ownership.get(thread)?.current.clone(),
            },
            Noticed::Executed(_) => process_record(affinity, *control.processes.get(&process)?),
            Noticed::Inherited(_) | Noticed::Refitted(_) => {
                let owned = ownership.get(thread)?;
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

    /// Journals and makes changes, and fills in what became of them.
    pub fn apply<M: Machine>(
        &mut self,
        control: &mut Control,
        machine: &mut M,
        moves: &mut Vec<Move>,
        remarks: &mut Vec<Remark>,
    ) {
        let_lapsed_go(&control.ownership, moves);
        let changes = changes(&control.ownership, machine.affinity(), moves);
        if changes.is_empty() {
            return;
        }
        let at = (self.clock)();
        let sets = changes
            .iter()
            .filter_map(|(_, change)| set_record(&control.ownership, change, at));
        if let Err(why) = self.log_intent(sets.collect(), control, machine.affinity()) {
            remarks.push(Remark::error("journal", why));
            return;
        }
        let mut records = Vec::new();
        for (at, change) in &changes {
            let thread = change.thread;
            let (target, _) = target_of(&control.ownership, thread);
            let before = machine.now();
            let outcome = machine.affinity().change(change);
            let span = before.zip(machine.now());
            let made = &mut moves[*at];
            (made.outcome, made.span) = (outcome, span);
            // A PU may have gone offline since the observation.
            let before = control.ownership.get(thread).map(|owned| &owned.before);
            let released = before == Some(&change.set) && outcome == Outcome::Applied;
            made.rest = released
                .then(|| machine.affinity().allowed(thread))
                .flatten()
                .map(|allowed| allowed.and(&change.set))
                .filter(|rest| *rest != change.set);
            let (set, rest) = (&change.set, made.rest.as_ref());
            control.ownership.outcome(thread, set, outcome, span, rest);
            records.push((target, Record::Done { thread, outcome }));
        }
        self.log_outcome(records, remarks);
    }

    /// Writes to the journals what is about to be changed.
    fn log_intent(
        &mut self,
        sets: Vec<(u32, Record)>,
        control: &Control,
        affinity: &dyn Affinity,
    ) -> Result<(), String> {
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        for (target, sets) in by_target(sets) {
            self.log_intent_to(target, sets, control, affinity)?;
        }
        Ok(())
    }

    /// Writes to one target's journal, which is made if there is none, and tells it of processes that it does not know.
    fn log_intent_to(
        &mut self,
        target: u32,
        sets: Vec<Record>,
        control: &Control,
        affinity: &dyn Affinity,
    ) -> Result<(), String> {
        let ownership = &control.ownership;
        let file = self.files.get(&target);
        let known: HashSet<ProcessId> =
            file.map_or_else(HashSet::new, |file| file.journal().processes().collect());
        let new: Vec<ProcessId> = control
            .processes
            .values()
            .filter(|id| !known.contains(id) && ownership.target(id.pid) == target)
            .copied()
            .collect();
        let record = |id: &ProcessId| match control.is_sampled(id.pid) {
            true => process_record(affinity, *id),
            false => unseen(*id),
        };
        let mut records: Vec<Record> = new.iter().map(record).collect();
        if file.is_none() {
            let foreign = ownership
                .iter()
                .filter(|(_, owned)| owned.is_foreign() && ownership.target(owned.pid) == target);
            records.extend(foreign.filter_map(|(thread, _)| freed(ownership, thread)));
            let mut header = self.header.clone();
            header.target = target;
            // Its own default: the first of its processes is the one that was given to perch.
            if let Some(id) = new.first() {
                let (default, whole) = ownership.default_of(id.pid);
                (header.default, header.whole) = (default.clone(), whole);
            }
            match JournalFile::create(&self.dir, header) {
                Ok(file) => self.files.insert(target, file),
                Err(error) => return Err(self.fail(&error)),
            };
        }
        records.extend(sets);
        let Some(file) = self.files.get_mut(&target) else {
            return Ok(());
        };
        file.log_intent(&records).map_err(|error| self.fail(&error))
    }

    /// Gives every thread and every interrupt its mask back, and every setting its value. Harmless when called again.
    pub fn give_back<M: Machine>(&mut self, machine: &mut M) -> RestoreReport {
        let mut all = RestoreReport::default();
        let targets: Vec<u32> = self.files.keys().copied().collect();
        for target in targets {
            all.add(self.give_back_target(target, machine));
        }
        all.add(self.give_back_irqs(machine.affinity()));
        all.add(self.give_back_settings(machine.affinity()));
        all
    }

    /// Gives the threads of one target their masks back. Its journal is removed then, unless something could not
    /// be restored.
    pub fn give_back_target<M: Machine>(&mut self, target: u32, machine: &mut M) -> RestoreReport {
        let Some(mut file) = self.files.remove(&target) else {
            return RestoreReport::default();
        };
        self.groups.retain(|_, (of, _)| *of != target);
        let groups = &self.groups;
        self.stuck.retain(|thread, _| groups.contains_key(thread));
        let mut report = restore(machine.affinity(), file.journal(), None);
        // No perch mask can be inherited any more. Daemons that were forked meanwhile by processes that have since
        // exited are known only to the machine. From the second round on, only processes matter that such daemons may have
        // forked: a busy system starts others all the time, and each round looks at all processes.
        for round in 0..ROUNDS {
            let known: HashSet<ProcessId> = file.journal().processes().collect();
            let mut new = machine.processes();
            new.retain(|(process, of)| *of == target && !known.contains(process));
            if round > 0 {
                let (affinity, journal) = (machine.affinity(), file.journal());
                new.retain(|(process, _)| may_have_inherited(affinity, journal, *process));
            }
            if new.is_empty() {
                break;
            }
            let records: Vec<Record> = new.into_iter().map(|(id, _)| unseen(id)).collect();
            // If the disk is full, this perch knows them all the same.
            let _ = file.log_outcome(&records);
            report.and_then(restore(machine.affinity(), file.journal(), None));
        }
        // Left for `perch restore` if that needs more privileges than perch has.
        if !report.has_failed() {
            let path = file.path().to_owned();
            if let Err(error) = file.remove() {
                report
                    .masks
                    .fail_all(format!("{}: {error}", path.display()));
            }
        } else {
            // Said by then if it cannot be.
            let _ = file.keep();
            self.files.insert(target, file);
        }
        report
    }
}

/// Threads whose binding the kernel has replaced, and that the plan does not bind anew, are released: else the kernel
/// would bring the binding back when the PUs are back.
fn let_lapsed_go(ownership: &Ownership, moves: &mut Vec<Move>) {
    let moved: HashSet<ThreadId> = moves.iter().map(|made| made.thread).collect();
    let mut lapsed: Vec<ThreadId> = ownership
        .lapsed()
        .filter(|thread| !moved.contains(thread))
        .collect();
    lapsed.sort_unstable();
    moves.extend(lapsed.into_iter().map(|thread| Move {
        thread,
        from: ownership.get(thread).and_then(|owned| owned.asked.clone()),
        to: None,
        reason: Reason::new(
            "its PUs went offline or left its cpuset, so the kernel has undone the binding",
        ),
        outcome: Outcome::NotApplied,
        span: None,
        rest: None,
    }));
}

/// The changes of masks that moves need, each with its move's place. Moves that need none are taken out.
fn changes(
    ownership: &Ownership,
    affinity: &dyn Affinity,
    moves: &mut Vec<Move>,
) -> Vec<(usize, MaskChange)> {
    let mut changes = Vec::new();
    moves.retain_mut(|made| {
        let Some(owned) = ownership.get(made.thread) else {
            // Its mask could not be read when it was observed.
            if let Err(error) = affinity.mask(made.thread) {
                made.outcome = unread(&error);
            }
            return true;
        };
        if owned.unmanaged.is_some()
            || made
                .to
                .as_ref()
                .is_some_and(|to| !to.is_subset(&owned.before))
        {
            // Left alone since the policy was asked: it will see that next time.
            return false;
        }
        let Some((set, true)) = plan_check::target(ownership, made) else {
            return false;
        };
        let change = MaskChange {
            thread: made.thread,
            process: owned.pid,
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
