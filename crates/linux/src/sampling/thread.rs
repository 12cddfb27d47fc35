//! A thread that is sampled: what is gathered of it, and when that is reported.

use super::{
    history::{History, Names, in_kernel},
    process::Process,
};
use crate::span::is_due;
use perch_core::{Metrics, ThreadId};
use perch_sampling::{Accesses, ThreadMix};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{collections::hash_map::Entry, time::Duration};

/// Samples of a thread that are too few to be seen together are gathered for this long: a second at 20 to 50 samples a
/// second is enough, and as long as the usual period, so that a policy learns as much at every interval.
const GATHERED: Duration = Duration::from_secs(1);

/// Samples in the kernel that are enough to say that a thread does nothing else.
const ENOUGH_IN_KERNEL: u64 = 20;

/// What is reported of a thread at the end of an interval.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Told {
    /// It was not sampled.
    Nothing,
    /// Its samples are being gathered: the last report still holds.
    Gathering,
    /// All samples since its samples were last taken.
    News(Metrics),
}

/// A thread of a process that was given to perch.
pub(super) struct Thread {
    /// `None` until a period reports it: its samples are kept for it until then.
    pub(super) id: Option<ThreadId>,
    pub(super) pid: i32,
    /// Only threads that were ever sampled have this.
    pub(super) sampled: Option<Box<Sampled>>,
}

/// What is known of a thread that was sampled.
#[derive(Default)]
pub(super) struct Sampled {
    pub(super) mix: ThreadMix,
    /// Samples in the kernel since they were last taken.
    pub(super) kernel: u64,
    /// How long samples have been gathered, and of that the thread's own time, which is less if it is new.
    gathered: Duration,
    own: Duration,
    /// How long ago samples were last taken.
    since: Duration,
    /// Samples of periods in which no code could be decoded.
    pub(super) undecoded: u64,
    history: History,
    /// Time on a PU, and all time, since it was last examined what it touched, in nanoseconds.
    pub(super) time: (u64, u64),
    /// What it touched lately.
    pub(super) accesses: Accesses,
}

impl Sampled {
    fn is_enough(&self) -> bool {
        self.mix.is_enough() || (self.mix.samples() == 0 && self.kernel >= ENOUGH_IN_KERNEL)
    }

    /// Share of the time that it had on a PU, since it was last examined what it touched.
    pub(super) fn busy(&self) -> f64 {
        (self.time.0 as f64 / self.time.1.max(1) as f64).min(1.0)
    }

    /// What is reported at the end of an interval of which the thread was there for `own` nanoseconds.
    pub(super) fn tell(
        &mut self,
        process: &mut Process,
        own: u64,
        ended: bool,
        how: &mut How<'_>,
    ) -> Told {
        self.since = self.since.saturating_add(how.interval);
        if self.kernel == 0 && self.mix.samples() == 0 {
            return match is_due(self.since, how.interval, GATHERED) {
                true => Told::Nothing,
                false => Told::Gathering,
            };
        }
        self.gathered += how.interval;
        self.own += Duration::from_nanos(own);
        let due = ended || is_due(self.gathered, how.interval, GATHERED);
        let enough = self.is_enough();
        let together = (due || enough) && (how.walk)(&self.mix);
        // What would be told of each sample by itself differs: it waits for its turn until it has to be told.
        if due || (enough && (together || !self.mix.has_fp())) {
            let told = self.take(process, together, how);
            return told.map_or(Told::Nothing, Told::News);
        }
        Told::Gathering
    }

    /// What the samples say; the next ones are gathered from now on.
    fn take(&mut self, process: &mut Process, together: bool, how: &How<'_>) -> Option<Metrics> {
        let kernel = std::mem::take(&mut self.kernel);
        let gathered = std::mem::take(&mut self.gathered);
        let own = std::mem::take(&mut self.own);
        self.since = Duration::ZERO;
        if let Some(new) = process.take(&mut self.mix, together, own) {
            let metrics = self
                .history
                .join(&new, kernel, gathered, how.l2_bytes, how.names);
            return Some(metrics);
        }
        self.undecoded += self.mix.samples();
        self.mix.reset();
        in_kernel(kernel, how.names)
    }
}

/// How metrics are made of samples at the end of an interval.
pub(super) struct How<'a> {
    /// The interval's length.
    pub(super) interval: Duration,
    /// A core's private cache.
    pub(super) l2_bytes: u64,
    pub(super) names: &'a Names,
    /// Whether the samples of the thread at hand may be seen together.
    pub(super) walk: &'a mut dyn FnMut(&ThreadMix) -> bool,
}

/// Threads by their numbers and by their processes.
#[derive(Default)]
pub(super) struct Threads {
    by_number: FxHashMap<i32, Thread>,
    /// The numbers of each process's threads.
    of: FxHashMap<i32, FxHashSet<i32>>,
}

impl Threads {
    pub(super) fn get(&self, tid: i32) -> Option<&Thread> {
        self.by_number.get(&tid)
    }

    pub(super) fn get_mut(&mut self, tid: i32) -> Option<&mut Thread> {
        self.by_number.get_mut(&tid)
    }

    /// Adds a thread, in place of one that had its number.
    pub(super) fn insert(&mut self, tid: i32, thread: Thread) -> &mut Thread {
        self.remove(tid);
        self.of.entry(thread.pid).or_default().insert(tid);
        match self.by_number.entry(tid) {
            Entry::Occupied(mut place) => {
                place.insert(thread);
                place.into_mut()
            }
            Entry::Vacant(place) => place.insert(thread),
        }
    }

    pub(super) fn remove(&mut self, tid: i32) {
        let Some(thread) = self.by_number.remove(&tid) else {
            return;
        };
        if let Entry::Occupied(mut of) = self.of.entry(thread.pid) {
            of.get_mut().remove(&tid);
            if of.get().is_empty() {
                of.remove();
            }
        }
    }

    /// Does this with all threads of a process.
    pub(super) fn of_process(&mut self, pid: i32, mut each: impl FnMut(&mut Thread)) {
        for tid in self.of.get(&pid).into_iter().flatten() {
            if let Some(thread) = self.by_number.get_mut(tid) {
                each(thread);
            }
        }
    }

    /// Whether a process has threads.
    pub(super) fn has(&self, pid: i32) -> bool {
        self.of.contains_key(&pid)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Thread> {
        self.by_number.values_mut()
    }

    /// Removes those for which this holds.
    pub(super) fn remove_if(&mut self, gone: impl Fn(&Thread) -> bool) {
        let all = self.by_number.iter();
        let gone: Vec<i32> = all.filter(|(_, t)| gone(t)).map(|(tid, _)| *tid).collect();
        gone.into_iter().for_each(|tid| self.remove(tid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Each process has the threads that a look at all of them would find.
        #[test]
        fn threads_are_found_by_their_process(
            steps in prop::collection::vec((0i32..20, 0i32..4, 0u8..6), 0..100),
        ) {
            let mut threads = Threads::default();
            for (tid, pid, what) in steps {
                match what {
                    0..4 => {
                        let id = Some(ThreadId { tid, start: 0 });
                        threads.insert(tid, Thread { id, pid, sampled: None });
                    }
                    4 => threads.remove(tid),
                    _ => threads.remove_if(|thread| thread.pid == pid),
                }
                for pid in 0..4 {
                    let mut found = Vec::new();
                    threads.of_process(pid, |thread| found.push(thread.id));
                    let all = threads.iter_mut();
                    let mut expected: Vec<_> = all.filter(|t| t.pid == pid).map(|t| t.id).collect();
                    found.sort();
                    expected.sort();
                    prop_assert_eq!(threads.has(pid), !found.is_empty());
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
