//! One process's code: what is mapped executable, where its bytes are read, and what was learnt from them.

use super::{
    code::Code,
    reported::{Mappings, Reported},
};
use crate::perf::record::{Abi, Sample as Record};
use perch_sampling::{Arch, CodeSource, Estimator, Regs, Sample, SampledMetrics, ThreadMix};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    time::{Duration, Instant},
};

/// How often mappings are read again although nothing hints at a change: where new mappings are not reported, a library
/// may have been closed and another opened in its place.
const REREAD: Duration = Duration::from_secs(30);

/// How often code that could not be decoded is tried again: for want of a descriptor or a privilege, it may not have been
/// readable for a moment.
const RETRY: Duration = Duration::from_secs(5);

/// What was learnt from the code of a process is forgotten so long after its last sample: it may be some megabytes, and of
/// many processes most only wait.
const UNUSED: Duration = Duration::from_secs(300);

/// A process whose threads are sampled.
pub(super) struct Process {
    pid: i32,
    /// Device and inode of the program when they were last readable; they change at execve(2).
    program: Option<(u64, u64)>,
    space: Option<Space>,
    /// The last drain in which its code was checked for changes, and when that was.
    checked: u64,
    drained: Instant,
    /// Executable files that the kernel reported, for when `/proc/PID/maps` may not be read.
    reported: Mappings,
}

/// What is known of the present program's code.
struct Space {
    estimator: Estimator,
    code: Code,
    /// When its last sample was looked up.
    used: Instant,
    /// The drain in which the process's mappings were read, and when that was.
    mapped: u64,
    read: Instant,
    /// Whether a sample could not be decoded since.
    undecoded: bool,
}

impl Process {
    pub(super) fn new(pid: i32) -> Self {
        Self {
            pid,
            program: program(pid),
            space: None,
            checked: 0,
            drained: Instant::now(),
            reported: Mappings::default(),
        }
    }

    /// Looks up one sample taken in user space. `None` for a program of an instruction set that is not known here.
    pub(super) fn sample(&mut self, record: &Record<'_>, drain: u64) -> Option<Sample> {
        self.check(drain);
        let arch = arch(record.abi)?;
        let mask = super::source::layout().regs;
        let space = match &mut self.space {
            Some(space) if space.code.arch() == arch => space,
            stale => {
                let code = Code::open(self.pid, arch, self.reported.all());
                stale.insert(Space {
                    estimator: Estimator::new(arch),
                    code,
                    used: Instant::now(),
                    mapped: drain,
                    read: Instant::now(),
                    undecoded: false,
                })
            }
        };
        if !space.code.covers(record.ip) && space.mapped != drain {
            space.remap(self.pid, drain, self.reported.all());
        }
        space.used = self.drained;
        let regs = (record.abi != Abi::None).then(|| {
            let mut regs = Regs::empty(arch);
            let mut rest = mask;
            for value in record.regs() {
                regs.set(rest.trailing_zeros() as u8, value);
                rest &= rest.wrapping_sub(1);
            }
            regs
        });
        let sample = space
            .estimator
            .sample(&space.code, record.ip, regs.as_ref());
        space.undecoded |= sample.mix.is_none();
        Some(sample)
    }

    /// What a thread's samples say, seen together or each by itself.
    pub(super) fn take(
        &mut self,
        mix: &mut ThreadMix,
        together: bool,
        period: Duration,
    ) -> Option<SampledMetrics> {
        let space = self.space.as_mut()?;
        match together {
            true => space.estimator.take(&space.code, mix, period),
            false => space.estimator.take_apart(mix, period),
        }
    }

    /// Once a drain: forgets code that is no more, or was written anew.
    fn check(&mut self, drain: u64) {
        if self.checked == drain {
            return;
        }
        self.checked = drain;
        self.drained = Instant::now();
        // For want of a descriptor or a privilege it may not be readable for a while: that is no sign of another program.
        let program = program(self.pid);
        if program.is_some() && program != self.program {
            self.program = program;
            self.forget();
        }
        let Some(space) = &mut self.space else { return };
        for range in space.code.rewritten() {
            space.estimator.invalidate(range);
        }
        let due = if space.undecoded { RETRY } else { REREAD };
        if space.read.elapsed() >= due {
            space.remap(self.pid, drain, self.reported.all());
            space.estimator.forget_undecoded();
        }
    }

    /// The process executes another program now.
    pub(super) fn forget(&mut self) {
        self.space = None;
        self.reported.clear();
    }

    /// Gives back what an address space takes that had no sample for long; the next one finds it anew.
    pub(super) fn forget_unused(&mut self, now: Instant) {
        let used = self.space.as_ref().map(|space| space.used);
        if used.is_some_and(|used| now.saturating_duration_since(used) >= UNUSED) {
            self.space = None;
        }
    }

    /// The kernel reported a new executable mapping.
    pub(super) fn mapped(&mut self, address: u64, length: u64, file: Option<Reported>) {
        if let Some(space) = &mut self.space {
            let end = address.saturating_add(length);
            space.estimator.invalidate(address..end);
            space.code.forget_mapping(address);
        }
        self.reported
            .map(address..address.saturating_add(length), file);
    }

    /// Whether code bytes can be had only from files, since the process's memory may not be read.
    pub(super) fn memory_refused(&self) -> bool {
        let space = self.space.as_ref();
        space.is_some_and(|space| space.code.memory_refused())
    }
}

impl Space {
    fn remap(&mut self, pid: i32, drain: u64, reported: &[Reported]) {
        self.mapped = drain;
        self.read = Instant::now();
        self.undecoded = false;
        for range in self.code.remap(pid, reported) {
            self.estimator.invalidate(range);
        }
    }
}

fn program(pid: i32) -> Option<(u64, u64)> {
    let meta = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// The instruction set of a sampled program. 32-bit Arm code is not decoded.
fn arch(abi: Abi) -> Option<Arch> {
    match (super::source::NATIVE, abi) {
        (Arch::Aarch64, Abi::Bits32) => None,
        (_, Abi::Bits32) => Some(Arch::X86),
        (native, _) => Some(native),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::CpuMode;

    #[test]
    fn what_was_learnt_is_kept_for_minutes_after_the_last_sample() {
        let pid = std::process::id() as i32;
        let code =
            what_was_learnt_is_kept_for_minutes_after_the_last_sample as fn() as usize as u64;
        let mut process = Process::new(pid);
        let sample = |process: &mut Process, drain| {
            let record = Record::without_registers(code, pid, pid, CpuMode::User);
            let sample = process
                .sample(&record, drain)
                .expect("this instruction set");
            assert!(sample.mix.is_some());
            Instant::now()
        };
        let known = |process: &Process| {
            let space = process.space.as_ref();
            space.map(|space| space.estimator.known_addresses())
        };
        for drain in 1..3 {
            let now = sample(&mut process, drain);
            process.forget_unused(now + UNUSED - Duration::from_secs(60));
            assert_eq!(known(&process), Some(1));
            process.forget_unused(now + UNUSED);
            assert_eq!(known(&process), None);
        }
    }
}
