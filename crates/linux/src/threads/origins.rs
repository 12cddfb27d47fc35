//! Where threads have their masks from: who created them, and who they were before execve(2).

use super::lineage::Created;
use perch_core::{Origin, Source, ThreadId};
use rustc_hash::{FxHashMap, FxHashSet};

/// Times that what is kept grows older until what has ended is forgotten: records that come later are lost ones.
const KEPT: u64 = 3;

/// A thread that was reported as created, and had exited when perch looked at it.
#[derive(Debug)]
struct Unseen {
    /// What was reported.
    created: Created,
    /// The take before which it was reported.
    takes: u64,
}

/// What was reported and found, until it is taken.
#[derive(Debug, Default)]
pub(super) struct Origins {
    takes: u64,
    /// New threads, each with the process that its creator belongs to; the kernel's record says which thread it was.
    found: FxHashMap<i32, (ThreadId, i32)>,
    /// Which threads, by number, were created by which, and when.
    told: FxHashMap<i32, (i32, u64)>,
    /// Threads of which nothing is reported yet, by number.
    held: FxHashSet<i32>,
    executed: Vec<(ThreadId, Option<i32>, Option<u64>)>,
    /// First threads that have ended since the last take.
    replaced: FxHashSet<ThreadId>,
    /// Threads that came and went unseen.
    unseen: FxHashMap<i32, Unseen>,
    /// Threads that ended.
    ended: FxHashMap<i32, (ThreadId, u64)>,
    /// Processes that ended, with their targets.
    departed: FxHashMap<i32, (u32, u64)>,
}

impl Origins {
    /// A new thread was found; one of this process's threads has created it.
    pub fn found(&mut self, thread: ThreadId, of: i32) {
        self.found.insert(thread.tid, (thread, of));
    }

    /// The kernel's record says who created a thread that is followed.
    pub fn told(&mut self, created: &Created) {
        self.told.insert(created.tid, (created.by_tid, created.at));
    }

    /// Whether the kernel's record of this thread's creation has come since the last [`Self::take`].
    pub fn is_told(&self, tid: i32) -> bool {
        self.told.contains_key(&tid)
    }

    /// The next [`Self::take`] reports nothing of this thread: the one after it does.
    pub fn hold(&mut self, tid: i32) {
        self.held.insert(tid);
    }

    /// A thread that was reported had ended before it was found, unless `/proc` had shown it.
    pub fn unseen(&mut self, created: &Created) {
        if self.ended.contains_key(&created.tid) {
            // Where its mask came from tells whose the masks are of those that it has created.
            self.told(created);
            return;
        }
        let unseen = Unseen {
            created: *created,
            takes: self.takes,
        };
        self.unseen.insert(created.tid, unseen);
    }

    /// A process that nobody has looked at executes another program; `caller` has taken over its number. The creation of
    /// the process, if all that lies between was reported: as good as the caller's own.
    pub fn executed_unseen(&mut self, caller: &Created) -> Option<Created> {
        let (pid, mut at) = (caller.pid, *caller);
        for _ in 0..=self.unseen.len() {
            if at.by_pid != pid {
                // This number is that of a living thread again.
                self.unseen.remove(&pid);
                return Some(Created {
                    pid,
                    tid: pid,
                    ..at
                });
            }
            at = self.unseen.get(&at.by_tid)?.created;
        }
        None
    }

    /// A process executes another program; `caller` is the thread that asked for it, if that is known, and `at` the
    /// moment.
    pub fn executed(&mut self, first: ThreadId, caller: Option<i32>, at: Option<u64>) {
        self.executed.push((first, caller, at));
    }

    /// This thread is about to be reported as ended. If another has its number, by a call of execve(2), the next
    /// [`Self::take`] says nothing of that: it is sampled with the next observation.
    pub fn hold_executions(&mut self, thread: ThreadId) {
        self.replaced.insert(thread);
    }

    /// A followed thread has ended.
    pub fn ended(&mut self, thread: ThreadId) {
        self.ended.insert(thread.tid, (thread, self.takes));
    }

    /// A followed process has ended.
    pub fn departed(&mut self, pid: i32, target: u32) {
        self.departed.insert(pid, (target, self.takes));
    }

    /// The target of a process that ended lately.
    pub fn target(&self, pid: i32) -> Option<u32> {
        self.departed.get(&pid).map(|(target, _)| *target)
    }

    /// What has come together since the last call; `followed` says which thread has a number now.
    pub fn take(&mut self, followed: impl Fn(i32) -> Option<ThreadId>) -> Vec<Origin> {
        let mut origins: Vec<Origin> = Vec::new();
        let held = std::mem::take(&mut self.held);
        let mut found = std::mem::take(&mut self.found);
        let mut told = std::mem::take(&mut self.told);
        self.found
            .extend(found.extract_if(|tid, _| held.contains(tid)));
        self.told
            .extend(told.extract_if(|tid, _| held.contains(tid)));
        for (tid, (by, at)) in told {
            // One that has ended since it was found may have created others.
            let found_now = || found.get(&tid).map(|(thread, _)| *thread);
            let ended = || self.ended.get(&tid).map(|(thread, _)| *thread);
            let thread = followed(tid).or_else(found_now).or_else(ended);
            if let (Some(thread), Some(creator)) = (thread, self.known(by, &followed)) {
                found.remove(&tid);
                // Of one that stands for another it is not known when that had the mask.
                let at = (creator.tid == by).then_some(at);
                origins.push(Origin {
                    thread,
                    from: Source::Thread(creator),
                    exec: false,
                    at,
                });
            }
        }
        origins.extend(found.into_values().map(|(thread, of)| Origin {
            thread,
            from: Source::Process(of),
            exec: false,
            at: None,
        }));
        origins.sort_unstable_by_key(|origin| origin.thread);
        let replaced = std::mem::take(&mut self.replaced);
        for (first, caller, at) in std::mem::take(&mut self.executed) {
            if replaced.contains(&first) && followed(first.tid).is_some() {
                self.executed.push((first, caller, at));
                continue;
            }
            let from = match caller {
                None => Source::Process(first.tid),
                Some(tid) => match (self.unseen.get(&tid), self.known(tid, &followed)) {
                    (Some(unseen), Some(creator)) => {
                        // Its start time was not read, and is not needed.
                        let thread = ThreadId { tid, start: 0 };
                        origins.push(Origin {
                            thread,
                            from: Source::Thread(creator),
                            exec: false,
                            at: (creator.tid == unseen.created.by_tid).then_some(unseen.created.at),
                        });
                        Source::Thread(thread)
                    }
                    (_, known) => known.map_or(Source::Process(first.tid), Source::Thread),
                },
            };
            origins.push(Origin {
                thread: first,
                from,
                exec: true,
                at,
            });
        }
        origins
    }

    /// What is kept grows older.
    pub fn age(&mut self) {
        self.takes += 1;
        let takes = self.takes;
        self.unseen.retain(|_, unseen| unseen.takes + KEPT > takes);
        self.ended.retain(|_, (_, at)| *at + KEPT > takes);
        self.departed.retain(|_, (_, at)| *at + KEPT > takes);
    }

    /// The thread of that number, or the nearest above it of those that came and went unseen.
    fn known(&self, tid: i32, followed: impl Fn(i32) -> Option<ThreadId>) -> Option<ThreadId> {
        let mut at = tid;
        for _ in 0..=self.unseen.len() {
            if let Some(unseen) = self.unseen.get(&at) {
                at = unseen.created.by_tid;
                continue;
            }
            let ended = || self.ended.get(&at).map(|(thread, _)| *thread);
            return followed(at).or_else(ended);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(tid: i32) -> ThreadId {
        ThreadId { tid, start: 7 }
    }

    fn created(tid: i32, by_tid: i32) -> Created {
        Created {
            pid: tid,
            tid,
            by_pid: by_tid,
            by_tid,
            at: 0,
        }
    }

    fn followed(tid: i32) -> Option<ThreadId> {
        (tid < 100).then(|| id(tid))
    }

    #[test]
    fn the_creator_of_one_that_was_found_and_has_ended_is_known() {
        let mut origins = Origins::default();
        let middle = id(100);
        origins.found(middle, 5);
        origins.told(&created(100, 6));
        origins.ended(middle);
        origins.found(id(7), 1);
        origins.told(&created(7, 100));
        let taken = origins.take(followed);
        let from = taken.iter().map(|origin| (origin.thread, origin.from));
        assert_eq!(
            from.collect::<Vec<_>>(),
            [
                (id(7), Source::Thread(middle)),
                (middle, Source::Thread(id(6)))
            ]
        );
    }

    #[test]
    fn a_record_says_which_thread_and_proc_only_which_process() {
        let mut origins = Origins::default();
        origins.found(id(5), 1);
        origins.found(id(6), 1);
        origins.told(&created(6, 2));
        let taken = origins.take(followed);
        assert_eq!(taken[0].from, Source::Process(1));
        assert_eq!(taken[1].from, Source::Thread(id(2)));
        // A record that comes late is reported too.
        origins.told(&created(5, 3));
        assert_eq!(origins.take(followed)[0].from, Source::Thread(id(3)));
        assert!(origins.take(followed).is_empty());
        // Nothing of one that is held back, until the next time.
        origins.found(id(8), 1);
        origins.hold(8);
        origins.told(&created(8, 3));
        assert!(origins.take(followed).is_empty());
        assert_eq!(origins.take(followed)[0].from, Source::Thread(id(3)));
        // A record with an unknown creator says nothing.
        origins.found(id(7), 1);
        origins.told(&created(7, 300));
        assert_eq!(origins.take(followed)[0].from, Source::Process(1));
    }

    #[test]
    fn whoever_came_and_went_unseen_stands_for_its_creator() {
        let mut origins = Origins::default();
        origins.unseen(&created(100, 2));
        origins.unseen(&created(101, 100));
        origins.told(&created(5, 101));
        assert_eq!(origins.take(followed)[0].from, Source::Thread(id(2)));
        // Unless /proc has shown it: then its own creator is reported.
        origins.ended(id(102));
        origins.unseen(&created(102, 2));
        origins.told(&created(8, 102));
        let taken = origins.take(followed);
        let from = taken.iter().map(|origin| (origin.thread, origin.from));
        assert_eq!(
            from.collect::<Vec<_>>(),
            [
                (id(8), Source::Thread(id(102))),
                (id(102), Source::Thread(id(2)))
            ]
        );
        // A circle of numbers that were given out again ends.
        origins.unseen(&created(100, 101));
        origins.told(&created(6, 101));
        assert!(origins.take(followed).is_empty());
    }

    #[test]
    fn a_caller_of_execve_that_nobody_saw_has_its_mask_from_its_creator() {
        let mut origins = Origins::default();
        origins.unseen(&created(100, 2));
        origins.executed(id(1), Some(100), Some(9));
        let taken = origins.take(followed);
        let caller = ThreadId { tid: 100, start: 0 };
        assert_eq!(
            (taken[0].thread, taken[0].from),
            (caller, Source::Thread(id(2)))
        );
        assert_eq!(
            (taken[1].thread, taken[1].from),
            (id(1), Source::Thread(caller))
        );
    }

    #[test]
    fn a_caller_of_execve_is_known_by_the_number_that_it_had() {
        let mut origins = Origins::default();
        origins.ended(id(200));
        origins.executed(id(1), Some(200), Some(7));
        origins.executed(id(2), None, None);
        let taken = origins.take(followed);
        assert!(taken.iter().all(|origin| origin.exec));
        assert_eq!(taken[0].from, Source::Thread(id(200)));
        assert_eq!(taken[1].from, Source::Process(2));
    }
}
