//! One event a CPU, of whatever runs there: no cost at context switches.

use super::source::{allowed_rate, cpu_clock, layout};
use crate::{
    limits::{Budget, Kept, Purpose},
    perf::{Poll, Record, Ring, limits, privilege::refusal, task_events::ring_refused},
};
use perch_core::{MachineError, PuSet};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

/// A ring holds three seconds of samples at 251 Hz; its reader is woken when it is half full.
const RING: usize = 128 << 10;

struct Cpu {
    number: u32,
    ring: Kept<Ring>,
    enabled: bool,
}

/// Sampling events on all online CPUs, each switched on only where it is wanted: the clock would also wake idle CPUs.
pub(super) struct SystemWide {
    cpus: Vec<Cpu>,
    /// Current sampling rate in Hz.
    rate: u32,
    /// Highest sampling rate in Hz.
    fastest: u32,
    budget: Budget,
    poll: Poll,
}

impl SystemWide {
    /// Opens an event on each online CPU, switched on, at this many samples a second or what the kernel allows.
    pub(super) fn open(hz: u32) -> Result<Self, MachineError> {
        let fastest = allowed_rate(hz);
        let mut source = Self {
            cpus: Vec::new(),
            rate: fastest,
            fastest,
            budget: Budget::of_process(),
            poll: Poll::new()?,
        };
        source.follow_cpus()?;
        Ok(source)
    }

    /// Opens events on CPUs that came online and drops those of CPUs that went.
    ///
    /// # Errors
    /// Of the first CPU that cannot be sampled; it is tried again next time. All others are sampled.
    pub(super) fn follow_cpus(&mut self) -> Result<(), MachineError> {
        let online = limits::online_cpus_or(self.cpus());
        self.cpus.retain(|cpu| online.contains(cpu.number));
        let mut refused = Ok(());
        for number in online.iter() {
            if self.cpus.iter().any(|cpu| cpu.number == number) {
                continue;
            }
            match self.open_cpu(number) {
                Ok(cpu) => self.cpus.extend(cpu),
                Err(error) => refused = refused.and(Err(error)),
            }
        }
        refused
    }

    /// An event on one CPU, switched on; `None` if it went offline meanwhile.
    fn open_cpu(&self, number: u32) -> Result<Option<Cpu>, MachineError> {
        const WHAT: &str = "sampling all threads of a CPU";
        let place = self.budget.reserve(Purpose::Samples, 1);
        let place =
            place.ok_or_else(|| refusal(WHAT, io::Error::from_raw_os_error(libc::EMFILE)))?;
        let mut builder = cpu_clock(self.rate, RING / 2);
        builder.any_pid().one_cpu(number as usize).include_kernel();
        let counter = match builder.build() {
            Ok(counter) => counter,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
            Err(error) => return Err(refusal(WHAT, error)),
        };
        let mut ring = Ring::map(counter, RING, layout()).map_err(ring_refused)?;
        ring.enable().map_err(|error| refusal(WHAT, error))?;
        self.poll.add(&ring)?;
        Ok(Some(Cpu {
            number,
            ring: place.keep(ring),
            enabled: true,
        }))
    }

    /// Hands over every record with its CPU.
    pub(super) fn drain(&mut self, mut each: impl FnMut(u32, Record<'_>)) {
        self.poll.settle();
        for cpu in &mut self.cpus {
            let number = cpu.number;
            cpu.ring.drain(|record| each(number, record));
        }
    }

    /// Switches the events on for these CPUs and off for all others. A CPU that refuses keeps its state and is tried
    /// again next time.
    pub(super) fn sample_only(&mut self, wanted: &PuSet) {
        for cpu in &mut self.cpus {
            let want = wanted.contains(cpu.number);
            if want == cpu.enabled {
                continue;
            }
            let done = match want {
                true => cpu.ring.enable(),
                false => cpu.ring.disable(),
            };
            if done.is_ok() {
                cpu.enabled = want;
            }
        }
    }

    /// Samples this often from now on, on all CPUs, but no faster than when it was opened. A CPU that refuses keeps its rate.
    pub(super) fn set_rate(&mut self, hz: u32) {
        let hz = hz.clamp(1, self.fastest);
        if hz == self.rate {
            return;
        }
        self.rate = hz;
        for cpu in &self.cpus {
            let _ = cpu.ring.set_period(1_000_000_000 / u64::from(hz));
        }
    }

    /// Samples a second on each CPU now.
    pub(super) fn rate(&self) -> u32 {
        self.rate
    }

    /// The CPUs that have an event.
    pub(super) fn cpus(&self) -> PuSet {
        self.cpus.iter().map(|cpu| cpu.number).collect()
    }

    /// The CPUs whose events are switched on.
    pub(super) fn sampled(&self) -> PuSet {
        let on = self.cpus.iter().filter(|cpu| cpu.enabled);
        on.map(|cpu| cpu.number).collect()
    }

    /// Readable when a ring is half full.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_without_room_is_tried_again() {
        let online = limits::online_cpus();
        let Ok(mut source) = SystemWide::open(99) else {
            eprintln!("skipped: whole CPUs may not be sampled here");
            return;
        };
        assert_eq!(source.cpus(), online);
        source.cpus.clear();
        source.budget = Budget::of(0);
        assert!(source.follow_cpus().is_err());
        assert!(source.cpus().is_empty());
        source.budget = Budget::of(1);
        let first = source.follow_cpus();
        assert_eq!(first.is_err(), online.len() > 1);
        assert!(!source.cpus().is_empty());
        source.budget = Budget::of(1000 * online.len());
        source.follow_cpus().expect("room for all");
        assert_eq!(source.cpus(), online);
    }
}
