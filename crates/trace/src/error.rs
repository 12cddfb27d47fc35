//! What can be wrong with recordings and with making them.

use std::{io, path::PathBuf};

/// Why a recording cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A file that cannot be read or written.
    #[error("{path}: {what}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried: `cannot be read`.
        what: &'static str,
        /// The system's reason.
        #[source]
        error: io::Error,
    },
    /// A file that is no recording, or a damaged one.
    #[error("{path}: {why}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The program cannot be recorded, or something that recording needs is missing.
    #[error("{0}")]
    Record(String),
}
