//! Whose mask a thread has that called execve(2), and with it took over the number of its process's first thread.

use super::{Noticed, Ownership, owned::Owned};
use perch_core::{Origin, Source, ThreadId};

impl Ownership {
    /// A process executes another program: its first thread is now the one that called execve(2).
    pub(super) fn executed(&mut self, origin: &Origin) -> Option<Noticed> {
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
                // The kernel would reject that mask, so only the CPU set can be restored.
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
    pub(super) fn keep_former(
        &mut self,
        thread: ThreadId,
        until: Option<u64>,
        former: Option<Owned>,
    ) {
        if let Some(owned) = self.threads.get_mut(&thread) {
            owned.former = until.zip(former).map(|(until, mut former)| {
                former.former = None;
                (until, Box::new(former))
            });
        }
    }

    /// Which thread called execve(2) in a process, where that was not observed. It is known only if all candidates are
    /// in the same state, and in a different one than the first thread.
    fn only_caller(&self, first: ThreadId, pid: i32) -> Option<Owned> {
        let others = self.threads.iter().chain(&self.departed);
        let mut others = others.filter(|(id, owned)| owned.pid == pid && **id != first);
        let (_, one) = others.next()?;
        let alike = |other: &Owned| {
            (&other.asked, other.unmanaged, &other.before)
                == (&one.asked, one.unmanaged, &one.before)
        };
        let all = others.all(|(_, other)| alike(other));
        (all && self.threads.get(&first).is_none_or(alike)).then(|| one.clone())
    }
}
