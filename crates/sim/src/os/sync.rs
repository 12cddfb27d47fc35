//! Barriers and locks of one process.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// A thread: an index of the system's threads.
type Index = usize;

/// A lock: the thread that has it, and those that wait for it, in the order in which they came.
#[derive(Debug, Clone, Default)]
struct Lock {
    holder: Option<Index>,
    waiting: VecDeque<Index>,
}

/// Which threads of one process wait for each other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sync {
    /// Threads that must come to each barrier, and those that are there.
    barriers: BTreeMap<Arc<str>, (usize, Vec<Index>)>,
    locks: BTreeMap<Arc<str>, Lock>,
}

impl Sync {
    /// One more thread takes part in a barrier.
    pub(crate) fn join_barrier(&mut self, name: &str) {
        self.barriers.entry(name.into()).or_default().0 += 1;
    }

    /// One thread less takes part in a barrier. If only it was missing, those that had waited are returned.
    pub(crate) fn leave_barrier(&mut self, name: &str) -> Vec<Index> {
        let Some((parties, there)) = self.barriers.get_mut(name) else {
            return Vec::new();
        };
        *parties = parties.saturating_sub(1);
        match there.len() >= *parties {
            true => std::mem::take(there),
            false => Vec::new(),
        }
    }

    /// A thread comes to a barrier. If it is the last one, all go on: those that had waited are returned.
    pub(crate) fn arrive(&mut self, name: &Arc<str>, thread: Index) -> Option<Vec<Index>> {
        let (parties, there) = self.barriers.entry(Arc::clone(name)).or_default();
        if there.len() + 1 >= *parties {
            return Some(std::mem::take(there));
        }
        there.push(thread);
        None
    }

    /// A thread wants a lock: true if it has it now.
    pub(crate) fn lock(&mut self, name: &Arc<str>, thread: Index) -> bool {
        let lock = self.locks.entry(Arc::clone(name)).or_default();
        if lock.holder.is_none() {
            lock.holder = Some(thread);
            return true;
        }
        lock.waiting.push_back(thread);
        false
    }

    /// A thread lets a lock go; the one that has it next, if any waited.
    pub(crate) fn unlock(&mut self, name: &Arc<str>) -> Option<Index> {
        let lock = self.locks.get_mut(name)?;
        lock.holder = lock.waiting.pop_front();
        lock.holder
    }

    /// The thread that holds a lock.
    pub(crate) fn holder(&self, name: &str) -> Option<Index> {
        self.locks.get(name)?.holder
    }

    /// How many have come to a barrier, and how many it takes.
    pub(crate) fn at_barrier(&self, name: &str) -> (usize, usize) {
        self.barriers
            .get(name)
            .map_or((0, 0), |(parties, there)| (there.len(), *parties))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_opens_a_barrier_again_and_again() {
        let mut sync = Sync::default();
        let name: Arc<str> = "b".into();
        for _ in 0..3 {
            sync.join_barrier("b");
        }
        for _ in 0..2 {
            assert_eq!(sync.arrive(&name, 0), None);
            assert_eq!(sync.arrive(&name, 1), None);
            assert_eq!(sync.at_barrier("b"), (2, 3));
            assert_eq!(sync.arrive(&name, 2), Some(vec![0, 1]));
        }
    }

    #[test]
    fn a_lock_goes_to_who_came_first() {
        let mut sync = Sync::default();
        let name: Arc<str> = "l".into();
        assert!(sync.lock(&name, 0));
        assert!(!sync.lock(&name, 1));
        assert!(!sync.lock(&name, 2));
        assert_eq!(sync.unlock(&name), Some(1));
        assert_eq!(sync.holder("l"), Some(1));
        assert_eq!(sync.unlock(&name), Some(2));
        assert_eq!(sync.unlock(&name), None);
        assert!(sync.lock(&name, 3));
    }
}
