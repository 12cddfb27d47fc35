//! Threads that are not in the journal and have inherited their masks from threads that are.

use super::{
    Given, LOOKS, ROUNDS, Restoring,
    execs::Executed,
    family::{self, Families, Foreign, Kinship},
    relatives::{Relatives, STRANGER},
};
use perch_core::{Outcome, PuSet, ThreadId};
use std::collections::{BTreeMap, HashMap, HashSet};

impl Restoring<'_> {
    /// Masks of threads that are older than perch's own of the same value: others have set these.
    fn older(&self, families: &Families, relatives: &Relatives) -> Foreign {
        let mut foreign = self.foreign.clone();
        for relative in &relatives.all {
            let (thread, pid) = (relative.thread, relative.process.pid);
            if families.is_older(relative)
                && self.has_executed(thread, pid) == Executed::No
                && self.affinity.allowed(thread).as_ref() != Some(&relative.mask)
            {
                let home = families.home(pid).unwrap_or(pid);
                foreign
                    .entry(home)
                    .or_default()
                    .insert(relative.mask.clone());
            }
        }
        foreign
    }

    /// Threads that were being created while their creators were given their masks back. What showed before is not looked
    /// at again: its mask may be another process's by now.
    pub(super) fn late_descendants(&mut self) {
        if self.report.restored == 0 {
            return;
        }
        self.affinity.settle_births();
        let first = std::mem::take(&mut self.report);
        self.descendants(true);
        let late = std::mem::replace(&mut self.report, first);
        self.report.add_late(late);
    }

    /// Threads that are not in the journal and have inherited a mask from one that is; all, or those that came `late`.
    pub(super) fn descendants(&mut self, late: bool) {
        let mut seen: HashSet<ThreadId> = HashSet::new();
        let mut looks = 0;
        let mut left = Vec::new();
        let undecided = self.undecided.clone();
        let mut older: Option<Foreign> = None;
        let mut parents = HashMap::new();
        for _ in 0..ROUNDS {
            let journal = self.journal;
            let known =
                |thread: ThreadId| journal.thread(thread).is_some() || seen.contains(&thread);
            let relatives = match Relatives::find(self.affinity, journal, &known) {
                Ok(relatives) => relatives,
                Err(why) => {
                    self.report.fail_all(format!(
                        "threads that inherited a mask cannot be looked for: {why}"
                    ));
                    return;
                }
            };
            // Those of processes of which every thread has been seen are not listed again.
            parents.extend(family::parents(&relatives.all));
            let foreign = &*older.get_or_insert_with(|| {
                let families = Families::new(
                    journal,
                    (&parents, &relatives.all),
                    &self.foreign,
                    &undecided,
                );
                self.older(&families, &relatives)
            });
            let families = Families::new(journal, (&parents, &relatives.all), foreign, &undecided);
            let (mut found, mut unexplained) = (false, false);
            left.clear();
            // Read once for each process. But its threads may be in CPU sets of their own.
            let mut places = BTreeMap::<i32, Option<PuSet>>::new();
            for relative in &relatives.all {
                if seen.contains(&relative.thread) || late && self.listed.contains(&relative.thread)
                {
                    continue;
                }
                let (affinity, pid) = (&*self.affinity, relative.process.pid);
                let mut place = None;
                let allowed = || {
                    let own = || affinity.allowed(relative.thread);
                    place = match places.entry(pid).or_insert_with(own) {
                        Some(whole) if *whole == relative.mask => Some(whole.clone()),
                        _ => own(),
                    };
                    place.clone()
                };
                let heir = match families.kinship(relative, allowed) {
                    Kinship::Heir(_) | Kinship::Unknown(_)
                        if relatives.may_be_strange(relative) =>
                    {
                        left.push((relative.thread, STRANGER));
                        continue;
                    }
                    Kinship::Heir(heir) => heir,
                    Kinship::Unknown(why) => {
                        left.push((relative.thread, why));
                        unexplained = true;
                        continue;
                    }
                    Kinship::None => {
                        // CPU sets may be changing just now: what a thread may use, and its mask, were read one after the
                        // other.
                        unexplained |=
                            place.is_some_and(|place| families.may_hide(relative, &place));
                        continue;
                    }
                };
                seen.insert(relative.thread);
                found = true;
                if self.is_strangers(relative.thread) {
                    continue;
                }
                match self.give_back(relative.thread, &heir) {
                    Ok(Given::Outcome(outcome)) => {
                        self.report.inherited += usize::from(outcome == Outcome::Applied);
                        self.count(relative.thread, outcome);
                    }
                    Ok(Given::Already) => self.report.already += 1,
                    Err(why) => self.report.fail(relative.thread, why.to_string()),
                }
            }
            if !late {
                let all = relatives.all.iter();
                self.listed.extend(all.map(|relative| relative.thread));
            }
            if unexplained && !found && looks < LOOKS {
                looks += 1;
                self.affinity.settle();
            } else if !found {
                break;
            }
        }
        for (thread, why) in left {
            let told = |(of, _): &(Option<ThreadId>, String)| *of == Some(thread);
            if !self.report.failed.iter().any(told) && !self.is_strangers(thread) {
                self.report.fail(thread, why);
            }
        }
    }
}
