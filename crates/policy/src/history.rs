//! What a policy remembers of each thread: where it ran (the cumulative usage history of WorkOver; Peternier et al.
//! 2014, section 4.2) and whatever else the policy keeps. A thread that ends is forgotten.

use perch_core::{ThreadId, ThreadState};

/// PUs remembered per thread. More than this many homes are no homes.
const REMEMBERED: usize = 4;

/// On which PUs a thread spent its time, in seconds; bounded, and without memory of its own on the heap.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PuUsage {
    entries: [(u32, f64); REMEMBERED],
    used: usize,
}

impl PuUsage {
    /// Adds time on a PU. When more PUs were used than are remembered, the least used one is forgotten.
    pub fn record(&mut self, pu: u32, seconds: f64) {
        let known = &mut self.entries[..self.used];
        if let Some((_, time)) = known.iter_mut().find(|(known, _)| *known == pu) {
            *time += seconds;
        } else if self.used < REMEMBERED {
            self.entries[self.used] = (pu, seconds);
            self.used += 1;
        } else if let Some(least) = known.iter_mut().min_by(|a, b| a.1.total_cmp(&b.1)) {
            *least = (pu, seconds);
        }
    }

    /// The PU that was used longest among those that `accept` takes; the lowest of equals.
    pub fn most_used(&self, accept: impl Fn(u32) -> bool) -> Option<u32> {
        let used = self.entries[..self.used].iter();
        let accepted = used.filter(|(pu, _)| accept(*pu));
        accepted
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
            .map(|(pu, _)| *pu)
    }
}

/// One `T` per live thread, kept in the order of the snapshot's threads so that both are walked side by side.
#[derive(Debug, Clone)]
pub(crate) struct PerThread<T>(Vec<(ThreadId, T)>);

impl<T> Default for PerThread<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default> PerThread<T> {
    /// Lines the memory up with this period's threads (by rising id): new threads get the default, ended ones are
    /// dropped.
    pub fn follow(&mut self, threads: &[ThreadState]) {
        let same = self.0.len() == threads.len();
        if same && self.0.iter().zip(threads).all(|(a, b)| a.0 == b.info.id) {
            return;
        }
        let mut old = std::mem::take(&mut self.0).into_iter().peekable();
        self.0 = threads
            .iter()
            .map(|thread| {
                let id = thread.info.id;
                while old.next_if(|(known, _)| *known < id).is_some() {}
                old.next_if(|(known, _)| *known == id)
                    .unwrap_or_else(|| (id, T::default()))
            })
            .collect();
    }
}

impl<T> std::ops::Index<usize> for PerThread<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.0[at].1
    }
}

impl<T> std::ops::IndexMut<usize> for PerThread<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.0[at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_most_used_pu_of_few_is_exact(time in proptest::collection::vec((0..4u32, 1..100u32), 1..60)) {
            let mut usage = PuUsage::default();
            let mut truth = [0u32; 4];
            for (pu, seconds) in time {
                usage.record(pu, f64::from(seconds));
                truth[pu as usize] += seconds;
            }
            let most = usage.most_used(|_| true).unwrap();
            prop_assert_eq!(truth[most as usize], *truth.iter().max().unwrap());
        }

        #[test]
        fn where_most_of_the_time_went_is_never_forgotten(time in proptest::collection::vec((0..1000u32, 1..100u32), 1..200)) {
            let mut usage = PuUsage::default();
            usage.record(5000, 100.0);
            for (pu, seconds) in time {
                usage.record(pu, f64::from(seconds) / 1e6);
            }
            prop_assert_eq!(usage.most_used(|_| true), Some(5000));
        }
    }
}
