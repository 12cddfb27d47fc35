//! A mapped ring of perf records: perf-event2's sampler, with what it lacks (redirected output, a pause).

use super::record::{self, Layout, Record};
use perf_event::{Counter, Sampler};
use perf_event_open_sys::ioctls;
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

/// A ring and the event that owns it.
pub struct Ring {
    sampler: Sampler,
    layout: Layout,
    /// Holds a record that wraps around the ring's end.
    wrapped: Vec<u8>,
}

impl Ring {
    /// Maps a ring of this many bytes (rounded up to a power of two of pages) for an event.
    ///
    /// # Errors
    /// `EPERM`: more locked memory than allowed, see [`super::limits::ring_bytes`].
    pub fn map(counter: Counter, bytes: usize, layout: Layout) -> io::Result<Self> {
        let pages = bytes.div_ceil(rustix::param::page_size());
        let sampler = counter.sampled(pages * rustix::param::page_size())?;
        Ok(Self {
            sampler,
            layout,
            wrapped: Vec::new(),
        })
    }

    /// Hands every record to `each` and frees its place. Bytes that are no record are passed over; their number is
    /// returned.
    pub fn drain(&mut self, mut each: impl FnMut(Record<'_>)) -> usize {
        let mut unreadable = 0;
        while let Some(raw) = self.sampler.next_record() {
            let body = match raw.data() {
                [whole] => *whole,
                parts => {
                    self.wrapped.clear();
                    for part in parts {
                        self.wrapped.extend_from_slice(part);
                    }
                    &self.wrapped
                }
            };
            match record::parse(raw.ty(), raw.misc(), body, self.layout) {
                Some(record) => each(record),
                None => unreadable += 1,
            }
        }
        unreadable
    }

    /// The event that owns the ring.
    pub(super) fn counter(&self) -> &Counter {
        &self.sampler
    }

    /// The same, to switch it on and off.
    pub(super) fn counter_mut(&mut self) -> &mut Counter {
        &mut self.sampler
    }

    /// Starts the event.
    ///
    /// # Errors
    /// The system's.
    pub fn enable(&mut self) -> io::Result<()> {
        self.sampler.enable()
    }

    /// Stops the event; its records stay in the ring.
    ///
    /// # Errors
    /// The system's.
    pub fn disable(&mut self) -> io::Result<()> {
        self.sampler.disable()
    }

    /// Changes how often a sampling clock ticks, in nanoseconds.
    ///
    /// # Errors
    /// The system's.
    pub fn set_period(&self, nanoseconds: u64) -> io::Result<()> {
        let period = nanoseconds;
        // The binding takes the argument by value, the kernel by address (perf_event_open(2)).
        let address = (&raw const period) as u64;
        // SAFETY: an open perf event; the kernel reads a u64 from the address during the call.
        check(unsafe { ioctls::PERIOD(self.sampler.as_raw_fd(), address) })
    }

    /// Has another event of the same CPU write its records into this ring too.
    ///
    /// # Errors
    /// `EINVAL` where the two are not of the same CPU or use different clocks.
    pub fn collect_from(&self, other: &Counter) -> io::Result<()> {
        // SAFETY: both descriptors are open perf events; the kernel keeps the ring alive while redirected to.
        check(unsafe { ioctls::SET_OUTPUT(other.as_raw_fd(), self.sampler.as_raw_fd()) })
    }

    /// Stops writing into the ring, or goes on: records of a paused ring are dropped by the kernel.
    ///
    /// # Errors
    /// The system's.
    pub fn pause(&self, paused: bool) -> io::Result<()> {
        // SAFETY: an open perf event; the argument is a plain number.
        check(unsafe { ioctls::PAUSE_OUTPUT(self.sampler.as_raw_fd(), u32::from(paused)) })
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as the sampler, which `self` owns.
        unsafe { BorrowedFd::borrow_raw(self.sampler.as_raw_fd()) }
    }
}

fn check(status: libc::c_int) -> io::Result<()> {
    match status {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memmap2::MmapMut;
    use perch_skip::skip;
    use perf_event::{Builder, SampleFlag, events::Software};

    fn switches() -> Builder<'static> {
        let mut builder = Builder::new(Software::PAGE_FAULTS);
        builder
            .sample_period(1)
            .sample(SampleFlag::from_bits_retain(record::SAMPLE_TYPE));
        builder
    }

    /// Touches fresh pages: of a mapping of their own, since an allocator may give pages that were touched before.
    fn touch_pages(pages: usize) -> MmapMut {
        let page = rustix::param::page_size();
        let mut memory = MmapMut::map_anon(pages * page).expect("memory");
        for at in (0..memory.len()).step_by(page) {
            memory[at] = 1;
        }
        memory
    }

    #[test]
    fn records_survive_the_ring_s_end_and_a_pause_drops_them() {
        let counter = match switches().build() {
            Ok(counter) => counter,
            Err(error) => return skip!(Perf, "{error}"),
        };
        let mut ring = Ring::map(counter, 1, Layout::default()).expect("one page");
        ring.enable().expect("enable");
        let mut seen = 0;
        let mut touched = Vec::new();
        // more than a page of 24-byte records in all, so that some wrap
        for _ in 0..12 {
            touched.push(touch_pages(40));
            let unreadable = ring.drain(|record| {
                if let Record::Sample(sample) = record {
                    assert_eq!(sample.pid, std::process::id() as i32);
                    seen += 1;
                }
            });
            assert_eq!(unreadable, 0);
        }
        assert!(seen > 200, "{seen} page faults");
        ring.pause(true).expect("pause");
        ring.drain(|_| ());
        touched.push(touch_pages(40));
        let mut paused = 0;
        ring.drain(|record| paused += usize::from(matches!(record, Record::Sample(_))));
        assert_eq!(paused, 0);
    }

    #[test]
    fn another_event_writes_into_the_ring() {
        let (owner, mut other) = match (switches().build(), switches().build()) {
            (Ok(owner), Ok(other)) => (owner, other),
            (Err(error), _) | (_, Err(error)) => return skip!(Perf, "{error}"),
        };
        let mut ring = Ring::map(owner, 64 << 10, Layout::default()).expect("16 pages");
        ring.collect_from(&other).expect("same thread");
        other.enable().expect("enable");
        drop(touch_pages(40));
        let mut seen = 0;
        ring.drain(|record| seen += usize::from(matches!(record, Record::Sample(_))));
        assert!(seen > 20, "{seen} page faults");
    }
}
