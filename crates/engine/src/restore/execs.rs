//! Does a process still execute the program that it executed when it was journaled? If not, another of its threads may
//! have taken over the first one's number, and has kept its own mask and nice value.

use crate::journal::Journal;
use perch_core::{Affinity, ProcessId, ThreadId};

/// Why a first thread is left as it is.
pub(super) const UNDECIDED: &str = "it may be a thread that perch had bound and that called execve(2) since, or one that \
                                    was given this by others: nothing tells which";

/// Whether a process has called execve(2) since it was journaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Executed {
    No,
    Yes,
    /// Its addresses may not be read, were not, or are the same for each program.
    Unknown,
}

/// Whether this first thread's process has executed another program. Other threads tell nothing: `No`.
pub(super) fn executed(
    affinity: &dyn Affinity,
    journal: &Journal,
    thread: ThreadId,
    pid: i32,
) -> Executed {
    let start = thread.start;
    let process = ProcessId { pid, start };
    let Some(record) = journal.process(process).filter(|_| thread.tid == pid) else {
        return Executed::No;
    };
    if record.first_ended {
        // The dead do not come back: if it lives, another has its number.
        return Executed::Yes;
    }
    match (record.image, affinity.image(process)) {
        (Some(then), Some(now)) if then != now => Executed::Yes,
        (Some(_), Some(_)) if affinity.images_differ(process) => Executed::No,
        _ => Executed::Unknown,
    }
}
