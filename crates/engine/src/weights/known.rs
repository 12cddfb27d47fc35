//! What is known of a thread's nice value: from whom it has it, and which ones it may have handed on.

use perch_core::ActionKind;
use std::collections::BTreeMap;

/// Observations for which a thread's origin may still be reported after the thread was first seen.
pub(super) const LATE: u64 = 2;

/// A thread as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub pid: i32,
    /// The nice value that it goes back to.
    pub before: i32,
    /// The one that it has, as far as perch knows.
    pub current: i32,
    /// The one that perch has set on it, or on the one from which it has it.
    pub asked: Option<i32>,
    /// Values that perch had set on it, and when they were replaced, in observations: what it created before has them.
    pub former: BTreeMap<i32, u64>,
    /// The same of values that it had not from perch.
    pub own: BTreeMap<i32, u64>,
    /// The weight that led to it, or that a control group gives it.
    pub weight: Option<ActionKind>,
    /// Whether it has its weight by a control group.
    pub grouped: bool,
    /// Another process may have set its value: it is left alone.
    pub unmanaged: bool,
    /// When it was first seen, in observations.
    pub first: u64,
    /// When its number went to the caller of execve(2), if it did and the kernel said when.
    pub until: Option<u64>,
}

impl Known {
    pub fn free(pid: i32, nice: i32, first: u64) -> Self {
        Self {
            pid,
            before: nice,
            current: nice,
            asked: None,
            former: BTreeMap::new(),
            own: BTreeMap::new(),
            weight: None,
            grouped: false,
            unmanaged: false,
            first,
            until: None,
        }
    }

    /// Its value is replaced, at this observation.
    pub fn replace(&mut self, at: u64) {
        self.forget_old(at);
        match self.asked.take() {
            Some(asked) => self.former.insert(asked, at),
            None => self.own.insert(self.current, at),
        };
    }

    /// Forgets values that were replaced too long ago for a new thread to have them.
    pub fn forget_old(&mut self, at: u64) {
        for values in [&mut self.former, &mut self.own] {
            values.retain(|_, replaced| is_recent(*replaced, at));
        }
    }

    /// Another process has set its value. What it created before has the value that perch had set.
    pub fn lose(&mut self, at: u64) {
        self.replace(at);
        self.weight = None;
        self.unmanaged = true;
    }

    /// Whether a thread with that value, new at this observation, may have it from this one, which has it from perch.
    pub fn handed_on(&self, nice: i32, at: u64) -> bool {
        self.asked == Some(nice)
            || self
                .former
                .get(&nice)
                .is_some_and(|replaced| is_recent(*replaced, at))
    }

    /// Whether it may have handed on that value, as one that it had not from perch.
    pub fn has_own(&self, nice: i32, at: u64) -> bool {
        let was = self.own.get(&nice);
        self.asked != Some(nice) && self.current == nice
            || was.is_some_and(|replaced| is_recent(*replaced, at))
    }
}

/// Whether a thread that is new at this observation may have been created before a value was replaced at that one.
fn is_recent(replaced: u64, at: u64) -> bool {
    replaced.saturating_add(LATE) >= at
}
