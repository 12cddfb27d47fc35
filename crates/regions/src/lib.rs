//! What instrumented programs counted in the regions of their code.
//!
//! ```text
//! libperch ──Report──▶ file in a folder ──▶ perch stat ──merge──▶ table, JSON, CSV
//!              └────────▶ the program's own report
//! ```
//!
//! A region is a part of a program between `start` and `stop`; regions nest. Nothing here counts: see the crate `libperch`.
#![forbid(unsafe_code)]

pub mod folder;
mod format;
mod merge;
pub mod table;

pub use format::{FormatError, LONGEST, MOST_REGIONS, parse, write};
pub use merge::{Merged, merge};

use perch_stat::Amounts;
use std::sync::Arc;

/// Most regions inside each other.
pub const DEEPEST: usize = 64;

/// Longest name of a region, in bytes.
pub const LONGEST_NAME: usize = 255;

/// What one process counted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// The process.
    pub pid: i32,
    /// Its program's name.
    pub program: Arc<str>,
    /// How it counted, for people.
    pub counted_by: String,
    /// The events: name in tables, and alias in counts.
    pub events: Vec<(Arc<str>, Arc<str>)>,
    /// What the user should know, a sentence each.
    pub remarks: Vec<String>,
    /// Whether the process had counted all that it would: it wrote this at its exit, or when it ended counting.
    pub complete: bool,
    /// One for each thread and path of names.
    pub regions: Vec<Region>,
    /// What regions did in parts of their time, if they were sampled.
    pub samples: Vec<Sample>,
}

/// What one thread did in one region.
#[derive(Debug, Clone, PartialEq)]
pub struct Region {
    /// The names of the regions around it, outermost first, and its own.
    pub path: Vec<Arc<str>>,
    /// The thread.
    pub tid: i32,
    /// The thread's name.
    pub thread: Arc<str>,
    /// How often it was stopped.
    pub calls: u64,
    /// Whether it had not been stopped yet.
    pub open: bool,
    /// Nanoseconds from starts to stops.
    pub wall: u64,
    /// What the thread did meanwhile, inner regions included.
    pub amounts: Amounts,
}

/// What one thread did in one region in a part of its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The region.
    pub path: Vec<Arc<str>>,
    /// The thread.
    pub tid: i32,
    /// Why the part ended there.
    pub end: End,
    /// Nanoseconds from the beginning of counting to the part's end.
    pub at: u64,
    /// Nanoseconds that it took.
    pub wall: u64,
    /// Which event set was counted, from 0; `None` if none was.
    pub set: Option<u32>,
    /// What the thread did.
    pub amounts: Amounts,
}

/// Why a sample ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The sampling interval was over.
    Tick,
    /// The program asked for values, or for the next event set.
    Read,
    /// The region was stopped.
    Stop,
}

impl End {
    /// As files have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tick => "tick",
            Self::Read => "read",
            Self::Stop => "stop",
        }
    }
}
