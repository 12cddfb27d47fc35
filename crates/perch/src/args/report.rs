//! The command line of `perch report`.

use clap::{Args as ClapArgs, ValueHint};
use std::path::PathBuf;

/// `perch report`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Example:
  perch run --log run.jsonl -- ./app
  perch report run.jsonl --html run.html

The page shows placement and metrics over time, moves with their reasons, and
tables. It is one file that loads nothing, so it can be kept, mailed or printed.
It shows what was recorded; `perch replay` decides again (docs/report.md).")]
pub struct ReportArgs {
    /// The recording, made with --log
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Write the page to this file [default: the recording's name, ending in .html]
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
}
