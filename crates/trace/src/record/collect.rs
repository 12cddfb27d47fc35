//! Makes instructions of what the plugin tells.

use super::blocks::Blocks;
use crate::{
    Access, Branch, Encoder, Instruction, Recording, Summary,
    file::{MOST_THREADS, WORTH, Writer},
    recording::CodeTable,
    summary::Tally,
    wire::record::{self, Record},
};
use std::{
    fs::File,
    io::{self, BufWriter},
};

/// Accesses of one instruction that are kept; only those that save whole sets of registers have more.
const MOST_ACCESSES: usize = 64;

/// A thread's records up to now.
#[derive(Debug, Default)]
struct Thread {
    encoder: Encoder,
    /// The block that it executes, which ends when the next one begins.
    block: Option<u32>,
    /// The accesses in it: instruction of the block, address, and what.
    touched: Vec<(usize, u64, Access)>,
}

/// Gathers instructions of all threads.
pub(super) struct Collector {
    /// Without one, everything stays in memory.
    writer: Option<Writer<BufWriter<File>>>,
    wanted: u64,
    blocks: Blocks,
    table: CodeTable,
    threads: Vec<Thread>,
    tally: Tally,
    /// Room for the accesses of one instruction.
    accesses: Vec<Access>,
    addresses: Vec<u64>,
}

impl Collector {
    /// For so many instructions of each thread.
    pub(super) fn new(writer: Option<Writer<BufWriter<File>>>, wanted: u64) -> Self {
        Self {
            writer,
            wanted,
            blocks: Blocks::default(),
            table: CodeTable::default(),
            threads: Vec::new(),
            tally: Tally::default(),
            accesses: Vec::new(),
            addresses: Vec::new(),
        }
    }

    /// Instructions of all threads.
    pub(super) fn instructions(&self) -> u64 {
        let of = |thread: &Thread| thread.encoder.instructions();
        self.threads.iter().map(of).sum()
    }

    /// Threads so far.
    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Takes in blocks.
    pub(super) fn blocks(&mut self, body: &[u8]) {
        self.blocks.add(body);
    }

    /// Takes in what a thread did.
    pub(super) fn records(&mut self, thread: u32, body: &[u8]) -> io::Result<()> {
        let number = thread as usize;
        if number >= MOST_THREADS {
            return Err(io::Error::other(format!(
                "the program has more than {MOST_THREADS} threads, one after the other"
            )));
        }
        if self.threads.len() <= number {
            self.threads.resize_with(number + 1, Thread::default);
        }
        for record in body.as_chunks().0 {
            match record::read(u64::from_le_bytes(*record)) {
                Record::Block(block) => {
                    self.end_block(number, Some(block));
                    self.threads[number].block = Some(block);
                }
                Record::Memory {
                    index,
                    store,
                    bytes,
                    address,
                } => {
                    let access = Access { bytes, store };
                    self.threads[number].touched.push((index, address, access));
                }
            }
        }
        let encoder = &mut self.threads[number].encoder;
        if let Some(writer) = &mut self.writer
            && encoder.ready() >= WORTH
        {
            writer.piece(&self.table, thread, &encoder.take())?;
        }
        Ok(())
    }

    /// The block that a thread executed has ended: its instructions are complete.
    fn end_block(&mut self, number: usize, next: Option<u32>) {
        let thread = &mut self.threads[number];
        let Some(block) = thread.block.take() else {
            thread.touched.clear();
            return;
        };
        let next = next.and_then(|next| self.blocks.get(next)?.first().copied());
        let next = next.map(|template| self.blocks.code(template).address);
        let length = self.blocks.get(block).map_or(0, <[u32]>::len);
        let mut touched = thread.touched.iter().peekable();
        for index in 0..length {
            if thread.encoder.instructions() >= self.wanted {
                break;
            }
            let template = self.blocks.get(block).map_or(0, |block| block[index]);
            self.accesses.clear();
            self.addresses.clear();
            while let Some((_, address, access)) = touched.next_if(|touched| touched.0 <= index) {
                join(&mut self.accesses, &mut self.addresses, *address, *access);
            }
            let id = self.blocks.id(template, &self.accesses, &mut self.table);
            let code = self.table.code(id);
            let taken = match code.branch {
                None => false,
                Some(Branch::Conditional) => {
                    index + 1 == length && next.is_some_and(|next| next != code.end())
                }
                Some(_) => true,
            };
            thread.encoder.push(&self.table, id, &self.addresses, taken);
            let instruction = Instruction {
                id,
                code,
                addresses: &self.addresses,
                taken,
            };
            self.tally.add(number, &instruction);
        }
        thread.touched.clear();
    }

    /// What was recorded: written by the writer, or in memory if there is none.
    pub(super) fn finish(mut self, program: &str) -> io::Result<(Summary, Option<Recording>)> {
        for number in 0..self.threads.len() {
            self.end_block(number, None);
        }
        let instructions = |thread: &Thread| thread.encoder.instructions();
        let instructions: Vec<u64> = self.threads.iter().map(instructions).collect();
        let codes = self.table.codes().len();
        let summary = self.tally.finish(program, codes, self.threads.len());
        let encoders = self.threads.into_iter().map(|thread| thread.encoder);
        let Some(mut writer) = self.writer else {
            let recording = Recording::from_parts(program, self.table, encoders);
            return Ok((summary, Some(recording)));
        };
        for (number, mut encoder) in encoders.enumerate() {
            writer.piece(&self.table, number as u32, &encoder.finish())?;
        }
        writer.finish(&self.table, &instructions)?;
        Ok((summary, None))
    }
}

/// Adds an access to those of an instruction. qemu touches memory in pieces of 8 bytes at most; neighbours are one access.
fn join(accesses: &mut Vec<Access>, addresses: &mut Vec<u64>, address: u64, access: Access) {
    if let (Some(before), Some(start)) = (accesses.last_mut(), addresses.last())
        && before.store == access.store
        && start + u64::from(before.bytes) == address
        && let Some(bytes) = before.bytes.checked_add(access.bytes)
    {
        before.bytes = bytes;
    } else if accesses.len() < MOST_ACCESSES {
        accesses.push(access);
        addresses.push(address);
    }
}
