//! Giving threads back the masks that they had before perch.

mod descendants;
mod execs;
mod executed;
mod family;
mod groups;
mod irqs;
mod judge;
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
use execs::{Executed, executed};
use family::{Foreign, fits};
use judge::{Judged, judge};
use perch_core::{Affinity, MaskChange, MaskError, Outcome, PuSet, ThreadId};
pub(crate) use relatives::may_have_inherited;
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
}

/// What came of giving one mask back.
enum Given {
    Outcome(Outcome),
    /// Nothing was left to do.
    Already,
}
