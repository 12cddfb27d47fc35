//! Whose mask is it? Tells the masks that perch set from those that somebody else did.
//!
//! A thread belongs to perch only while its mask is the one that perch set, or the one that it inherited from a thread
//! on which perch had set it. Everything else was placed by somebody, and that somebody wins.

use perch_core::{HandsOff, Observation, Outcome, PuSet, ThreadId};
use std::collections::{HashMap, HashSet};

/// What is known of one thread's mask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// The mask that it goes back to.
    pub before: PuSet,
    /// The mask that it has, as last read or set.
    pub current: PuSet,
    /// Whether `current` is perch's doing (set, inherited from a thread on which it was set, or the kernel's
    /// narrowing of one that was set).
    pub held: bool,
    /// Why it must be left alone.
    pub hands_off: Option<HandsOff>,
    /// The mask that perch asked for, while `held`; the kernel may have made another of it since.
    pub asked: PuSet,
    /// Whether perch has ever set its mask.
    touched: bool,
    /// It was given up for a mask that the kernel may have made, because a PU is about to go.
    doubt: Option<Doubt>,
}

/// The kernel takes threads off a PU, with a new mask, before it says that the PU is offline.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Doubt {
    /// The last observation in which a PU that went explains the mask.
    until: u64,
    /// The mask to which the thread then goes back.
    before: PuSet,
}

/// What [`Ownership::observe`] noticed and a journal must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Noticed {
    /// A new thread has a mask that perch set on another: it inherited it.
    Inherited(ThreadId),
    /// PUs went away or came back, and the kernel changed a mask that perch had set.
    Refitted(ThreadId),
    /// A thread was placed by somebody else, or its cpuset was changed: its mask is not perch's any more.
    Foreign(ThreadId),
}

/// Observations after which a PU that was about to go must have gone.
const GOING: u64 = 3;

/// What a mask is judged by.
struct Context<'a> {
    /// The number of the observation.
    observation: u64,
    default: PuSet,
    /// The default has changed just now.
    fresh_default: bool,
    usable: &'a PuSet,
    take_over: bool,
}

/// Masks are read before the default and the PUs of a period, so some of them may show a change a period later.
const FRESH: u8 = 2;

/// The masks of all threads of a session.
#[derive(Debug)]
pub struct Ownership {
    default: PuSet,
    take_over: bool,
    threads: HashMap<ThreadId, Owned>,
    /// Each mask that this session has set, with the different masks that threads had before.
    masks: HashMap<PuSet, Vec<PuSet>>,
    /// Observations so far.
    observations: u64,
    /// The usable PUs of the last observation.
    usable: PuSet,
    /// Observations for which a mask that is the default may be the kernel's doing, since the default has changed.
    fresh_default: u8,
    /// Observations for which a mask may be what it was before PUs went, since they came back.
    fresh_pus: u8,
}

impl Ownership {
    /// Threads with another mask than `default` were placed by somebody; `take_over` places them all the same.
    pub fn new(default: PuSet, take_over: bool) -> Self {
        Self {
            default,
            take_over,
            threads: HashMap::new(),
            masks: HashMap::new(),
            observations: 0,
            usable: PuSet::new(),
            fresh_default: 0,
            fresh_pus: 0,
        }
    }

    /// The mask of threads that nobody placed.
    pub fn default_mask(&self) -> &PuSet {
        &self.default
    }

    /// The default has changed (a cpuset was widened or shrunk): threads that had the old one go back to the new one.
    /// True if it is another.
    pub fn set_default(&mut self, default: PuSet) -> bool {
        if default == self.default || default.is_empty() {
            return false;
        }
        for thread in self.threads.values_mut() {
            if thread.before == self.default {
                thread.before = default.clone();
            }
        }
        self.default = default;
        self.fresh_default = FRESH;
        true
    }

    /// What is known of a thread.
    pub fn get(&self, thread: ThreadId) -> Option<&Owned> {
        self.threads.get(&thread)
    }

    /// Every thread, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (ThreadId, &Owned)> {
        self.threads.iter().map(|(id, owned)| (*id, owned))
    }

    /// Takes in the masks of a period. `usable` are the PUs that are online and in the cpuset.
    pub fn observe(&mut self, observation: &Observation, usable: &PuSet) -> Vec<Noticed> {
        for ended in &observation.ended {
            self.threads.remove(ended);
        }
        let ended: HashSet<ThreadId> = observation.ended.iter().copied().collect();
        let mut noticed = Vec::new();
        let mut foreign = None;
        self.observations += 1;
        if !self.usable.is_empty() && !usable.is_subset(&self.usable) {
            self.fresh_pus = FRESH;
        }
        self.usable = usable.clone();
        let context = self.context(usable);
        for sample in &observation.threads {
            let id = sample.info.id;
            let Some(mask) = &sample.mask else { continue };
            if ended.contains(&id) {
                continue;
            }
            let Some(owned) = self.threads.get_mut(&id) else {
                let foreign = foreign.get_or_insert_with(|| self.foreign_masks());
                noticed.extend(self.seen_first(id, mask, usable, foreign));
                continue;
            };
            // A child of a thread whose only PU had gone when it was born: the kernel remembers the mask that it
            // inherited, and uses it again once the PU is back.
            if self.fresh_pus > 0 && owned.is_untouched() && self.masks.contains_key(mask) {
                owned.held = true;
                owned.touched = true;
                owned.asked = mask.clone();
                owned.current = mask.clone();
                noticed.push(Noticed::Inherited(id));
                continue;
            }
            noticed.extend(owned.seen_again(id, mask, &context));
        }
        self.fresh_default = self.fresh_default.saturating_sub(1);
        self.fresh_pus = self.fresh_pus.saturating_sub(1);
        noticed
    }

    /// A thread whose mask was read outside of an observation.
    pub fn learn(&mut self, thread: ThreadId, mask: &PuSet, usable: &PuSet) -> Option<Noticed> {
        let context = self.context(usable);
        if let Some(owned) = self.threads.get_mut(&thread) {
            return owned.seen_again(thread, mask, &context);
        }
        let foreign = self.foreign_masks();
        self.seen_first(thread, mask, usable, &foreign)
    }

    fn context<'a>(&self, usable: &'a PuSet) -> Context<'a> {
        Context {
            observation: self.observations,
            default: self.default.clone(),
            fresh_default: self.fresh_default > 0,
            usable,
            take_over: self.take_over,
        }
    }

    /// Masks of live threads that must be left alone: a new thread with one of them may have it from there.
    fn foreign_masks(&self) -> HashSet<PuSet> {
        self.threads
            .values()
            .filter(|owned| owned.hands_off.is_some())
            .map(|owned| owned.current.clone())
            .collect()
    }

    fn seen_first(
        &mut self,
        id: ThreadId,
        mask: &PuSet,
        usable: &PuSet,
        foreign: &HashSet<PuSet>,
    ) -> Option<Noticed> {
        let mut owned = Owned {
            before: mask.clone(),
            current: mask.clone(),
            held: false,
            hands_off: None,
            asked: mask.clone(),
            touched: false,
            doubt: None,
        };
        let mut noticed = None;
        if *mask == self.default || narrowed(&self.default, mask, usable) {
            owned.before = self.default.clone();
        } else if !foreign.contains(mask)
            && let Some(before) = inherited(self.masks.get(mask).map(Vec::as_slice), &self.default)
        {
            owned.before = before;
            owned.held = true;
            owned.touched = true;
            noticed = Some(Noticed::Inherited(id));
        } else if !self.take_over {
            owned.hands_off = Some(HandsOff::PlacedBefore);
            noticed = Some(Noticed::Foreign(id));
        }
        self.threads.insert(id, owned);
        noticed
    }

    /// A mask is about to be set: children of `thread` may have it from now on.
    pub fn will_set(&mut self, thread: ThreadId, set: &PuSet) {
        let Some(owned) = self.threads.get(&thread) else {
            return;
        };
        if *set == owned.before {
            return;
        }
        let befores = self.masks.entry(set.clone()).or_default();
        if !befores.contains(&owned.before) {
            befores.push(owned.before.clone());
        }
    }

    /// What became of setting `thread`'s mask to `set`.
    pub fn outcome(&mut self, thread: ThreadId, set: &PuSet, outcome: Outcome) {
        let Some(owned) = self.threads.get_mut(&thread) else {
            return;
        };
        match outcome {
            Outcome::Applied => {
                owned.touched = true;
                owned.held = *set != owned.before;
                owned.asked = set.clone();
                owned.current = set.clone();
            }
            Outcome::NotPermitted => owned.hands_off = Some(HandsOff::NotPermitted),
            Outcome::Gone => {
                self.threads.remove(&thread);
            }
            // Whether it was the kernel or somebody else is seen when the mask is read again.
            Outcome::ChangedByOthers | Outcome::NotApplied | Outcome::NoUsablePu => {}
        }
    }
}

impl Owned {
    fn is_untouched(&self) -> bool {
        !self.held && !self.touched && self.hands_off.is_none()
    }

    fn seen_again(&mut self, id: ThreadId, mask: &PuSet, context: &Context<'_>) -> Option<Noticed> {
        let (default, usable) = (&context.default, context.usable);
        if let Some(doubt) = self.doubt.take()
            && context.observation <= doubt.until
        {
            if refitted(&self.asked, mask, default, usable) {
                self.held = true;
                self.hands_off = None;
                self.before = doubt.before;
                self.current = mask.clone();
                return Some(Noticed::Refitted(id));
            }
            self.doubt = Some(doubt);
        }
        if *mask == self.current {
            return None;
        }
        if self.held && context.fresh_default && mask == default {
            // Nobody has placed it: with its cpuset the kernel gives every thread the whole of it.
            self.held = false;
            self.touched = false;
            self.before = mask.clone();
            self.current = mask.clone();
            return Some(Noticed::Foreign(id));
        }
        if self.held {
            if *mask == self.asked || refitted(&self.asked, mask, default, usable) {
                self.current = mask.clone();
                return Some(Noticed::Refitted(id));
            }
            self.held = false;
            self.hands_off = Some(HandsOff::ChangedByOthers);
            self.doubt = default.and(usable).is_subset(mask).then(|| Doubt {
                until: context.observation + GOING,
                before: self.before.clone(),
            });
        } else if self.hands_off.is_none() {
            self.current = mask.clone();
            if mask == default || *mask == self.before || narrowed(&self.before, mask, usable) {
                return None;
            }
            if self.touched {
                self.hands_off = Some(HandsOff::ChangedByOthers);
            } else if context.take_over {
                self.before = mask.clone();
                return None;
            } else {
                self.hands_off = Some(HandsOff::PlacedBefore);
            }
        } else if self.hands_off == Some(HandsOff::PlacedBefore) && mask == default {
            // Whoever had placed it has let it go again, and perch never touched it.
            self.hands_off = None;
        }
        self.before = mask.clone();
        self.current = mask.clone();
        self.hands_off.map(|_| Noticed::Foreign(id))
    }
}

/// The mask that a thread goes back to which inherited one that had been set on threads with these masks before:
/// theirs if they agree, else the default.
pub(crate) fn inherited(befores: Option<&[PuSet]>, default: &PuSet) -> Option<PuSet> {
    match befores? {
        [] => None,
        [before] => Some(before.clone()),
        _ => Some(default.clone()),
    }
}

/// Whether a mask is what the kernel leaves of another when PUs go away.
fn narrowed(from: &PuSet, mask: &PuSet, usable: &PuSet) -> bool {
    !mask.is_empty() && *mask == from.and(usable)
}

/// Whether the kernel, and nobody else, made `mask` out of `set`: it takes away PUs that are gone, and where none is
/// left it lets the thread run on all that there are (`cpuset_cpus_allowed_fallback`, kernel/cgroup/cpuset.c).
pub(crate) fn refitted(set: &PuSet, mask: &PuSet, default: &PuSet, usable: &PuSet) -> bool {
    let rest = default.and(usable);
    narrowed(set, mask, usable)
        || (set.is_disjoint(usable) && !rest.is_empty() && rest.is_subset(mask))
}
