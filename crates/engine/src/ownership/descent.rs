//! From whom a new thread has its mask.

use super::{
    Ownership,
    fit::explains,
    owned::{Moment, Owned, Place},
};
use perch_core::{PuSet, Source, ThreadId, Unmanaged};
use rustc_hash::{FxHashMap, FxHashSet};

/// Threads that were created, with whose mask they got and when.
pub(super) type Births = FxHashMap<ThreadId, (Source, Option<u64>)>;

/// What one observation is judged with.
pub(super) struct Look<'a> {
    pub ended: FxHashSet<ThreadId>,
    pub born: Births,
    /// Threads that are there under a number that they did not have when they were created.
    pub reborn: FxHashMap<ThreadId, Option<u64>>,
    pub allowed: &'a dyn Fn(ThreadId) -> Option<PuSet>,
    /// When masks were read, by the machine's clock.
    pub at: Option<u64>,
    /// What threads of a process have in common with a mask, for masks of unknown origin.
    families: FxHashMap<(i32, PuSet), Family>,
    /// Threads that were there before this observation, by process; made when first needed.
    elders: Option<FxHashMap<i32, Vec<ThreadId>>>,
    /// How the first threads of processes came to be; made when first needed.
    first_threads: Option<FxHashMap<i32, (Source, Option<u64>)>>,
}

impl<'a> Look<'a> {
    /// For masks that were read at that moment, with nothing else known as yet.
    pub(super) fn new(allowed: &'a dyn Fn(ThreadId) -> Option<PuSet>, at: Option<u64>) -> Self {
        Self {
            ended: FxHashSet::default(),
            born: FxHashMap::default(),
            reborn: FxHashMap::default(),
            allowed,
            at,
            families: FxHashMap::default(),
            elders: None,
            first_threads: None,
        }
    }
}

/// What is known of a mask from those who may have handed it on.
#[derive(Debug, Clone)]
enum Family {
    /// No thread that perch has bound has it.
    None,
    /// Some have it from perch, others not.
    Some,
    /// Every possible creator has it from perch: the mask asked for, and the mask to restore.
    All(PuSet, PuSet, bool),
}

impl Ownership {
    /// How a thread that was never seen came to its mask: from the nearest known one above it.
    pub(super) fn birth_of(
        &self,
        thread: ThreadId,
        born: &Births,
    ) -> Option<(Source, Option<u64>)> {
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

    /// A thread whose creator is known; `None` if that one's mask does not explain the child's.
    pub(super) fn child_of(
        &self,
        (creator, at): (ThreadId, Option<u64>),
        pid: i32,
        mask: &PuSet,
        place: &Place,
        look: &Look<'_>,
        id: ThreadId,
    ) -> Option<Owned> {
        let mut handed = None;
        let (mut above, mut when) = (creator, at);
        // If the creator was itself created just now, it passed on the mask that it had before another process placed
        // it.
        for _ in 0..=look.born.len() {
            handed = self.known(above).and_then(|above| {
                let above = above.as_it_was(when);
                let mut handed_on = above.handed_on(self.observations, when);
                let (asked, before, whole) =
                    handed_on.find(|(asked, ..)| explains(asked, mask, &place.allowed))?;
                let heir = Owned::heir(pid, mask, (asked.clone(), at), before.clone(), whole);
                Some(heir.with_doubt_of(above, when))
            });
            match look.born.get(&above) {
                Some((Source::Thread(creator), at)) if handed.is_none() => {
                    (above, when) = (*creator, *at);
                }
                _ => break,
            }
        }
        if handed.is_some() {
            return handed;
        }
        let creator = self.known(self.seen_of(creator, &look.born))?.as_it_was(at);
        let seen = Moment {
            observation: self.observations,
            at: look.at,
        };
        let mut placed = creator.placed(self.observations, at);
        if let Some(given) = placed.find(|given| explains(given, mask, &place.allowed)) {
            // The kernel may remember the mask that another process set on its creator.
            let mut child = Owned::foreign(pid, mask, Unmanaged::PlacedBefore);
            child.before = given.clone();
            return Some(child);
        }
        if creator.unmanaged.is_none() && *mask != place.default {
            let fits = *mask == creator.before || explains(&creator.before, mask, &place.allowed);
            let fits = fits
                || (look.allowed)(id)
                    .is_some_and(|allowed| explains(&creator.before, mask, &allowed));
            if fits {
                let (before, whole) = (creator.before.clone(), creator.whole);
                return Some(Owned::free(pid, mask, before, whole));
            }
        }
        if *mask == place.default {
            return None;
        }
        // It had a mask of perch's when it was created. Either another process has changed that since, or its CPU set
        // is changing just now.
        let above = self.known(above)?.as_it_was(when);
        let (asked, before, whole) = above.handed_on(self.observations, when).next()?;
        let heir = Owned::heir(pid, mask, (asked.clone(), at), before.clone(), whole);
        let mut heir = heir.with_doubt_of(above, when);
        if !heir.is_doubted() {
            heir.doubt_of(mask, place, seen, (look.allowed)(id));
        }
        Some(heir)
    }

    /// A thread of unknown origin whose creator is one of a process's threads.
    pub(super) fn child_in(
        &self,
        mut of: i32,
        pid: i32,
        mask: &PuSet,
        place: &Place,
        look: &mut Look<'_>,
        id: ThreadId,
    ) -> Option<Owned> {
        if *mask == place.default {
            return None;
        }
        // If that process is as new, it has its masks from its own creator.
        for _ in 0..=look.born.len() {
            if self.elders(look).contains_key(&of) {
                break;
            }
            let first_threads = look.first_threads.get_or_insert_with(|| {
                let births = look.born.iter();
                births.map(|(id, birth)| (id.tid, *birth)).collect()
            });
            match first_threads.get(&of) {
                Some((Source::Process(above), _)) if *above != of => of = *above,
                Some((Source::Thread(creator), at)) if creator.tid != id.tid => {
                    return self.child_of((*creator, *at), pid, mask, place, look, id);
                }
                _ => break,
            }
        }
        let key = (of, mask.clone());
        if !look.families.contains_key(&key) {
            let elders = self.elders(look);
            let elders = elders.get(&of).map(Vec::as_slice).unwrap_or_default();
            let family = self.family(elders, mask, place);
            look.families.insert(key.clone(), family);
        }
        match &look.families[&key] {
            Family::None => None,
            Family::Some => {
                let mut owned = Owned::foreign(pid, mask, Unmanaged::Unknown);
                owned.creators = Some(of);
                Some(owned)
            }
            Family::All(asked, before, whole) => Some(Owned::heir(
                pid,
                mask,
                (asked.clone(), None),
                before.clone(),
                *whole,
            )),
        }
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

    /// Threads that were there before this observation, by process.
    fn elders<'l>(&self, look: &'l mut Look<'_>) -> &'l FxHashMap<i32, Vec<ThreadId>> {
        look.elders.get_or_insert_with(|| {
            let mut elders = FxHashMap::<i32, Vec<ThreadId>>::default();
            let known = self.threads.iter().chain(&self.departed);
            for (id, owned) in known.filter(|(id, _)| !look.born.contains_key(id)) {
                elders.entry(owned.pid).or_default().push(*id);
            }
            elders
        })
    }

    fn family(&self, elders: &[ThreadId], mask: &PuSet, place: &Place) -> Family {
        let mut all = None;
        let mut others = false;
        for elder in elders.iter().filter_map(|id| self.known(*id)) {
            let mut handed_on = elder.handed_on(self.observations, None);
            match handed_on.find(|(asked, ..)| explains(asked, mask, &place.allowed)) {
                None => others = true,
                Some((asked, its_before, its_whole)) => {
                    let (_, before, whole) =
                        all.get_or_insert_with(|| (asked.clone(), its_before.clone(), its_whole));
                    others |= before != its_before || *whole != its_whole;
                }
            }
        }
        match all {
            None => Family::None,
            Some(_) if others => Family::Some,
            Some((asked, before, whole)) => Family::All(asked, before, whole),
        }
    }
}
