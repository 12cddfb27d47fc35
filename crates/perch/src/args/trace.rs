//! The command line of `perch record-trace` and `perch trace`.

use clap::{Args as ClapArgs, ValueEnum, ValueHint};
use std::{ffi::OsString, path::PathBuf};

/// The format of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum TraceFormat {
    /// perch's own: all threads in one file, with classes of operations
    #[default]
    Perch,
    /// ChampSim's: a file for each thread
    Champsim,
}

/// `perch record-trace`.
#[derive(Debug, Clone, ClapArgs)]
#[command(after_help = "\
Examples:
  perch record-trace -- ./app --threads 4
  perch record-trace -o lu.trace --skip 50M --instructions 20M -- ./scimark lu
  perch record-trace --format champsim -o app.champsimtrace.xz -- ./app

The program runs under qemu's user-mode emulation (package qemu-user), which
must be one for 64-bit x86. docs/traces.md says how traces are simulated.
The exit code is the program's, as with `perch run`.")]
pub struct RecordTraceArgs {
    /// The trace [default: PROGRAM.trace, or PROGRAM.champsimtrace.gz]; ChampSim's are compressed according to the
    /// extension: .gz, .xz, or not
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// The format
    #[arg(long, value_name = "FORMAT", default_value = "perch")]
    pub format: TraceFormat,
    /// How many instructions of each thread
    #[arg(long, value_name = "N", default_value = "10M", value_parser = parse_count)]
    pub instructions: u64,
    /// How many instructions of each thread to leave out before
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_count)]
    pub skip: u64,
    /// End the program when no thread has anything left to record
    #[arg(long)]
    pub stop: bool,
    /// The plugin for qemu [default: beside perch, or in ../lib/perch]
    #[arg(long, env = "PERCH_TRACE_PLUGIN", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub plugin: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// Print no summary
    #[arg(long, short = 'q', conflicts_with = "json")]
    pub quiet: bool,
    /// The program and its arguments, behind `--`
    #[arg(required = true, last = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// `perch trace`.
#[derive(Debug, Clone, ClapArgs)]
#[command(after_help = "\
Examples:
  perch trace app.trace
  perch trace app.trace --champsim app.champsimtrace.xz
  perch trace app.trace --mix app.toml --check smt2-zen
  perch trace 600.perlbench.champsimtrace.xz --perch perlbench.trace")]
pub struct TraceArgs {
    /// The trace: perch's or ChampSim's, compressed or not
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Also write it for ChampSim: a file for each thread, compressed according to the extension (.gz, .xz)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub champsim: Option<PathBuf>,
    /// Also write it in perch's own format
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub perch: Option<PathBuf>,
    /// Also write a file of mixes that resemble its threads, from which workloads import them
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub mix: Option<PathBuf>,
    /// With --mix: simulate each mix and its thread on this machine, each alone, and compare; may be repeated
    #[arg(long, value_name = "MACHINE", requires = "mix")]
    pub check: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Reads `10M`, `500k`, `2G`, `1.5M` or a plain number.
///
/// # Errors
/// A text that is no count.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let units = [('k', 1_000), ('M', 1_000_000), ('G', 1_000_000_000)];
    let unit = units.iter().find(|(unit, _)| text.ends_with(*unit));
    let (number, factor) = match unit {
        Some((_, factor)) => (text[..text.len() - 1].trim_end(), *factor),
        None => (text, 1),
    };
    if let Ok(number) = number.parse::<u64>()
        && let Some(count) = number.checked_mul(factor)
    {
        return Ok(count);
    }
    let count = number.parse::<f64>().unwrap_or(f64::NAN) * factor as f64;
    if (0.0..1e18).contains(&count) && count.fract() == 0.0 {
        return Ok(count as u64);
    }
    Err("write a number such as 500000, 500k, 10M or 1.5G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        for (text, count) in [
            ("10M", 10_000_000),
            ("500k", 500_000),
            ("1.5G", 1_500_000_000),
            ("0", 0),
            ("12", 12),
        ] {
            assert_eq!(parse_count(text), Ok(count), "{text}");
        }
        for wrong in ["", "-1", "M", "1.5", "ten", "1e30", "99999999999999999999"] {
            assert!(parse_count(wrong).is_err(), "{wrong}");
        }
    }
}
