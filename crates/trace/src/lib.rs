//! Recorded instruction streams of real programs.
//!
//! A [`Recording`] holds the threads of one program: which instructions each executed, and which data they touched. It is
//! made by running the program under qemu's user-mode emulation with perch's plugin ([`record`]), kept in perch's own
//! format ([`file`](mod@file)) or in ChampSim's ([`champsim`]), and played back instruction by instruction by a [`Cursor`].
//! Both formats and the numbering of registers are described in `docs/traces.md`.

#![forbid(unsafe_code)]

pub mod champsim;
mod compress;
mod cursor;
mod encoder;
mod error;
pub mod file;
mod instruction;
mod load;
pub mod record;
mod recording;
pub mod registers;
mod summary;
mod varint;
pub mod wire;
mod x86;

pub use cursor::Cursor;
pub use encoder::Encoder;
pub use error::TraceError;
pub use instruction::{Access, Branch, Class, Code, Instruction};
pub use load::{Limits, read, read_from};
pub use recording::{CodeTable, Recording, ThreadRecord};
pub use summary::{LINE, Summary, ThreadSummary};
pub use x86::decode;
