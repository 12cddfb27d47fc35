//! Affinity masks: read from `/proc`, set only if nobody else has changed them.
//!
//! Masks are read from `Cpus_allowed_list` of `/proc/…/status`, since sched_getaffinity(2) hides offline PUs.

pub mod cpuset;
mod irq;
mod relatives;

pub use relatives::SESSION_VARIABLE;

use crate::{
    proc::{Gone, parse_stat, parse_status},
    topology::possible_pus,
};
use perch_core::{
    Affinity, IrqChange, IrqState, MaskChange, MaskError, Outcome, ProcessId, PuSet, ThreadId,
    affinity::Relative,
};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{Mode, OFlags},
    io::Errno,
};
use std::path::Path;

/// The masks of this machine's threads.
#[derive(Debug, Default)]
pub struct LinuxAffinity {
    _private: (),
}

/// A thread's directory in `/proc`, kept open: it stays this thread's whoever gets the number later.
struct Held {
    directory: OwnedFd,
}

impl Held {
    fn open(thread: ThreadId) -> Result<Self, Gone> {
        let path = format!("/proc/{}", thread.tid);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = Self {
            directory: rustix::fs::open(path, flags, Mode::empty())?,
        };
        let bytes = held.read("stat")?;
        match parse_stat(&bytes) {
            Some(stat) if stat.start == thread.start && !stat.is_dead() => Ok(held),
            _ => Err(Gone::Ended),
        }
    }

    fn read(&self, file: &str) -> Result<Vec<u8>, Gone> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.directory.as_fd(), file, flags, Mode::empty())?;
        let mut bytes = Vec::with_capacity(4096);
        loop {
            bytes.reserve(4096);
            if rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes))? == 0 {
                return Ok(bytes);
            }
        }
    }

    fn mask(&self) -> Result<PuSet, Gone> {
        parse_status(&self.read("status")?)
            .mask
            .ok_or(Gone::Refused(Errno::NOTSUP))
    }

    /// Whether the kernel lets nobody place this thread.
    fn refuses(&self) -> bool {
        self.read("stat")
            .is_ok_and(|bytes| parse_stat(&bytes).is_some_and(|stat| stat.refuses_affinity()))
    }
}

impl From<Gone> for MaskError {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Ended => Self::Gone,
            Gone::Refused(errno) => Self::Other(format!(
                "the affinity mask cannot be read from /proc: {}",
                std::io::Error::from(errno)
            )),
        }
    }
}

/// sched_setaffinity(2) with a mask of any length; rustix's set ends at 1,024 PUs.
fn set_affinity(tid: i32, bits: &[u64]) -> Result<(), Errno> {
    // SAFETY: the kernel reads `bits` for the length that is given with it, in bytes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            tid,
            size_of_val(bits),
            bits.as_ptr(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}

/// The kernel's words: bit `n % 64` of word `n / 64` stands for PU `n` (64-bit machines of either byte order).
fn bits(pus: &PuSet) -> Vec<u64> {
    let mut words = vec![0; pus.last().unwrap_or(0) as usize / 64 + 1];
    for pu in pus.iter() {
        words[pu as usize / 64] |= 1 << (pu % 64);
    }
    words
}

/// All ones, for more PUs than the kernel has: what a thread has that nobody placed, so that PUs which come online
/// later are in.
fn all_bits() -> Vec<u64> {
    vec![u64::MAX; (perch_core::pu_set::MAX_PU as usize + 1) / 64]
}

impl LinuxAffinity {
    /// The masks of this machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// What to ask the kernel for. A default mask that is narrower than the thread's CPU set was inherited from
    /// whoever started perch (taskset(1)), and must not grow.
    fn wanted(change: &MaskChange) -> Vec<u64> {
        if !change.to_default {
            return bits(&change.set);
        }
        let possible = possible_pus();
        let widest =
            cpuset::unplaced_mask(change.thread.tid, &possible, &crate::topology::online_pus());
        if widest.is_subset(&change.set) {
            all_bits()
        } else {
            bits(&change.set)
        }
    }
}

impl Affinity for LinuxAffinity {
    fn mask(&self, thread: ThreadId) -> Result<PuSet, MaskError> {
        Ok(Held::open(thread)?.mask()?)
    }

    fn irq(&self, number: u32) -> Result<IrqState, MaskError> {
        irq::state(Path::new("/"), number)
    }

    fn change_irq(&mut self, change: &IrqChange) -> Outcome {
        irq::change(Path::new("/"), change)
    }

    fn change(&mut self, change: &MaskChange) -> Outcome {
        let wanted = Self::wanted(change);
        let refused = |gone| match gone {
            Gone::Ended => Outcome::Gone,
            Gone::Refused(_) => Outcome::NotPermitted,
        };
        let held = match Held::open(change.thread) {
            Ok(held) => held,
            Err(gone) => return refused(gone),
        };
        match held.mask() {
            Ok(mask) if mask == change.expect => {}
            Ok(_) => return Outcome::ChangedByOthers,
            Err(gone) => return refused(gone),
        }
        // Between the checks and this call lie microseconds; for the number to pass to another thread meanwhile, the
        // kernel would have to give out all other numbers first.
        match set_affinity(change.thread.tid, &wanted) {
            Ok(()) => Outcome::Applied,
            Err(Errno::SRCH) => Outcome::Gone,
            Err(Errno::INVAL) if !held.refuses() => Outcome::NoUsablePu,
            Err(_) => Outcome::NotPermitted,
        }
    }

    fn relatives(&self, session: &str, processes: &[ProcessId]) -> Vec<Relative> {
        relatives::find(session, processes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_hold_exactly_the_set(pus in proptest::collection::btree_set(0..5000u32, 0..40)) {
            let set: PuSet = pus.iter().copied().collect();
            let words = bits(&set);
            let back: PuSet = (0..words.len() as u32 * 64)
                .filter(|pu| words[*pu as usize / 64] >> (pu % 64) & 1 == 1)
                .collect();
            prop_assert_eq!(back, set);
        }
    }
}
