//! What can go wrong in the laboratory.

use std::path::PathBuf;

/// A mistake in an experiment's text: `FILE:LINE:COLUMN: message`, the line with carets, and a hint.
pub use perch_core::Diagnostic;

/// Why an experiment cannot be had or run.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A file that cannot be read.
    #[error("{path}: cannot be read: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        error: std::io::Error,
    },
    /// An experiment with a mistake.
    #[error("{0}")]
    Diagnostic(#[from] Box<Diagnostic>),
    /// No shipped experiment of that name.
    #[error(
        "no experiment `{name}`{hint}; `perch lab list` lists them, and a path to a file works too"
    )]
    Unknown {
        /// As asked for.
        name: String,
        /// A suggestion that starts with a separator, or nothing.
        hint: String,
    },
    /// A simulation that cannot go on, or a policy that cannot be run.
    #[error("{experiment}, run `{run}`: {why}")]
    Simulation {
        /// The experiment.
        experiment: String,
        /// The run in it.
        run: String,
        /// What happened.
        why: String,
    },
    /// A formula without a value: nothing was measured from which to compute it.
    #[error("{experiment}, {what}: {why}")]
    NoValue {
        /// The experiment.
        experiment: String,
        /// The claim or bar.
        what: String,
        /// Why there is no value.
        why: String,
    },
    /// A picture that cannot be drawn.
    #[error("the picture of {experiment} cannot be drawn: {why}")]
    Figure {
        /// The experiment.
        experiment: String,
        /// The drawing library's reason.
        why: String,
    },
}
