//! Threads that have ended: they are remembered for a while because others may have their masks from them.

use super::{Ownership, owned::Owned};
use perch_core::ThreadId;

/// Observations for which a thread that ended is remembered: its children may be reported late.
const DEPARTED: u64 = 3;

impl Ownership {
    pub(super) fn depart(&mut self, thread: ThreadId) {
        if let Some(owned) = self.threads.remove(&thread) {
            self.doubted.remove(&thread);
            self.departures.push_back((self.observations, thread));
            self.departed.insert(thread, owned);
        }
    }

    pub(super) fn forget_departed(&mut self) {
        while let Some((at, thread)) = self.departures.front()
            && at + DEPARTED < self.observations
        {
            self.departed.remove(thread);
            self.departures.pop_front();
        }
    }

    pub(super) fn known(&self, thread: ThreadId) -> Option<&Owned> {
        self.threads
            .get(&thread)
            .or_else(|| self.departed.get(&thread))
    }
}
