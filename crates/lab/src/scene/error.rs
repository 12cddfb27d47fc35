//! Why policies cannot be compared.

use perch_engine::SessionError;
use perch_sim::system::SimError;

/// A scene that cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum SceneError {
    /// A simulation that cannot go on.
    #[error(transparent)]
    Simulation(#[from] SimError),
    /// A policy's loop that cannot go on.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A search for a placement where not all threads start at once.
    #[error(
        "best and worst place every thread once and for all, but the program `{program}` of {workload} starts later or \
         again: compare other policies"
    )]
    StartsLater {
        /// The program.
        program: String,
        /// The workload.
        workload: String,
    },
}
