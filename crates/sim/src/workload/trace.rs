//! A recording of a real program that stands for a mix.

use crate::stream::pieces;
use perch_trace::{Cursor, Recording};
use rustc_hash::FxHashMap;
use std::{fmt, sync::Arc};

/// A recording, and which of its threads.
#[derive(Clone)]
pub struct Trace {
    /// The file, as the workload names it.
    pub path: String,
    /// The recorded thread, counted from 0; without one, the threads of a program get the recorded ones in turn.
    pub thread: Option<usize>,
    recording: Arc<Recording>,
    layout: Arc<Layout>,
}

impl Trace {
    /// A recording, laid out for the simulated memory.
    pub fn new(path: impl Into<String>, thread: Option<usize>, recording: Arc<Recording>) -> Self {
        Self {
            path: path.into(),
            thread,
            layout: Arc::new(Layout::of(&recording)),
            recording,
        }
    }

    /// The same recording, another thread of it.
    #[must_use]
    pub fn with_thread(&self, thread: Option<usize>) -> Self {
        Self {
            thread,
            ..self.clone()
        }
    }

    /// The recording.
    pub fn recording(&self) -> &Arc<Recording> {
        &self.recording
    }

    /// How its memory is laid out.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }
}

impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        let same = Arc::ptr_eq(&self.recording, &other.recording);
        self.thread == other.thread && (same || self.recording == other.recording)
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = f.debug_struct("Trace");
        told.field("path", &self.path).field("thread", &self.thread);
        told.finish_non_exhaustive()
    }
}

/// Bits of an address within a region.
const REGION: u32 = 21;

/// Where in the simulated memory a recorded program's addresses are.
///
/// Regions of 2 MiB that the program touches are put side by side: a program spreads a few over 47 bits of address, more
/// than a simulated machine with many programs has. Within a region everything stays where it was.
#[derive(Debug, Default)]
pub struct Layout(FxHashMap<u64, u64>);

impl Layout {
    fn of(recording: &Arc<Recording>) -> Self {
        let mut places = FxHashMap::default();
        let mut last = u64::MAX;
        let mut touch = |address: u64| {
            let region = address >> REGION;
            if region != last {
                last = region;
                let next = (places.len() as u64) << REGION;
                places.entry(region).or_insert(next);
            }
        };
        for code in recording.table().codes() {
            touch(code.address);
        }
        for thread in 0..recording.threads().len() {
            let Some(mut cursor) = Cursor::new(Arc::clone(recording), thread) else {
                continue;
            };
            while let Some(instruction) = cursor.next() {
                for (access, address) in instruction.code.accesses.iter().zip(instruction.addresses)
                {
                    pieces(*address, access.bytes).for_each(&mut touch);
                }
            }
        }
        Self(places)
    }

    /// Bytes of all regions.
    pub fn bytes(&self) -> u64 {
        (self.0.len() as u64) << REGION
    }

    /// Where an address of the recorded program is, from the beginning of its memory. Addresses of two regions never
    /// become one.
    #[inline]
    pub fn place(&self, address: u64) -> u64 {
        let region = self.0.get(&(address >> REGION)).copied().unwrap_or(0);
        region | address & ((1 << REGION) - 1)
    }
}
