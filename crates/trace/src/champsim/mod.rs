//! ChampSim's traces: one thread a file, 64 bytes an instruction, no classes of operations.
//!
//! A record (`struct input_instr` of ChampSim's `inc/trace_instruction.h`; numbers with the lowest byte first):
//!
//! | bytes | |
//! | --- | --- |
//! | 0 to 7 | address |
//! | 8 | whether it is a branch, 0 or 1 |
//! | 9 | whether it branched, 0 or 1 |
//! | 10, 11 | registers that it writes; 0: none |
//! | 12 to 15 | registers that it reads |
//! | 16 to 31 | two addresses that it writes; 0: none |
//! | 32 to 63 | four addresses that it reads |
//!
//! Which kind of branch it is, ChampSim tells by whether the stack pointer, the flags, the instruction pointer and other
//! registers are read and written (`inc/instruction.h`).

mod read;
mod write;

pub(crate) use read::read;
pub use write::{files, write, write_thread};

/// Bytes of a record.
pub const RECORD: usize = 64;

/// Registers and addresses that a record has room for.
const DESTINATIONS: usize = 2;
const SOURCES: usize = 4;

/// Where the parts of a record begin.
const BRANCH: usize = 8;
const TAKEN: usize = 9;
const WRITTEN: usize = 10;
const READ: usize = 12;
const STORES: usize = 16;
const LOADS: usize = 32;
