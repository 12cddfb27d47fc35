//! Changing a thread's affinity mask without ever overwriting somebody else's.

use crate::{Outcome, ProcessId, PuSet, ThreadId};

/// Sets `thread`'s mask to `set`, if it is still `expect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskChange {
    /// Who.
    pub thread: ThreadId,
    /// The mask that it must have now, offline PUs included.
    pub expect: PuSet,
    /// The mask that it shall have.
    pub set: PuSet,
    /// Whether `set` is a default mask: then all PUs are asked for, so that those that come online later are in.
    pub to_default: bool,
}

/// A mask that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MaskError {
    /// The thread ended.
    #[error("the thread has ended")]
    Gone,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// A thread found by [`Affinity::relatives`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relative {
    /// The thread.
    pub thread: ThreadId,
    /// Its process.
    pub process: ProcessId,
    /// Its mask, offline PUs included.
    pub mask: PuSet,
}

/// The one knob of placement. Everything that changes masks goes through it, so that it can be journaled.
pub trait Affinity {
    /// The thread's mask, offline PUs included.
    ///
    /// # Errors
    /// A thread that is gone, a /proc that cannot be read.
    fn mask(&self, thread: ThreadId) -> Result<PuSet, MaskError>;

    /// Compare and set: identity and present mask are checked right before.
    fn change(&mut self, change: &MaskChange) -> Outcome;

    /// Live threads of these processes and of all that descend from them, and of processes that carry the session's
    /// mark in their environment.
    fn relatives(&self, session: &str, processes: &[ProcessId]) -> Vec<Relative>;
}
