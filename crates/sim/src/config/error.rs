//! Why machines and workloads cannot be had.

use std::path::PathBuf;

pub use perch_core::Diagnostic;

/// Why a machine or a workload cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file that cannot be read.
    #[error("{path}: cannot be read: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        error: std::io::Error,
    },
    /// A file with a mistake.
    #[error("{0}")]
    Diagnostic(#[from] Box<Diagnostic>),
    /// No shipped file of that name.
    #[error("no {what} `{name}`{hint}; shipped are {shipped}, and a path to a file works too")]
    Unknown {
        /// `machine`, `workload` or `file of mixes`.
        what: &'static str,
        /// As asked for.
        name: String,
        /// A suggestion that starts with a separator, or nothing.
        hint: String,
        /// All names.
        shipped: String,
    },
}
