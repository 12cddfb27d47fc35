//! perch's own limit of open files: raised for itself, never for the program that it starts; and who may keep how many
//! of them open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    fs,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// Descriptors that are never kept open, so that the journal can be written, `/proc` read and masks restored: this
/// many, or half of what there is.
const RESERVED: usize = 256;

/// The limit of open files as it was before perch raised it.
static INHERITED: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of open files to the hard one; the first call also notes what perch inherited.
pub fn raise_open_files() {
    let inherited = INHERITED.get_or_init(|| getrlimit(Resource::Nofile));
    if inherited.current != inherited.maximum {
        // Refused only where a sandbox forbids it: then the old limit is respected.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: inherited.maximum,
                maximum: inherited.maximum,
            },
        );
    }
}

/// The limit that a started program must have: perch's own as it was inherited.
pub fn inherited_open_files() -> Rlimit {
    *INHERITED.get_or_init(|| getrlimit(Resource::Nofile))
}

/// The purpose for which descriptors are kept open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Files of `/proc`, one or two a thread.
    Threads,
    /// Hardware counters of threads.
    ThreadCounters,
    /// Hardware counters of whole PUs.
    PuCounters,
    /// Sampling of instructions, by CPU or by thread.
    Samples,
    /// The kernel's records of forks, ends and names.
    TaskEvents,
    /// Processes' memory and the files that they execute.
    Code,
}

/// Of every 16 descriptors, the number reserved for each purpose, in the order of [`Purpose`]. The rest is first come,
/// first served.
const OWN_PARTS: [usize; 6] = [2, 2, 1, 2, 1, 1];

/// The descriptors that perch may keep open, shared by all that keep some.
///
/// Each purpose has a part that others cannot use up, so that threads that are many do not leave the sampler blind.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Shares>);

#[derive(Debug)]
struct Shares {
    total: usize,
    used: Mutex<[usize; OWN_PARTS.len()]>,
}

impl Budget {
    /// The one of this process: what its limit allows, raised as far as it goes, beyond what is open already and what
    /// is to stay free.
    pub fn of_process() -> Self {
        static ONE: OnceLock<Budget> = OnceLock::new();
        let new = || {
            raise_open_files();
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20) as usize;
            let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
            let free = limit.saturating_sub(open);
            Self::of(free - RESERVED.min(free / 2))
        };
        ONE.get_or_init(new).clone()
    }

    /// One of this many descriptors.
    pub fn of(total: usize) -> Self {
        Self(Arc::new(Shares {
            total,
            used: Mutex::default(),
        }))
    }

    /// Sets some aside until the result is dropped; `None` if there are not as many left.
    pub fn reserve(&self, purpose: Purpose, count: usize) -> Option<Reserved> {
        let mut used = self.0.used.lock().unwrap_or_else(PoisonError::into_inner);
        if count > self.left(&used, purpose) {
            return None;
        }
        used[purpose as usize] += count;
        Some(Reserved {
            budget: self.clone(),
            purpose,
            count,
        })
    }

    /// Number of descriptors that may still be reserved for this purpose.
    pub fn available(&self, purpose: Purpose) -> usize {
        let used = self.0.used.lock().unwrap_or_else(PoisonError::into_inner);
        self.left(&used, purpose)
    }

    /// Number of descriptors reserved for this purpose.
    pub fn used(&self, purpose: Purpose) -> usize {
        self.0.used.lock().unwrap_or_else(PoisonError::into_inner)[purpose as usize]
    }

    fn left(&self, used: &[usize; OWN_PARTS.len()], purpose: Purpose) -> usize {
        let all = used.iter().zip(OWN_PARTS).enumerate();
        // What others use, or have to themselves.
        let taken = all.map(|(of, (used, part))| match of == purpose as usize {
            true => *used,
            false => (*used).max(self.0.total * part / 16),
        });
        self.0.total.saturating_sub(taken.sum())
    }
}

/// Descriptors that are set aside; released when this is dropped.
#[derive(Debug)]
pub struct Reserved {
    budget: Budget,
    purpose: Purpose,
    count: usize,
}

impl Reserved {
    /// Gives them back when this is dropped.
    pub fn keep<T>(self, inner: T) -> Kept<T> {
        Kept {
            inner,
            _reserved: self,
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let used = &self.budget.0.used;
        used.lock().unwrap_or_else(PoisonError::into_inner)[self.purpose as usize] -= self.count;
    }
}

/// Something that holds descriptors, with its place in the budget.
#[derive(Debug)]
pub struct Kept<T> {
    // Closed first.
    inner: T,
    _reserved: Reserved,
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Kept<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Advice to the user about too few descriptors.
pub const REMEDY: &str = "raise the limit of open files: `ulimit -n 65536`, `nofile` in /etc/security/limits.conf, or \
                          `LimitNOFILE=` in a systemd unit";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn raising_remembers_what_was_inherited() {
        let before = getrlimit(Resource::Nofile);
        raise_open_files();
        let inherited = inherited_open_files();
        assert_eq!(inherited.maximum, before.maximum);
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
        assert!(Budget::of_process().available(Purpose::Threads) > 0);
    }

    const ALL: [Purpose; 6] = [
        Purpose::Threads,
        Purpose::ThreadCounters,
        Purpose::PuCounters,
        Purpose::Samples,
        Purpose::TaskEvents,
        Purpose::Code,
    ];

    /// Everything that may still be reserved for that.
    fn rest(budget: &Budget, purpose: Purpose) -> Vec<Reserved> {
        std::iter::from_fn(|| budget.reserve(purpose, 1)).collect()
    }

    proptest! {
        #[test]
        fn never_more_than_there_are(
            total in 0usize..1000,
            wishes in proptest::collection::vec((0usize..6, 0usize..300, any::<bool>()), 0..40),
        ) {
            let budget = Budget::of(total);
            let mut held = Vec::new();
            for (purpose, count, give_back) in wishes {
                if give_back {
                    held.pop();
                }
                let available = budget.available(ALL[purpose]);
                let reserved = budget.reserve(ALL[purpose], count);
                prop_assert_eq!(reserved.is_some(), count <= available);
                held.extend(reserved);
                let used: usize = ALL.iter().map(|purpose| budget.used(*purpose)).sum();
                prop_assert!(used <= total);
                // Each purpose keeps its own part.
                for (purpose, part) in ALL.iter().zip(OWN_PARTS) {
                    let of_it = budget.used(*purpose) + budget.available(*purpose);
                    prop_assert!(of_it >= total * part / 16);
                }
            }
            drop(held);
            prop_assert!(ALL.iter().all(|purpose| budget.used(*purpose) == 0));
        }
    }

    #[test]
    fn the_first_purpose_leaves_the_others_their_parts() {
        let budget = Budget::of(160);
        let threads = rest(&budget, Purpose::Threads);
        assert_eq!(threads.len(), 90);
        let others = ALL.iter().filter(|purpose| **purpose != Purpose::Threads);
        let others: Vec<usize> = others.map(|of| rest(&budget, *of).len()).collect();
        assert_eq!(others, [20, 10, 20, 10, 10]);
        let kept = budget.clone().reserve(Purpose::Code, 10);
        let kept = kept.expect("released").keep(5);
        assert_eq!((*kept, budget.used(Purpose::Code)), (5, 10));
    }
}
