//! The part of a thread's mask that sched_getaffinity(2) shows, which is that of online PUs: a tenth of what it costs to
//! read the whole mask from `/proc`.

use crate::topology::{online_pus, possible_pus};
use perch_core::PuSet;
use rustix::io::Errno;
use std::hash::{Hash, Hasher};

/// More than the kernel's largest NR_CPUS, 8,192.
const WORDS: usize = 256;

/// A mask as the kernel has it: bit `n % 64` of word `n / 64` stands for PU `n`.
#[derive(Clone, Copy)]
pub struct Visible {
    words: [u64; WORDS],
    /// How many of them the kernel has written.
    written: usize,
}

impl Visible {
    /// The mask of a thread.
    ///
    /// # Errors
    /// `ESRCH` for a thread that has ended.
    pub fn of(tid: i32) -> Result<Self, Errno> {
        let mut words = [0; WORDS];
        // SAFETY: the kernel writes at most the length that is given with the buffer.
        let length = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                tid,
                size_of_val(&words),
                words.as_mut_ptr(),
            )
        };
        if length < 0 {
            let error = std::io::Error::last_os_error();
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
        }
        let written = usize::try_from(length).unwrap_or(0) / size_of::<u64>();
        Ok(Self { words, written })
    }

    /// The words up to the last PU, at least one.
    pub fn words(&self) -> &[u64] {
        let written = self.words[..self.written].iter();
        let last = written.rev().position(|word| *word != 0);
        let end = last.map_or(1, |zeros| self.written - zeros);
        &self.words[..end]
    }

    /// A number by which a change is noticed.
    pub fn digest(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        self.words().hash(&mut hasher);
        hasher.finish()
    }

    /// The PUs.
    pub fn pus(&self) -> PuSet {
        let words = (0..).zip(self.words());
        words
            .flat_map(|(index, word)| {
                let set = (0..64).filter(move |bit| word >> bit & 1 == 1);
                set.map(move |bit| index * 64 + bit)
            })
            .collect()
    }
}

/// Whether masks have no other part: all PUs that the machine may ever have are online.
pub fn is_whole() -> bool {
    online_pus() == possible_pus()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_whole_machine_the_visible_part_is_the_mask() {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let status = crate::proc::Reader::new().status(own, own).unwrap();
        let visible = Visible::of(own).unwrap();
        let (mask, online) = (status.mask.unwrap(), online_pus());
        assert_eq!(visible.pus(), mask.and(&online));
        assert!(!is_whole() || visible.pus() == mask);
        assert_eq!(Visible::of(i32::MAX).err(), Some(Errno::SRCH));
    }
}
