//! Giving threads back the masks that they had before perch.

mod execs;
mod family;
mod groups;
mod irqs;
mod nices;
mod recover;
mod relatives;
mod report;
mod settings;

pub use irqs::restore_irqs;
pub use recover::{Recovery, recover_all, recover_one};
pub use report::{RestoreCounts, RestoreReport};
pub use settings::restore_settings;

use crate::{
    journal::{Held, Journal, Kept},
    ownership::explains,
};
use execs::{Executed, UNDECIDED, executed};
use family::{Families, Foreign, Kinship, fits};
use perch_core::{Affinity, MaskChange, MaskError, Outcome, ProcessId, PuSet, ThreadId};
pub(crate) use relatives::may_have_inherited;
use relatives::{Relatives, STRANGER};
use report::Refusals;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A thread that is born while its parent is being restored is found by looking again; more rounds than this are
/// only needed by a fork bomb.
pub(crate) const ROUNDS: usize = 64;

/// How often a mask is read again that nothing explains: the kernel changes masks and CPU sets one after the other.
const LOOKS: usize = 4;

/// How often a process is looked at whose execve(2) may be under way: with [`Affinity::settle`], a second.
pub(super) const EXEC_LOOKS: usize = 50;

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
    let settings = match owner {
        None => restore_settings(affinity.settings(), journal),
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
        undecided: HashMap::new(),
        gone: BTreeMap::new(),
        alive: HashSet::new(),
        changed: HashSet::new(),
        listed: HashSet::new(),
    };
    restoring.known_threads();
    restoring.await_execs();
    restoring.executed();
    restoring.may_have_executed();
    restoring.descendants(false);
    restoring.late_descendants();
    RestoreReport {
        masks: restoring.report,
        irqs,
        settings,
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
    /// Masks of first threads of which it is unknown whether perch has set them, by process.
    undecided: Foreign,
    /// Threads that perch had bound and that have exited, by process.
    gone: BTreeMap<i32, Vec<&'a Held>>,
    /// Processes of which a thread that perch knew lives, other than the first: none has called execve(2) since.
    alive: HashSet<i32>,
    /// Bound threads whose masks have changed since.
    changed: HashSet<ThreadId>,
    /// Threads outside of the journal that were there when those were looked for first.
    listed: HashSet<ThreadId>,
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
                    // A CPU set of its own gives a thread that mask without any process having set it.
                    let own = || self.affinity.allowed(thread).as_ref() == Some(mask);
                    if self.affinity.mask(thread).as_ref() != Ok(mask) || !own() {
                        let known = self.foreign.entry(*process).or_default();
                        known.insert(mask.clone());
                    }
                    (*process, Some(mask))
                }
                Kept::Free { process } => (*process, None),
                Kept::Held(_) => continue,
            };
            let Ok(mask) = self.affinity.mask(thread) else {
                continue;
            };
            if thread.tid != process {
                self.alive.insert(process);
            }
            if self.is_foreign(thread, process, &mask, given) {
                unexplained.push((thread, process, given));
            }
        }
        if !unexplained.is_empty() {
            // Its mask and its CPU set were read one after the other, and both may be changing.
            self.affinity.settle();
        }
        for (thread, process, given) in unexplained {
            if let Ok(mask) = self.affinity.mask(thread)
                && self.is_foreign(thread, process, &mask, given)
            {
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
            && self.may_inherit_foreign(thread, held.process, &mask)
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
                    self.changed.insert(thread);
                    self.foreign(thread, held.process);
                }
                self.lives(thread, held.process, outcome);
                self.count(thread, outcome);
            }
            Ok(Given::Already) => {
                self.lives(thread, held.process, Outcome::Applied);
                self.report.already += 1;
            }
            Err(why) => self.report.fail(thread, why.to_string()),
        }
    }

    fn lives(&mut self, thread: ThreadId, process: i32, outcome: Outcome) {
        if thread.tid != process && outcome != Outcome::Gone {
            self.alive.insert(process);
        }
    }

    /// Remembers a mask that another process may have set in a process.
    fn foreign(&mut self, thread: ThreadId, process: i32) {
        if let Ok(mask) = self.affinity.mask(thread)
            && self.is_foreign(thread, process, &mask, None)
        {
            self.foreign.entry(process).or_default().insert(mask);
        }
    }

    /// Whether another process has set the mask of a thread that is not perch's: neither the kernel has made it of
    /// `given`, which is known already, nor does the CPU set explain it. Not where another thread may have taken over its
    /// number: [`Self::may_have_executed`] looks at those.
    fn is_foreign(
        &self,
        thread: ThreadId,
        process: i32,
        mask: &PuSet,
        given: Option<&PuSet>,
    ) -> bool {
        // No process has set the default mask.
        if given == Some(mask) || given.is_none() && *mask == self.journal.header.default {
            return false;
        }
        let allowed = self.affinity.allowed(thread);
        let explained = allowed.as_ref().is_some_and(|allowed| {
            mask == allowed || given.is_some_and(|given| explains(given, mask, allowed))
        });
        !explained && self.has_executed(thread, process) == Executed::No
    }

    fn has_executed(&self, thread: ThreadId, pid: i32) -> Executed {
        executed(self.affinity, self.journal, thread, pid)
    }

    /// Whether a thread may have inherited its mask from a thread of its process that another process has placed.
    fn may_inherit_foreign(&self, thread: ThreadId, process: i32, mask: &PuSet) -> bool {
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
        match self.has_executed(thread, pid) {
            Executed::Yes => self.affinity.mask(thread).ok(),
            Executed::No | Executed::Unknown => None,
        }
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

    /// Waits for calls of execve(2) that are under way: the caller has the first thread's number and its own mask before
    /// the process shows another program.
    fn await_execs(&self) {
        let under_way = |process: ProcessId| {
            let ProcessId { pid, start } = process;
            let first = ThreadId { tid: pid, start };
            let Some(gone) = self.gone.get(&pid) else {
                return false;
            };
            let Ok(mask) = self.affinity.mask(first) else {
                return false;
            };
            let own = match self.journal.thread(first) {
                Some(Kept::Held(own)) => own.set == mask || own.before == mask,
                Some(Kept::Placed { mask: own, .. }) => *own == mask,
                Some(Kept::Free { .. }) | None => false,
            };
            let ours = || {
                let allowed = self.affinity.allowed(first);
                let mut gone = gone.iter();
                gone.any(|held| judge(held, &mask, allowed.as_ref()) == Judged::Ours)
            };
            // Those that were alive a moment ago may have been ended by the call.
            let others = self.journal.threads().filter(|(thread, kept)| {
                let process = match kept {
                    Kept::Held(held) => held.process,
                    Kept::Placed { process, .. } | Kept::Free { process } => *process,
                };
                process == pid && thread.tid != pid
            });
            let mut others = others.map(|(thread, _)| self.affinity.mask(thread));
            !own && self.affinity.images_differ(process)
                && self.has_executed(first, pid) != Executed::Yes
                && ours()
                && !others.any(|mask| mask.is_ok())
        };
        let mut processes: Vec<ProcessId> = self.journal.processes().collect();
        for _ in 0..EXEC_LOOKS {
            processes.retain(|process| under_way(*process));
            if processes.is_empty() {
                return;
            }
            self.affinity.settle();
        }
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
            if self.may_inherit_foreign(first, pid, &mask) {
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

    /// First threads of processes of which it is unknown whether another thread called execve(2): if one has the mask of a
    /// thread that perch had bound and that is gone, it may be that one, or another process has given it that mask.
    fn may_have_executed(&mut self) {
        let processes: Vec<ProcessId> = self.journal.processes().collect();
        for ProcessId { pid, start } in processes {
            let first = ThreadId { tid: pid, start };
            let kept = self.journal.thread(first);
            let held = matches!(kept, Some(Kept::Held(_)));
            if held && !self.changed.contains(&first)
                || self.has_executed(first, pid) != Executed::Unknown
            {
                continue;
            }
            let Ok(mask) = self.affinity.mask(first) else {
                continue;
            };
            let allowed = self.affinity.allowed(first);
            let ours = |held: &&Held| judge(held, &mask, allowed.as_ref()) == Judged::Ours;
            let mut gone = self.gone.get(&pid).into_iter().flatten().copied();
            let caller = !self.alive.contains(&pid) && gone.any(|held| ours(&held));
            if caller && !self.may_inherit_foreign(first, pid, &mask) {
                if self.is_strangers(first) {
                    continue;
                }
                // It was counted as changed by others.
                self.report.left_alone -= usize::from(held);
                self.report.fail(first, UNDECIDED);
                self.undecided.entry(pid).or_default().insert(mask);
            } else if (kept.is_some() || self.was_set(pid, &mask))
                && allowed.as_ref() != Some(&mask)
            {
                self.foreign.entry(pid).or_default().insert(mask);
            }
        }
    }

    fn was_set(&self, pid: i32, mask: &PuSet) -> bool {
        let mut masks = self.journal.masks();
        masks.any(|set| set.process == pid && set.set == *mask)
    }

    /// Masks of threads that are older than perch's own of the same value: others have set these.
    fn older(&self, families: &Families, relatives: &Relatives) -> Foreign {
        let mut foreign = self.foreign.clone();
        for relative in &relatives.all {
            let (thread, pid) = (relative.thread, relative.process.pid);
            if families.is_older(relative)
                && self.has_executed(thread, pid) == Executed::No
                && self.affinity.allowed(thread).as_ref() != Some(&relative.mask)
            {
                let home = families.home(pid).unwrap_or(pid);
                foreign
                    .entry(home)
                    .or_default()
                    .insert(relative.mask.clone());
            }
        }
        foreign
    }

    /// Threads that were being created while their creators were given their masks back. What showed before is not looked
    /// at again: its mask may be another process's by now.
    fn late_descendants(&mut self) {
        if self.report.restored == 0 {
            return;
        }
        self.affinity.settle_births();
        let first = std::mem::take(&mut self.report);
        self.descendants(true);
        let late = std::mem::replace(&mut self.report, first);
        self.report.add_late(late);
    }

    /// Threads that are not in the journal and have inherited a mask from one that is; all, or those that came `late`.
    fn descendants(&mut self, late: bool) {
        let mut seen: HashSet<ThreadId> = HashSet::new();
        let mut looks = 0;
        let mut left = Vec::new();
        let undecided = self.undecided.clone();
        let mut older: Option<Foreign> = None;
        let mut parents = HashMap::new();
        for _ in 0..ROUNDS {
            let journal = self.journal;
            let known =
                |thread: ThreadId| journal.thread(thread).is_some() || seen.contains(&thread);
            let relatives = match Relatives::find(self.affinity, journal, &known) {
                Ok(relatives) => relatives,
                Err(why) => {
                    self.report.fail_all(format!(
                        "threads that inherited a mask cannot be looked for: {why}"
                    ));
                    return;
                }
            };
            // Those of processes of which every thread has been seen are not listed again.
            parents.extend(family::parents(&relatives.all));
            let foreign = &*older.get_or_insert_with(|| {
                let families = Families::new(
                    journal,
                    (&parents, &relatives.all),
                    &self.foreign,
                    &undecided,
                );
                self.older(&families, &relatives)
            });
            let families = Families::new(journal, (&parents, &relatives.all), foreign, &undecided);
            let (mut found, mut unexplained) = (false, false);
            left.clear();
            // Read once for each process. But its threads may be in CPU sets of their own.
            let mut places = BTreeMap::<i32, Option<PuSet>>::new();
            for relative in &relatives.all {
                if seen.contains(&relative.thread) || late && self.listed.contains(&relative.thread)
                {
                    continue;
                }
                let (affinity, pid) = (&*self.affinity, relative.process.pid);
                let mut place = None;
                let allowed = || {
                    let own = || affinity.allowed(relative.thread);
                    place = match places.entry(pid).or_insert_with(own) {
                        Some(whole) if *whole == relative.mask => Some(whole.clone()),
                        _ => own(),
                    };
                    place.clone()
                };
                let heir = match families.kinship(relative, allowed) {
                    Kinship::Heir(_) | Kinship::Unknown(_)
                        if relatives.may_be_strange(relative) =>
                    {
                        left.push((relative.thread, STRANGER));
                        continue;
                    }
                    Kinship::Heir(heir) => heir,
                    Kinship::Unknown(why) => {
                        left.push((relative.thread, why));
                        unexplained = true;
                        continue;
                    }
                    Kinship::None => {
                        // CPU sets may be changing just now: what a thread may use, and its mask, were read one after the
                        // other.
                        unexplained |=
                            place.is_some_and(|place| families.may_hide(relative, &place));
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
            if !late {
                let all = relatives.all.iter();
                self.listed.extend(all.map(|relative| relative.thread));
            }
            if unexplained && !found && looks < LOOKS {
                looks += 1;
                self.affinity.settle();
            } else if !found {
                break;
            }
        }
        for (thread, why) in left {
            let told = |(of, _): &(Option<ThreadId>, String)| *of == Some(thread);
            if !self.report.failed.iter().any(told) && !self.is_strangers(thread) {
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
    let foreign = |doubt: &PuSet| {
        let kernels = |asked: &PuSet| explains(asked, doubt, allowed);
        explains(doubt, mask, allowed) && !held.asked().any(kernels)
    };
    if held.doubt.as_ref().is_some_and(foreign) {
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
