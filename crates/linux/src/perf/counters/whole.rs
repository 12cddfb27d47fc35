//! Counters of whole programs: every thread that is created inherits them, so that none is too short-lived to be
//! counted (perf_event_open(2), `inherit`). The kernel adds what threads counted to the program's counts when they end.

use super::{group::builder, resolve::SetPlan};
use crate::{
    limits::{Budget, Kept, Purpose},
    perf::counters::{Accumulator, group::Target},
    plausibility::OnCpu,
};
use perch_core::TargetSample;
use perf_event::{Counter, ReadFormat};
use rustix::fd::BorrowedFd;
use std::{collections::BTreeMap, io, os::fd::AsRawFd, sync::Arc};

/// Counters of programs, by target.
pub(super) struct WholePrograms {
    programs: BTreeMap<u32, Kept<Program>>,
}

/// One program's counters.
struct Program {
    /// The set that counts now.
    active: usize,
    sets: Vec<Vec<Inherited>>,
}

/// One event of a program. Inherited events cannot be read as a group.
struct Inherited {
    alias: Arc<str>,
    counter: Counter,
    last: Reading,
}

/// Totals over all threads since the counter was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Reading {
    value: u64,
    enabled: u64,
    running: u64,
}

impl WholePrograms {
    pub(super) fn new() -> Self {
        Self {
            programs: BTreeMap::new(),
        }
    }

    /// Counts a program that was forked and has not been executed yet: from its execution on.
    pub(super) fn open(
        &mut self,
        target: u32,
        pid: i32,
        sets: &[SetPlan],
        user_only: bool,
        budget: &Budget,
    ) -> io::Result<()> {
        let groups = sets.iter().flat_map(|set| &set.groups);
        let cost: usize = groups.map(|group| group.events.len()).sum();
        let place = budget.reserve(Purpose::ThreadCounters, cost);
        let place = place.ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?;
        let mut opened = Vec::new();
        for (at, set) in sets.iter().enumerate() {
            let mut events = Vec::new();
            for group in &set.groups {
                for (alias, event) in &group.events {
                    let counter = builder(event, Target::Thread(pid), user_only)
                        .read_format(
                            ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING,
                        )
                        .inherit(true)
                        .enabled(false)
                        // The others wait for their turn.
                        .enable_on_exec(at == 0)
                        .build()?;
                    events.push(Inherited {
                        alias: Arc::clone(alias),
                        counter,
                        last: Reading::default(),
                    });
                }
            }
            opened.push(events);
        }
        self.programs.insert(
            target,
            place.keep(Program {
                active: 0,
                sets: opened,
            }),
        );
        Ok(())
    }

    /// What programs did since the last call, and for how long their events were on. Then the next set has its turn.
    pub(super) fn read(&mut self) -> Vec<(TargetSample, OnCpu)> {
        let programs = self.programs.iter_mut();
        programs
            .map(|(target, program)| program.read(*target))
            .collect()
    }

    pub(super) fn close(&mut self, target: u32) {
        self.programs.remove(&target);
    }
}

impl Program {
    fn read(&mut self, target: u32) -> (TargetSample, OnCpu) {
        let mut tally = Accumulator::default();
        for event in &mut self.sets[self.active] {
            if let Ok((value, times)) = event.read() {
                tally.add_event(&event.alias, value, times);
            }
        }
        let on_cpu = tally.on_cpu();
        let sample = TargetSample {
            target,
            cpu_time: on_cpu.longest,
            counts: match on_cpu.longest {
                0 => Vec::new(),
                _ => tally.counts().0,
            },
        };
        if self.sets.len() > 1 {
            let next = (self.active + 1) % self.sets.len();
            // The kernel does the same to the events of all threads that have inherited them.
            for event in &mut self.sets[self.active] {
                let _ = event.counter.disable();
            }
            for event in &mut self.sets[next] {
                let _ = event.counter.enable();
            }
            self.active = next;
        }
        (sample, on_cpu)
    }
}

impl Inherited {
    /// What was counted since the last reading, `None` if the counter went backwards, and the times for which it was
    /// switched on and was on a PMU.
    fn read(&mut self) -> io::Result<(Option<u64>, (u64, u64))> {
        // A value, two times and an identifier.
        let mut buffer = [0u8; 8 * 4];
        // SAFETY: the descriptor lives as long as the counter, which `self` owns.
        let fd = unsafe { BorrowedFd::borrow_raw(self.counter.as_raw_fd()) };
        let length = rustix::io::read(fd, &mut buffer)?;
        let now = Reading::parse(&buffer[..length])
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let before = std::mem::replace(&mut self.last, now);
        let times = (
            now.enabled.saturating_sub(before.enabled),
            now.running.saturating_sub(before.running),
        );
        Ok((now.value.checked_sub(before.value), times))
    }
}

impl Reading {
    /// Reads `struct read_format` of one event with times (perf_event_open(2), "Reading results").
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let mut words = words.iter().map(|word| u64::from_ne_bytes(*word));
        Some(Self {
            value: words.next()?,
            enabled: words.next()?,
            running: words.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(Reading::parse(&bytes).is_some(), bytes.len() >= 24);
        }
    }
}
