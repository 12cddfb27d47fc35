//! How regions are counted: what is asked for and resolved, threads, the process with all its threads, reports.
//!
//! ```text
//! Options, environment ──▶ Asked ──▶ Plan ──▶ Process ──▶ Thread: start, stop
//!                                               └──gather──▶ Report ──▶ output
//! ```

mod asked;
pub(crate) mod gather;
mod moment;
pub(crate) mod names;
pub(crate) mod output;
mod part;
mod plan;
pub(crate) mod process;
mod sampler;
pub(crate) mod thread;

pub(crate) use asked::Asked;
pub(crate) use plan::Plan;
