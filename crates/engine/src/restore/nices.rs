//! Giving threads back the nice values that they had before perch.

use super::{
    EXEC_LOOKS, ROUNDS,
    execs::{Executed, UNDECIDED, executed},
    family::{
        ADOPTED, IN_GROUP, home, is_doubtful, may_be_below, may_inherit, parents, shared_groups,
    },
    relatives::{Relatives, STRANGER},
    report::{Refusals, RestoreCounts},
    strangers,
};
use crate::journal::{Journal, NiceKept, NiceRecord, NiceSetRecord};
use perch_core::{Affinity, MaskError, NiceChange, Outcome, ProcessId, ThreadId};
use std::collections::{BTreeSet, HashMap, HashSet};

const REFUSED: &str = "the kernel refused to set its nice value";

const REFUSALS: Refusals = Refusals {
    not_permitted: "not permitted: run `perch restore` as root",
    failed: REFUSED,
    no_usable_pu: REFUSED,
    not_applied: REFUSED,
};

/// Gives each thread of a journal the nice value that it had before perch, if it still has one that perch may have set;
/// and descendants of the session's processes that have inherited such a value. `owner` is as in [`super::restore`].
pub(super) fn restore_nices(
    affinity: &mut dyn Affinity,
    journal: &Journal,
    owner: Option<u32>,
) -> RestoreCounts {
    let mut restoring = Restoring {
        affinity,
        journal,
        owner,
        report: RestoreCounts::default(),
        foreign: HashSet::new(),
        gone: HashMap::new(),
        alive: HashSet::new(),
        undecided: HashSet::new(),
        listed: HashSet::new(),
    };
    if journal.nices().next().is_some() || journal.nice_sets().next().is_some() {
        restoring.known();
        restoring.await_execs();
        restoring.executed();
        restoring.descendants(false);
        restoring.late_descendants();
    }
    restoring.report
}

struct Restoring<'a> {
    affinity: &'a mut dyn Affinity,
    journal: &'a Journal,
    owner: Option<u32>,
    report: RestoreCounts,
    /// Values that other processes have set, by process.
    foreign: HashSet<(i32, i32)>,
    /// Threads whose values perch had set and that have exited, by process.
    gone: HashMap<i32, Vec<NiceRecord>>,
    /// Processes of which a thread that perch knew lives, other than the first: none has called execve(2) since.
    alive: HashSet<i32>,
    /// Values of first threads of which it is unknown whether perch has set them, by process.
    undecided: HashSet<(i32, i32)>,
    /// Threads outside of the journal that were there when those were looked for first.
    listed: HashSet<ThreadId>,
}

impl Restoring<'_> {
    fn nice(&mut self, thread: ThreadId) -> Result<i32, MaskError> {
        let weights = self.affinity.weights();
        weights.map_or(Err(MaskError::Gone), |weights| weights.nice(thread))
    }

    /// The threads in the journal, except those that may be others now.
    fn known(&mut self) {
        for (thread, kept) in self.journal.nices() {
            let now = self.nice(thread);
            let process = match kept {
                NiceKept::Placed { process, .. } => *process,
                NiceKept::Held(held) => held.process,
            };
            if now.is_ok() && thread.tid != process {
                self.alive.insert(process);
            }
            match (kept, now) {
                (NiceKept::Placed { process, nice }, now) => {
                    let now = now
                        .ok()
                        .filter(|_| self.has_executed(thread, *process) == Executed::No);
                    let nices = [*nice, now].into_iter().flatten();
                    self.foreign.extend(nices.map(|nice| (*process, nice)));
                }
                (NiceKept::Held(held), Err(MaskError::Gone)) => {
                    self.report.gone += 1;
                    self.gone.entry(held.process).or_default().push(*held);
                }
                (NiceKept::Held(_), Err(why)) => self.report.fail(thread, why.to_string()),
                (NiceKept::Held(held), Ok(_))
                    if self.has_executed(thread, held.process) == Executed::Yes => {}
                (NiceKept::Held(held), Ok(now)) if now == held.before => self.report.already += 1,
                (NiceKept::Held(held), Ok(now)) if may_be_ours(held, now) => {
                    self.change(thread, now, held.before);
                }
                (NiceKept::Held(held), Ok(_))
                    if self.has_executed(thread, held.process) == Executed::Unknown =>
                {
                    self.report.left_alone += 1;
                }
                (NiceKept::Held(held), Ok(now)) => {
                    self.foreign.insert((held.process, now));
                    self.report.left_alone += 1;
                }
            }
        }
    }

    /// Whether another program runs than when the thread was journaled, so that another thread of its process may have
    /// taken over its number.
    fn has_executed(&self, thread: ThreadId, pid: i32) -> Executed {
        executed(self.affinity, self.journal, thread, pid)
    }

    /// The first thread of a process of which it is unknown whether another thread called execve(2).
    fn may_have_executed(&mut self, first: ThreadId) {
        let Ok(now) = self.nice(first) else {
            return;
        };
        let pid = first.tid;
        let kept = self.journal.nice(first);
        let held = match kept {
            // It was restored, or had its value already.
            Some(NiceKept::Held(own)) if may_be_ours(own, now) || now == own.before => return,
            Some(NiceKept::Placed { nice, .. }) if *nice == Some(now) => return,
            Some(NiceKept::Held(_)) => true,
            Some(NiceKept::Placed { .. }) | None => false,
        };
        let mut gone = self.gone.get(&pid).into_iter().flatten();
        let caller = !self.alive.contains(&pid) && gone.any(|held| held.set == now);
        if caller && !self.foreign.contains(&(pid, now)) {
            // It may have been counted as restored, before an execve that nobody saw.
            let left = self.report.left_alone.saturating_sub(usize::from(held));
            self.report.left_alone = left;
            self.report.fail(first, UNDECIDED);
            self.undecided.insert((pid, now));
        } else if kept.is_some() {
            self.foreign.insert((pid, now));
        }
    }

    /// Waits for calls of execve(2) that are under way, as for masks ([`super::Restoring::await_execs`]).
    fn await_execs(&mut self) {
        let mut processes: Vec<ProcessId> = self.journal.processes().collect();
        processes.retain(|process| self.affinity.images_differ(*process));
        for _ in 0..EXEC_LOOKS {
            processes.retain(|process| self.may_be_executing(*process));
            if processes.is_empty() {
                return;
            }
            self.affinity.settle();
        }
    }

    fn may_be_executing(&mut self, process: ProcessId) -> bool {
        let ProcessId { pid, start } = process;
        let first = ThreadId { tid: pid, start };
        let Ok(now) = self.nice(first) else {
            return false;
        };
        let own = match self.journal.nice(first) {
            Some(NiceKept::Held(own)) => own.set == now || own.before == now,
            Some(NiceKept::Placed { nice, .. }) => *nice == Some(now),
            None => false,
        };
        let gone = self.gone.get(&pid);
        !own && gone.is_some_and(|gone| {
            gone.iter()
                .any(|held| held.set == now && held.before != now)
        }) && self.has_executed(first, pid) != Executed::Yes
    }

    /// The first threads of processes that execute another program: each may be what it was, or one that has exited under
    /// its own number.
    fn executed(&mut self) {
        let processes: Vec<ProcessId> = self.journal.processes().collect();
        for ProcessId { pid, start } in processes {
            let first = ThreadId { tid: pid, start };
            match self.has_executed(first, pid) {
                Executed::Yes => {}
                Executed::No => continue,
                Executed::Unknown => {
                    self.may_have_executed(first);
                    continue;
                }
            }
            let own = match self.journal.nice(first) {
                Some(NiceKept::Held(held)) => Some(*held),
                Some(NiceKept::Placed { .. }) | None => None,
            };
            let Ok(now) = self.nice(first) else {
                continue;
            };
            let gone = self.gone.remove(&pid).unwrap_or_default();
            let ours = own.into_iter().chain(gone);
            let mut ours = ours.filter(|held| may_be_ours(held, now));
            match ours.next() {
                None if own.is_some_and(|own| own.before == now) => self.report.already += 1,
                None => self.report.left_alone += usize::from(own.is_some()),
                // It may be a thread that another process has given this value, or it is not known which it was.
                Some(held)
                    if self.foreign.contains(&(pid, now))
                        || ours.any(|other| other.before != held.before) =>
                {
                    self.report.left_alone += 1;
                }
                Some(held) if held.before == now => self.report.already += 1,
                Some(held) => {
                    self.change(first, now, held.before);
                }
            }
        }
    }

    /// Whether what a user's journal says would give that user's thread more than the user may have: perch could not have
    /// lowered its value below what it goes back to.
    fn is_more_than_owned(&mut self, thread: ThreadId, expect: i32, set: i32) -> bool {
        let weights = self.affinity.weights();
        self.owner.is_some()
            && set < expect
            && weights.is_some_and(|weights| !weights.may_be_lowered(thread, set))
    }

    /// Sets a value; whether that was done.
    fn change(&mut self, thread: ThreadId, expect: i32, set: i32) -> bool {
        if let Some(owner) = self.owner
            && !self.affinity.belongs_to(thread, owner)
        {
            match self.nice(thread) {
                Err(MaskError::Gone) => self.report.gone += 1,
                _ => self.report.fail(thread, strangers(owner)),
            }
            return false;
        }
        if self.is_more_than_owned(thread, expect, set) {
            let why = format!(
                "its user may not lower a nice value to {set}: if you trust the journal, name it (`perch restore FILE`)"
            );
            self.report.fail(thread, why);
            return false;
        }
        let change = NiceChange {
            thread,
            expect,
            set,
        };
        let weights = self.affinity.weights();
        let outcome = weights.map_or(Outcome::Gone, |weights| weights.change_nice(&change));
        self.report.count(thread, outcome, &REFUSALS);
        outcome == Outcome::Applied
    }

    /// As for masks ([`super::Restoring::late_descendants`]).
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

    /// Threads that are not in the journal and have inherited a value from one that is; all, or those that came `late`.
    fn descendants(&mut self, late: bool) {
        let looked_at: BTreeSet<i32> = self.journal.looked_at().collect();
        let sets: Vec<NiceSetRecord> = self.journal.nice_sets().collect();
        let mut seen = HashSet::new();
        let mut all_parents = HashMap::new();
        // A thread that is born while its parent is being restored is found by looking again.
        for _ in 0..ROUNDS {
            let journal = self.journal;
            let known = |thread: ThreadId| journal.nice(thread).is_some() || seen.contains(&thread);
            let relatives = match Relatives::find(self.affinity, journal, &known) {
                Ok(relatives) => relatives,
                Err(why) => {
                    self.report.fail_all(format!(
                        "threads that inherited a nice value cannot be looked for: {why}"
                    ));
                    return;
                }
            };
            all_parents.extend(parents(&relatives.all));
            let parents = &all_parents;
            if seen.is_empty() {
                // What has a value that perch has set in its process only after it was created has it from others.
                for relative in &relatives.all {
                    let (thread, pid) = (relative.thread, relative.process.pid);
                    let Ok(nice) = self.nice(thread) else {
                        continue;
                    };
                    let of_it = |set: &&NiceSetRecord| set.process == pid && set.set == nice;
                    let mut same = sets.iter().filter(of_it).peekable();
                    if same.peek().is_some()
                        && same.all(|set| set.at > thread.start)
                        && self.has_executed(thread, pid) == Executed::No
                    {
                        self.foreign.insert((pid, nice));
                    }
                }
            }
            let shared = shared_groups(journal, &relatives.all);
            let mut found = false;
            for relative in &relatives.all {
                let thread = relative.thread;
                if late && self.listed.contains(&thread) {
                    continue;
                }
                let Ok(nice) = self.nice(thread) else {
                    continue;
                };
                let home = home(relative.process.pid, &looked_at, parents);
                let mut givers = sets.iter().filter(|set| {
                    set.set == nice
                        && may_inherit(relative, set.process, set.at)
                        && home.is_none_or(|home| home == set.process)
                });
                let Some(first) = givers.next() else {
                    // One that was adopted shows its adopter as its parent.
                    let pid = relative.process.pid;
                    let below = |home| {
                        sets.iter().any(|set| {
                            set.set == nice
                                && set.at <= thread.start
                                && may_be_below(set.process, home, &looked_at, parents)
                        })
                    };
                    if home.is_some_and(|home| home != pid && below(home)) {
                        seen.insert(thread);
                        self.report.fail(thread, ADOPTED);
                    }
                    continue;
                };
                seen.insert(thread);
                let of_family = |values: &HashSet<(i32, i32)>| {
                    let mut values = values.iter();
                    values.any(|(process, of)| {
                        *of == nice && home.is_none_or(|home| home == *process)
                    })
                };
                if relatives.may_be_strange(relative) {
                    self.report.fail(thread, STRANGER);
                    continue;
                }
                if of_family(&self.undecided) {
                    let told = |(of, _): &(Option<ThreadId>, String)| *of == Some(thread);
                    if !self.report.failed.iter().any(told) {
                        self.report.fail(thread, UNDECIDED);
                    }
                    continue;
                }
                let one = givers.all(|set| set.before == first.before);
                if is_doubtful(relative, &shared) {
                    self.report.fail(thread, IN_GROUP);
                } else if !one || of_family(&self.foreign) {
                    // No later look can tell, so the journal need not stay for it.
                    self.report.left_alone += 1;
                } else if self.change(thread, nice, first.before) {
                    self.report.inherited += 1;
                    found = true;
                }
            }
            if !late {
                let all = relatives.all.iter();
                self.listed.extend(all.map(|relative| relative.thread));
            }
            if !found {
                return;
            }
        }
    }
}

/// Whether perch may have set the value that a thread has now.
fn may_be_ours(held: &NiceRecord, now: i32) -> bool {
    now == held.set || now == held.from
}
