//! Affinity masks: read from `/proc`, set only if no other process has changed them.
//!
//! Masks are read from `Cpus_allowed_list` of `/proc/…/status`, since sched_getaffinity(2) hides offline PUs.

pub mod cpuset;
mod descendants;
mod group;
mod irq;
mod nice;
mod settings;

use crate::{
    proc::{Gone, Reader, Stat, Status},
    topology::{online_pus, possible_pus},
    visible::Visible,
};
use cpuset::{Cpusets, group_text};
use perch_core::{
    Affinity, IrqChange, IrqState, Irqs, MaskChange, MaskError, Outcome, ProcessId, PuSet, Setting,
    SettingChange, SettingSample, SettingValue, Settings, ThreadId, Weights,
    affinity::{Descendant, Image},
    cache_ways::CacheAllocation,
};
use rustix::io::Errno;
use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The masks of this machine's threads.
#[derive(Debug, Default)]
pub struct LinuxAffinity {
    reader: RefCell<Reader>,
    cpusets: Cpusets,
    /// The control group that was last found to suit groups of perch's, and when.
    suited: RefCell<Option<(PathBuf, Instant)>>,
    /// Threads whose masks were set since [`LinuxAffinity::take_set`] was last called.
    set: Vec<i32>,
    /// Where perch itself was put, and the mask that it had before.
    own: Option<(PuSet, PuSet)>,
}

/// How often a change is tried that a change of the CPU set thwarts.
const TRIES: usize = 16;

/// Whether the kernel has a thread of that number, which `/proc` may hide.
fn exists(tid: i32) -> bool {
    Visible::of(tid).err() != Some(Errno::SRCH)
}

/// What a file of `/proc` that cannot be read says of its thread.
fn unreadable(thread: ThreadId, gone: Gone) -> MaskError {
    match gone {
        // With hidepid, `/proc` has nothing of other users' threads; nor of those that may not be traced.
        Gone::Ended if exists(thread.tid) => MaskError::Hidden,
        Gone::Ended => MaskError::Gone,
        Gone::Refused(Errno::ACCESS | Errno::PERM) => MaskError::Hidden,
        Gone::Refused(errno) => MaskError::Other(format!(
            "the affinity mask cannot be read from /proc: {}",
            std::io::Error::from(errno)
        )),
    }
}

fn refused(error: &MaskError) -> Outcome {
    match error {
        MaskError::Gone => Outcome::Gone,
        MaskError::Hidden => Outcome::NotPermitted,
        MaskError::Other(_) => Outcome::Failed,
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

/// All ones, for more PUs than the kernel has: the mask of a thread that has not been placed, so that PUs which come
/// online later are in.
fn all_bits() -> Vec<u64> {
    vec![u64::MAX; (perch_core::pu_set::MAX_PU as usize + 1) / 64]
}

impl LinuxAffinity {
    /// The masks of this machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// The threads whose masks were set since the last call.
    pub fn take_set(&mut self) -> Vec<i32> {
        std::mem::take(&mut self.set)
    }

    /// What the thread's `stat` says, if it is still this thread. `/proc/TID/stat` would add up the times of all threads
    /// of its process first.
    fn stat<T>(&self, thread: ThreadId, take: impl FnOnce(Stat<'_>) -> T) -> Result<T, MaskError> {
        self.stat_in(0, thread, take)
    }

    /// The same; the thread is looked for in this process first.
    fn stat_in<T>(
        &self,
        process: i32,
        thread: ThreadId,
        take: impl FnOnce(Stat<'_>) -> T,
    ) -> Result<T, MaskError> {
        let mut reader = self.reader.borrow_mut();
        // After execve(2) it has another number, and that number may be another process's thread by now.
        let there = |stat: &Stat<'_>| stat.start == thread.start && !stat.is_dead();
        if process > 0
            && let Ok(stat) = reader.stat(process, thread.tid)
            && there(&stat)
        {
            return Ok(take(stat));
        }
        match reader.stat(thread.tid, thread.tid) {
            Ok(stat) if there(&stat) => Ok(take(stat)),
            Ok(_) => Err(MaskError::Gone),
            Err(gone) => Err(unreadable(thread, gone)),
        }
    }

    /// Whether the thread, probably of this process, has this mask.
    fn has_mask(&self, process: i32, thread: ThreadId, mask: &PuSet) -> Result<bool, MaskError> {
        self.stat_in(process, thread, |_| ())?;
        // Without the text of `status`, as long as no offline PU is in the mask.
        if Visible::of(thread.tid).is_ok_and(|visible| visible.words() == bits(mask)) {
            return Ok(true);
        }
        Ok(self.mask(thread)? == *mask)
    }

    fn status(&self, thread: ThreadId) -> Result<Status, MaskError> {
        // Between this look and the next lie microseconds; for the number to pass to another thread meanwhile, the
        // kernel would have to give out all other numbers first.
        self.stat(thread, |_| ())?;
        let status = self.reader.borrow_mut().status(thread.tid, thread.tid);
        status.map_err(|gone| unreadable(thread, gone))
    }
}

impl Affinity for LinuxAffinity {
    fn mask(&self, thread: ThreadId) -> Result<PuSet, MaskError> {
        let mask = self.status(thread)?.mask;
        mask.ok_or_else(|| MaskError::Other("/proc/TID/status tells no Cpus_allowed_list".into()))
    }

    fn weights(&mut self) -> Option<&mut dyn Weights> {
        Some(self)
    }

    fn cache_allocation(&mut self) -> Result<&mut dyn CacheAllocation, String> {
        Err(
            "perch sets ways of caches only on simulated machines: on a live one it would have to make groups in resctrl, \
             which it could not remove after it was killed. Leave out --ways, or set them yourself \
             (`schemata` in /sys/fs/resctrl)"
                .to_owned(),
        )
    }

    fn irqs(&mut self) -> Option<&mut dyn Irqs> {
        Some(self)
    }

    fn settings(&mut self) -> Option<&mut dyn Settings> {
        Some(self)
    }

    fn change(&mut self, change: &MaskChange) -> Outcome {
        let wanted = if change.to_default {
            all_bits()
        } else {
            bits(&change.set)
        };
        for _ in 0..TRIES {
            match self.has_mask(change.process, change.thread, &change.expect) {
                Ok(true) => {}
                Ok(false) => return Outcome::ChangedByOthers,
                Err(error) => return refused(&error),
            }
            match set_affinity(change.thread.tid, &wanted) {
                Ok(()) => {
                    self.set.push(change.thread.tid);
                    return Outcome::Applied;
                }
                Err(Errno::SRCH) => return Outcome::Gone,
                Err(Errno::NOMEM) => return Outcome::Failed,
                Err(Errno::INVAL) => {}
                Err(_) => return Outcome::NotPermitted,
            }
            if self.stat(change.thread, |stat| stat.refuses_affinity()) == Ok(true) {
                return Outcome::NotPermitted;
            }
            let usable = |allowed: PuSet| !allowed.and(&change.set).is_empty();
            if !change.to_default && !self.allowed(change.thread).is_some_and(usable) {
                return Outcome::NoUsablePu;
            }
            // The CPU set changed between the two places where the kernel reads it: then it puts the mask back that was
            // asked for before (`__sched_setaffinity`, kernel/sched/syscalls.c).
        }
        Outcome::ChangedByOthers
    }

    fn place_own(&mut self, pus: Option<&PuSet>) {
        let before = match (&self.own, pus) {
            (None, None) => return,
            (Some((present, _)), Some(pus)) if present == pus => return,
            (Some((_, before)), _) => before.clone(),
            (None, Some(_)) => {
                let pid = std::process::id() as i32;
                let mask = self.reader.borrow_mut().status(pid, pid).ok();
                match mask.and_then(|status| status.mask) {
                    Some(mask) => mask,
                    None => return,
                }
            }
        };
        let wanted = bits(pus.unwrap_or(&before));
        for tid in crate::proc::task_numbers(std::process::id() as i32) {
            // One that has ended, or whose CPU set has none of these PUs, runs where it may.
            let _ = set_affinity(tid, &wanted);
        }
        self.own = pus.map(|pus| (pus.clone(), before));
    }

    fn allowed(&self, thread: ThreadId) -> Option<PuSet> {
        let groups = group_text(thread.tid, thread.tid)?;
        let allowed = self
            .cpusets
            .allowed(&groups, &possible_pus(), &online_pus());
        Some(allowed.online)
    }

    fn settle(&self) {
        std::thread::sleep(Duration::from_millis(20));
    }

    fn image(&self, process: ProcessId) -> Option<Image> {
        let ProcessId { pid, start } = process;
        let (code, stack) = self
            .stat(ThreadId { tid: pid, start }, |stat| stat.image)
            .ok()?;
        // Without permission to trace the process the kernel reports 0 or 1.
        (code > 1 && stack > 1).then_some(Image { code, stack })
    }

    fn images_differ(&self, process: ProcessId) -> bool {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let randomized = read("/proc/sys/kernel/randomize_va_space");
        let personality = read(&format!("/proc/{}/personality", process.pid));
        let personality = personality.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        randomized.is_some_and(|text| text.trim() != "0")
            && personality.is_some_and(|flags| flags & libc::ADDR_NO_RANDOMIZE as u64 == 0)
    }

    fn belongs_to(&self, thread: ThreadId, user: u32) -> bool {
        let users = self.status(thread).ok().and_then(|status| status.users);
        users.is_some_and(|users| users.contains(&user))
    }

    fn descendants(
        &self,
        session: &str,
        processes: &[ProcessId],
        known: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Descendant>, MaskError> {
        descendants::find(session, processes, known)
    }
}

impl Irqs for LinuxAffinity {
    fn irq(&self, number: u32) -> Result<IrqState, MaskError> {
        irq::state(Path::new("/"), number)
    }

    fn change_irq(&mut self, change: &IrqChange) -> Outcome {
        irq::change(Path::new("/"), change)
    }
}

impl Settings for LinuxAffinity {
    fn settings(&self) -> Vec<SettingSample> {
        settings::all(Path::new("/"), &online_pus())
    }

    fn setting(&self, setting: &Setting) -> Result<SettingValue, MaskError> {
        settings::value(Path::new("/"), setting)
    }

    fn change_setting(&mut self, change: &SettingChange) -> Outcome {
        settings::change(Path::new("/"), change)
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
