//! One event a thread, for those who may not look at whole CPUs.
//!
//! Each event costs the program something at every switch of the thread, a descriptor, and locked memory for its ring.
//! So only threads that run have one, those that switch too often have none, and where there are more threads than
//! rings they take turns.

use super::source::{allowed_rate, cpu_clock, layout, sample_bytes};
use crate::perf::{Poll, Record, Ring, limits};
use perch_core::{MachineError, ThreadId};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    os::fd::{AsFd, BorrowedFd},
};

/// A ring is never smaller than this many samples: ten make a verdict, and one may be cut off at the ring's end.
const LEAST_SAMPLES: usize = 20;

/// Events that are opened, or moved to another thread, in one period: about 40 µs each.
const MOST_CHANGES: usize = 128;

/// Periods after which an event whose thread does not run is closed.
const IDLE_PERIODS: u32 = 2;

struct Event {
    ring: Ring,
    /// Since when its thread did not run.
    idle: u32,
    /// Periods for which it has been open.
    age: u32,
}

/// A thread that wants to be sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Who.
    pub id: ThreadId,
    /// Time on a PU in the last period, in nanoseconds.
    pub cpu_time: u64,
}

/// Sampling events of single threads.
pub(super) struct PerThread {
    events: BTreeMap<ThreadId, Event>,
    hz: u32,
    /// Whether samples in the kernel are permitted.
    kernel: bool,
    poll: Poll,
    ring: usize,
    /// Most events at once; shrinks when the system refuses more.
    slots: usize,
    /// When each thread that waits for its turn was last sampled, in periods.
    last_turn: HashMap<ThreadId, u64>,
    period: u64,
    /// Openings left in this period.
    changes: usize,
    refused: BTreeSet<ThreadId>,
}

impl PerThread {
    /// A source without events yet, with rings for a second each as far as locked memory allows.
    pub(super) fn new(hz: u32, kernel: bool) -> Result<Self, MachineError> {
        let page = rustix::param::page_size();
        let second = allowed_rate(hz) as usize * sample_bytes();
        let ring = second.next_power_of_two().max(page);
        // A quarter is left to task events and to other users of perf.
        let memory = limits::ring_bytes() / 4 * 3;
        let descriptors = limits::descriptors() / 2;
        let mut source = Self {
            events: BTreeMap::new(),
            hz,
            kernel,
            poll: Poll::new()?,
            ring,
            slots: 0,
            last_turn: HashMap::new(),
            period: 0,
            changes: MOST_CHANGES,
            refused: BTreeSet::new(),
        };
        source.slots = (memory / (source.ring + page)).min(descriptors).max(1);
        Ok(source)
    }

    /// Starts to sample a thread that has just come, if that is possible now.
    pub(super) fn add(&mut self, id: ThreadId) {
        if self.events.len() < self.slots && !self.events.contains_key(&id) {
            self.open(id);
        }
    }

    /// Ends a thread's event.
    pub(super) fn remove(&mut self, id: ThreadId) {
        self.events.remove(&id);
        self.last_turn.remove(&id);
        self.refused.remove(&id);
    }

    /// Decides who is sampled in the next period.
    pub(super) fn choose(&mut self, candidates: &[Candidate]) {
        self.period += 1;
        self.changes = MOST_CHANGES;
        let running: BTreeSet<ThreadId> = candidates.iter().map(|c| c.id).collect();
        self.events.retain(|id, event| {
            event.age += 1;
            event.idle = match running.contains(id) {
                true => 0,
                false => event.idle + 1,
            };
            event.idle < IDLE_PERIODS
        });
        for id in self.events.keys() {
            self.last_turn.insert(*id, self.period);
        }
        let mut waiting: Vec<&Candidate> = candidates
            .iter()
            .filter(|c| !self.events.contains_key(&c.id) && !self.refused.contains(&c.id))
            .collect();
        // Who waited longest first, and of those who waited equally long the busiest.
        waiting.sort_by_key(|c| {
            let turn = self.last_turn.get(&c.id).copied().unwrap_or(0);
            (turn, std::cmp::Reverse(c.cpu_time))
        });
        let free = self.slots.saturating_sub(self.events.len());
        self.make_room(waiting.len().min(MOST_CHANGES).saturating_sub(free));
        for candidate in waiting {
            if self.events.len() >= self.slots || self.changes == 0 {
                break;
            }
            self.open(candidate.id);
        }
        let known = |id: &ThreadId| running.contains(id);
        self.last_turn.retain(|id, _| known(id));
    }

    /// Closes this many events, those first that have been open longest.
    fn make_room(&mut self, wanted: usize) {
        let mut by_age: Vec<(u32, ThreadId)> =
            self.events.iter().map(|(id, e)| (e.age, *id)).collect();
        by_age.sort_unstable_by_key(|(age, id)| (std::cmp::Reverse(*age), *id));
        for (_, id) in by_age.into_iter().take(wanted) {
            self.events.remove(&id);
        }
    }

    fn open(&mut self, id: ThreadId) {
        if self.changes == 0 {
            return;
        }
        self.changes -= 1;
        match self.open_ring(id) {
            Ok(ring) => {
                let event = Event {
                    ring,
                    idle: 0,
                    age: 0,
                };
                self.events.insert(id, event);
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::ESRCH) => {}
                Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => self.shrink(),
                _ => {
                    self.refused.insert(id);
                }
            },
        }
    }

    fn open_ring(&mut self, id: ThreadId) -> io::Result<Ring> {
        loop {
            let mut builder = cpu_clock(self.hz, self.ring / 2);
            builder
                .observe_pid(id.tid)
                .any_cpu()
                .exclude_kernel(!self.kernel)
                .enabled(true);
            match Ring::map(builder.build()?, self.ring, layout()) {
                Ok(ring) => {
                    // Without it the ring is only read at the period's end.
                    let _ = self.poll.add(&ring);
                    return Ok(ring);
                }
                // Locked memory is used up: smaller rings, and then fewer.
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                    let page = rustix::param::page_size();
                    let half = self.ring / 2;
                    if half < page || half < LEAST_SAMPLES * sample_bytes() {
                        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
                    }
                    self.ring = half;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// No more events than now.
    fn shrink(&mut self) {
        self.slots = self.events.len().max(1);
    }

    /// Hands over every record.
    pub(super) fn drain(&mut self, mut each: impl FnMut(Record<'_>)) {
        self.poll.settle();
        for event in self.events.values_mut() {
            event.ring.drain(&mut each);
        }
    }

    /// Readable when a ring is half full.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }

    /// Most threads that can be sampled at once.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Threads that the kernel does not let us sample.
    pub(super) fn refused(&self) -> usize {
        self.refused.len()
    }

    /// Whether a thread is sampled now.
    #[cfg(test)]
    pub(super) fn samples(&self, id: ThreadId) -> bool {
        self.events.contains_key(&id)
    }
}
