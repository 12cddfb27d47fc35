//! Processes in which a thread other than the first called execve(2). Their first thread then has the caller's mask, and
//! the caller's own TID no longer exists.

use super::{
    EXEC_LOOKS, Restoring,
    execs::{Executed, UNDECIDED},
    judge::{Judged, judge},
};
use crate::journal::{Held, Kept};
use perch_core::{Outcome, ProcessId, PuSet, ThreadId};

impl Restoring<'_> {
    /// Waits for calls of execve(2) that are under way: the caller has the first thread's number and its own mask before
    /// the process shows another program.
    pub(super) fn await_execs(&self) {
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
    pub(super) fn executed(&mut self) {
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
    pub(super) fn may_have_executed(&mut self) {
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
}
