//! Giving threads back the masks that they had before perch.

use crate::{
    journal::{
        Held, Journal, JournalError, Kept,
        state_dir::{Boot, StateDir, StateDirError},
    },
    ownership::{inherited, refitted},
};
use perch_core::{Affinity, IrqChange, MaskChange, MaskError, Outcome, PuSet, ThreadId};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

/// A thread that is born while its parent is being restored is found by looking again; more rounds than this are
/// only needed by a fork bomb.
pub(crate) const ROUNDS: usize = 64;

/// What came of restoring.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreReport {
    /// Threads that have the mask again that they had before perch.
    pub restored: usize,
    /// Of these, threads that had inherited a mask which perch set on another.
    pub inherited: usize,
    /// Threads that had it already.
    pub already: usize,
    /// Threads that have ended.
    pub gone: usize,
    /// Threads whose mask somebody else has changed since, and which were left alone.
    pub left_alone: usize,
    /// Threads that could not be restored, and why.
    pub failed: Vec<(ThreadId, String)>,
    /// Interrupts; none but after `perch irq --apply`.
    #[serde(default, skip_serializing_if = "IrqReport::is_empty")]
    pub irqs: IrqReport,
    /// Lines of the journal that could not be read.
    pub damaged: usize,
}

/// What came of restoring the masks of interrupts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrqReport {
    /// Interrupts that have the mask again that they had before perch.
    pub restored: usize,
    /// Interrupts that had it already.
    pub already: usize,
    /// Interrupts that are gone, or another device's now.
    pub gone: usize,
    /// Interrupts whose mask somebody else has changed since, and which were left alone.
    pub left_alone: usize,
    /// Interrupts that could not be restored, and why.
    pub failed: Vec<(u32, String)>,
}

impl IrqReport {
    /// Whether there was nothing to restore.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl RestoreReport {
    /// Whether something could not be restored that should have been.
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty() || !self.irqs.failed.is_empty()
    }

    /// Adds what came of restoring once more: threads that were counted before had their mask then.
    pub(crate) fn and_then(&mut self, again: Self) {
        self.restored += again.restored;
        self.inherited += again.inherited;
        self.left_alone = again.left_alone;
        self.failed = again.failed;
    }

    fn count(&mut self, thread: ThreadId, outcome: Outcome) {
        match outcome {
            Outcome::Applied => self.restored += 1,
            Outcome::Gone => self.gone += 1,
            Outcome::ChangedByOthers => self.left_alone += 1,
            Outcome::NotPermitted => {
                self.fail(
                    thread,
                    "not permitted: run it as the user who ran perch, or as root",
                );
            }
            Outcome::NoUsablePu => self.fail(
                thread,
                "none of the PUs that it had is usable now (offline, or out of the cpuset)",
            ),
            Outcome::NotApplied => self.fail(thread, "this machine does not change masks"),
        }
    }

    fn fail(&mut self, thread: ThreadId, why: impl Into<String>) {
        self.failed.push((thread, why.into()));
    }
}

/// Gives each thread of a journal the mask that it had before perch, if it still has the one that perch set; and
/// likewise to what descends from the session's processes and has inherited such a mask. `usable` are the PUs that are
/// online and in the cpuset: it tells what the kernel makes of a mask when PUs go away.
pub fn restore(affinity: &mut dyn Affinity, journal: &Journal, usable: &PuSet) -> RestoreReport {
    let mut report = RestoreReport {
        damaged: journal.damaged,
        irqs: restore_irqs(affinity, journal),
        ..RestoreReport::default()
    };
    let default = &journal.header.default;
    let mut known = HashSet::new();
    let mut foreign = HashSet::new();
    for (thread, kept) in journal.threads() {
        known.insert(thread);
        let mask = affinity.mask(thread);
        match (kept, mask) {
            (Kept::Free, Ok(mask)) => {
                foreign.insert(mask);
            }
            (Kept::Free, Err(_)) => {}
            (Kept::Held(_), Err(MaskError::Gone)) => report.gone += 1,
            (Kept::Held(_), Err(MaskError::Other(why))) => report.fail(thread, why),
            (Kept::Held(held), Ok(mask)) if mask == held.before => report.already += 1,
            (Kept::Held(held), Ok(mask)) => {
                let ours = |mask: &PuSet| {
                    let mut sets = held.from.iter().chain([&held.set]);
                    sets.any(|set| mask == set || refitted(set, mask, default, usable))
                        // Nobody had touched it when perch was about to: then it is like a thread without a record.
                        || (untouched(journal, held) && heir(journal, thread, mask).is_some())
                };
                let outcome = give_back_held(affinity, thread, mask, &held.before, default, ours);
                report.count(thread, outcome);
                if outcome == Outcome::ChangedByOthers {
                    foreign.extend(affinity.mask(thread));
                }
            }
        }
    }
    let processes: Vec<_> = journal.processes().collect();
    for _ in 0..ROUNDS {
        let mut found = false;
        for relative in affinity.relatives(&journal.header.session, &processes) {
            let Some(before) = heir(journal, relative.thread, &relative.mask) else {
                continue;
            };
            // With a mask that somebody else's thread has too, nobody knows from whom it is.
            if foreign.contains(&relative.mask) || !known.insert(relative.thread) {
                continue;
            }
            found = true;
            let outcome = give_back(affinity, relative.thread, relative.mask, &before, default);
            report.inherited += usize::from(outcome == Outcome::Applied);
            report.count(relative.thread, outcome);
        }
        if !found {
            break;
        }
    }
    report
}

/// Gives each interrupt of a journal the mask that it had before perch, if it still has one that perch may have set.
pub fn restore_irqs(affinity: &mut dyn Affinity, journal: &Journal) -> IrqReport {
    let mut report = IrqReport::default();
    for record in journal.irqs() {
        let outcome = match affinity.irq(record.irq) {
            Ok(state) if state.device != record.device => Outcome::Gone,
            Ok(state) if state.mask == record.before => {
                report.already += 1;
                continue;
            }
            Ok(state) if state.mask == record.set || state.mask == record.from => affinity
                .change_irq(&IrqChange {
                    irq: record.irq,
                    device: record.device.clone(),
                    expect: state.mask,
                    set: record.before.clone(),
                }),
            Ok(_) => Outcome::ChangedByOthers,
            Err(MaskError::Gone) => Outcome::Gone,
            Err(MaskError::Other(why)) => {
                report.failed.push((record.irq, why));
                continue;
            }
        };
        match outcome {
            Outcome::Applied => report.restored += 1,
            Outcome::Gone => report.gone += 1,
            Outcome::ChangedByOthers => report.left_alone += 1,
            Outcome::NotPermitted => {
                let why = "not permitted: run it as root".to_owned();
                report.failed.push((record.irq, why));
            }
            Outcome::NoUsablePu => {
                let why = "none of the PUs that it had is online now".to_owned();
                report.failed.push((record.irq, why));
            }
            Outcome::NotApplied => {
                let why = "this machine does not change masks of interrupts".to_owned();
                report.failed.push((record.irq, why));
            }
        }
    }
    report
}

/// Whether a thread had a mask from elsewhere when perch was about to change it for the first time, and it is not known
/// whether that was done.
fn untouched(journal: &Journal, held: &Held) -> bool {
    let set = |mask: &PuSet| journal.masks().iter().any(|known| known.set == *mask);
    !held.from.is_empty() && !held.from.iter().any(set)
}

/// The mask that a thread goes back to which is not in the journal, if it has inherited one that was set: it must have
/// been born after that.
fn heir(journal: &Journal, thread: ThreadId, mask: &PuSet) -> Option<PuSet> {
    let befores: Vec<PuSet> = journal
        .masks()
        .iter()
        .filter(|known| known.set == *mask && known.at <= thread.start)
        .map(|known| known.before.clone())
        .collect();
    inherited(Some(&befores), &journal.header.default)
}

/// Gives a mask back if it is perch's doing. The kernel may change it under our hands when PUs come and go.
fn give_back_held(
    affinity: &mut dyn Affinity,
    thread: ThreadId,
    mut mask: PuSet,
    before: &PuSet,
    default: &PuSet,
    ours: impl Fn(&PuSet) -> bool,
) -> Outcome {
    for _ in 0..ROUNDS {
        if !ours(&mask) {
            return Outcome::ChangedByOthers;
        }
        match give_back(affinity, thread, mask.clone(), before, default) {
            Outcome::ChangedByOthers => match affinity.mask(thread) {
                Ok(again) if again != mask => mask = again,
                _ => return Outcome::ChangedByOthers,
            },
            outcome => return outcome,
        }
    }
    Outcome::ChangedByOthers
}

fn give_back(
    affinity: &mut dyn Affinity,
    thread: ThreadId,
    mask: PuSet,
    before: &PuSet,
    default: &PuSet,
) -> Outcome {
    affinity.change(&MaskChange {
        thread,
        expect: mask,
        set: before.clone(),
        to_default: before == default,
    })
}

/// What became of one journal that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovery {
    /// Its perch is alive; nothing was done.
    Alive {
        /// Its process.
        pid: i32,
    },
    /// From another boot: void, and removed.
    OtherBoot,
    /// Undone. The file is removed unless a thread could not be restored.
    Restored(RestoreReport),
    /// Not readable; the file is left for a person to look at.
    Unreadable(JournalError),
}

/// Undoes what every dead perch has left behind in a directory. Journals of a perch that is alive are not touched.
///
/// # Errors
/// A directory or file that cannot be read.
pub fn recover_all(
    dir: &StateDir,
    affinity: &mut dyn Affinity,
    usable: &PuSet,
) -> Result<Vec<(PathBuf, Recovery)>, StateDirError> {
    let boot = Boot::now()?;
    let mut all = Vec::new();
    for path in dir.journals()? {
        let recovery = recover(&path, affinity, usable, &boot).map_err(|error| StateDirError::Io {
            path: path.clone(),
            error,
        });
        if let Some(recovery) = recovery? {
            all.push((path, recovery));
        }
    }
    Ok(all)
}

/// One journal; `None` if it went away meanwhile.
fn recover(
    path: &Path,
    affinity: &mut dyn Affinity,
    usable: &PuSet,
    boot: &Boot,
) -> io::Result<Option<Recovery>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let journal = match Journal::parse(&bytes) {
        Ok(journal) => journal,
        Err(error) => return Ok(Some(Recovery::Unreadable(error))),
    };
    if boot.is_alive(&journal.header) {
        let pid = journal.header.perch.pid;
        return Ok(Some(Recovery::Alive { pid }));
    }
    if journal.header.boot != boot.id {
        remove(path)?;
        return Ok(Some(Recovery::OtherBoot));
    }
    let report = restore(affinity, &journal, usable);
    if !report.has_failed() {
        remove(path)?;
    }
    Ok(Some(Recovery::Restored(report)))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
