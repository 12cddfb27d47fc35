//! What is known of one thread's mask.

mod judge;

pub(super) use judge::Verdict;

use perch_core::{Outcome, PuSet, Unmanaged};

/// Observations for which a mask that perch has replaced may have been handed on to a thread that is seen only now.
const HANDED_ON: u64 = 2;

/// Ownership and history of one thread's mask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// PID of its process.
    pub pid: i32,
    /// The mask that it goes back to.
    pub before: PuSet,
    /// Whether `before` is all that its CPU set allows, which is no placement.
    pub whole: bool,
    /// The mask that it has, as last read or set.
    pub current: PuSet,
    /// The reason why it is unmanaged; `None` if it may be bound.
    pub unmanaged: Option<Unmanaged>,
    /// The mask that perch last asked the kernel for: on this thread, or on the one that it has it from. The kernel may
    /// have made another of it since, and may remember this one.
    pub asked: Option<PuSet>,
    /// Since when it was.
    since: Option<u64>,
    /// Masks that perch asked for before.
    past: Vec<Past>,
    /// The mask that another process set on it before it was set again, and when it was replaced.
    replaced: Option<(PuSet, Moment)>,
    /// Whether perch has ever set its mask.
    touched: bool,
    /// What an older kernel left of the mask when perch let the thread go: it strikes PUs that are offline then.
    pub(super) struck: Option<PuSet>,
    /// It was given up for a mask that a PU or CPU set may yet explain.
    doubt: Option<Doubt>,
    /// What it was before another thread called execve and took over its number, and when that was.
    pub(super) former: Option<(u64, Box<Owned>)>,
    /// The origin of its mask was unknown when it was first seen. It may still be reported up to this observation.
    pub(super) open_until: Option<u64>,
    /// The process whose threads may have created it, while it is not known whether it has its mask from perch.
    pub(super) creators: Option<i32>,
}

/// A mask that perch had asked for, and replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Past {
    mask: PuSet,
    /// What the thread went back to then, and whether that was all that its CPU set allowed.
    before: PuSet,
    whole: bool,
    /// When it was asked for, and when it was replaced, as the machine's clock said; `None` if it has none.
    span: Option<(u64, u64)>,
    /// The observation after which it was replaced.
    observation: u64,
}

/// Nanoseconds from the moment in which a child gets its creator's mask until the kernel says that it was created: the
/// creator may lose its PU in between.
const FORK: u64 = 100_000_000;

/// The kernel changes masks a moment before or after it says that a PU or a CPU set has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Doubt {
    /// The mask that nothing explained.
    mask: PuSet,
    /// What its process and the thread itself were allowed to use then, the latter if that could be told.
    allowed: PuSet,
    own: Option<PuSet>,
    /// Whether PUs or CPU sets have changed about then or since.
    moved: bool,
    /// When it was read first, by the machine's clock.
    seen: Option<u64>,
    /// The last observation in which a change may explain it.
    until: u64,
    before: PuSet,
    whole: bool,
}

/// What a mask is judged by.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The mask of threads whose affinity was not set.
    pub default: PuSet,
    /// Whether that is all that the CPU set allows.
    pub whole: bool,
    /// The PUs that are online and in the CPU set.
    pub allowed: PuSet,
    /// `default` or `allowed` has changed just now.
    pub fresh: bool,
}

/// When something was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    /// The observation, by number.
    pub observation: u64,
    /// The moment by the machine's clock, if it was an observation's.
    pub at: Option<u64>,
}

impl Owned {
    /// A thread whose affinity was not set.
    pub(super) fn free(pid: i32, mask: &PuSet, before: PuSet, whole: bool) -> Self {
        Self {
            pid,
            before,
            whole,
            current: mask.clone(),
            unmanaged: None,
            asked: None,
            since: None,
            past: Vec::new(),
            replaced: None,
            touched: false,
            struck: None,
            doubt: None,
            former: None,
            open_until: None,
            creators: None,
        }
    }

    /// A thread that has its mask from another, on which perch had asked for `asked`, since it was created.
    pub(super) fn heir(
        pid: i32,
        mask: &PuSet,
        (asked, since): (PuSet, Option<u64>),
        before: PuSet,
        whole: bool,
    ) -> Self {
        Self {
            asked: Some(asked),
            since,
            touched: true,
            ..Self::free(pid, mask, before, whole)
        }
    }

    /// An heir of a thread that was given up for now when it was created then, with whose mask it may have.
    pub(super) fn with_doubt_of(mut self, creator: &Self, at: Option<u64>) -> Self {
        if let Some(doubt) = &creator.doubt
            && at.is_none_or(|at| doubt.seen.is_none_or(|seen| seen < at))
        {
            self.doubt = Some(doubt.clone());
            self.unmanaged = Some(Unmanaged::ChangedByOthers);
        }
        self
    }

    /// A thread that must be left alone.
    pub(super) fn foreign(pid: i32, mask: &PuSet, why: Unmanaged) -> Self {
        Self {
            unmanaged: Some(why),
            ..Self::free(pid, mask, mask.clone(), false)
        }
    }

    /// Whether its mask is perch's doing: set, inherited from a thread on which it was set, or made of such a one by the
    /// kernel.
    pub fn held(&self) -> bool {
        self.asked.is_some() && self.unmanaged.is_none()
    }

    /// Whether the kernel has replaced the mask that perch asked for, because none of its PUs can be used, and may
    /// bring it back.
    pub fn lapsed(&self) -> bool {
        self.held()
            && self
                .asked
                .as_ref()
                .is_some_and(|asked| !self.current.is_subset(asked))
    }

    /// Where perch has bound it; `None` if it has not, or if the kernel has undone it.
    pub fn bound(&self) -> Option<&PuSet> {
        (self.held() && !self.lapsed()).then_some(&self.current)
    }

    /// The thread that had this number at that moment.
    pub(super) fn as_it_was(&self, at: Option<u64>) -> &Self {
        match (&self.former, at) {
            (Some((since, former)), Some(at)) if at < *since => former,
            _ => self,
        }
    }

    /// Whether perch has set its mask after that moment.
    pub(super) fn was_set_after(&self, at: Option<u64>) -> bool {
        self.since.zip(at).is_some_and(|(since, at)| since > at)
    }

    /// Whether it must be left alone for good, so that its mask is none of perch's doing.
    pub fn is_foreign(&self) -> bool {
        self.unmanaged.is_some() && self.asked.is_none()
    }

    /// The masks that other processes set on it and that a thread first seen in this observation may have inherited.
    /// `at` is when that thread was created, if that is known.
    pub(super) fn placed(&self, observation: u64, at: Option<u64>) -> impl Iterator<Item = &PuSet> {
        let in_force = move |(_, until): &&(PuSet, Moment)| match (until.at, at) {
            (Some(until), Some(at)) => at <= until + FORK,
            _ => until.observation + HANDED_ON >= observation,
        };
        let present = self.is_foreign().then_some(&self.before);
        let replaced = self.replaced.iter().filter(in_force).map(|(mask, _)| mask);
        present.into_iter().chain(replaced)
    }

    /// Whether it was given up for now and may turn out to be perch's.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubt.is_some()
    }

    /// The masks that it may have handed on to a thread that is seen first in this observation, and was created then, if
    /// that is known; each with what such a thread goes back to.
    pub(super) fn handed_on(
        &self,
        observation: u64,
        at: Option<u64>,
    ) -> impl Iterator<Item = (&PuSet, &PuSet, bool)> {
        let in_force = move |past: &&Past| match (past.span, at) {
            (Some((since, until)), Some(at)) => since <= at && at <= until + FORK,
            _ => past.observation + HANDED_ON >= observation,
        };
        let past = self.past.iter().filter(in_force);
        let past = past.map(|past| (&past.mask, &past.before, past.whole));
        let since = self.since.zip(at);
        let present = self
            .asked
            .iter()
            .filter(move |_| since.is_none_or(|(since, at)| since <= at));
        present
            .map(|asked| (asked, &self.before, self.whole))
            .chain(past)
    }

    /// The default of its process has changed.
    pub(super) fn set_default(&mut self, place: &Place) {
        if self.whole {
            self.before = place.default.clone();
        }
        for past in self.past.iter_mut().filter(|past| past.whole) {
            past.before = place.default.clone();
        }
        if let Some(doubt) = &mut self.doubt
            && doubt.whole
        {
            doubt.before = place.default.clone();
        }
    }

    /// What became of asking for `set`, between two moments.
    pub(super) fn outcome(
        &mut self,
        set: &PuSet,
        outcome: Outcome,
        observation: u64,
        span: Option<(u64, u64)>,
    ) {
        match outcome {
            Outcome::Applied => {
                let asked = (*set != self.before).then(|| set.clone());
                let since = std::mem::replace(&mut self.since, span.map(|(from, _)| from));
                if let Some(mask) = std::mem::replace(&mut self.asked, asked) {
                    let kept = |past: &Past| past.observation + HANDED_ON >= observation;
                    self.past.retain(kept);
                    self.past.push(Past {
                        mask,
                        before: self.before.clone(),
                        whole: self.whole,
                        span: since.zip(span.map(|(_, until)| until)),
                        observation,
                    });
                }
                self.touched = true;
                self.struck = None;
                self.current = set.clone();
            }
            Outcome::NotPermitted => self.unmanaged = Some(Unmanaged::NotPermitted),
            // The next read of the mask shows whether the kernel or another process has changed it.
            Outcome::ChangedByOthers
            | Outcome::NotApplied
            | Outcome::NoUsablePu
            | Outcome::Failed
            | Outcome::Gone => {}
        }
    }
}
