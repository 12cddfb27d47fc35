//! Whose lines a thread visits.

/// Whose lines they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Owner {
    /// The thread's own.
    Thread,
    /// The code of a mix of a program: all its processes share it.
    Code(usize, usize),
    /// A region of a process: its place among the names of all regions.
    Region(usize, usize),
}
