//! Which thread wrote a line last, and who needed it since: sharing as it is, wherever the threads run.

use crate::sharing::{Needs, Shared};
use rustc_hash::FxHashMap;

/// Lines that are remembered together, as a power of two.
const CHUNK_BITS: u32 = 6;

const CHUNK: usize = 1 << CHUNK_BITS;

/// A line.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    /// The thread that wrote it last and 1; 0 if none has.
    writer: u32,
    /// Who has used it since: one bit each, modulo 64.
    seen: u64,
}

/// Lines that several threads may use, and what they needed from each other.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    /// The first line and the one behind the last of each stretch, by rising address.
    stretches: Vec<(u64, u64)>,
    /// From the first stretch to the end of the last.
    from: u64,
    length: u64,
    lines: FxHashMap<u64, Box<[Line; CHUNK]>>,
    needs: Needs,
}

impl Written {
    /// Several threads may use these lines.
    pub fn watch(&mut self, from: u64, to: u64) {
        let place = self.stretches.partition_point(|(first, _)| *first < from);
        self.stretches.insert(place, (from, to));
        let first = self.stretches.first().map_or(0, |(first, _)| *first);
        let last = self.stretches.last().map_or(0, |(_, last)| *last);
        (self.from, self.length) = (first, last - first);
    }

    /// Whether a line may be among them: else there is nothing to note.
    #[inline]
    pub fn may_hold(&self, line: u64) -> bool {
        line.wrapping_sub(self.from) < self.length
    }

    /// A thread reads or writes a line.
    pub fn note(&mut self, line: u64, thread: u32, store: bool) {
        let behind = self.stretches.partition_point(|(first, _)| *first <= line);
        let inside = behind.checked_sub(1).map(|at| self.stretches[at]);
        if inside.is_none_or(|(_, to)| line >= to) {
            return;
        }
        let chunk = self
            .lines
            .entry(line >> CHUNK_BITS)
            .or_insert_with(|| Box::new([Line::default(); CHUNK]));
        let state = &mut chunk[line as usize % CHUNK];
        let bit = 1 << (thread % 64);
        let (writer, own) = (state.writer, thread.wrapping_add(1));
        if writer != 0 && writer != own && state.seen & bit == 0 {
            self.needs.add(thread, writer - 1, 1.0);
        }
        match store {
            true => {
                *state = Line {
                    writer: own,
                    seen: bit,
                }
            }
            false => state.seen |= bit,
        }
    }

    /// What threads needed from each other since this was last asked.
    pub fn take(&mut self) -> Vec<Shared> {
        self.needs.take()
    }
}
