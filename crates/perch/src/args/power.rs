//! The command line of `perch power`.

use super::{parse_period, parse_pid};
use clap::{Args as ClapArgs, ValueHint};
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// `perch power`.
#[derive(Debug, ClapArgs)]
#[command(
    disable_version_flag = true,
    after_help = "\
Examples:
  sudo perch power -- ./app              energy and power while app runs
  sudo perch power --idle 5s -- ./app    and what of it is above idle
  sudo perch power -p 4711 --for 10s     while a process runs
  sudo perch power --for 10s             the whole machine

Energy counters tell what a package, its memory or the whole platform uses,
whatever runs there: on a busy machine, what others use is included. The
columns are explained in docs/power.md.

The table goes to standard error if a program is started, as its own output
goes to standard output; else to standard output. The exit code is the
program's; 125 if perch itself failed, such as on a machine without counters of
energy; the program is not started then."
)]
pub struct PowerArgs {
    /// Measure this long before the program starts, and show its energy above that idle power too
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_period)]
    pub idle: Option<Duration>,
    /// The interval over which peak power is a mean
    #[arg(long, short = 'i', value_name = "TIME", default_value = "100ms", allow_hyphen_values = true, value_parser = parse_period)]
    pub interval: Duration,
    /// Stop after this time, and end a program that perch started with SIGTERM
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true, value_parser = parse_period)]
    pub duration: Option<Duration>,
    /// Measure while these processes run
    #[arg(long = "pid", short = 'p', value_name = "PID,…", value_delimiter = ',', value_parser = parse_pid, conflicts_with = "program")]
    pub pids: Vec<i32>,
    /// The processor profile: a name or a file [default: detected]
    #[arg(long, env = "PERCH_PROFILE", value_name = "NAME|FILE")]
    pub profile: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write to a file
    #[arg(long, short = 'o', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}
