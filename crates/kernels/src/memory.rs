//! Memory of the kernels.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::{ffi::c_void, io, ptr::null_mut};

/// Bytes of a line.
pub const LINE: usize = 64;

/// The least that there is: a step of the kernel that takes the largest ones.
pub const LEAST: usize = 4 * LINE;

/// How much memory a kernel wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Bytes; at least a line.
    pub bytes: usize,
    /// Whether it must lie in pages of the smallest size.
    pub small_pages: bool,
}

/// Memory that is there: every page of it has been written, by the thread that made it and so near to its PU.
#[derive(Debug)]
pub struct Room {
    base: *mut u64,
    mapped: usize,
    bytes: usize,
    small_pages: bool,
}

// SAFETY: the mapping is this value's alone.
unsafe impl Send for Room {}

impl Room {
    /// So much memory.
    ///
    /// # Errors
    /// There is none.
    pub fn new(wanted: Wanted) -> io::Result<Self> {
        let mapped = wanted.bytes.max(LEAST);
        // SAFETY: a new mapping somewhere.
        let base = unsafe {
            mmap_anonymous(
                null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let advice = match wanted.small_pages {
            true => Advice::LinuxNoHugepage,
            false => Advice::LinuxHugepage,
        };
        // SAFETY: the mapping just made. Kernels without huge pages refuse, and have none.
        let _ = unsafe { madvise(base, mapped, advice) };
        let room = Self {
            base: base.cast(),
            mapped,
            bytes: mapped,
            small_pages: wanted.small_pages,
        };
        // Pages that were never written are all one page of zeros.
        for offset in (0..mapped - 7).step_by(LINE) {
            // SAFETY: a multiple of a line, below the end.
            unsafe { room.write(offset, 0) };
        }
        Ok(room)
    }

    /// How many bytes are used.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it meets a request.
    pub fn serves(&self, wanted: &Wanted) -> bool {
        self.mapped >= wanted.bytes && self.small_pages == wanted.small_pages
    }

    /// The same memory, of which only this much is used.
    #[must_use]
    pub fn limited(mut self, bytes: usize) -> Self {
        self.bytes = bytes.clamp(LEAST, self.mapped);
        self
    }

    /// Reads a word.
    ///
    /// # Safety
    /// The offset in bytes is a multiple of 8, at least 8 below the used bytes.
    #[inline(always)]
    pub unsafe fn read(&self, offset: usize) -> u64 {
        // SAFETY: the caller guarantees that the offset is within the mapping; nothing else writes there.
        unsafe { self.base.byte_add(offset).read_volatile() }
    }

    /// Writes a word.
    ///
    /// # Safety
    /// As for reading.
    #[inline(always)]
    pub unsafe fn write(&self, offset: usize, value: u64) {
        // SAFETY: as above.
        unsafe { self.base.byte_add(offset).write_volatile(value) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: the mapping that was made, which is no longer in use.
        let _ = unsafe { munmap(self.base.cast::<c_void>(), self.mapped) };
    }
}
