//! Changes affinity masks of threads and interrupts, and never overwrites a mask that another process set.

use crate::{CacheAllocation, Irqs, Outcome, ProcessId, PuSet, Settings, ThreadId, Weights};
use serde::{Deserialize, Serialize};

/// Sets `thread`'s mask to `set`, if it is still `expect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskChange {
    /// The thread whose mask changes.
    pub thread: ThreadId,
    /// Its process as last known, 0 where that is not known: it is looked for there first, which costs half as much.
    pub process: i32,
    /// The mask that it must have now, offline PUs included.
    pub expect: PuSet,
    /// The mask that it shall have.
    pub set: PuSet,
    /// Whether `set` is all that the thread's CPU set allows: then all PUs are asked for, so that the mask grows with the
    /// CPU set and takes in PUs that come online later.
    pub to_default: bool,
}

/// A mask that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MaskError {
    /// The thread has exited (ESRCH).
    #[error("the thread has ended")]
    Gone,
    /// The thread is there, but `/proc` does not show it.
    #[error(
        "/proc does not show this thread (hidepid, or another user's now): run `perch restore` as root"
    )]
    Hidden,
    /// Any other error, as text.
    #[error("{0}")]
    Other(String),
}

/// A thread found by [`Affinity::descendants`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descendant {
    /// The thread, by TID and start time.
    pub thread: ThreadId,
    /// Its process, by PID and start time.
    pub process: ProcessId,
    /// PID of the parent of its process.
    pub parent: i32,
    /// Its mask, offline PUs included.
    pub mask: PuSet,
    /// Set if nothing but a process group says that it descends from a process of the session.
    pub by_group: Option<ByGroup>,
}

/// A process group is weak evidence of descent: a shell puts all processes of a pipeline into that of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByGroup {
    /// The process of the session that leads the group, or led it.
    pub leader: i32,
    /// Whether processes are in it that do not descend from the session's.
    pub shared: bool,
}

/// Identifies a program that a process executes: addresses that every execve(2) randomizes anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Start of the code (`/proc/PID/stat`, field 26, proc(5)).
    pub code: u64,
    /// Start of the stack (field 28).
    pub stack: u64,
}

/// Access to affinity masks: the only actuator of placement. Everything that changes masks goes through it, so that it can be journaled.
pub trait Affinity: Send {
    /// The thread's mask, offline PUs included.
    ///
    /// # Errors
    /// The thread has exited, or /proc cannot be read.
    fn mask(&self, thread: ThreadId) -> Result<PuSet, MaskError>;

    /// Compare and set: identity and present mask are checked right before.
    fn change(&mut self, change: &MaskChange) -> Outcome;

    /// Access to the masks of interrupts; `None` on machines without interrupts, such as simulations and recordings.
    fn irqs(&mut self) -> Option<&mut dyn Irqs> {
        None
    }

    /// Access to CPU weights; `None` on machines without them, such as recordings.
    fn weights(&mut self) -> Option<&mut dyn Weights> {
        None
    }

    /// Access to the ways of caches that threads may fill.
    ///
    /// # Errors
    /// Why the machine does not offer that.
    fn cache_allocation(&mut self) -> Result<&mut dyn CacheAllocation, String> {
        Err("this machine cannot limit the ways of caches that threads fill".to_owned())
    }

    /// Access to settings of the machine; `None` on machines without them, such as recordings.
    fn settings(&mut self) -> Option<&mut dyn Settings> {
        None
    }

    /// Has perch itself run on these PUs, or where it ran before if there are none. Needs no journal: it ends with perch.
    fn place_own(&mut self, _pus: Option<&PuSet>) {}

    /// The PUs that are online and in the thread's CPU set; `None` if that is unknown.
    fn allowed(&self, thread: ThreadId) -> Option<PuSet>;

    /// Waits a moment for the kernel to finish a change of PUs or CPU sets.
    fn settle(&self);

    /// Waits for the creation of threads and processes that has begun: they get the mask and the nice value that their
    /// creator had then, and show only later.
    fn settle_births(&self) {
        for _ in 0..5 {
            self.settle();
        }
    }

    /// Which program the process executes; `None` if that is unknown.
    fn image(&self, _process: ProcessId) -> Option<Image> {
        None
    }

    /// Whether each program that the process executes gets another [`Image`]: not without address space randomization.
    fn images_differ(&self, _process: ProcessId) -> bool {
        true
    }

    /// Whether the thread runs on behalf of this user: its real, effective or saved user number is this one.
    fn belongs_to(&self, thread: ThreadId, user: u32) -> bool;

    /// Live threads of these processes and of all that descend from them, and of processes that carry the session's
    /// mark in their environment; without those that `known` knows.
    ///
    /// # Errors
    /// Processes or threads that cannot be listed: then some may be missed.
    fn descendants(
        &self,
        session: &str,
        processes: &[ProcessId],
        known: &dyn Fn(ThreadId) -> bool,
    ) -> Result<Vec<Descendant>, MaskError>;
}
