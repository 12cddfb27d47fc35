//! One event a CPU, of whatever runs there: no cost at context switches.

use super::source::{allowed_rate, cpu_clock, layout};
use crate::perf::{Poll, Record, Ring, limits, privilege::refusal, task_events::ring_refused};
use perch_core::{MachineError, PuSet};
use std::os::fd::{AsFd, BorrowedFd};

/// A ring holds three seconds of samples at 251 Hz; its reader is woken when it is half full.
const RING: usize = 128 << 10;

struct Cpu {
    number: u32,
    ring: Ring,
    enabled: bool,
}

/// Sampling events on all online CPUs, each switched on only where it is wanted: the clock would also wake idle CPUs.
pub(super) struct SystemWide {
    cpus: Vec<Cpu>,
    /// Samples a second now.
    rate: u32,
    /// At most.
    fastest: u32,
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
            poll: Poll::new()?,
        };
        source.follow_cpus()?;
        Ok(source)
    }

    /// Opens events on CPUs that came online and drops those of CPUs that went. Returns whether any did.
    pub(super) fn follow_cpus(&mut self) -> Result<bool, MachineError> {
        let online = limits::online_cpus();
        let before = self.cpus.len();
        self.cpus.retain(|cpu| online.contains(cpu.number));
        let mut changed = self.cpus.len() != before;
        for number in online.iter() {
            if self.cpus.iter().any(|cpu| cpu.number == number) {
                continue;
            }
            let mut builder = cpu_clock(self.rate, RING / 2);
            builder.any_pid().one_cpu(number as usize).include_kernel();
            let counter = match builder.build() {
                Ok(counter) => counter,
                // went offline meanwhile
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                Err(error) => return Err(refusal("sampling all threads of a CPU", error)),
            };
            let mut ring = Ring::map(counter, RING, layout()).map_err(ring_refused)?;
            ring.enable()
                .map_err(|error| refusal("sampling all threads of a CPU", error))?;
            self.poll.add(&ring)?;
            self.cpus.push(Cpu {
                number,
                ring,
                enabled: true,
            });
            changed = true;
        }
        Ok(changed)
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
