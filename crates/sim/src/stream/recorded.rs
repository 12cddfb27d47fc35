//! Instructions of a recorded program, as the machine's operations.
//!
//! An instruction that computes and touches memory is several operations: a load for each read, then what it computes, then
//! a store for each write. The operation that each depends on is, of those that made what it reads in the last
//! [`FURTHEST`], the one whose result comes last if nothing but results and a width of [`WIDTH`] held the thread up. The
//! stack pointer counts for nothing: processors keep it apart, so that pushes and pops do not wait for each other.

use super::{Instruction, predictor::Predictor};
use crate::{
    model::Op,
    workload::{Layout, Trace},
};
use perch_trace::{Class, Cursor, Recording, registers::STACK_POINTER};
use std::sync::Arc;

/// Dependencies reach at most this many operations back: every core remembers that many.
const FURTHEST: u64 = 63;

/// Operations that begin together. Used to decide which of several results comes last.
const WIDTH: u64 = 4;

/// Cycles after which results come, by [`Op`] number. Used for the same decision: round numbers, as of most processors.
const LATENCIES: [u64; Op::COUNT] = [1, 3, 20, 4, 13, 4, 1, 1];

/// Bytes of a piece of a large access, each an operation.
const PIECE: u64 = 64;

/// The operation that made something.
#[derive(Debug, Clone, Copy, Default)]
struct Producer {
    /// Its number, from 1; 0 if there is none.
    number: u64,
    /// When its result comes.
    ready: u64,
}

/// A thread of a recording, again and again.
#[derive(Debug, Clone)]
pub struct RecordedStream {
    recording: Arc<Recording>,
    layout: Arc<Layout>,
    cursor: Cursor,
    thread: usize,
    /// Where the program's memory begins.
    base: u64,
    predictor: Predictor,
    /// Who wrote each register last.
    registers: Box<[Producer; 256]>,
    /// Operations so far.
    count: u64,
    /// How often the recording has ended.
    passes: u64,
    /// Those of the current instruction, from `at` on.
    operations: Vec<Instruction>,
    at: usize,
    addresses: Vec<u64>,
}

impl RecordedStream {
    /// The stream of the thread of a program that is the `ordinal`th (from 0) of its threads. `base` is where the program's
    /// memory begins. `None` for a recording without instructions.
    pub fn new(trace: &Trace, base: u64, ordinal: usize) -> Option<Self> {
        let recording = Arc::clone(trace.recording());
        let some = recording.threads().iter().enumerate();
        let some: Vec<usize> = some
            .filter(|(_, thread)| thread.instructions > 0)
            .map(|(number, _)| number)
            .collect();
        let thread = match trace.thread {
            Some(thread) => thread,
            None => *some.get(ordinal % some.len().max(1))?,
        };
        Some(Self {
            cursor: Cursor::new(Arc::clone(&recording), thread)?,
            thread,
            recording,
            layout: Arc::clone(trace.layout()),
            base,
            predictor: Predictor::default(),
            registers: Box::new([Producer::default(); 256]),
            count: 0,
            passes: 0,
            operations: Vec::new(),
            at: 0,
            addresses: Vec::new(),
        })
    }

    /// Which of the recording's threads, from 0.
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// How often the recording has ended.
    pub fn passes(&self) -> u64 {
        self.passes
    }

    /// The next operation.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> Instruction {
        while self.at == self.operations.len() {
            self.fetch();
        }
        self.at += 1;
        self.operations[self.at - 1]
    }

    /// Makes operations of the next instruction.
    fn fetch(&mut self) {
        self.at = 0;
        self.operations.clear();
        let Some(instruction) = self.cursor.next() else {
            self.cursor.rewind();
            self.passes += 1;
            return;
        };
        let (id, taken) = (instruction.id, instruction.taken);
        self.addresses.clear();
        self.addresses.extend_from_slice(instruction.addresses);
        let recording = Arc::clone(&self.recording);
        let code = recording.table().code(id);
        let at = self.base + self.layout.place(code.address);

        let place = self.latest(&code.bases, Producer::default());
        let mut loaded = Producer::default();
        for slot in 0..code.accesses.len() {
            if !code.accesses[slot].store {
                let load = self.touch(slot, &code.accesses[slot], Op::Load, at, place);
                loaded = later(loaded, load);
            }
        }
        let data = self.latest(&code.sources, loaded);
        let alone = match code.class {
            Class::Load => loaded.number > 0,
            Class::Store => code.stores(),
            _ => false,
        };
        let branches = code.class == Class::Branch;
        let mut result = data;
        if !alone && !branches {
            result = self.emit(op(code.class), data, at, 0);
        }
        for slot in 0..code.accesses.len() {
            if code.accesses[slot].store {
                self.touch(
                    slot,
                    &code.accesses[slot],
                    Op::Store,
                    at,
                    later(place, result),
                );
            }
        }
        if branches {
            // Behind what it does with the stack: what comes after it waits if it is mispredicted.
            result = self.emit(Op::Branch, data, at, 0);
            let target = self.cursor.peek().unwrap_or(code.end());
            let wrong = self.predictor.mispredicts(code, taken, target);
            if let Some(branch) = self.operations.last_mut() {
                branch.mispredicted = wrong;
            }
        }
        for register in &code.destinations {
            if *register != STACK_POINTER {
                self.registers[usize::from(*register)] = result;
            }
        }
    }

    /// The one of the last operations that made what these registers hold whose result comes last.
    fn latest(&self, registers: &[u8], other: Producer) -> Producer {
        let made = registers
            .iter()
            .filter(|register| **register != STACK_POINTER);
        made.map(|register| self.registers[usize::from(*register)])
            .filter(|producer| producer.number + FURTHEST > self.count)
            .fold(other, later)
    }

    /// One access, in pieces if it is large.
    fn touch(
        &mut self,
        slot: usize,
        access: &perch_trace::Access,
        op: Op,
        at: u64,
        needs: Producer,
    ) -> Producer {
        let mut last = Producer::default();
        for address in pieces(self.addresses[slot], access.bytes) {
            let data = self.base + self.layout.place(address);
            last = later(last, self.emit(op, needs, at, data));
        }
        last
    }

    fn emit(&mut self, op: Op, needs: Producer, at: u64, data: u64) -> Producer {
        self.count += 1;
        let distance = self.count - needs.number;
        let depends = match needs.number > 0 && distance <= FURTHEST {
            true => distance as u16,
            false => 0,
        };
        self.operations.push(Instruction {
            op,
            depends,
            extra: 0,
            mispredicted: false,
            at,
            data,
        });
        Producer {
            number: self.count,
            ready: needs.ready.max(self.count / WIDTH) + LATENCIES[op as usize],
        }
    }
}

fn later(a: Producer, b: Producer) -> Producer {
    match (b.ready, b.number) > (a.ready, a.number) {
        true => b,
        false => a,
    }
}

/// Where the pieces of an access begin.
pub(crate) fn pieces(address: u64, bytes: u16) -> impl Iterator<Item = u64> {
    let pieces = u64::from(bytes).div_ceil(PIECE).max(1);
    (0..pieces).map(move |piece| address.wrapping_add(piece * PIECE))
}

/// The machine's operation of a class.
pub fn op(class: Class) -> Op {
    Op::ALL[class as usize]
}
