//! Why profiles cannot be had.

use std::path::PathBuf;

/// An error in a profile's text.
pub use perch_core::Diagnostic as ProfileError;

/// Why a library of profiles cannot be had, or a profile in it not be found.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// A file or directory that cannot be read.
    #[error("{path}: cannot be read: {error}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        error: std::io::Error,
    },
    /// A profile with an error.
    #[error("{0}")]
    Profile(#[from] Box<ProfileError>),
    /// Two files of one directory with the same profile name.
    #[error("{first} and {second} both define the profile `{name}`; rename one of them")]
    Twice {
        /// The name that both files give.
        name: String,
        /// The file that was read first.
        first: String,
        /// The other file.
        second: String,
    },
    /// No profile of that name.
    #[error(
        "no profile `{name}`{hint}; `perch profiles` lists them, and a path to a file works too"
    )]
    Unknown {
        /// The name as the user gave it.
        name: String,
        /// A suggestion that starts with a separator, or nothing.
        hint: String,
    },
}
