//! What is done to memory, and by what it is done.

use crate::{counters::Counters, units::Ps};

/// What is done to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads instructions.
    Fetch,
    /// Reads data.
    Load,
    /// Writes data.
    Store,
}

/// Where a core's accesses go: the memory system, or what stands for it.
pub trait Hierarchy {
    /// The number of the line where an address in bytes is.
    fn line_of(&self, address: u64) -> u64;

    /// One access of a thread on a PU at time `now`, which may be somewhat before that of the access before. Counts what
    /// it misses. Returns the time that it takes beyond a hit in the first level: 0 for that.
    fn access(
        &mut self,
        pu: usize,
        thread: u32,
        access: Access,
        address: u64,
        now: Ps,
        counters: &mut Counters,
    ) -> Ps;
}
