//! From whom a new thread has its mask.

use super::{
    Family, Look, Ownership,
    fit::explains,
    owned::{Moment, Owned, Place},
};
use perch_core::{HandsOff, PuSet, Source, ThreadId};
use std::collections::HashMap;

impl Ownership {
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
        // One that was itself created just now has handed on what it had before somebody placed it.
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
            // The kernel may remember the mask that somebody gave to its creator.
            let mut child = Owned::foreign(pid, mask, HandsOff::PlacedBefore);
            child.before = given.clone();
            return Some(child);
        }
        if creator.hands_off.is_none() && *mask != place.default {
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
        // It had a mask of perch's when it was created: either somebody has given it another since, or its CPU set is
        // changing just now.
        let above = self.known(above)?.as_it_was(when);
        let (asked, before, whole) = above.handed_on(self.observations, when).next()?;
        let heir = Owned::heir(pid, mask, (asked.clone(), at), before.clone(), whole);
        let mut heir = heir.with_doubt_of(above, when);
        if !heir.is_doubted() {
            heir.doubt_of(mask, seen);
        }
        Some(heir)
    }

    /// A thread of unknown origin whose creator is one of a process's threads.
    pub(super) fn child_in(
        &self,
        of: i32,
        pid: i32,
        mask: &PuSet,
        place: &Place,
        look: &mut Look<'_>,
    ) -> Option<Owned> {
        if *mask == place.default {
            return None;
        }
        let key = (of, mask.clone());
        if !look.families.contains_key(&key) {
            let elders = look.elders.get_or_insert_with(|| {
                let mut elders = HashMap::<i32, Vec<ThreadId>>::new();
                let known = self.threads.iter().chain(&self.departed);
                for (id, owned) in known.filter(|(id, _)| !look.born.contains_key(id)) {
                    elders.entry(owned.pid).or_default().push(*id);
                }
                elders
            });
            let elders = elders.get(&of).map(Vec::as_slice).unwrap_or_default();
            let family = self.family(elders, mask, place);
            look.families.insert(key.clone(), family);
        }
        match &look.families[&key] {
            Family::None => None,
            Family::Some => {
                let mut owned = Owned::foreign(pid, mask, HandsOff::Unknown);
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
