//! Which of the creations that the kernel reports are ours: those by processes that are followed, were followed until
//! just now, or were reported as created by such a process.
//!
//! A daemon leaves its process tree within a millisecond: its parent and grandparent may both have exited before perch
//! scans `/proc`, and then nothing there shows where it came from. The kernel's records do, but they come in several
//! rings, and a CPU may be held up between taking a record's time and writing it (a virtual one, by its host); so a
//! child's record may be read before its parent's.

use rustc_hash::{FxHashMap, FxHashSet};
use std::{collections::BTreeMap, mem};

/// Creations by strangers of which no more are remembered, so that a machine that forks wildly costs no memory.
const STRANGERS: usize = 1 << 16;

/// A new thread, as the kernel's record tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// Its process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// The process that created it: its own, or its parent.
    pub by_pid: i32,
    /// The thread that created it.
    pub by_tid: i32,
    /// When, in nanoseconds since the machine was opened.
    pub at: u64,
}

/// What is remembered for one more look than the present one: records that come later than that are lost ones.
#[derive(Debug, Default)]
struct Recent {
    /// Processes of ours that have ended.
    departed: FxHashSet<i32>,
    /// Creations by processes that are not known to be ours, by the creator.
    strangers: FxHashMap<i32, Vec<Created>>,
    count: usize,
    /// Threads of ours that `/proc` no longer shows and whose ends were not reported, each with its process: a caller of
    /// execve(2) loses its number without a report.
    vanished: FxHashMap<i32, i32>,
    /// Threads of ours that came and went before they were looked at.
    passed: FxHashSet<i32>,
}

/// Reported creations and ends.
#[derive(Debug, Default)]
pub(super) struct Lineage {
    /// Threads of ours that were reported and not yet looked at.
    told: BTreeMap<i32, Created>,
    present: Recent,
    last: Recent,
}

impl Lineage {
    /// A thread was created; `followed` says which processes are followed.
    pub fn created(&mut self, created: Created, followed: impl Fn(i32) -> bool) {
        let (pid, parent) = (created.pid, created.by_pid);
        if !self.is_ours(parent, &followed) && !followed(pid) {
            // The number of a process of ours that ended was given out again.
            self.present.departed.remove(&pid);
            self.last.departed.remove(&pid);
            if self.present.count < STRANGERS {
                self.present.count += 1;
                let children = self.present.strangers.entry(parent).or_default();
                children.push(created);
            }
            return;
        }
        let mut ours = vec![created];
        while let Some(created) = ours.pop() {
            self.told.insert(created.tid, created);
            for recent in [&mut self.present, &mut self.last] {
                let children = recent.strangers.remove(&created.pid).unwrap_or_default();
                recent.count -= children.len();
                ours.extend(children);
            }
        }
    }

    /// A thread has ended. Returns what was reported about it if it was not yet looked at.
    pub fn ended(&mut self, tid: i32) -> Option<Created> {
        for recent in [&mut self.present, &mut self.last] {
            recent.vanished.remove(&tid);
        }
        let told = self.told.remove(&tid);
        if told.is_some_and(|told| told.pid == tid) {
            self.departed(tid);
        }
        told
    }

    /// The threads of a process that were reported and not yet looked at.
    pub fn told_of(&self, pid: i32) -> impl Iterator<Item = Created> {
        let told = self.told.values().copied();
        told.filter(move |told| told.pid == pid)
    }

    /// `/proc` no longer shows this thread of ours, and its end was not reported.
    pub fn vanished(&mut self, pid: i32, tid: i32) {
        self.present.vanished.insert(tid, pid);
    }

    /// The threads of a process that have vanished lately.
    pub fn vanished_of(&self, pid: i32) -> impl Iterator<Item = i32> {
        let vanished = self.present.vanished.iter().chain(&self.last.vanished);
        let vanished = vanished.filter(move |(_, of)| **of == pid);
        vanished.map(|(tid, _)| *tid)
    }

    /// It was reported that a process executes another program: what has vanished before was the caller.
    pub fn forget_vanished(&mut self, pid: i32) {
        for recent in [&mut self.present, &mut self.last] {
            recent.vanished.retain(|_, of| *of != pid);
        }
    }

    /// A process executes another program. If nobody has looked at it, and a thread other than the first is the only one
    /// that is left of it: what was reported of that.
    pub fn unseen_caller(&self, pid: i32) -> Option<Created> {
        let mut left = self.told_of(pid);
        let caller = left.next().filter(|caller| caller.tid != pid)?;
        left.next().is_none().then_some(caller)
    }

    /// The caller has taken over the number of its process, which was created like this.
    pub fn renumbered(&mut self, caller: &Created, process: Created) {
        self.told.remove(&caller.tid);
        self.told.insert(process.tid, process);
        self.present.departed.remove(&process.pid);
        self.last.departed.remove(&process.pid);
    }

    /// A process of ours has ended; what it created may be reported later.
    pub fn departed(&mut self, pid: i32) {
        self.present.departed.insert(pid);
    }

    /// Whether a process of ours with this number ended lately.
    pub fn has_departed(&self, pid: i32) -> bool {
        self.present.departed.contains(&pid) || self.last.departed.contains(&pid)
    }

    /// A thread of ours came and went before it was looked at.
    pub fn passed(&mut self, tid: i32) {
        self.present.passed.insert(tid);
    }

    /// Whether a thread with this number came and went lately. `/proc` may still show it on its way out.
    pub fn has_passed(&self, tid: i32) -> bool {
        self.present.passed.contains(&tid) || self.last.passed.contains(&tid)
    }

    /// Whether there are threads to look at.
    pub fn has_told(&self) -> bool {
        !self.told.is_empty()
    }

    /// The threads to look at.
    pub fn take(&mut self) -> BTreeMap<i32, Created> {
        mem::take(&mut self.told)
    }

    /// What is remembered grows older: what was old already is forgotten.
    pub fn age(&mut self) {
        self.last = mem::take(&mut self.present);
    }

    fn is_ours(&self, pid: i32, followed: impl Fn(i32) -> bool) -> bool {
        followed(pid) || self.told.contains_key(&pid) || self.has_departed(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A process that was there before, and followed.
    const FIRST: i32 = 1;

    fn new(pid: i32, tid: i32, by: i32) -> Created {
        Created {
            pid,
            tid,
            by_pid: by,
            by_tid: by,
            at: 0,
        }
    }

    fn followed(pid: i32) -> bool {
        pid == FIRST
    }

    proptest! {
        /// Each process is created by an earlier one or a stranger. In whatever order and with whatever looks between
        /// the records come, all descendants of the first are found, and no other process.
        #[test]
        fn descendants_are_found_in_any_order(
            parents in proptest::collection::vec(proptest::option::weighted(0.75, 0..20usize), 1..20),
            order in any::<u64>(),
            look in any::<proptest::sample::Index>(),
            ended in any::<u32>(),
        ) {
            let pid = |at: usize| 100 + at as i32;
            let mut ours = vec![];
            let mut records = vec![];
            for (at, parent) in parents.iter().enumerate() {
                let parent = match parent {
                    None => 9,
                    Some(0) => FIRST,
                    Some(earlier) => pid((earlier - 1) % (at + 1)),
                };
                // No thread creates itself.
                let parent = if parent == pid(at) { FIRST } else { parent };
                if parent == FIRST || ours.contains(&parent) {
                    ours.push(pid(at));
                }
                records.push((pid(at), parent));
            }
            let mut state = order;
            records.sort_by_cached_key(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                state >> 33
            });
            let look = look.index(records.len());
            let mut lineage = Lineage::default();
            let mut found = vec![];
            for (at, (pid, parent)) in records.iter().enumerate() {
                lineage.created(new(*pid, *pid, *parent), followed);
                // Some end at once; each is looked at or departs.
                if ended >> at & 1 == 1 && lineage.ended(*pid).is_some() {
                    found.push(*pid);
                }
                if at == look {
                    lineage.age();
                    for pid in lineage.take().into_keys() {
                        lineage.departed(pid);
                        found.push(pid);
                    }
                }
            }
            found.extend(lineage.take().into_keys());
            found.sort_unstable();
            ours.sort_unstable();
            prop_assert_eq!(found, ours);
        }
    }

    #[test]
    fn threads_of_a_process_that_turns_out_to_be_ours_come_with_it() {
        let mut lineage = Lineage::default();
        lineage.created(new(20, 21, 20), followed);
        lineage.created(new(20, 20, FIRST), followed);
        let told = lineage
            .take()
            .into_values()
            .map(|told| (told.tid, told.pid));
        assert_eq!(told.collect::<Vec<_>>(), [(20, 20), (21, 20)]);
    }

    #[test]
    fn a_number_that_was_given_out_again_is_a_stranger() {
        let mut lineage = Lineage::default();
        lineage.created(new(20, 20, FIRST), followed);
        assert!(lineage.ended(20).is_some());
        lineage.created(new(20, 20, 9), followed);
        lineage.created(new(30, 30, 20), followed);
        assert!(lineage.take().is_empty());
    }

    #[test]
    fn what_ended_long_ago_has_no_children() {
        let mut lineage = Lineage::default();
        lineage.created(new(20, 20, FIRST), followed);
        assert!(lineage.ended(20).is_some());
        for _ in 0..2 {
            lineage.age();
            lineage.take();
        }
        lineage.created(new(30, 30, 20), followed);
        lineage.created(new(40, 40, 9), followed);
        lineage.age();
        assert!(lineage.take().is_empty());
        assert_eq!((lineage.last.count, lineage.present.count), (2, 0));
    }
}
