//! Walks through a recorded thread, instruction by instruction.

use crate::{Instruction, Recording, recording::CodeTable, varint};
use std::sync::Arc;

/// Reads what [`crate::Encoder`] writes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Decoder {
    at: usize,
    /// The next instruction of the run.
    id: u32,
    /// Instructions left of the run.
    left: u64,
    /// Whether the run's last instruction branches.
    taken: bool,
    /// The last address of every access of every instruction.
    last: Vec<u64>,
    addresses: Vec<u64>,
}

impl Decoder {
    /// The next instruction's number and whether it branched; `None` at the end. Its addresses are in `addresses`.
    #[inline]
    pub(crate) fn step(
        &mut self,
        table: &CodeTable,
        bytes: &[u8],
    ) -> Result<Option<(u32, bool)>, &'static str> {
        if self.left == 0 {
            if self.at == bytes.len() {
                return Ok(None);
            }
            self.begin(table, bytes)?;
        }
        let id = self.id;
        self.id += 1;
        self.left -= 1;
        self.addresses.clear();
        let accesses = table.code(id).accesses.len();
        if accesses > 0 {
            let slot = table.slot(id);
            if self.last.is_empty() {
                self.last.resize(table.slots(), 0);
            }
            for last in &mut self.last[slot..slot + accesses] {
                let difference = varint::get_signed(bytes, &mut self.at)
                    .ok_or("it ends, or is damaged, within an address")?;
                *last = last.wrapping_add(difference as u64);
                self.addresses.push(*last);
            }
        }
        Ok(Some((id, self.taken && self.left == 0)))
    }

    /// Reads the head of a run.
    fn begin(&mut self, table: &CodeTable, bytes: &[u8]) -> Result<(), &'static str> {
        let head = "it ends, or is damaged, between two instructions";
        let difference = varint::get_signed(bytes, &mut self.at).ok_or(head)?;
        let count = varint::get(bytes, &mut self.at).ok_or(head)?;
        let start = i64::from(self.id).checked_add(difference);
        let start = start.and_then(|start| u64::try_from(start).ok());
        let (start, left) = (start.ok_or(head)?, count >> 1);
        let end = start.checked_add(left);
        if left == 0 || end.is_none_or(|end| end > table.codes().len() as u64) {
            return Err("it names instructions that are not there");
        }
        (self.id, self.left, self.taken) = (start as u32, left, count & 1 == 1);
        Ok(())
    }

    /// The number of the instruction that comes next, without taking it.
    fn peek(&self, bytes: &[u8]) -> Option<u32> {
        if self.left > 0 {
            return Some(self.id);
        }
        let difference = varint::get_signed(bytes, &mut self.at.clone())?;
        u32::try_from(i64::from(self.id).checked_add(difference)?).ok()
    }
}

/// A place in a recorded thread.
#[derive(Debug, Clone)]
pub struct Cursor {
    recording: Arc<Recording>,
    thread: usize,
    decoder: Decoder,
}

impl Cursor {
    /// The beginning of a thread, counted from 0; `None` if there is no such thread.
    pub fn new(recording: Arc<Recording>, thread: usize) -> Option<Self> {
        (thread < recording.threads.len()).then(|| Self {
            recording,
            thread,
            decoder: Decoder::default(),
        })
    }

    /// The next instruction; `None` at the end.
    #[inline]
    #[allow(
        clippy::should_implement_trait,
        reason = "what it gives borrows from it"
    )]
    pub fn next(&mut self) -> Option<Instruction<'_>> {
        let recording = &*self.recording;
        let bytes = &recording.threads[self.thread].bytes;
        // Recordings are checked when they are read.
        let (id, taken) = self.decoder.step(&recording.table, bytes).ok()??;
        Some(Instruction {
            id,
            code: recording.table.code(id),
            addresses: &self.decoder.addresses,
            taken,
        })
    }

    /// The address of the instruction that comes next; `None` at the end.
    #[inline]
    pub fn peek(&self) -> Option<u64> {
        let bytes = &self.recording.threads[self.thread].bytes;
        let code = self
            .recording
            .table
            .codes()
            .get(self.decoder.peek(bytes)? as usize)?;
        Some(code.address)
    }

    /// Back to the beginning.
    pub fn rewind(&mut self) {
        self.decoder = Decoder::default();
    }
}
