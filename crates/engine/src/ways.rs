//! The ways of caches that threads may fill: what a plan changes, and what is in force.
//!
//! Nothing of it is journaled, since only machines offer it whose masks end with the session
//! ([`CacheAllocation`](perch_core::CacheAllocation)).

use crate::observer::ActionTaken;
use perch_core::{
    Action, ActionKind, Affinity, CacheWays, Outcome, Plan, Reason, Remark, Snapshot, ThreadId,
    WayMask, WaysChange,
};
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};

/// A thread, and a level of caches.
type Place = (ThreadId, u8);

/// The ways that perch has given to threads.
#[derive(Debug, Default)]
pub(crate) struct KnownWays {
    held: BTreeMap<Place, CacheWays>,
    /// Where another program has set others: left alone.
    foreign: BTreeSet<Place>,
    /// Those that the machine has refused: not asked for again.
    refused: BTreeMap<Place, CacheWays>,
}

/// What an action does to the ways of a level's caches; `None` if it does something else.
fn level_of(taken: &ActionTaken) -> Option<u8> {
    match taken.to.or(taken.from) {
        Some(ActionKind::CacheWays(ways)) => Some(ways.level()),
        _ => None,
    }
}

/// Whether an action is about ways of caches.
pub(crate) fn is_about_ways(taken: &ActionTaken) -> bool {
    level_of(taken).is_some()
}

fn place_of(action: &Action) -> Option<(Place, CacheWays)> {
    match action.what {
        ActionKind::CacheWays(ways) => Some(((action.thread, ways.level()), ways)),
        ActionKind::CpuWeight(_) => None,
    }
}

impl KnownWays {
    /// What a plan changes, by rising thread and level. Threads that must be left alone are passed over.
    pub fn difference(&self, plan: &Plan) -> Vec<ActionTaken> {
        let of_plan = plan.actions.iter();
        let wanted: BTreeMap<Place, (&Action, CacheWays)> = of_plan
            .filter_map(|action| place_of(action).map(|(place, ways)| (place, (action, ways))))
            .collect();
        let taken = |thread, from: Option<CacheWays>, to: Option<CacheWays>, reason| ActionTaken {
            thread,
            from: from.map(ActionKind::CacheWays),
            to: to.map(ActionKind::CacheWays),
            reason,
            outcome: Outcome::NotApplied,
            by_group: false,
        };
        let held = self.held.iter();
        let released = held.filter(|(place, _)| !wanted.contains_key(place));
        let released = released.map(|((thread, _), ways)| {
            let why = Reason::new("no longer in the plan");
            taken(*thread, Some(*ways), None, why)
        });
        let set = wanted.iter().filter_map(|(place, (action, ways))| {
            let held = self.held.get(place).copied();
            let same = held == Some(*ways) || self.refused.get(place) == Some(ways);
            let why = action.reason.clone();
            (!same && !self.foreign.contains(place)).then(|| taken(place.0, held, Some(*ways), why))
        });
        released.chain(set).collect()
    }

    /// Carries out actions, and fills in what became of them.
    pub fn apply(
        &mut self,
        affinity: &mut dyn Affinity,
        actions: &mut [ActionTaken],
        remarks: &mut Vec<Remark>,
    ) {
        for taken in actions {
            let Some(level) = level_of(taken) else {
                continue;
            };
            let place = (taken.thread, level);
            let wanted = match taken.to {
                Some(ActionKind::CacheWays(ways)) => Some(ways),
                _ => None,
            };
            let allowed = affinity.cache_allocation().and_then(|of| match wanted {
                Some(ways) => of.fits(taken.thread, ways).map(|()| of),
                None => Ok(of),
            });
            taken.outcome = match allowed {
                Ok(allocation) => allocation.change_ways(&WaysChange {
                    thread: taken.thread,
                    level,
                    expect: self.mask(place),
                    set: wanted.map(CacheWays::ways),
                }),
                Err(why) => {
                    let remark = Remark::warning("cache-ways-refused", why.clone());
                    remarks.push(remark.keyed(why));
                    Outcome::NotPermitted
                }
            };
            self.taken(taken, false);
        }
    }

    fn mask(&self, place: Place) -> Option<WayMask> {
        self.held.get(&place).map(|ways| ways.ways())
    }

    /// Takes in what became of an action; in a dry run it counts as done.
    pub fn taken(&mut self, taken: &ActionTaken, dry_run: bool) {
        let Some(level) = level_of(taken) else {
            return;
        };
        let place = (taken.thread, level);
        let done =
            taken.outcome == Outcome::Applied || dry_run && taken.outcome == Outcome::NotApplied;
        match (taken.to, taken.outcome) {
            (Some(ActionKind::CacheWays(ways)), _) if done => {
                self.held.insert(place, ways);
            }
            (_, Outcome::ChangedByOthers) => {
                self.held.remove(&place);
                self.foreign.insert(place);
            }
            (_, Outcome::Gone) => {
                self.held.remove(&place);
            }
            (None, _) if done => {
                self.held.remove(&place);
            }
            (Some(ActionKind::CacheWays(ways)), Outcome::NotPermitted) => {
                self.refused.insert(place, ways);
            }
            _ => {}
        }
    }

    /// Forgets threads that have ended.
    pub fn forget(&mut self, ended: &[ThreadId]) {
        if ended.is_empty()
            || self.held.is_empty() && self.refused.is_empty() && self.foreign.is_empty()
        {
            return;
        }
        let ended: FxHashSet<ThreadId> = ended.iter().copied().collect();
        self.held.retain(|(thread, _), _| !ended.contains(thread));
        self.refused
            .retain(|(thread, _), _| !ended.contains(thread));
        self.foreign.retain(|(thread, _)| !ended.contains(thread));
    }

    /// Gives the threads for which that is wanted all ways back, but for those that another program has given others.
    pub fn give_back(&mut self, affinity: &mut dyn Affinity, wanted: impl Fn(ThreadId) -> bool) {
        let Ok(allocation) = affinity.cache_allocation() else {
            return;
        };
        self.held.retain(|(thread, level), ways| {
            let wanted = wanted(*thread);
            if wanted {
                // What has become of it makes no difference now.
                allocation.change_ways(&WaysChange {
                    thread: *thread,
                    level: *level,
                    expect: Some(ways.ways()),
                    set: None,
                });
            }
            !wanted
        });
    }
}

/// Takes out of a plan actions that must not be taken; the remarks name the policy's error.
pub(crate) fn check(plan: &mut Plan, snapshot: &Snapshot, policy: &str) -> Vec<Remark> {
    let mut wrong = Vec::new();
    let mut seen = FxHashSet::default();
    plan.actions.retain(|action| {
        let Some((place, _)) = place_of(action) else {
            return true;
        };
        let fault = match snapshot.thread(action.thread) {
            None => Some("gave ways of a cache to a thread that is not there"),
            Some(_) if !seen.insert(place) => Some("gave a thread ways of a level's caches twice"),
            Some(_) => None,
        };
        wrong.extend(fault.map(|fault| {
            let text = format!("a bug in policy {policy}: it {fault}; the ways were not set");
            Remark::error("policy-bug", text)
        }));
        fault.is_none()
    });
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use perch_core::{
        CacheAllocation, MaskChange, MaskError, ProcessId, PuSet, affinity::Descendant,
    };

    /// A machine whose masks are these.
    #[derive(Default)]
    struct Caches(BTreeMap<Place, WayMask>);

    impl Affinity for Caches {
        fn mask(&self, _: ThreadId) -> Result<PuSet, MaskError> {
            Err(MaskError::Gone)
        }

        fn change(&mut self, _: &MaskChange) -> Outcome {
            Outcome::Gone
        }

        fn cache_allocation(&mut self) -> Result<&mut dyn CacheAllocation, String> {
            Ok(self)
        }

        fn allowed(&self, _: ThreadId) -> Option<PuSet> {
            None
        }

        fn settle(&self) {}

        fn belongs_to(&self, _: ThreadId, _: u32) -> bool {
            true
        }

        fn descendants(
            &self,
            _: &str,
            _: &[ProcessId],
            _: &dyn Fn(ThreadId) -> bool,
        ) -> Result<Vec<Descendant>, MaskError> {
            Ok(Vec::new())
        }
    }

    impl CacheAllocation for Caches {
        fn ways(&self, thread: ThreadId, level: u8) -> Result<Option<WayMask>, MaskError> {
            Ok(self.0.get(&(thread, level)).copied())
        }

        fn fits(&self, _: ThreadId, _: CacheWays) -> Result<(), String> {
            Ok(())
        }

        fn change_ways(&mut self, change: &WaysChange) -> Outcome {
            let place = (change.thread, change.level);
            if self.0.get(&place).copied() != change.expect {
                return Outcome::ChangedByOthers;
            }
            match change.set {
                Some(ways) => self.0.insert(place, ways),
                None => self.0.remove(&place),
            };
            Outcome::Applied
        }
    }

    fn thread(tid: i32) -> ThreadId {
        ThreadId { tid, start: 1 }
    }

    fn mask(bits: u32) -> WayMask {
        WayMask::new(bits).unwrap()
    }

    /// All of these threads at these ways.
    fn plan(threads: &[i32], bits: u32) -> Plan {
        let action = |tid: &i32| Action {
            thread: thread(*tid),
            what: ActionKind::CacheWays(CacheWays::new(3, mask(bits)).unwrap()),
            reason: Reason::new("a test"),
        };
        Plan {
            actions: threads.iter().map(action).collect(),
            ..Plan::default()
        }
    }

    fn outcomes(known: &mut KnownWays, caches: &mut Caches, plan: &Plan) -> Vec<(i32, Outcome)> {
        let mut taken = known.difference(plan);
        known.apply(caches, &mut taken, &mut Vec::new());
        let outcome = |taken: &ActionTaken| (taken.thread.tid, taken.outcome);
        taken.iter().map(outcome).collect()
    }

    #[test]
    fn what_another_program_has_set_stays() {
        let (mut known, mut caches) = (KnownWays::default(), Caches::default());
        // Before perch.
        caches.0.insert((thread(2), 3), mask(0xf));
        let first = outcomes(&mut known, &mut caches, &plan(&[1, 2], 0x3));
        assert_eq!(
            first,
            [(1, Outcome::Applied), (2, Outcome::ChangedByOthers)]
        );
        // It is not tried again.
        assert_eq!(outcomes(&mut known, &mut caches, &plan(&[1, 2], 0x3)), []);
        // After perch.
        caches.0.insert((thread(1), 3), mask(0x1));
        let later = outcomes(&mut known, &mut caches, &plan(&[1, 2], 0x6));
        assert_eq!(later, [(1, Outcome::ChangedByOthers)]);
        assert_eq!(outcomes(&mut known, &mut caches, &plan(&[], 0x6)), []);
        let left = [((thread(1), 3), mask(0x1)), ((thread(2), 3), mask(0xf))];
        assert_eq!(caches.0, BTreeMap::from(left));
    }

    #[test]
    fn all_ways_come_back_but_those_of_others() {
        let (mut known, mut caches) = (KnownWays::default(), Caches::default());
        outcomes(&mut known, &mut caches, &plan(&[1, 2, 3], 0x3));
        caches.0.insert((thread(2), 3), mask(0x7));
        known.give_back(&mut caches, |id| id != thread(3));
        let left = [((thread(2), 3), mask(0x7)), ((thread(3), 3), mask(0x3))];
        assert_eq!(caches.0, BTreeMap::from(left));
        known.give_back(&mut caches, |_| true);
        assert_eq!(caches.0.len(), 1);
        // What has ended is forgotten: its number may come again.
        outcomes(&mut known, &mut caches, &plan(&[1], 0x3));
        known.forget(&[thread(1)]);
        assert_eq!(known.difference(&plan(&[], 0x3)), []);
    }
}
