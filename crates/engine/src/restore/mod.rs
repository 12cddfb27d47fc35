//! Giving threads back the masks that they had before perch.

mod family;
mod groups;
mod irqs;
mod nices;
mod recover;
mod report;

pub use irqs::restore_irqs;
pub use recover::{Recovery, recover_all, recover_one};
pub use report::{RestoreCounts, RestoreReport};

use crate::{
    journal::{Held, Journal, Kept},
    ownership::explains,
};
use family::{Families, Foreign, Kinship, fits};
use perch_core::{Affinity, MaskChange, MaskError, Outcome, ProcessId, PuSet, ThreadId};
use report::Refusals;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A thread that is born while its parent is being restored is found by looking again; more rounds than this are
/// only needed by a fork bomb.
pub(crate) const ROUNDS: usize = 64;

/// How often a mask is read again that nothing explains: the kernel changes masks and CPU sets one after the other.
const LOOKS: usize = 4;

const REFUSALS: Refusals = Refusals {
    not_permitted: "not permitted: run `perch restore` as root",
    failed: "the system lacks file descriptors or memory: run `perch restore` when it has some",
    no_usable_pu: "none of the PUs that it had is usable now (offline, or out of the cpuset)",
    not_applied: "this machine does not change masks",
};

/// Why a thread of another user than the journal's is left as it is.
fn strangers(owner: u32) -> String {
    format!(
        "it is not user {owner}'s, to whom the journal belongs: if you trust the journal, name it (`perch restore FILE`)"
    )
}

/// Restores each thread of a journal to the mask that it had before perch, if it still has the one that perch set. Does
/// the same for descendants of the session's processes that have inherited such a mask. `owner` is the user to whom the
/// journal belongs, if it is not the caller: then only that user's threads are touched, whatever the journal says.
pub fn restore(
    affinity: &mut dyn Affinity,
    journal: &Journal,
    owner: Option<u32>,
) -> RestoreReport {
    let irqs = match owner {
        None => restore_irqs(affinity.irqs(), journal),
        Some(_) => RestoreCounts::default(),
    };
    let mut weights = nices::restore_nices(affinity, journal, owner);
    weights.add(groups::restore_groups(affinity, journal, owner));
    let mut restoring = Restoring {
        affinity,
        journal,
        owner,
        report: RestoreCounts::default(),
        foreign: HashMap::new(),
        gone: BTreeMap::new(),
    };
    restoring.known_threads();
    restoring.executed();
    restoring.descendants();
    RestoreReport {
        masks: restoring.report,
        irqs,
        weights,
        damaged: journal.damaged,
    }
}

struct Restoring<'a> {
    affinity: &'a mut dyn Affinity,
    journal: &'a Journal,
    owner: Option<u32>,
    report: RestoreCounts,
    foreign: Foreign,
    /// Threads that perch had bound and that have exited, by process.
    gone: BTreeMap<i32, Vec<&'a Held>>,
}

impl<'a> Restoring<'a> {
    fn count(&mut self, thread: ThreadId, outcome: Outcome) {
        self.report.count(thread, outcome, &REFUSALS);
    }

    /// The threads in the journal.
    fn known_threads(&mut self) {
        let mut unexplained = Vec::new();
        for (thread, kept) in self.journal.threads() {
            let (process, given) = match kept {
                Kept::Placed { process, mask } => {
                    let known = self.foreign.entry(*process).or_default();
                    known.insert(mask.clone());
                    (*process, Some(mask))
                }
                Kept::Free { process } => (*process, None),
                Kept::Held(_) => continue,
            };
            if self.foreign_mask(thread, process, given).is_some() {
                unexplained.push((thread, process, given));
            }
        }
        if !unexplained.is_empty() {
            // Its mask and its CPU set were read one after the other, and both may be changing.
            self.affinity.settle();
        }
        for (thread, process, given) in unexplained {
            if let Some(mask) = self.foreign_mask(thread, process, given) {
                self.foreign.entry(process).or_default().insert(mask);
            }
        }
        for (thread, kept) in self.journal.threads() {
            if let Kept::Held(held) = kept {
                self.held(thread, held);
            }
        }
    }

    fn held(&mut self, thread: ThreadId, held: &'a Held) {
        if self.is_strangers(thread) {
            return;
        }
        if let Some(mask) = self.executed_by(thread, held.process)
            && self.is_somebodys(thread, held.process, &mask)
        {
            // It may be a thread that another process has placed, not the one that perch had bound.
            self.foreign(thread, held.process);
            self.count(thread, Outcome::ChangedByOthers);
            return;
        }
        match self.give_back(thread, held) {
            Ok(Given::Outcome(outcome)) => {
                if outcome == Outcome::Gone {
                    self.gone.entry(held.process).or_default().push(held);
                } else if outcome == Outcome::ChangedByOthers {
                    self.foreign(thread, held.process);
                }
                self.count(thread, outcome);
            }
            Ok(Given::Already) => self.report.already += 1,
            Err(why) => self.report.fail(thread, why.to_string()),
        }
    }

    /// Remembers a mask that another process may have set in a process.
    fn foreign(&mut self, thread: ThreadId, process: i32) {
        if let Some(mask) = self.foreign_mask(thread, process, None) {
            self.foreign.entry(process).or_default().insert(mask);
        }
    }

    /// The mask of a thread that is not perch's, if another process has set it and neither the kernel has made it of
    /// `given`, which is known already, nor the CPU set explains it.
    fn foreign_mask(&self, thread: ThreadId, process: i32, given: Option<&PuSet>) -> Option<PuSet> {
        let mask = self.affinity.mask(thread).ok()?;
        if given == Some(&mask) {
            return None;
        }
        let allowed = self.affinity.allowed(thread);
        let explained = allowed.as_ref().is_some_and(|allowed| {
            mask == *allowed || given.is_some_and(|given| explains(given, &mask, allowed))
        });
        (!explained && self.executed_by(thread, process).is_none()).then_some(mask)
    }

    /// Whether a thread may have inherited its mask from a thread of its process that another process has placed.
    fn is_somebodys(&self, thread: ThreadId, process: i32, mask: &PuSet) -> bool {
        let foreign = self.foreign.get(&process);
        foreign.is_some_and(|foreign| {
            let allowed = self.affinity.allowed(thread);
            foreign
                .iter()
                .any(|known| fits(known, mask, allowed.as_ref()))
        })
    }

    /// The mask of a thread that executes another program than when it was journaled, so that another of its process may
    /// have taken over its number.
    fn executed_by(&self, thread: ThreadId, pid: i32) -> Option<PuSet> {
        if thread.tid != pid {
            return None;
        }
        let start = thread.start;
        let process = ProcessId { pid, start };
        let then = self.journal.image(process)?;
        let now = self.affinity.image(process)?;
        (then != now).then(|| self.affinity.mask(thread).ok())?
    }

    /// Whether a journal of another user's asks for a thread that is none of that user's.
    fn is_strangers(&mut self, thread: ThreadId) -> bool {
        let Some(owner) = self.owner else {
            return false;
        };
        if self.affinity.belongs_to(thread, owner) {
            return false;
        }
        if let Err(MaskError::Gone) = self.affinity.mask(thread) {
            self.report.gone += 1;
        } else {
            self.report.fail(thread, strangers(owner));
        }
        true
    }

    /// Gives a mask back if it is perch's doing. The kernel may change it under our hands when PUs come and go.
    fn give_back(&mut self, thread: ThreadId, held: &Held) -> Result<Given, MaskError> {
        if !held.let_go && held.doubt.is_none() {
            // As nearly always.
            let outcome = self.change(thread, held.set.clone(), held);
            if outcome != Outcome::ChangedByOthers {
                return Ok(Given::Outcome(outcome));
            }
        }
        let mut unexplained = 0;
        for _ in 0..ROUNDS {
            let mask = match self.affinity.mask(thread) {
                Err(MaskError::Gone) => return Ok(Given::Outcome(Outcome::Gone)),
                mask => mask?,
            };
            match judge(held, &mask, self.affinity.allowed(thread).as_ref()) {
                Judged::Before => return Ok(Given::Already),
                Judged::Ours => {
                    let outcome = self.change(thread, mask, held);
                    if outcome != Outcome::ChangedByOthers {
                        return Ok(Given::Outcome(outcome));
                    }
                }
                Judged::Foreign if unexplained + 1 < LOOKS => {
                    unexplained += 1;
                    self.affinity.settle();
                }
                Judged::Foreign => break,
            }
        }
        Ok(Given::Outcome(Outcome::ChangedByOthers))
    }

    fn change(&mut self, thread: ThreadId, expect: PuSet, to: &Held) -> Outcome {
        self.affinity.change(&MaskChange {
            thread,
            process: to.process,
            expect,
            set: to.before.clone(),
            to_default: to.whole,
        })
    }

    /// Processes whose first thread is now one that perch had bound: another thread called execve(2), unobserved.
    fn executed(&mut self) {
        let processes: Vec<ProcessId> = self.journal.processes().collect();
        for process in processes {
            let ProcessId { pid, start } = process;
            let Some(gone) = self.gone.get(&pid) else {
                continue;
            };
            let first = ThreadId { tid: pid, start };
            let Some(mask) = self.executed_by(first, pid) else {
                continue;
            };
            if self.is_somebodys(first, pid, &mask) {
                continue;
            }
            let allowed = self.affinity.allowed(first);
            let ours = |held: &&&Held| judge(held, &mask, allowed.as_ref()) == Judged::Ours;
            let caller = gone.iter().find(ours);
            let Some(caller) = caller.map(|held| (*held).clone()) else {
                continue;
            };
            if self.is_strangers(first) {
                continue;
            }
            let outcome = self.change(first, mask, &caller);
            if outcome == Outcome::Applied {
                // The record of the thread that had its TID before made it count as placed by another process.
                self.report.left_alone = self.report.left_alone.saturating_sub(usize::from(
                    matches!(self.journal.thread(first), Some(Kept::Held(_))),
                ));
            }
            self.count(first, outcome);
        }
    }

    /// Threads that are not in the journal and have inherited a mask from one that is.
    fn descendants(&mut self) {
        let processes: Vec<ProcessId> = self.journal.processes().collect();
        let mut seen: HashSet<ThreadId> = HashSet::new();
        let mut looks = 0;
        let mut unknown = Vec::new();
        let foreign = std::mem::take(&mut self.foreign);
        for _ in 0..ROUNDS {
            let journal = self.journal;
            let known =
                |thread: ThreadId| journal.thread(thread).is_some() || seen.contains(&thread);
            let session = &journal.header.session;
            let descendants = match self.affinity.descendants(session, &processes, &known) {
                Ok(descendants) => descendants,
                Err(why) => {
                    self.report.fail_all(format!(
                        "threads that inherited a mask cannot be looked for: {why}"
                    ));
                    return;
                }
            };
            let families = Families::new(journal, &descendants, &foreign);
            let (mut found, mut unexplained) = (false, false);
            unknown.clear();
            // Read once for each process.
            let mut places = BTreeMap::<i32, Option<PuSet>>::new();
            for relative in &descendants {
                if seen.contains(&relative.thread) {
                    continue;
                }
                let (affinity, pid) = (&*self.affinity, relative.process.pid);
                let place = places.entry(pid);
                let allowed = || {
                    let place = place.or_insert_with(|| affinity.allowed(relative.thread));
                    place.clone()
                };
                let heir = match families.kinship(relative, allowed) {
                    Kinship::Heir(heir) => heir,
                    Kinship::Unknown(why) => {
                        unknown.push((relative.thread, why));
                        unexplained = true;
                        continue;
                    }
                    Kinship::None => {
                        // CPU sets may be changing just now: what a thread may use, and its mask, were read one after the
                        // other.
                        let place = places.get(&pid).and_then(Option::as_ref);
                        unexplained |=
                            place.is_some_and(|place| families.may_hide(relative, place));
                        continue;
                    }
                };
                seen.insert(relative.thread);
                found = true;
                if self.is_strangers(relative.thread) {
                    continue;
                }
                match self.give_back(relative.thread, &heir) {
                    Ok(Given::Outcome(outcome)) => {
                        self.report.inherited += usize::from(outcome == Outcome::Applied);
                        self.count(relative.thread, outcome);
                    }
                    Ok(Given::Already) => self.report.already += 1,
                    Err(why) => self.report.fail(relative.thread, why.to_string()),
                }
            }
            if unexplained && !found && looks < LOOKS {
                looks += 1;
                self.affinity.settle();
            } else if !found {
                break;
            }
        }
        for (thread, why) in unknown {
            if !self.is_strangers(thread) {
                self.report.fail(thread, why);
            }
        }
    }
}

/// What came of giving one mask back.
enum Given {
    Outcome(Outcome),
    /// Nothing was left to do.
    Already,
}

#[derive(Debug, PartialEq, Eq)]
enum Judged {
    /// It is perch's doing.
    Ours,
    /// It is the mask that the thread had before perch.
    Before,
    /// Another process set it.
    Foreign,
}

/// Judges the mask of a thread that perch has set to one of some masks. `allowed` is what it may use now.
fn judge(held: &Held, mask: &PuSet, allowed: Option<&PuSet>) -> Judged {
    let nothing = PuSet::new();
    let allowed = allowed.unwrap_or(&nothing);
    let somebodys = |doubt: &PuSet| {
        let kernels = |asked: &PuSet| explains(asked, doubt, allowed);
        explains(doubt, mask, allowed) && !held.asked().any(kernels)
    };
    if held.doubt.as_ref().is_some_and(somebodys) {
        Judged::Foreign
    } else if held.asked().any(|asked| explains(asked, mask, allowed)) {
        Judged::Ours
    } else if held.whole && mask == allowed
        || *mask == held.before && (!held.whole || allowed.is_subset(mask))
    {
        // The whole of a CPU set that has been widened since is not the whole of it now: the kernel is about to change
        // the mask, perhaps into the one that perch asked for.
        Judged::Before
    } else {
        Judged::Foreign
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_of_a_cpu_set_that_is_being_widened_is_not_what_it_was_before() {
        let set = |text: &str| -> PuSet { text.parse().unwrap() };
        // Inherited while its CPU set held PU 1 alone, so that this was its default mask.
        let held = Held {
            process: 1,
            before: set("1"),
            whole: true,
            from: Vec::new(),
            set: set("0"),
            let_go: false,
            doubt: None,
        };
        let judged = |mask: &str, allowed: &str| judge(&held, &set(mask), Some(&set(allowed)));
        assert_eq!(judged("1", "0-1"), Judged::Foreign, "not yet settled");
        assert_eq!(judged("0", "0-1"), Judged::Ours);
        assert_eq!(judged("1", "1"), Judged::Ours);
        assert_eq!(judged("0-1", "0-1"), Judged::Before);
        assert_eq!(judge(&held, &set("1"), None), Judged::Before);
    }
}
