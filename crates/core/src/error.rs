//! What goes wrong with a machine.

/// A machine that cannot do what it was asked; the text says what the user can do about it.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The program does not exist (a shell's status 127).
    #[error("{program}: program not found{hint}")]
    NotFound {
        /// The program as named on the command line.
        program: String,
        /// A suggestion that starts with a separator, or nothing.
        hint: String,
    },
    /// The program exists but cannot be executed (a shell's status 126).
    #[error("{program}: cannot be executed: {why}")]
    NotExecutable {
        /// The program as named on the command line.
        program: String,
        /// Error of the operating system.
        why: String,
    },
    /// A process to attach to does not exist.
    #[error("no process {0}: it has exited, or never existed (see `ps -e`)")]
    NoSuchProcess(i32),
    /// Not permitted, with the way to get the permission.
    #[error("{what}: not permitted; {remedy}")]
    NotPermitted {
        /// The operation that failed.
        what: String,
        /// The sysctl, capability or group that would allow it.
        remedy: String,
    },
    /// The machine has none of what was to be observed, in words for the user.
    #[error("{0}")]
    Absent(String),
    /// No event could be counted, and some because their names mean nothing here.
    #[error("{text}")]
    UnknownEvents {
        /// The events that mean nothing here, as the plan calls them.
        aliases: Vec<std::sync::Arc<str>>,
        /// What is wrong with each event, in words for the user.
        text: String,
    },
    /// Anything else, in words for the user.
    #[error("{0}")]
    Other(String),
    /// A file or system call that failed.
    #[error("{what}: {error}")]
    Io {
        /// What was tried, with the path.
        what: String,
        /// Error of the operating system.
        #[source]
        error: std::io::Error,
    },
}
