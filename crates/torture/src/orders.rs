//! Orders to a victim, one JSON line each, and its replies.

use serde::{Deserialize, Serialize};

/// An order to one thread of a victim.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Message {
    /// The thread's first name; empty for the main thread.
    pub to: String,
    /// What it shall do.
    pub order: Order,
}

/// Orders that a thread can get.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    /// Start a thread that takes orders.
    Thread(String),
    /// Start many threads of that name which do nothing.
    Crowd(String, usize),
    /// Set the own mask.
    Pin(String),
    /// Take another name, for perch; orders still come by the first one.
    Rename(String),
    /// Fork a process that does nothing.
    Fork(String),
    /// Start a process that leaves the family: another session, its parent ended.
    Daemon(String),
    /// Start a program with arguments.
    Spawn(Vec<String>),
    /// Execute a program in place of this one; it must answer when it is ready.
    Exec(Vec<String>),
    /// Be readable in /proc or not (`PR_SET_DUMPABLE`).
    Dumpable(bool),
    /// End the process.
    End,
}

/// The answer: the thread or process that was started, or the one that obeyed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Tid(i32),
    /// It was not.
    Failed(String),
}
