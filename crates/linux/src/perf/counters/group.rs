//! One group of counters of one thread or PU: on the PMU together or not at all, read together.

use super::resolve::GroupPlan;
use crate::perf::{
    encode::{Encoded, Mode},
    record::{Layout, Record, WINDOW_TYPE},
    rings::Ring,
};
use perf_event::{Builder, Clock, Counter, ReadFormat, SampleFlag, Sampler};
use std::{
    io,
    mem::MaybeUninit,
    ops::{Deref, DerefMut},
    os::fd::{AsRawFd, BorrowedFd},
};

/// Most events in a group that is read: no PMU has as many counters.
const MOST_EVENTS: usize = 32;

/// Bytes of the ring of a thread whose events make records: a hundred records of four events.
pub(super) const RING: usize = 16 << 10;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// The calling thread.
    Own,
    /// This thread.
    Thread(i32),
    /// Whatever runs on this PU, the kernel and interrupts among it.
    Pu(u32),
}

/// Open counters of one thread or PU.
pub(super) struct Group {
    leader: Handle,
    members: Vec<Handle>,
    last: Reading,
}

/// One event of a group.
enum Handle {
    Plain(Counter),
    /// Its page is mapped, from which it can be read without a system call.
    Mapped(Sampler),
    /// Makes records of the whole group; and the totals of the last of them.
    Recorder(Box<Ring>, Reading),
}

/// A record of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recorded {
    /// CLOCK_MONOTONIC time, in nanoseconds.
    pub time: u64,
    pub cpu: u32,
    /// What was counted since the record before.
    pub delta: Delta,
}

/// Totals of a group's events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Nanoseconds for which the thread ran while the group was switched on.
    pub enabled: u64,
    /// Those of them in which the group was on the PMU.
    pub running: u64,
    /// Occurrences, one number an event.
    pub values: Vec<u64>,
}

/// What was counted between two readings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Delta {
    pub enabled: u64,
    pub running: u64,
    /// `None` for a counter that went backwards.
    pub values: Vec<Option<u64>>,
}

impl Group {
    /// Opens a group, switched on.
    pub(super) fn open(plan: &GroupPlan, target: Target, user_only: bool) -> io::Result<Self> {
        let mut group = Self::closed(plan, target, user_only, false)?;
        group.enable()?;
        Ok(group)
    }

    /// Opens a group that is switched on when the thread executes a program: what it does before is perch's.
    pub(super) fn at_exec(plan: &GroupPlan, target: Target, user_only: bool) -> io::Result<Self> {
        Self::closed(plan, target, user_only, true)
    }

    /// Opens a group, switched off.
    fn closed(
        plan: &GroupPlan,
        target: Target,
        user_only: bool,
        on_at_exec: bool,
    ) -> io::Result<Self> {
        let mut events = plan.events.iter().map(|(_, event)| event);
        let Some(first) = events.next() else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        let mut leader = builder(first, target, user_only);
        leader.enabled(false).enable_on_exec(on_at_exec);
        if let Some(every) = plan.every {
            leader
                .sample_period(every)
                .sample(SampleFlag::from_bits_retain(WINDOW_TYPE))
                .clockid(Clock::MONOTONIC);
        }
        let mut leader = leader.build()?;
        let members: io::Result<Vec<Counter>> = events
            .map(|event| {
                let mut member = builder(event, target, user_only);
                if plan.every.is_some() {
                    // The kernel wants one clock for all.
                    member.clockid(Clock::MONOTONIC);
                }
                member.enabled(true).build_with_group(&mut leader)
            })
            .collect();
        let nothing = Reading {
            values: vec![0; plan.events.len()],
            ..Reading::default()
        };
        let members = members?;
        let layout = Layout {
            windows: true,
            ..Layout::default()
        };
        Ok(Self {
            leader: match plan.every {
                None => Handle::Plain(leader),
                Some(_) => {
                    let ring = Ring::map(leader, RING, layout)?;
                    Handle::Recorder(Box::new(ring), nothing.clone())
                }
            },
            members: members.into_iter().map(Handle::Plain).collect(),
            last: nothing,
        })
    }

    /// Maps the events' pages, so that [`Group::read_user`] may work. If that is refused, the group is lost.
    pub(super) fn map(self) -> io::Result<Self> {
        let map = |handle| match handle {
            Handle::Plain(counter) => counter.sampled(0).map(Handle::Mapped),
            mapped => Ok(mapped),
        };
        Ok(Self {
            leader: map(self.leader)?,
            members: self
                .members
                .into_iter()
                .map(map)
                .collect::<io::Result<_>>()?,
            last: self.last,
        })
    }

    /// Totals since the group was opened, read by the thread that is counted, from the events' pages (`rdpmc`, with the
    /// sequence lock of perf_event_open(2), "MMAP layout"). False if an event is not on a counter that user space may
    /// read just now: then it takes [`Group::read_into`].
    ///
    /// Where the kernel tells no clock (`cap_user_time`), the times are those of the last context switch.
    pub(super) fn read_user(&self, into: &mut Reading) -> bool {
        into.values.clear();
        for (at, handle) in std::iter::once(&self.leader)
            .chain(&self.members)
            .enumerate()
        {
            let Handle::Mapped(sampler) = handle else {
                return false;
            };
            let data = sampler.read_user();
            let Some(value) = data.count() else {
                return false;
            };
            if at == 0 {
                into.enabled = data.time_enabled().as_nanos() as u64;
                into.running = data.time_running().as_nanos() as u64;
            }
            into.values.push(value);
        }
        true
    }

    /// Totals since the group was opened.
    pub(super) fn read_into(&self, into: &mut Reading) -> io::Result<()> {
        // number of events, two times, and a value and an identifier for each
        let mut buffer = [MaybeUninit::<u8>::uninit(); 8 * (3 + 2 * MOST_EVENTS)];
        // SAFETY: the descriptor lives as long as the leader, which `self` owns.
        let fd = unsafe { BorrowedFd::borrow_raw(self.leader.as_raw_fd()) };
        let (bytes, _) = rustix::io::read(fd, &mut buffer)?;
        match into.parse(bytes, self.descriptors()) {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Switches the leader on, and so the group.
    pub(super) fn enable(&mut self) -> io::Result<()> {
        self.leader.enable()
    }

    /// Switches the leader off, and so the group.
    pub(super) fn disable(&mut self) -> io::Result<()> {
        self.leader.disable()
    }

    pub(super) fn descriptors(&self) -> usize {
        1 + self.members.len()
    }

    /// What was counted since the last reading.
    pub(super) fn read(&mut self) -> io::Result<Delta> {
        let mut reading = Reading::default();
        self.read_into(&mut reading)?;
        let delta = self.last.until(&reading);
        self.last = reading;
        Ok(delta)
    }

    /// The records since the last call, in order, and how many the kernel had no room for.
    pub(super) fn records(&mut self) -> (Vec<Recorded>, u64) {
        let events = self.descriptors();
        let Handle::Recorder(ring, last) = &mut self.leader else {
            return (Vec::new(), 0);
        };
        let (mut records, mut lost) = (Vec::new(), 0);
        ring.drain(|record| match record {
            Record::Window {
                time, cpu, totals, ..
            } => {
                let mut reading = Reading::default();
                if reading.parse(totals, events) {
                    let delta = last.until(&reading);
                    *last = reading;
                    records.push(Recorded { time, cpu, delta });
                }
            }
            Record::Lost(number) => lost += number,
            _ => {}
        });
        (records, lost)
    }
}

impl Deref for Handle {
    type Target = Counter;

    fn deref(&self) -> &Counter {
        match self {
            Self::Plain(counter) => counter,
            Self::Mapped(sampler) => sampler,
            Self::Recorder(ring, _) => ring.counter(),
        }
    }
}

impl DerefMut for Handle {
    fn deref_mut(&mut self) -> &mut Counter {
        match self {
            Self::Plain(counter) => counter,
            Self::Mapped(sampler) => sampler,
            Self::Recorder(ring, _) => ring.counter_mut(),
        }
    }
}

pub(super) fn builder(event: &Encoded, target: Target, user_only: bool) -> Builder<'static> {
    let mut builder = Builder::new(event.code);
    builder
        .read_format(
            ReadFormat::GROUP | ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING,
        )
        .exclude_kernel(user_only || event.mode == Mode::User)
        .exclude_user(event.mode == Mode::Kernel);
    match target {
        Target::Own => builder.observe_self().any_cpu(),
        Target::Thread(tid) => builder.observe_pid(tid).any_cpu(),
        Target::Pu(pu) => builder.any_pid().one_cpu(pu as usize),
    };
    builder
}

impl Reading {
    /// Reads `struct read_format` of a group with times and identifiers (perf_event_open(2), "Reading results"); false if
    /// it is not one of that many events.
    fn parse(&mut self, bytes: &[u8], events: usize) -> bool {
        let (words, _) = bytes.as_chunks::<8>();
        if words.len() < 3 + 2 * events {
            return false;
        }
        let word = |at: usize| u64::from_ne_bytes(words[at]);
        if word(0) != events as u64 {
            return false;
        }
        (self.enabled, self.running) = (word(1), word(2));
        self.values.clear();
        self.values
            .extend((0..events).map(|event| word(3 + 2 * event)));
        true
    }

    /// What was counted from here to a later reading.
    fn until(&self, later: &Self) -> Delta {
        let backwards = later.enabled < self.enabled || later.running < self.running;
        let values = self.values.iter().zip(&later.values);
        Delta {
            enabled: later.enabled.saturating_sub(self.enabled),
            running: later.running.saturating_sub(self.running),
            values: values
                .map(|(before, after)| after.checked_sub(*before).filter(|_| !backwards))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), events in 0usize..20) {
            let mut reading = Reading::default();
            if reading.parse(&bytes, events) {
                prop_assert_eq!(reading.values.len(), events);
            }
        }

        #[test]
        fn readings_come_back(enabled: u64, running: u64, values in proptest::collection::vec(any::<u64>(), 1..8)) {
            let mut words = vec![values.len() as u64, enabled, running];
            values.iter().for_each(|value| words.extend([*value, 77]));
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let expected = Reading { enabled, running, values: values.clone() };
            let mut reading = Reading::default();
            prop_assert!(reading.parse(&bytes, values.len()));
            prop_assert_eq!(&reading, &expected);
            prop_assert!(!reading.parse(&bytes[1..], values.len()));
            prop_assert!(!reading.parse(&bytes, values.len() + 1));
        }

        #[test]
        fn only_what_grew_is_a_count(before: [u64; 4], after: [u64; 4]) {
            let reading = |words: [u64; 4]| Reading {
                enabled: words[0],
                running: words[1],
                values: words[2..].to_vec(),
            };
            let delta = reading(before).until(&reading(after));
            for (at, value) in delta.values.iter().enumerate() {
                let times_grew = after[0] >= before[0] && after[1] >= before[1];
                prop_assert_eq!(value.is_some(), times_grew && after[at + 2] >= before[at + 2]);
                prop_assert!(value.is_none_or(|value| before[at + 2] + value == after[at + 2]));
            }
        }
    }
}
