//! One event a thread, for those who may not look at whole CPUs.
//!
//! Each event costs the program something at every switch of the thread, a descriptor, and locked memory for its ring.
//! So only running threads have one, threads that switch too often have none, and if there are more threads than rings,
//! the rings are rotated among them.

use super::source::{allowed_rate, cpu_clock, layout, sample_bytes};
use crate::{
    limits::{Budget, Kept, Purpose},
    perf::{Poll, Record, Ring, limits},
    span::{Allowance, counted, is_due},
};
use perch_core::{MachineError, ThreadId};
use rustc_hash::FxHashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

/// A ring is never smaller than this many samples: ten make a verdict, and one may be cut off at the ring's end.
const LEAST_SAMPLES: usize = 20;

/// Events that are opened, or moved to another thread, in a second: about 40 µs each.
const MOST_CHANGES: usize = 128;

/// After this time an event whose thread does not run is closed.
const IDLE: Duration = Duration::from_secs(2);

/// So long a thread keeps its event where others wait for one.
const TURN: Duration = Duration::from_secs(1);

struct Event {
    ring: Kept<Ring>,
    /// For how long its thread did not run.
    idle: Duration,
    /// For how long it has been open.
    age: Duration,
}

/// A thread that wants to be sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    /// The thread that is sampled.
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
    budget: Budget,
    /// When each thread that waits for its turn was last sampled, in periods.
    last_turn: FxHashMap<ThreadId, u64>,
    period: u64,
    /// Openings that are left.
    changes: Allowance,
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
        let budget = Budget::of_process();
        let descriptors = budget.available(Purpose::Samples);
        let mut source = Self {
            events: BTreeMap::new(),
            hz,
            kernel,
            poll: Poll::new()?,
            ring,
            slots: 0,
            budget,
            last_turn: FxHashMap::default(),
            period: 0,
            changes: Allowance::new(MOST_CHANGES),
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

    /// Decides, after a period of this length, who is sampled in the next.
    pub(super) fn choose(&mut self, candidates: &[Candidate], length: Duration) {
        self.period += 1;
        self.changes.refill(length);
        let running: BTreeSet<ThreadId> = candidates.iter().map(|c| c.id).collect();
        self.events.retain(|id, event| {
            event.age = event.age.saturating_add(length);
            event.idle = match running.contains(id) {
                true => Duration::ZERO,
                false => event.idle + counted(length),
            };
            !is_due(event.idle, length, IDLE)
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
        let wanted = waiting.len().min(self.changes.left());
        self.make_room(wanted.saturating_sub(free), length);
        for candidate in waiting {
            if self.events.len() >= self.slots || self.changes.left() == 0 {
                break;
            }
            self.open(candidate.id);
        }
        let known = |id: &ThreadId| running.contains(id);
        self.last_turn.retain(|id, _| known(id));
    }

    /// Closes this many events whose turn is over, those first that have been open longest.
    fn make_room(&mut self, wanted: usize, length: Duration) {
        let over = self.events.iter();
        let over = over.filter(|(_, event)| is_due(event.age, length, TURN));
        let mut by_age: Vec<(Duration, ThreadId)> =
            over.map(|(id, event)| (event.age, *id)).collect();
        by_age.sort_unstable_by_key(|(age, id)| (std::cmp::Reverse(*age), *id));
        for (_, id) in by_age.into_iter().take(wanted) {
            self.events.remove(&id);
        }
    }

    fn open(&mut self, id: ThreadId) {
        if !self.changes.take() {
            return;
        }
        match self.open_ring(id) {
            Ok(ring) => {
                let event = Event {
                    ring,
                    idle: Duration::ZERO,
                    age: Duration::ZERO,
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

    fn open_ring(&mut self, id: ThreadId) -> io::Result<Kept<Ring>> {
        let place = self.budget.reserve(Purpose::Samples, 1);
        let place = place.ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?;
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
                    return Ok(place.keep(ring));
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

#[cfg(test)]
mod tests {
    use super::*;
    use perch_skip::skip;
    use std::sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    };

    const SECOND: Duration = Duration::from_secs(1);

    /// Threads that wait until the end of the test.
    struct Crowd {
        ids: Vec<ThreadId>,
        stop: Arc<AtomicBool>,
        threads: Vec<std::thread::JoinHandle<()>>,
    }

    impl Crowd {
        fn new(size: usize) -> Self {
            let stop = Arc::new(AtomicBool::new(false));
            let ready = Arc::new(Barrier::new(size + 1));
            let (sender, receiver) = std::sync::mpsc::channel();
            let threads = (0..size).map(|_| {
                let (stop, ready, sender) = (stop.clone(), ready.clone(), sender.clone());
                std::thread::spawn(move || {
                    let tid = rustix::thread::gettid().as_raw_nonzero().get();
                    sender.send(tid).expect("receiver");
                    ready.wait();
                    while !stop.load(Ordering::Relaxed) {
                        std::thread::park_timeout(std::time::Duration::from_millis(20));
                    }
                })
            });
            let threads = threads.collect();
            ready.wait();
            let ids = receiver.try_iter().map(|tid| ThreadId { tid, start: 0 });
            Self {
                ids: ids.collect(),
                stop,
                threads,
            }
        }

        fn candidates(&self) -> Vec<Candidate> {
            let ids = self.ids.iter().enumerate();
            ids.map(|(at, id)| Candidate {
                id: *id,
                cpu_time: 1000 + at as u64,
            })
            .collect()
        }
    }

    impl Drop for Crowd {
        fn drop(&mut self) {
            self.stop.store(true, Ordering::Relaxed);
            for thread in self.threads.drain(..) {
                thread.join().expect("join");
            }
        }
    }

    fn source() -> Option<PerThread> {
        let source = PerThread::new(99, false).expect("a descriptor");
        crate::perf::Privilege::detect().is_ok().then_some(source)
    }

    #[test]
    fn with_few_slots_everybody_has_a_turn() {
        let Some(mut source) = source() else {
            return skip!(Perf, "threads cannot be sampled");
        };
        let crowd = Crowd::new(10);
        source.slots = 3;
        let mut turns: FxHashMap<ThreadId, usize> = FxHashMap::default();
        for _ in 0..20 {
            source.choose(&crowd.candidates(), SECOND);
            assert_eq!(source.events.len(), 3);
            for id in crowd.ids.iter().filter(|id| source.samples(**id)) {
                *turns.entry(*id).or_default() += 1;
            }
        }
        for id in &crowd.ids {
            assert!((5..=7).contains(&turns[id]), "{turns:?}");
        }
    }

    #[test]
    fn only_threads_that_run_keep_an_event() {
        let Some(mut source) = source() else {
            return skip!(Perf, "threads cannot be sampled");
        };
        let crowd = Crowd::new(4);
        source.choose(&crowd.candidates(), SECOND);
        assert_eq!(source.events.len(), 4);
        let first = crowd.candidates()[..1].to_vec();
        source.choose(&first, SECOND);
        source.choose(&first, SECOND);
        assert_eq!(source.events.len(), 1);
        assert!(source.samples(first[0].id));
        source.choose(&[], SECOND);
        source.choose(&[], SECOND);
        assert!(source.events.is_empty());
        source.add(first[0].id);
        source.remove(first[0].id);
        assert!(source.events.is_empty());
    }

    #[test]
    fn events_last_as_long_at_short_intervals() {
        let Some(mut source) = source() else {
            return skip!(Perf, "threads cannot be sampled");
        };
        let tenth = SECOND / 10;
        let crowd = Crowd::new(4);
        source.slots = 2;
        source.choose(&crowd.candidates(), tenth);
        let first: Vec<ThreadId> = source.events.keys().copied().collect();
        for _ in 0..9 {
            source.choose(&crowd.candidates(), tenth);
            assert!(first.iter().all(|id| source.samples(*id)));
        }
        source.choose(&crowd.candidates(), tenth);
        assert_eq!(source.events.len(), 2);
        assert!(first.iter().all(|id| !source.samples(*id)));
        // The same for threads that do not run.
        for _ in 0..19 {
            source.choose(&[], tenth);
            assert_eq!(source.events.len(), 2);
        }
        source.choose(&[], tenth);
        assert!(source.events.is_empty());
    }

    #[test]
    fn openings_are_limited_by_the_second() {
        let Some(mut source) = source() else {
            return skip!(Perf, "threads cannot be sampled");
        };
        let gone = |tid| Candidate {
            id: ThreadId { tid, start: 0 },
            cpu_time: 5,
        };
        let many: Vec<Candidate> = (0..1000).map(|n| gone(i32::MAX - n)).collect();
        // The first second's.
        source.choose(&many, SECOND);
        assert_eq!(source.changes.left(), 0);
        source.changes.refill(SECOND / 4);
        assert_eq!(source.changes.left(), MOST_CHANGES / 4);
    }

    #[test]
    fn threads_that_are_gone_are_passed_over() {
        let Some(mut source) = source() else {
            return skip!(Perf, "threads cannot be sampled");
        };
        let gone = Candidate {
            id: ThreadId {
                tid: i32::MAX,
                start: 0,
            },
            cpu_time: 5,
        };
        source.choose(&[gone], SECOND);
        assert!(source.events.is_empty() && source.refused() == 0);
    }
}
