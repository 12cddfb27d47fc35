//! Whose mask is it? Tells the masks that perch set from those that other processes set: the program itself, a tool of
//! the user, the administrator.
//!
//! A mask is perch's doing only if perch set it on this very thread, or on the one from which the thread has it: its
//! creator when it was created, or the thread that it was before execve(2). That a mask equals one that perch used
//! elsewhere proves nothing. Every other mask was set by another process, which takes precedence over perch.

mod departed;
mod descent;
mod exec;
mod fit;
mod owned;
mod processes;

pub(crate) use fit::explains;
pub use owned::Owned;

use descent::{Births, Look};
use owned::{Moment, Verdict};
use perch_core::{Observation, Origin, Outcome, PuSet, Source, ThreadId, ThreadSample, Unmanaged};
use processes::Process;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;

/// What [`Ownership::observe`] noticed and a journal must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noticed {
    /// A new thread has a mask that perch set on another: it inherited it.
    Inherited(ThreadId),
    /// PUs or CPU sets changed, and the kernel changed a mask that perch had set.
    Refitted(ThreadId),
    /// Another process placed a thread: its mask is not perch's any more.
    Foreign(ThreadId),
    /// A thread has a mask that another process set, unless a change that perch has not seen yet explains it.
    Doubted(ThreadId),
    /// A process executes another program.
    Executed(ThreadId),
}

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// Observations for which a thread's origin may still be reported after the thread was first seen.
const LATE: u64 = 2;

/// The masks of all threads of a session.
#[derive(Debug)]
pub struct Ownership {
    take_over: bool,
    threads: FxHashMap<ThreadId, Owned>,
    /// Threads that ended lately, each with the observation in which it did.
    departed: FxHashMap<ThreadId, Owned>,
    departures: VecDeque<(u64, ThreadId)>,
    processes: FxHashMap<i32, Process>,
    /// Threads that were given up for now.
    doubted: FxHashSet<ThreadId>,
    /// Threads that were seen first since this was last asked for, and whose masks are not perch's.
    seen: Vec<ThreadId>,
    /// Observations so far, by seconds.
    observations: u64,
    /// When the last one was counted, in nanoseconds since the machine was opened.
    counted: u64,
    /// For processes of which the machine reports nothing (simulated machines, old recordings).
    default: PuSet,
    usable: PuSet,
    fresh_until: u64,
}

impl Ownership {
    /// `default` is the mask of threads whose affinity was not set, for processes of which the machine reports nothing.
    /// With `take_over`, perch also places threads that other processes have placed.
    pub fn new(default: PuSet, take_over: bool) -> Self {
        Self {
            take_over,
            threads: FxHashMap::default(),
            departed: FxHashMap::default(),
            departures: VecDeque::new(),
            processes: FxHashMap::default(),
            doubted: FxHashSet::default(),
            seen: Vec::new(),
            observations: 0,
            counted: 0,
            default,
            usable: PuSet::new(),
            fresh_until: 0,
        }
    }

    /// Whether perch also places what other processes have placed.
    pub fn takes_over(&self) -> bool {
        self.take_over
    }

    /// The mask of threads whose affinity was not set, for processes of which the machine reports nothing.
    pub fn default_mask(&self) -> &PuSet {
        &self.default
    }

    /// Ownership of a thread's mask; `None` if the thread is unknown.
    pub fn get(&self, thread: ThreadId) -> Option<&Owned> {
        self.threads.get(&thread)
    }

    /// Every thread, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (ThreadId, &Owned)> {
        self.threads.iter().map(|(id, owned)| (*id, owned))
    }

    /// Threads that were seen first since the last call, and whose masks no process has set.
    pub(crate) fn take_seen(&mut self) -> Vec<ThreadId> {
        std::mem::take(&mut self.seen)
    }

    /// Threads whose binding the kernel has replaced, in no particular order.
    pub fn lapsed(&self) -> impl Iterator<Item = ThreadId> {
        let lapsed = self.threads.iter().filter(|(_, owned)| owned.lapsed());
        lapsed.map(|(id, _)| *id)
    }

    /// Takes in the masks of a period. `usable` are the PUs that are online and in the CPU set, for processes of which
    /// the machine reports nothing. `allowed` asks the same of one thread, now.
    pub fn observe(
        &mut self,
        observation: &Observation,
        usable: &PuSet,
        allowed: &dyn Fn(ThreadId) -> Option<PuSet>,
    ) -> Vec<Noticed> {
        self.count(observation.at);
        let at = Some(observation.at);
        self.take_in_places(observation, usable);
        let mut noticed = Vec::new();
        for ended in &observation.ended {
            self.depart(*ended);
        }
        self.forget_departed();
        let mut look = Look::new(allowed, at);
        look.ended.extend(&observation.ended);
        let (executed, born): (Vec<&Origin>, Vec<&Origin>) =
            observation.origins.iter().partition(|origin| origin.exec);
        look.born.extend(
            born.iter()
                .map(|origin| (origin.thread, (origin.from, origin.at))),
        );
        // What is there under the first one's number was sampled under its own a moment ago.
        let callers = executed.iter().filter_map(|origin| match origin.from {
            Source::Thread(caller) => Some(caller).filter(|caller| *caller != origin.thread),
            Source::Process(_) => None,
        });
        let callers: FxHashSet<ThreadId> = callers.collect();
        for origin in executed {
            noticed.push(Noticed::Executed(origin.thread));
            if let Source::Thread(caller) = origin.from
                && self.known(caller).is_none()
                && let Some(birth) = self.birth_of(caller, &look.born)
            {
                // It was created and called execve between two looks: as if its process's first thread were new, unless
                // perch has set its mask since, not knowing.
                let first = self.threads.get(&origin.thread);
                if !first.is_some_and(|first| first.was_set_after(origin.at)) {
                    look.born.insert(origin.thread, birth);
                    look.reborn.insert(origin.thread, origin.at);
                }
            } else {
                noticed.extend(self.executed(origin));
            }
        }
        // An ended process may have executed another program before.
        for ended in &observation.ended {
            self.depart(*ended);
        }
        // Those that are there under another's number first: others have their masks from them.
        let is_reborn = |sample: &&ThreadSample| look.reborn.contains_key(&sample.info.id);
        let (mut samples, others): (Vec<_>, Vec<_>) =
            observation.threads.iter().partition(is_reborn);
        samples.extend(others);
        let mut gone = Vec::new();
        for sample in samples {
            let id = sample.info.id;
            if look.ended.contains(&id) || callers.contains(&id) {
                gone.push(sample);
                continue;
            }
            let late = self.may_be_told_late(id, &look.born);
            let reborn = late || look.reborn.contains_key(&id);
            match (&sample.mask, self.threads.contains_key(&id)) {
                (Some(mask), false) => {
                    noticed.extend(self.seen_first(id, sample.info.pid, mask, &mut look));
                }
                (mask, true) if reborn => {
                    let mask = mask
                        .clone()
                        .unwrap_or_else(|| self.threads[&id].current.clone());
                    let former = self.threads.get(&id).cloned();
                    noticed.extend(self.seen_first(id, sample.info.pid, &mask, &mut look));
                    if let Some(at) = look.reborn.get(&id) {
                        self.keep_former(id, *at, former);
                    }
                }
                (Some(mask), true) => {
                    let creators = self.threads[&id].creators;
                    let seen = self.seen_again(id, mask, at, allowed);
                    if let (Some(of), Some(Noticed::Foreign(_))) = (creators, seen) {
                        noticed.extend(self.still_unknown(id, of, mask, &mut look));
                    } else {
                        noticed.extend(seen);
                    }
                }
                (None, _) => {}
            }
        }
        // One that came and went between two looks: what it created may be seen only in the next.
        for sample in gone {
            let id = sample.info.id;
            if self.known(id).is_none()
                && let Some(mask) = &sample.mask
            {
                // No journal needs to know of it.
                let _ = self.seen_first(id, sample.info.pid, mask, &mut look);
                self.depart(id);
            }
        }
        // Their masks may stay as they are while what explains them changes.
        let doubted: Vec<ThreadId> = self.doubted.iter().copied().collect();
        for id in doubted {
            if let Some(mask) = self.threads.get(&id).map(|owned| owned.current.clone()) {
                noticed.extend(self.seen_again(id, &mask, at, allowed));
            } else {
                self.doubted.remove(&id);
            }
        }
        noticed
    }

    /// A thread whose mask was read outside of an observation.
    pub fn learn(
        &mut self,
        thread: ThreadId,
        pid: i32,
        mask: &PuSet,
        allowed: &dyn Fn(ThreadId) -> Option<PuSet>,
    ) -> Vec<Noticed> {
        if self.threads.contains_key(&thread) {
            return Vec::from_iter(self.seen_again(thread, mask, None, allowed));
        }
        let mut look = Look::new(allowed, None);
        self.seen_first(thread, pid, mask, &mut look)
    }

    /// What became of setting `thread`'s mask to `set`, between two moments of the machine's clock if it has one. `rest` are
    /// the PUs of `set` that could be used just then, if those were not all.
    pub fn outcome(
        &mut self,
        thread: ThreadId,
        set: &PuSet,
        outcome: Outcome,
        span: Option<(u64, u64)>,
        rest: Option<&PuSet>,
    ) {
        if outcome == Outcome::Gone {
            self.depart(thread);
        } else if let Some(pid) = self.threads.get(&thread).map(|owned| owned.pid) {
            let allowed = self.place(pid).allowed;
            if let Some(owned) = self.threads.get_mut(&thread) {
                owned.outcome(set, outcome, self.observations, span);
                // Older kernels strike offline PUs from a mask that is set, and do not bring them back.
                let rest = rest.cloned().unwrap_or_else(|| set.and(&allowed));
                if outcome == Outcome::Applied && !owned.held() && !rest.is_empty() && rest != *set
                {
                    owned.struck = Some(rest.clone());
                    owned.current = rest;
                }
            }
        }
    }

    /// Observations less than a second apart count as one: late reports are late by time, not by number of
    /// observations.
    fn count(&mut self, at: u64) {
        if at == 0 || self.observations == 0 || at >= self.counted + SECOND {
            self.observations += 1;
            self.counted = at;
        }
    }

    /// Whether a birth that is reported now says whose mask a thread has: perch must not have set it since.
    fn may_be_told_late(&self, thread: ThreadId, born: &Births) -> bool {
        let Some((_, at)) = born.get(&thread) else {
            return false;
        };
        self.threads.get(&thread).is_some_and(|owned| {
            owned.open_until >= Some(self.observations) && !owned.was_set_after(*at)
        })
    }

    fn seen_first(
        &mut self,
        id: ThreadId,
        pid: i32,
        mask: &PuSet,
        look: &mut Look<'_>,
    ) -> Vec<Noticed> {
        let place = self.place(pid);
        let source = look.born.get(&id).copied();
        let mut owned = match source {
            Some((Source::Thread(creator), at)) => {
                self.child_of((creator, at), pid, mask, &place, look, id)
            }
            Some((Source::Process(of), _)) => self.child_in(of, pid, mask, &place, look, id),
            None => None,
        }
        .unwrap_or_else(|| {
            let free = *mask == place.default
                || explains(&place.default, mask, &place.allowed) && !place.whole;
            if free {
                Owned::free(pid, mask, place.default.clone(), place.whole)
            } else {
                Owned::foreign(pid, mask, Unmanaged::PlacedBefore)
            }
        });
        if self.take_over
            && matches!(
                owned.unmanaged,
                Some(Unmanaged::PlacedBefore | Unmanaged::Unknown)
            )
        {
            owned = Owned::free(pid, mask, mask.clone(), false);
        }
        // That of the one from which it has its mask may be out of date, or another's.
        owned.set_default(&place);
        if !matches!(source, Some((Source::Thread(_), _))) {
            owned.open_until = Some(self.observations + LATE);
        }
        self.enter(id, owned)
    }

    /// Takes in what is known of a thread, and reports what a journal must know of it.
    fn enter(&mut self, id: ThreadId, owned: Owned) -> Vec<Noticed> {
        let mut noticed = Vec::new();
        match (&owned.asked, owned.unmanaged) {
            (Some(_), _) => noticed.push(Noticed::Inherited(id)),
            (None, Some(_)) => noticed.push(Noticed::Foreign(id)),
            (None, None) => self.seen.push(id),
        }
        if owned.is_doubted() {
            noticed.push(Noticed::Doubted(id));
            self.doubted.insert(id);
        } else {
            self.doubted.remove(&id);
        }
        self.threads.insert(id, owned);
        noticed
    }

    /// It was unknown whether this thread has its mask from perch or from another process. Now it has a different mask,
    /// which the kernel cannot have derived from the first. It stays unknown if one of its possible creators explains
    /// the new mask too.
    fn still_unknown(
        &mut self,
        id: ThreadId,
        of: i32,
        mask: &PuSet,
        look: &mut Look<'_>,
    ) -> Vec<Noticed> {
        let pid = self.threads[&id].pid;
        let open_until = self.threads[&id].open_until;
        let place = self.place(pid);
        let Some(mut owned) = self.child_in(of, pid, mask, &place, look, id) else {
            return vec![Noticed::Foreign(id)];
        };
        owned.set_default(&place);
        owned.open_until = open_until;
        self.enter(id, owned)
    }

    fn seen_again(
        &mut self,
        id: ThreadId,
        mask: &PuSet,
        at: Option<u64>,
        allowed: &dyn Fn(ThreadId) -> Option<PuSet>,
    ) -> Option<Noticed> {
        let pid = self.threads.get(&id)?.pid;
        let place = self.place(pid);
        let take_over = self.take_over;
        let observation = self.observations;
        let moment = Moment { observation, at };
        let owned = self.threads.get_mut(&id)?;
        let verdict = owned.judge(mask, &place, moment, take_over, || allowed(id));
        if owned.is_doubted() {
            self.doubted.insert(id);
        } else {
            self.doubted.remove(&id);
        }
        match verdict {
            Verdict::Same => None,
            Verdict::Refitted => Some(Noticed::Refitted(id)),
            Verdict::Doubted => Some(Noticed::Doubted(id)),
            Verdict::Foreign => Some(Noticed::Foreign(id)),
        }
    }
}
