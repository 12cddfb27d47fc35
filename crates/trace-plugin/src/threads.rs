//! What each thread of the guest has done since it was last told.

use crate::link;
use perch_trace::wire::Kind;
use std::{
    cell::UnsafeCell,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed},
};

/// Virtual CPUs, of which every thread of the guest has one, at most at the same time.
const MOST: usize = 8192;

/// Records of a buffer.
const RECORDS: usize = 8192;

/// A thread that still skips says so after so many instructions.
const SIGN_OF_LIFE: u64 = 10_000_000;

/// How much of each thread is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Instructions that are not recorded before the first that is.
    pub skip: u64,
    /// Instructions that are recorded.
    pub instructions: u64,
}

/// One thread of the guest. Only the thread itself touches it while it runs.
pub struct Thread {
    number: u32,
    /// Instructions until something changes: recording begins, or ends, or a sign of life is due.
    left: u64,
    /// Instructions to skip after those.
    skip: u64,
    wanted: u64,
    recording: bool,
    filled: usize,
    buffer: Box<[u64; RECORDS]>,
}

static THREADS: [AtomicPtr<UnsafeCell<Thread>>; MOST] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST];
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The thread of a virtual CPU.
#[inline]
fn thread(cpu: u32) -> Option<*mut Thread> {
    let thread = THREADS.get(cpu as usize)?.load(Relaxed);
    // SAFETY: what is there was put there by `begin` and is never freed while its thread runs.
    (!thread.is_null()).then(|| unsafe { (*thread).get() })
}

/// A thread begins on a virtual CPU.
pub fn begin(cpu: u32, wanted: Wanted) {
    // qemu gives the number of one that has ended to a new one.
    end(cpu);
    let Some(slot) = THREADS.get(cpu as usize) else {
        return;
    };
    let first = wanted.skip.min(SIGN_OF_LIFE);
    let thread = Thread {
        number: NEXT.fetch_add(1, Relaxed),
        left: if wanted.skip == 0 {
            wanted.instructions
        } else {
            first
        },
        skip: wanted.skip - first,
        wanted: wanted.instructions,
        recording: wanted.skip == 0,
        filled: 0,
        buffer: Box::new([0; RECORDS]),
    };
    slot.store(Box::into_raw(Box::new(UnsafeCell::new(thread))), Relaxed);
}

/// The thread of a virtual CPU has ended.
pub fn end(cpu: u32) {
    let Some(slot) = THREADS.get(cpu as usize) else {
        return;
    };
    let thread = slot.swap(std::ptr::null_mut(), Relaxed);
    if !thread.is_null() {
        // SAFETY: it came from `Box::into_raw` in `begin`, and nobody else finds it any more.
        let thread = unsafe { Box::from_raw(thread) };
        thread.into_inner().flush();
    }
}

/// Tells what is left of all threads. None of them may be running instrumented code.
pub fn end_all() {
    for cpu in 0..MOST as u32 {
        end(cpu);
    }
}

/// The thread of a virtual CPU begins a block of so many instructions.
#[inline]
pub fn execute(cpu: u32, block: u64, instructions: u64) {
    let Some(thread) = thread(cpu) else { return };
    // SAFETY: only the thread itself executes this for its virtual CPU, so nothing else refers to it now.
    let thread = unsafe { &mut *thread };
    if thread.left == 0 {
        thread.turn();
    }
    thread.left = thread.left.saturating_sub(instructions);
    if thread.recording {
        thread.push(block);
    }
}

/// The thread of a virtual CPU touched memory.
#[inline]
pub fn touch(cpu: u32, record: u64) {
    let Some(thread) = thread(cpu) else { return };
    // SAFETY: as in `execute`.
    let thread = unsafe { &mut *thread };
    if thread.recording {
        thread.push(record);
    }
}

impl Thread {
    #[inline]
    fn push(&mut self, record: u64) {
        self.buffer[self.filled] = record;
        self.filled += 1;
        if self.filled == RECORDS {
            self.flush();
        }
    }

    /// What was to be done up to here is done.
    #[cold]
    fn turn(&mut self) {
        if self.recording {
            self.flush();
            self.recording = false;
            self.wanted = 0;
            self.left = u64::MAX;
            link::send(Kind::Full, self.number, &[]);
        } else if self.skip > 0 {
            self.left = self.skip.min(SIGN_OF_LIFE);
            self.skip -= self.left;
            link::send(Kind::Records, self.number, &[]);
        } else {
            self.recording = self.wanted > 0;
            self.left = self.wanted.max(1);
        }
    }

    #[cold]
    fn flush(&mut self) {
        if self.filled > 0 {
            link::send(Kind::Records, self.number, &self.buffer[..self.filled]);
            self.filled = 0;
        }
    }
}
