//! Whose mask is it? Tells the masks that perch set from those that somebody else did.
//!
//! A mask is perch's doing only if perch set it on this very thread, or on the one from which the thread has it: its
//! creator when it was created, or the thread that it was before execve(2). That a mask equals one that perch used
//! elsewhere says nothing. Everything else was placed by somebody, and that somebody wins.

mod descent;
mod fit;
mod owned;

pub(crate) use fit::explains;
pub use owned::Owned;

use owned::{Moment, Place, Verdict};
use perch_core::{
    HandsOff, Observation, Origin, Outcome, ProcessId, ProcessState, PuSet, Source, ThreadId,
    ThreadSample,
};
use std::collections::{HashMap, HashSet, VecDeque};

/// What [`Ownership::observe`] noticed and a journal must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noticed {
    /// A new thread has a mask that perch set on another: it inherited it.
    Inherited(ThreadId),
    /// PUs or CPU sets changed, and the kernel changed a mask that perch had set.
    Refitted(ThreadId),
    /// A thread was placed by somebody else: its mask is not perch's any more.
    Foreign(ThreadId),
    /// A thread has a mask that is somebody else's unless a change that is not yet seen explains it.
    Doubted(ThreadId),
    /// A process executes another program.
    Executed(ThreadId),
}

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// Observations for which a thread that ended is remembered: what it created may be told later.
const DEPARTED: u64 = 3;

/// Observations for which a change of a CPU set may explain a mask that was read before or after it.
const FRESH: u64 = 2;

/// Observations in which a thread's origin may still be told after it was seen first.
const LATE: u64 = 2;

/// A process, as it was last told.
#[derive(Debug)]
struct Process {
    state: ProcessState,
    /// The last observation for which the change to this state is news.
    fresh_until: u64,
}

/// The masks of all threads of a session.
#[derive(Debug)]
pub struct Ownership {
    take_over: bool,
    threads: HashMap<ThreadId, Owned>,
    /// Threads that ended lately, each with the observation in which it did.
    departed: HashMap<ThreadId, Owned>,
    departures: VecDeque<(u64, ThreadId)>,
    processes: HashMap<i32, Process>,
    /// Threads that were given up for now.
    doubted: HashSet<ThreadId>,
    /// Observations so far, by seconds.
    observations: u64,
    /// When the last one was counted, in nanoseconds since the machine was opened.
    counted: u64,
    /// For processes of which nothing is told (simulated machines, old recordings).
    default: PuSet,
    usable: PuSet,
    fresh_until: u64,
}

/// Threads that were created, with whose mask they got and when.
type Births = HashMap<ThreadId, (Source, Option<u64>)>;

/// What one observation is judged with.
struct Look<'a> {
    ended: HashSet<ThreadId>,
    born: Births,
    /// Threads that are there under a number that they did not have when they were created.
    reborn: HashMap<ThreadId, Option<u64>>,
    allowed: &'a dyn Fn(ThreadId) -> Option<PuSet>,
    /// When masks were read, by the machine's clock.
    at: Option<u64>,
    /// What threads of a process have in common with a mask, for masks of unknown origin.
    families: HashMap<(i32, PuSet), Family>,
    /// Threads that were there before this observation, by process; made when first needed.
    elders: Option<HashMap<i32, Vec<ThreadId>>>,
}

/// What is known of a mask from those who may have handed it on.
#[derive(Debug, Clone)]
enum Family {
    /// Nobody that perch has bound has it.
    None,
    /// Some have it from perch, others not.
    Some,
    /// Whoever it was has it from perch: the mask asked for, and that to which it goes back.
    All(PuSet, PuSet, bool),
}

impl Ownership {
    /// `default` is the mask of threads that nobody placed, where the machine tells nothing of their process;
    /// `take_over` places all the same what somebody has placed.
    pub fn new(default: PuSet, take_over: bool) -> Self {
        Self {
            take_over,
            threads: HashMap::new(),
            departed: HashMap::new(),
            departures: VecDeque::new(),
            processes: HashMap::new(),
            doubted: HashSet::new(),
            observations: 0,
            counted: 0,
            default,
            usable: PuSet::new(),
            fresh_until: 0,
        }
    }

    /// The mask of threads that nobody placed, where the machine tells nothing of their process.
    pub fn default_mask(&self) -> &PuSet {
        &self.default
    }

    /// The default has changed. True if it is another.
    pub fn set_default(&mut self, default: PuSet) -> bool {
        if default == self.default || default.is_empty() {
            return false;
        }
        self.default = default;
        self.fresh_until = self.observations + FRESH;
        let place = self.fallback();
        let told = &self.processes;
        for owned in self.threads.values_mut() {
            if !told.contains_key(&owned.pid) {
                owned.set_default(&place);
            }
        }
        true
    }

    /// The target of a process: the number under which it was given to perch.
    pub fn target(&self, pid: i32) -> u32 {
        let process = self.processes.get(&pid);
        process.map_or(0, |process| process.state.target)
    }

    /// The mask of a process's threads that nobody placed, and whether it is all that the CPU set allows.
    pub fn default_of(&self, pid: i32) -> (&PuSet, bool) {
        match self.processes.get(&pid) {
            Some(process) => (&process.state.default, process.state.whole),
            None => (&self.default, true),
        }
    }

    /// What is known of a thread.
    pub fn get(&self, thread: ThreadId) -> Option<&Owned> {
        self.threads.get(&thread)
    }

    /// Every thread, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (ThreadId, &Owned)> {
        self.threads.iter().map(|(id, owned)| (*id, owned))
    }

    /// Threads whose binding the kernel has replaced, in no particular order.
    pub fn lapsed(&self) -> impl Iterator<Item = ThreadId> {
        let lapsed = self.threads.iter().filter(|(_, owned)| owned.lapsed());
        lapsed.map(|(id, _)| *id)
    }

    /// Takes in the masks of a period. `usable` are the PUs that are online and in the CPU set, for processes of which
    /// nothing is told; `allowed` asks the same of one thread, now.
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
        let mut look = Look {
            ended: observation.ended.iter().copied().collect(),
            born: HashMap::new(),
            reborn: HashMap::new(),
            allowed,
            at,
            families: HashMap::new(),
            elders: None,
        };
        let (executed, born): (Vec<&Origin>, Vec<&Origin>) =
            observation.origins.iter().partition(|origin| origin.exec);
        look.born.extend(
            born.iter()
                .map(|origin| (origin.thread, (origin.from, origin.at))),
        );
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
        for sample in samples {
            let id = sample.info.id;
            if look.ended.contains(&id) {
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
                    noticed.extend(match (creators, seen) {
                        (Some(of), Some(Noticed::Foreign(_))) => {
                            self.still_unknown(id, of, mask, &mut look)
                        }
                        _ => seen,
                    });
                }
                (None, _) => {}
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
        let mut look = Look {
            ended: HashSet::new(),
            born: HashMap::new(),
            reborn: HashMap::new(),
            allowed,
            at: None,
            families: HashMap::new(),
            elders: None,
        };
        self.seen_first(thread, pid, mask, &mut look)
    }

    /// What became of setting `thread`'s mask to `set`, between two moments of the machine's clock if it has one.
    pub fn outcome(
        &mut self,
        thread: ThreadId,
        set: &PuSet,
        outcome: Outcome,
        span: Option<(u64, u64)>,
    ) {
        if outcome == Outcome::Gone {
            self.depart(thread);
        } else if let Some(pid) = self.threads.get(&thread).map(|owned| owned.pid) {
            let allowed = self.place(pid).allowed;
            if let Some(owned) = self.threads.get_mut(&thread) {
                owned.outcome(set, outcome, self.observations, span);
                // Older kernels strike offline PUs from a mask that is set, and do not bring them back.
                let rest = set.and(&allowed);
                if outcome == Outcome::Applied && !owned.held() && !rest.is_empty() && rest != *set
                {
                    owned.struck = Some(rest.clone());
                    owned.current = rest;
                }
            }
        }
    }

    /// Observations that follow each other faster than once a second count as one: what is told late is late by time.
    fn count(&mut self, at: u64) {
        if at == 0 || self.observations == 0 || at >= self.counted + SECOND {
            self.observations += 1;
            self.counted = at;
        }
    }

    fn take_in_places(&mut self, observation: &Observation, usable: &PuSet) {
        if *usable != self.usable {
            let before = std::mem::replace(&mut self.usable, usable.clone());
            if !before.is_empty() {
                self.fresh_until = self.observations + FRESH;
            }
        }
        let mut changed = HashSet::new();
        for state in &observation.processes {
            let pid = state.process.pid;
            let known = self.processes.get(&pid);
            let told = Process {
                state: state.clone(),
                // That it is new is no change.
                fresh_until: known.map_or(0, |_| self.observations + FRESH),
            };
            let same_default = |old: &Process| {
                (&old.state.default, old.state.whole) == (&told.state.default, told.state.whole)
            };
            if known.is_some_and(|old| !same_default(old)) {
                changed.insert(pid);
            }
            self.processes.insert(pid, told);
        }
        if changed.is_empty() {
            return;
        }
        let mut threads = std::mem::take(&mut self.threads);
        for owned in threads.values_mut() {
            if changed.contains(&owned.pid) {
                owned.set_default(&self.place(owned.pid));
            }
        }
        self.threads = threads;
    }

    /// Forgets a process that has ended.
    pub fn forget_process(&mut self, process: ProcessId) {
        let pid = process.pid;
        if self
            .processes
            .get(&pid)
            .is_some_and(|known| known.state.process == process)
        {
            self.processes.remove(&pid);
        }
    }

    fn depart(&mut self, thread: ThreadId) {
        if let Some(owned) = self.threads.remove(&thread) {
            self.doubted.remove(&thread);
            self.departures.push_back((self.observations, thread));
            self.departed.insert(thread, owned);
        }
    }

    fn forget_departed(&mut self) {
        while let Some((at, thread)) = self.departures.front()
            && at + DEPARTED < self.observations
        {
            self.departed.remove(thread);
            self.departures.pop_front();
        }
    }

    fn known(&self, thread: ThreadId) -> Option<&Owned> {
        self.threads
            .get(&thread)
            .or_else(|| self.departed.get(&thread))
    }

    /// The thread itself, or if it was never seen the nearest one that created it.
    fn seen_of(&self, thread: ThreadId, born: &Births) -> ThreadId {
        let mut at = thread;
        for _ in 0..=born.len() {
            match born.get(&at) {
                Some((Source::Thread(creator), _)) if self.known(at).is_none() => at = *creator,
                _ => break,
            }
        }
        at
    }

    /// How a thread that was never seen came to its mask: from the nearest known one above it.
    fn birth_of(&self, thread: ThreadId, born: &Births) -> Option<(Source, Option<u64>)> {
        let mut birth = *born.get(&thread)?;
        for _ in 0..=born.len() {
            match birth {
                (Source::Thread(creator), _) if self.known(creator).is_none() => {
                    birth = *born.get(&creator)?;
                }
                _ => break,
            }
        }
        Some(birth)
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

    fn place(&self, pid: i32) -> Place {
        match self.processes.get(&pid) {
            Some(process) => Place {
                default: process.state.default.clone(),
                whole: process.state.whole,
                allowed: process.state.allowed.clone(),
                fresh: process.fresh_until >= self.observations,
            },
            None => self.fallback(),
        }
    }

    fn fallback(&self) -> Place {
        Place {
            default: self.default.clone(),
            whole: true,
            allowed: self.default.and(&self.usable),
            fresh: self.fresh_until >= self.observations,
        }
    }

    /// A process executes another program: its first thread is now the one that called execve(2).
    fn executed(&mut self, origin: &Origin) -> Option<Noticed> {
        let thread = origin.thread;
        let caller = match origin.from {
            Source::Thread(caller) if caller == thread => return None,
            Source::Thread(caller) => self.known(caller).cloned(),
            Source::Process(pid) => self.only_caller(thread, pid),
        };
        let pid = self
            .threads
            .get(&thread)
            .map_or(thread.tid, |owned| owned.pid);
        let mut owned = caller?;
        owned.pid = pid;
        if let Some(set) = self.known(thread)
            && set.was_set_after(origin.at)
        {
            // Perch knew nothing of it yet, and has set the mask of what had been the caller.
            let (before, whole) = (owned.before, owned.whole);
            let place = self.place(pid);
            owned = set.clone();
            (owned.before, owned.whole) = match before.is_disjoint(&place.allowed) {
                // The kernel would not take it: its CPU set is what can be given back.
                true => (place.default, place.whole),
                false => (before, whole),
            };
        }
        let noticed = if owned.asked.is_some() {
            Noticed::Inherited(thread)
        } else {
            Noticed::Foreign(thread)
        };
        if let Source::Thread(caller) = origin.from {
            self.depart(caller);
        }
        owned.set_default(&self.place(pid));
        let former = self.known(thread).cloned();
        self.doubted.remove(&thread);
        if owned.is_doubted() {
            self.doubted.insert(thread);
        }
        self.threads.insert(thread, owned);
        self.keep_former(thread, origin.at, former);
        Some(noticed)
    }

    /// Remembers what had a thread's number until that moment: it may have created others.
    fn keep_former(&mut self, thread: ThreadId, until: Option<u64>, former: Option<Owned>) {
        if let Some(owned) = self.threads.get_mut(&thread) {
            owned.former = until.zip(former).map(|(until, mut former)| {
                former.former = None;
                (until, Box::new(former))
            });
        }
    }

    /// Who called execve(2) in a process, where nobody saw it: only if all that may have are in the same state, and
    /// otherwise than the first thread.
    fn only_caller(&self, first: ThreadId, pid: i32) -> Option<Owned> {
        let others = self.threads.iter().chain(&self.departed);
        let mut others = others.filter(|(id, owned)| owned.pid == pid && **id != first);
        let (_, one) = others.next()?;
        let alike = |other: &Owned| {
            (&other.asked, other.hands_off, &other.before)
                == (&one.asked, one.hands_off, &one.before)
        };
        let all = others.all(|(_, other)| alike(other));
        (all && self.threads.get(&first).is_none_or(alike)).then(|| one.clone())
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
            Some((Source::Process(of), _)) => self.child_in(of, pid, mask, &place, look),
            None => None,
        }
        .unwrap_or_else(|| {
            let free = *mask == place.default
                || explains(&place.default, mask, &place.allowed) && !place.whole;
            if free {
                Owned::free(pid, mask, place.default.clone(), place.whole)
            } else {
                Owned::foreign(pid, mask, HandsOff::PlacedBefore)
            }
        });
        if self.take_over
            && matches!(
                owned.hands_off,
                Some(HandsOff::PlacedBefore | HandsOff::Unknown)
            )
        {
            owned = Owned::free(pid, mask, mask.clone(), false);
        }
        // That of the one from which it has its mask may be out of date, or another's.
        owned.set_default(&place);
        if !matches!(source, Some((Source::Thread(_), _))) {
            owned.open_until = Some(self.observations + LATE);
        }
        let mut noticed = Vec::new();
        match (&owned.asked, owned.hands_off) {
            (Some(_), _) => noticed.push(Noticed::Inherited(id)),
            (None, Some(_)) => noticed.push(Noticed::Foreign(id)),
            (None, None) => {}
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

    /// A thread that has its mask from perch or from somebody else, not known which, shows another mask, which the kernel
    /// cannot have made of the first: as before, if one of those who may have created it explains this one too.
    fn still_unknown(
        &mut self,
        id: ThreadId,
        of: i32,
        mask: &PuSet,
        look: &mut Look<'_>,
    ) -> Option<Noticed> {
        let pid = self.threads.get(&id)?.pid;
        let place = self.place(pid);
        let Some(owned) = self.child_in(of, pid, mask, &place, look) else {
            return Some(Noticed::Foreign(id));
        };
        let noticed = owned.held().then_some(Noticed::Inherited(id));
        self.threads.insert(id, owned);
        noticed
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
