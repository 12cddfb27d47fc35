//! The command line of `perch compare`.

use super::TuningArgs;
use crate::command::compare::CompareMetric;
use clap::{Args as ClapArgs, ValueEnum, ValueHint};
use std::{ffi::OsString, path::PathBuf};

/// How a comparison is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables and sentences
    Text,
    /// The same for a page or an issue
    Markdown,
    /// One row a run, for statistics of your own
    Csv,
    /// Everything: runs, intervals, p values
    Json,
}

/// `perch compare`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  perch compare -- ./app --threads 16
  perch compare -N 20 -p workover -p cpi -- ./app
  perch compare -p workover --against cpi -- ./app
  sudo perch compare --metric energy,edp -- ./app
  perch compare --prepare 'rm -rf out' --format markdown -- ./app

The order of runs alternates (A B B A), so that drift of the machine cancels.
Each run of the program is paired with one of a program that only sleeps: what
perch costs at the start is measured in that way, reported, and subtracted.
The exit code is that of a run that fails, else 0; 125 if perch itself failed,
a setting is wrong, or another perch is placing threads.")]
pub struct CompareArgs {
    /// A policy to compare with no perch; repeatable [default: as perch run]
    #[arg(
        long,
        short = 'p',
        env = "PERCH_POLICY",
        value_name = "NAME",
        help_heading = "Policy"
    )]
    pub policy: Vec<String>,
    /// Compare with this policy instead of with no perch
    #[arg(long, value_name = "NAME", help_heading = "Policy")]
    pub against: Option<String>,
    /// What to test; time always is. energy and edp need counters of energy, for which you need root,
    /// CAP_PERFMON or kernel.perf_event_paranoid=0
    #[arg(
        long,
        value_name = "METRIC,…",
        value_delimiter = ',',
        default_value = "time",
        help_heading = "Running"
    )]
    pub metric: Vec<CompareMetric>,
    /// How threads are measured, and where they may go.
    #[command(flatten)]
    pub tuning: TuningArgs,

    /// How many runs of each; fewer than 6 show nothing
    #[arg(long, short = 'N', value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Running")]
    pub runs: u32,
    /// Runs of the program that are not measured, before the first
    #[arg(
        long,
        alias = "warmup",
        value_name = "N",
        default_value_t = 1,
        help_heading = "Running"
    )]
    pub warm_up: u32,
    /// Run this shell command before each run, untimed
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString, help_heading = "Running")]
    pub prepare: Option<String>,
    /// Run this shell command after each run, untimed
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString, help_heading = "Running")]
    pub cleanup: Option<String>,
    /// Compare also runs that end with a status other than 0
    #[arg(long, short = 'i', help_heading = "Running")]
    pub ignore_failure: bool,
    /// Let the program's output through
    #[arg(long, help_heading = "Running")]
    pub show_output: bool,

    /// How to print the comparison [default: text]
    #[arg(long, value_name = "FORMAT", help_heading = "Output")]
    pub format: Option<Format>,
    /// The same as --format json
    #[arg(long, conflicts_with_all = ["format", "csv"], help_heading = "Output")]
    pub json: bool,
    /// The same as --format csv
    #[arg(long, conflicts_with = "format", help_heading = "Output")]
    pub csv: bool,
    /// Write the comparison to a file instead of standard output
    #[arg(long, short = 'o', value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

impl CompareArgs {
    /// How the comparison is to be printed.
    pub fn format(&self) -> Format {
        match (self.json, self.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => self.format.unwrap_or(Format::Text),
        }
    }

    /// What is tested besides time, each once.
    pub fn metrics(&self) -> Vec<CompareMetric> {
        let mut metrics = self.metric.clone();
        metrics.retain(|metric| *metric != CompareMetric::Time);
        metrics.sort_unstable();
        metrics.dedup();
        metrics
    }
}
