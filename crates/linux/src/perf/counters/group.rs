//! One group of counters of one thread or PU: on the PMU together or not at all, read together.

use super::resolve::GroupPlan;
use crate::perf::{
    encode::{Encoded, Mode},
    record::{Layout, Record, WINDOW_TYPE},
    rings::Ring,
};
use perf_event::{Builder, Clock, Counter, ReadFormat, SampleFlag};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
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
    leader: Leader,
    members: Vec<Counter>,
    last: Reading,
}

/// The event that switches its group on and off.
enum Leader {
    /// Only counts.
    Counter(Counter),
    /// Makes records of the whole group too; and the last of them.
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

/// Totals since the group was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reading {
    pub enabled: u64,
    pub running: u64,
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
        let mut events = plan.events.iter().map(|(_, event)| event);
        let Some(first) = events.next() else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        let mut leader = builder(first, target, user_only);
        leader.enabled(false);
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
        let mut group = Self {
            leader: match plan.every {
                None => Leader::Counter(leader),
                Some(_) => {
                    let ring = Ring::map(leader, RING, layout)?;
                    Leader::Recorder(Box::new(ring), nothing.clone())
                }
            },
            members,
            last: nothing,
        };
        group.enable()?;
        Ok(group)
    }

    /// Switches the leader on, and so the group.
    pub(super) fn enable(&mut self) -> io::Result<()> {
        match &mut self.leader {
            Leader::Counter(counter) => counter.enable(),
            Leader::Recorder(ring, _) => ring.enable(),
        }
    }

    /// Switches the leader off, and so the group.
    pub(super) fn disable(&mut self) -> io::Result<()> {
        match &mut self.leader {
            Leader::Counter(counter) => counter.disable(),
            Leader::Recorder(ring, _) => ring.disable(),
        }
    }

    pub(super) fn descriptors(&self) -> usize {
        1 + self.members.len()
    }

    /// What was counted since the last reading.
    pub(super) fn read(&mut self) -> io::Result<Delta> {
        // number of events, two times, and a value and an identifier for each
        let mut buffer = [0u8; 8 * (3 + 2 * MOST_EVENTS)];
        let fd = match &self.leader {
            // SAFETY: the descriptor lives as long as the leader, which `self` owns.
            Leader::Counter(counter) => unsafe { BorrowedFd::borrow_raw(counter.as_raw_fd()) },
            Leader::Recorder(ring, _) => ring.as_fd(),
        };
        let length = rustix::io::read(fd, &mut buffer)?;
        let reading = Reading::parse(&buffer[..length], self.descriptors())
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let delta = self.last.until(&reading);
        self.last = reading;
        Ok(delta)
    }

    /// The records since the last call, in order, and how many the kernel had no room for.
    pub(super) fn records(&mut self) -> (Vec<Recorded>, u64) {
        let events = self.descriptors();
        let Leader::Recorder(ring, last) = &mut self.leader else {
            return (Vec::new(), 0);
        };
        let (mut records, mut lost) = (Vec::new(), 0);
        ring.drain(|record| match record {
            Record::Window {
                time, cpu, totals, ..
            } => {
                if let Some(reading) = Reading::parse(totals, events) {
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
    /// Reads `struct read_format` of a group with times and identifiers (perf_event_open(2), "Reading results").
    fn parse(bytes: &[u8], events: usize) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
        let count = words.next()?;
        if count != events as u64 {
            return None;
        }
        let (enabled, running) = (words.next()?, words.next()?);
        let mut values = Vec::with_capacity(events);
        for _ in 0..events {
            values.push(words.next()?);
            let _identifier = words.next()?;
        }
        Some(Self {
            enabled,
            running,
            values,
        })
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
            if let Some(reading) = Reading::parse(&bytes, events) {
                prop_assert_eq!(reading.values.len(), events);
            }
        }

        #[test]
        fn readings_come_back(enabled: u64, running: u64, values in proptest::collection::vec(any::<u64>(), 1..8)) {
            let mut words = vec![values.len() as u64, enabled, running];
            values.iter().for_each(|value| words.extend([*value, 77]));
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let expected = Reading { enabled, running, values: values.clone() };
            prop_assert_eq!(Reading::parse(&bytes, values.len()), Some(expected));
            prop_assert_eq!(Reading::parse(&bytes[1..], values.len()), None);
            prop_assert_eq!(Reading::parse(&bytes, values.len() + 1), None);
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
