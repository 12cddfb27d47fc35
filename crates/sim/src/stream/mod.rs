//! What threads execute: an endless stream of instructions, made up from a mix or read from a trace.

mod distances;
mod mix;
mod predictor;
mod random;
mod recorded;

pub use mix::MixStream;
pub use predictor::Predictor;
pub use random::Random;
pub use recorded::{RecordedStream, op};

pub(crate) use recorded::pieces;

use crate::model::Op;

/// One instruction as far as the machine is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub op: Op,
    /// How many instructions back in its own thread is the one whose result it needs; 0: none.
    pub depends: u16,
    /// Cycles by which it takes longer than the machine says: for hand-made instructions of a given latency.
    pub extra: u16,
    /// Whether it is a branch that was predicted wrongly.
    pub mispredicted: bool,
    /// Where it stands, in bytes.
    pub at: u64,
    /// The data that a load or store touches, in bytes; else 0.
    pub data: u64,
}

/// A source of instructions.
#[derive(Debug, Clone)]
pub enum Stream {
    /// Made up.
    Mix(MixStream),
    /// Recorded.
    Recorded(Box<RecordedStream>),
}

impl Stream {
    /// The next instructions.
    pub fn fill(&mut self, into: &mut [Instruction]) {
        match self {
            Stream::Mix(mix) => mix.fill(into),
            Stream::Recorded(recorded) => into.fill_with(|| recorded.next()),
        }
    }
}
