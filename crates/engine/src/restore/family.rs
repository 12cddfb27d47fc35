//! From which threads may a thread that is not in the journal have inherited its mask? From threads of its own process,
//! or of its nearest ancestor in the journal.

use super::execs::UNDECIDED;
use crate::{
    journal::{Held, Journal, MaskRecord},
    ownership::explains,
};
use perch_core::{PuSet, affinity::Descendant};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Why a thread is left as it is that may have been adopted.
pub(super) const ADOPTED: &str = "it may have inherited this from a process that perch had bound, and been adopted by \
                                  the one that shows as its parent, or been given it by others";

/// The masks that others have set, by process.
pub(super) type Foreign = HashMap<i32, HashSet<PuSet>>;

/// What is known of a thread that is not in the journal.
pub(super) enum Kinship {
    /// It has inherited no mask of perch's, or one that cannot be distinguished from another process's mask.
    None,
    /// It has inherited a mask of perch's.
    Heir(Held),
    /// It may have inherited it, or been given it by others; why that is not known.
    Unknown(&'static str),
}

/// Why a thread that may have inherited a mask is left as it is: a wider CPU set will show whose the mask is.
const HIDDEN: &str = "its cpuset leaves so few PUs that its mask may be perch's or one that was set by others: run \
                      `perch restore` again when the cpuset allows more";

/// The same of a process of unknown descent.
pub(super) const IN_GROUP: &str = "it may have this from perch or not: it is in the process group of a process that perch \
                                   placed, as are processes that do not descend from it (see `taskset -p`, `ps -o ni`)";

pub(super) struct Families<'a> {
    journal: &'a Journal,
    /// The masks that were set in each process; those of process 0 were set in one that is not known.
    masks: HashMap<i32, Vec<MaskRecord>>,
    /// The masks that other processes have set, by process.
    foreign: &'a Foreign,
    /// The masks of which it is unknown whether perch has set them, by process.
    undecided: &'a Foreign,
    all: Vec<MaskRecord>,
    /// Processes whose threads perch has looked at: the masks that they inherited from outside the session are known.
    known: BTreeSet<i32>,
    parents: &'a HashMap<i32, i32>,
    /// Leaders of groups that hold strangers.
    shared: BTreeSet<i32>,
}

impl<'a> Families<'a> {
    pub fn new(
        journal: &'a Journal,
        (parents, descendants): (&'a HashMap<i32, i32>, &[Descendant]),
        foreign: &'a Foreign,
        undecided: &'a Foreign,
    ) -> Self {
        let mut masks = HashMap::<i32, Vec<MaskRecord>>::new();
        let all: Vec<MaskRecord> = journal.masks().collect();
        for mask in &all {
            masks.entry(mask.process).or_default().push(mask.clone());
        }
        Self {
            journal,
            masks,
            foreign,
            undecided,
            all,
            known: journal.looked_at().collect(),
            parents,
            shared: shared_groups(journal, descendants),
        }
    }

    /// Whether the thread has a mask that perch has set in its family only after it was created.
    pub fn is_older(&self, relative: &Descendant) -> bool {
        let home = self.home(relative.process.pid);
        let mut same = self
            .candidates(home)
            .filter(|mask| mask.set == relative.mask)
            .peekable();
        home.is_some() && same.peek().is_some() && same.all(|mask| mask.at > relative.thread.start)
    }

    /// Whether the thread may have inherited a mask that does not show now: its CPU set, which allows `place`, is changing,
    /// or allows nothing of that mask.
    pub fn may_hide(&self, relative: &Descendant, place: &PuSet) -> bool {
        let home = self.home(relative.process.pid);
        let candidates = self.candidates(home);
        let mut candidates = candidates.filter(|mask| may_inherit(relative, mask.process, mask.at));
        let settled = place.is_subset(&relative.mask);
        candidates.any(|mask| !settled || mask.set.is_disjoint(place))
    }

    /// Whether a thread has inherited a mask that was set. It must have been created after that, in the family in which
    /// the mask was set. If the candidates have different masks to restore, it gets the default. If it may equally have
    /// inherited the mask from a thread that another process has placed, the origin is unknown.
    pub fn kinship(
        &self,
        relative: &Descendant,
        allowed: impl FnOnce() -> Option<PuSet>,
    ) -> Kinship {
        let home = self.home(relative.process.pid);
        let candidates = self.candidates(home);
        let candidates = candidates.filter(|mask| may_inherit(relative, mask.process, mask.at));
        let candidates: Vec<&MaskRecord> = candidates.collect();
        if candidates.is_empty() && home.is_none_or(|home| home == relative.process.pid) {
            return Kinship::None;
        }
        let mut foreign = of_family(self.foreign, home).peekable();
        let shown = &relative.mask;
        let exact = candidates.iter().any(|mask| mask.set == *shown);
        let allowed = if exact && foreign.peek().is_none() {
            None
        } else {
            allowed()
        };
        let handed_on = |mask: &&&MaskRecord| fits(&mask.set, &relative.mask, allowed.as_ref());
        let matching: Vec<&&MaskRecord> = candidates.iter().filter(handed_on).collect();
        let Some(first) = matching.first() else {
            return match self.may_be_from_below(relative, home, allowed.as_ref()) {
                true => Kinship::Unknown(ADOPTED),
                false => Kinship::None,
            };
        };
        let foreign: Vec<&PuSet> = foreign
            .filter(|mask| fits(mask, shown, allowed.as_ref()))
            .collect();
        if !foreign.is_empty() {
            return match exact && foreign.contains(&shown) {
                true => Kinship::None,
                false => Kinship::Unknown(HIDDEN),
            };
        }
        if of_family(self.undecided, home).any(|mask| fits(mask, shown, allowed.as_ref())) {
            return Kinship::Unknown(UNDECIDED);
        }
        if is_doubtful(relative, &self.shared) {
            return Kinship::Unknown(IN_GROUP);
        }
        let alike =
            |mask: &&&&MaskRecord| (&mask.before, mask.whole) == (&first.before, first.whole);
        let (before, whole) = if matching.iter().all(|mask| alike(&mask)) {
            (first.before.clone(), first.whole.unwrap_or_default())
        } else {
            let header = &self.journal.header;
            (header.default.clone(), header.whole)
        };
        // The kernel may change its mask while perch restores it.
        let sets = matching.iter().map(|mask| mask.set.clone());
        Kinship::Heir(Held {
            process: relative.process.pid,
            before,
            whole,
            from: sets.collect(),
            set: first.set.clone(),
            let_go: false,
            doubt: None,
        })
    }

    /// Whether the thread may have its mask from a process below the one that shows as its ancestor.
    fn may_be_from_below(
        &self,
        relative: &Descendant,
        home: Option<i32>,
        allowed: Option<&PuSet>,
    ) -> bool {
        let (shown, start) = (&relative.mask, relative.thread.start);
        let Some(home) = home.filter(|home| *home != relative.process.pid) else {
            return false;
        };
        self.all.iter().any(|mask| {
            let rest = allowed.is_none_or(|allowed| !mask.set.is_disjoint(allowed));
            mask.at <= start
                && rest
                && fits(&mask.set, shown, allowed)
                && may_be_below(mask.process, home, &self.known, self.parents)
        })
    }

    pub fn home(&self, pid: i32) -> Option<i32> {
        home(pid, &self.known, self.parents)
    }

    fn candidates(&self, home: Option<i32>) -> Box<dyn Iterator<Item = &MaskRecord> + '_> {
        let of = |pid| self.masks.get(&pid).map(Vec::as_slice).unwrap_or_default();
        match home {
            Some(home) => Box::new(of(home).iter().chain(of(0))),
            None => Box::new(self.all.iter()),
        }
    }
}

/// Of masks by process, those of a family; of all where it is not known.
fn of_family(masks: &Foreign, home: Option<i32>) -> Box<dyn Iterator<Item = &PuSet> + '_> {
    match home {
        Some(home) => Box::new(masks.get(&home).into_iter().flatten()),
        None => Box::new(masks.values().flatten()),
    }
}

/// The parent of each relative's process.
pub(super) fn parents(descendants: &[Descendant]) -> HashMap<i32, i32> {
    descendants
        .iter()
        .map(|relative| (relative.process.pid, relative.parent))
        .collect()
}

/// The process, or its nearest ancestor in the journal. `None` if it was reparented: any process of the session may
/// have been its ancestor.
pub(super) fn home(pid: i32, known: &BTreeSet<i32>, parents: &HashMap<i32, i32>) -> Option<i32> {
    let mut at = pid;
    // A parent's PID is not reused while it lives. But PIDs of processes that exited may have been reused so that the
    // links form a cycle.
    for _ in 0..=parents.len() {
        if known.contains(&at) {
            return Some(at);
        }
        at = *parents.get(&at)?;
    }
    None
}

/// Whether what a process has started may show as started by `home`: an ancestor of it that adopts orphans (subreapers, the
/// first process of a PID namespace), or its parent by CLONE_PARENT. An ancestor may have ended since.
pub(super) fn may_be_below(
    pid: i32,
    home: i32,
    known: &BTreeSet<i32>,
    parents: &HashMap<i32, i32>,
) -> bool {
    let (mut at, mut elsewhere) = (pid, false);
    if pid == home {
        return false;
    }
    for _ in 0..=parents.len() {
        match parents.get(&at) {
            Some(parent) if *parent == home => return true,
            Some(parent) => at = *parent,
            // Of a process whose threads are all in the journal no parent is listed.
            None => return known.contains(&at) || !elsewhere,
        }
        elsewhere |= known.contains(&at);
    }
    true
}

/// Whether a thread may have inherited what was set at this moment in a process (0: in one that is not known). Perch has
/// set nothing in a process that it does not know, so there it can only have come with the process; then all that was
/// there before belongs to an unrelated process.
pub(super) fn may_inherit(relative: &Descendant, set_in: i32, at: u64) -> bool {
    let in_its_own = set_in == relative.process.pid || set_in == 0;
    at <= match in_its_own {
        true => relative.thread.start,
        false => relative.process.start,
    }
}

/// The leaders of groups that hold processes which do not descend from them, or were there before perch set anything and
/// are not known all the same. The descent of other processes in these groups that have lost their parents is unknown.
pub(super) fn shared_groups(journal: &Journal, descendants: &[Descendant]) -> BTreeSet<i32> {
    let masks = journal.masks().map(|mask| mask.at);
    let first = masks.chain(journal.nice_sets().map(|set| set.at)).min();
    let shared = descendants.iter().filter_map(|relative| {
        let by_group = relative.by_group?;
        let older = first.is_none_or(|first| relative.process.start < first);
        (by_group.shared || older).then_some(by_group.leader)
    });
    shared.collect()
}

/// Whether nothing but one of these groups says that it descends from a process of the session.
pub(super) fn is_doubtful(relative: &Descendant, shared: &BTreeSet<i32>) -> bool {
    let by_group = relative.by_group;
    by_group.is_some_and(|by_group| shared.contains(&by_group.leader))
}

/// Whether a thread with `mask` may have it from one that was given `asked`, where it may use `allowed`.
pub(super) fn fits(asked: &PuSet, mask: &PuSet, allowed: Option<&PuSet>) -> bool {
    match allowed {
        None => mask == asked,
        Some(allowed) => explains(asked, mask, allowed),
    }
}
