//! Whose nice value does a thread have? And what does a plan change of it?

mod known;

use crate::observer::ActionTaken;
use known::{Known, LATE};
use perch_core::{
    Action, ActionKind, NiceChange, Observation, Origin, Outcome, Plan, Reason, Remark, Snapshot,
    Source, ThreadId,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Nanoseconds for which a thread that ended is remembered: its children may be reported late.
const LINGER: u64 = 3_000_000_000;

/// Where a thread comes from, and when it was created, if the kernel said so.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Birth {
    from: Source,
    at: Option<u64>,
}

/// What a journal must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NiceNoticed {
    /// A new thread has a value that perch set on another.
    Inherited(ThreadId),
    /// Another process has set the value of a thread that had one of perch's, or it has a value that perch sets on others
    /// and has it not from perch.
    Foreign(ThreadId),
}

/// The nice values of a session's threads.
#[derive(Debug, Default)]
pub(crate) struct KnownNices {
    threads: FxHashMap<ThreadId, Known>,
    departed: FxHashMap<ThreadId, Known>,
    departures: VecDeque<(u64, ThreadId)>,
    observations: u64,
    /// Threads that the last observation has shown first, and whose values are not perch's.
    pub seen: Vec<ThreadId>,
    /// All values that perch has set on some thread.
    given: BTreeSet<i32>,
}

impl KnownNices {
    pub fn get(&self, thread: ThreadId) -> Option<&Known> {
        self.threads.get(&thread)
    }

    fn known(&self, thread: ThreadId) -> Option<&Known> {
        self.threads
            .get(&thread)
            .or_else(|| self.departed.get(&thread))
    }

    /// Takes in the values of an observation.
    pub fn observe(&mut self, observation: &Observation) -> Vec<NiceNoticed> {
        self.observations += 1;
        self.seen.clear();
        self.depart(observation);
        let mut noticed = Vec::new();
        let mut born: FxHashMap<ThreadId, Birth> = FxHashMap::default();
        for Origin {
            thread,
            from,
            exec,
            at,
        } in &observation.origins
        {
            match (*exec, from) {
                // It was that thread before, which has kept its value.
                (true, Source::Thread(caller)) if caller == thread => {}
                (true, Source::Thread(caller)) => {
                    let now = observation.at;
                    self.executed(*thread, *caller, *at, now, &mut born, &mut noticed);
                }
                // Any of its threads may have been it.
                (true, Source::Process(of)) => {
                    let one = self.is_one(*of);
                    if let Some(known) = self.threads.get_mut(thread) {
                        known.unmanaged |= !one;
                    }
                }
                (false, from) => {
                    let (from, at) = (*from, *at);
                    born.insert(*thread, Birth { from, at });
                }
            }
        }
        let mut new = Vec::new();
        let ended: FxHashSet<ThreadId> = observation.ended.iter().copied().collect();
        let live = observation.nices.iter();
        for sample in live.filter(|sample| !ended.contains(&sample.thread)) {
            let id = sample.thread;
            let observations = self.observations;
            let Some(known) = self.threads.get_mut(&id) else {
                new.push((id, sample.pid, sample.nice));
                continue;
            };
            let late = known.asked.is_none() && known.first + LATE >= observations;
            if late && born.contains_key(&id) {
                new.push((id, sample.pid, sample.nice));
            } else if known.asked.is_some() && known.current != sample.nice {
                known.lose(observations);
                noticed.push(NiceNoticed::Foreign(id));
            } else if known.asked.is_none() {
                if !known.unmanaged {
                    known.before = sample.nice;
                }
                if known.current != sample.nice {
                    known.replace(observations);
                    if self.given.contains(&sample.nice) {
                        noticed.push(NiceNoticed::Foreign(id));
                    }
                }
            }
            known_current(&mut self.threads, id, sample.nice);
        }
        self.lost_after_exec(observation, &mut noticed);
        // Creators first: numbers rise, but for those that were given out again.
        new.sort_unstable_by_key(|(id, ..)| (id.start, id.tid));
        for (id, pid, nice) in new {
            let known = self.first_seen(id, pid, nice, &born);
            if known.asked.is_some() {
                noticed.push(NiceNoticed::Inherited(id));
            } else if self.given.contains(&nice) {
                noticed.push(NiceNoticed::Foreign(id));
            } else {
                self.seen.push(id);
            }
            self.threads.insert(id, known);
        }
        self.remember_unseen(observation, &born);
        noticed
    }

    /// A thread called execve(2), at `called`, and is now its process's first `thread`, with the value that it had.
    fn executed(
        &mut self,
        thread: ThreadId,
        caller: ThreadId,
        called: Option<u64>,
        at: u64,
        born: &mut FxHashMap<ThreadId, Birth>,
        noticed: &mut Vec<NiceNoticed>,
    ) {
        match self.known(caller).cloned() {
            Some(mut now) => {
                // A group is that of a thread by its number: it gets another one.
                if std::mem::take(&mut now.grouped) {
                    now.weight = None;
                }
                // What it created before has the old number for its creator.
                now.former.clear();
                now.own.clear();
                // The journal may know the number with the state of the former first thread.
                noticed.push(match now.asked {
                    Some(_) => NiceNoticed::Inherited(thread),
                    None => NiceNoticed::Foreign(thread),
                });
                if let Some(mut former) = self.threads.insert(thread, now) {
                    former.until = called;
                    self.remember(thread, former, at);
                }
            }
            // The caller came after the last look, so the value is from the thread that created it.
            None => {
                let creator = born.get(&caller).copied();
                if let Some(creator) = creator.filter(|of| of.from != Source::Thread(thread)) {
                    born.insert(thread, creator);
                    if let Some(mut former) = self.threads.remove(&thread) {
                        former.until = called;
                        self.remember(thread, former, at);
                    }
                }
            }
        }
    }

    /// Callers of execve(2) that were found with a value from another process: that may have set it before the call, when
    /// they had another number.
    fn lost_after_exec(&mut self, observation: &Observation, noticed: &mut Vec<NiceNoticed>) {
        for origin in observation.origins.iter().filter(|origin| origin.exec) {
            let Some(now) = self.threads.get(&origin.thread) else {
                continue;
            };
            if now.asked.is_some() {
                continue;
            }
            noticed.retain(|of| *of != NiceNoticed::Inherited(origin.thread));
            if let Source::Thread(caller) = origin.from
                && caller != origin.thread
                && let Some(former) = self.departed.get_mut(&caller)
            {
                former.own.insert(now.current, u64::MAX);
            }
        }
    }

    /// A thread as it was until this moment: what it created may be seen later. It changes no more, so what is found late
    /// was created in its last time.
    fn remember(&mut self, thread: ThreadId, mut known: Known, at: u64) {
        known.forget_old(self.observations);
        let values = known.former.values_mut().chain(known.own.values_mut());
        values.for_each(|of| *of = u64::MAX);
        self.departed.insert(thread, known);
        self.departures.push_back((at + LINGER, thread));
    }

    /// The thread as it is, and as it was before an execve or its end: whichever of them may have created a thread then.
    fn known_and_former(
        &self,
        thread: ThreadId,
        then: Option<u64>,
    ) -> impl Iterator<Item = &Known> {
        let former = self.departed.get(&thread);
        let earlier = former.and_then(|former| Some(then? < former.until?));
        let now = self.threads.get(&thread).filter(|_| earlier != Some(true));
        let former = former.filter(|_| earlier != Some(false));
        now.into_iter().chain(former)
    }

    /// Threads that came and went between two looks: what they created may be seen only in the next, and has its value
    /// from their creators.
    fn remember_unseen(&mut self, observation: &Observation, born: &FxHashMap<ThreadId, Birth>) {
        let mut ended: Vec<ThreadId> = observation.ended.clone();
        ended.sort_unstable_by_key(|id| (id.start, id.tid));
        for id in ended {
            if self.known(id).is_none()
                && let Some(Source::Thread(creator)) = born.get(&id).map(|birth| birth.from)
                && let Some(known) = self.known(creator).cloned()
            {
                self.departed.insert(id, known);
                self.departures.push_back((observation.at + LINGER, id));
            }
        }
    }

    /// Whether perch has done the same to all threads of a process.
    fn is_one(&self, pid: i32) -> bool {
        let all = self.threads.values().chain(self.departed.values());
        let mut all = all
            .filter(|known| known.pid == pid)
            .map(|known| (known.before, known.asked));
        let first = all.next();
        all.all(|next| Some(next) == first)
    }

    fn depart(&mut self, observation: &Observation) {
        for ended in &observation.ended {
            if let Some(known) = self.threads.remove(ended) {
                self.remember(*ended, known, observation.at);
            }
        }
        while let Some((until, thread)) = self.departures.front().copied()
            && until < observation.at
        {
            self.departures.pop_front();
            self.departed.remove(&thread);
        }
    }

    /// Where a new thread has its value from: from the thread that created it, or from one of a process's threads if it
    /// is not known from which.
    fn first_seen(
        &self,
        id: ThreadId,
        pid: i32,
        nice: i32,
        born: &FxHashMap<ThreadId, Birth>,
    ) -> Known {
        let now = self.observations;
        let free = Known::free(pid, nice, now);
        let heir = |of: &Known| Known {
            before: of.before,
            asked: Some(nice),
            weight: of.weight,
            ..free.clone()
        };
        // If the creator was itself created just now, it passed on the value that it had before another process set it.
        let mut birth = born.get(&id).copied();
        for _ in 0..born.len() {
            match birth {
                Some(Birth {
                    from: Source::Thread(creator),
                    at,
                }) if !self
                    .known_and_former(creator, at)
                    .any(|known| known.handed_on(nice, now))
                    && born.contains_key(&creator) =>
                {
                    birth = born.get(&creator).copied();
                }
                _ => break,
            }
        }
        let from = birth.map(|birth| birth.from);
        let of_process = |of: i32| {
            let all = self.threads.iter().chain(&self.departed);
            all.filter(move |(other, known)| **other != id && known.pid == of)
                .map(|(_, known)| known)
        };
        match from {
            Some(Source::Thread(creator)) => {
                let at = birth.and_then(|birth| birth.at);
                let states = || self.known_and_former(creator, at);
                let mut own = states().filter(|of| of.has_own(nice, now)).peekable();
                let mut perchs = states().filter(|of| of.handed_on(nice, now));
                match (own.peek().is_some(), perchs.next()) {
                    // From perch, or from the process that has set it since, or that has set it on the one that had the
                    // creator's number before or after an execve.
                    (true, perch) => Known {
                        unmanaged: perch.is_some() || own.any(|of| of.unmanaged),
                        ..free
                    },
                    (false, Some(first)) if perchs.all(|of| of.before == first.before) => {
                        heir(first)
                    }
                    (false, Some(_)) => Known {
                        unmanaged: true,
                        ..free
                    },
                    (false, None) => free,
                }
            }
            // A thread whose origin was not seen was most likely created by one of its own process.
            Some(Source::Process(_)) | None => {
                // perch has set this value nowhere, so it cannot be inherited from perch.
                if !self.given.contains(&nice) {
                    return free;
                }
                let of = match from {
                    Some(Source::Process(of)) => of,
                    _ => pid,
                };
                let mut givers = of_process(of).filter(|known| known.handed_on(nice, now));
                let Some(first) = givers.next() else {
                    return free;
                };
                let one = givers.all(|other| other.before == first.before);
                let others = of_process(of).any(|known| known.has_own(nice, now));
                match one && !others {
                    true => heir(first),
                    false => Known {
                        unmanaged: true,
                        ..free
                    },
                }
            }
        }
    }

    /// perch is about to set this value: the threads that have it, and have it not from perch.
    pub fn give(&mut self, nice: i32) -> Vec<NiceNoticed> {
        if !self.given.insert(nice) {
            return Vec::new();
        }
        let mut others: Vec<ThreadId> = self
            .threads
            .iter()
            .filter(|(_, known)| known.asked.is_none() && known.current == nice)
            .map(|(id, _)| *id)
            .collect();
        others.sort_unstable();
        others.into_iter().map(NiceNoticed::Foreign).collect()
    }

    /// Forgets the threads of these processes.
    pub fn forget(&mut self, pids: &FxHashSet<i32>) {
        self.threads.retain(|_, known| !pids.contains(&known.pid));
        self.departed.retain(|_, known| !pids.contains(&known.pid));
    }

    /// What a plan changes, by rising thread. Threads that must be left alone are passed over.
    pub fn difference(&self, plan: &Plan) -> Vec<ActionTaken> {
        let wanted: BTreeMap<ThreadId, &Action> = plan
            .actions
            .iter()
            .filter(|action| is_weight(action))
            .map(|action| (action.thread, action))
            .collect();
        let mut held: Vec<ThreadId> = self
            .threads
            .iter()
            .filter(|(id, known)| {
                (known.asked.is_some() || known.grouped) && !wanted.contains_key(*id)
            })
            .map(|(id, _)| *id)
            .collect();
        held.sort_unstable();
        let released = held.into_iter().map(|thread| ActionTaken {
            thread,
            from: self.threads[&thread].weight,
            to: None,
            reason: Reason::new("no longer in the plan"),
            outcome: Outcome::NotApplied,
            by_group: false,
        });
        let free = |thread: &ThreadId| self.get(*thread).filter(|known| !known.unmanaged);
        let set = wanted.iter().filter_map(|(thread, action)| {
            let known = free(thread)?;
            (known.weight != Some(action.what)).then(|| ActionTaken {
                thread: *thread,
                from: known.weight,
                to: Some(action.what),
                reason: action.reason.clone(),
                outcome: Outcome::NotApplied,
                by_group: false,
            })
        });
        released.chain(set).collect()
    }

    /// The change that an action needs; `None` if the thread has the value already, or is not known any more.
    pub fn change(&self, taken: &ActionTaken) -> Option<NiceChange> {
        let known = self.get(taken.thread)?;
        let set = match taken.to {
            Some(ActionKind::CpuWeight(weight)) => weight.nice(),
            Some(ActionKind::CacheWays(_)) => return None,
            None => known.before,
        };
        (set != known.current).then_some(NiceChange {
            thread: taken.thread,
            expect: known.current,
            set,
        })
    }

    /// Takes in what became of an action; in a dry run it counts as done.
    pub fn taken(&mut self, taken: &ActionTaken, change: Option<&NiceChange>, dry_run: bool) {
        let now = self.observations;
        let Some(known) = self.threads.get_mut(&taken.thread) else {
            return;
        };
        match taken.outcome {
            Outcome::Applied if taken.by_group => {
                known.weight = taken.to;
                known.grouped = taken.to.is_some();
            }
            Outcome::Applied => {
                if let Some(change) = change {
                    known.replace(now);
                    known.current = change.set;
                    known.asked = taken.to.map(|_| change.set);
                }
                known.weight = taken.to;
            }
            Outcome::NotApplied if dry_run => known.weight = taken.to,
            Outcome::ChangedByOthers => {
                known.lose(now);
            }
            // It will be no other next time.
            Outcome::NotPermitted => known.unmanaged = true,
            Outcome::Gone | Outcome::NotApplied | Outcome::Failed | Outcome::NoUsablePu => {}
        }
    }
}

fn is_weight(action: &Action) -> bool {
    matches!(action.what, ActionKind::CpuWeight(_))
}

fn known_current(threads: &mut FxHashMap<ThreadId, Known>, id: ThreadId, nice: i32) {
    if let Some(known) = threads.get_mut(&id) {
        known.current = nice;
    }
}

/// Takes out of a plan actions that must not be taken; the remarks name the policy's error. One on a thread that has
/// ended since the policy was asked is passed over later.
pub(crate) fn check(plan: &mut Plan, snapshot: &Snapshot, policy: &str) -> Vec<Remark> {
    let mut wrong = Vec::new();
    let mut seen = FxHashSet::default();
    plan.actions.retain(|action| {
        if !is_weight(action) {
            return true;
        }
        let fault = match snapshot.thread(action.thread) {
            None => Some("gave a thread a weight that is not there"),
            Some(_) if !seen.insert(action.thread) => Some("gave a thread two weights"),
            Some(_) => None,
        };
        wrong.extend(fault.map(|fault| {
            let text = format!("a bug in policy {policy}: it {fault}; the weight was not set");
            Remark::error("policy-bug", text)
        }));
        fault.is_none()
    });
    wrong
}
