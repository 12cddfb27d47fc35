//! Who a thread is.

use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// A thread that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadId {
    /// The kernel's thread number.
    pub tid: i32,
    /// When it started, in clock ticks after boot (`/proc/TID/stat`, field 22, proc(5)).
    pub start: u64,
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tid.fmt(f)
    }
}

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The process (thread-group) number.
    pub pid: i32,
    /// When its first thread started, in clock ticks after boot.
    pub start: u64,
}

/// Identity and names of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadInfo {
    /// The thread, by TID and start time.
    pub id: ThreadId,
    /// Its process (thread group).
    pub pid: i32,
    /// Its own name (`comm`, at most 15 bytes, lossily decoded).
    pub name: Arc<str>,
    /// Its process's name.
    pub process: Arc<str>,
    /// On whose behalf it runs.
    #[serde(default, skip_serializing_if = "Work::is_program")]
    pub work: Work,
}

/// On whose behalf a thread runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// It belongs to a program that was given to perch.
    #[default]
    Program,
    /// It belongs to no such program: a daemon, another user's program, a thread of the kernel. Observed only if
    /// [`Machine::watch_system`](crate::Machine::watch_system) asks for it.
    System,
    /// The same, and the kernel lets nobody change its mask (`PF_NO_SETAFFINITY`): work of the kernel for a certain PU,
    /// and workers of its work queues.
    SystemFixed,
}

impl Work {
    /// Whether the thread belongs to a program that was given to perch.
    pub fn is_program(&self) -> bool {
        *self == Self::Program
    }
}
