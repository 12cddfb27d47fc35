//! The command line of `perch noise`.

use super::parse_period;
use clap::{Args as ClapArgs, ValueEnum, ValueHint};
use perch_core::PuSet;
use std::{path::PathBuf, time::Duration};

/// How noise is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum NoiseMethod {
    /// Quanta of fixed work: how much longer than the shortest each took
    #[default]
    Fwq,
    /// Quanta of fixed time: how much less than in the fullest was done in each
    Ftq,
}

/// Tracers of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NoiseTracer {
    /// Noise, as threads of the kernel see it
    Osnoise,
    /// How late a timer and the thread that it wakes up are
    Timerlat,
}

/// `perch noise`.
#[derive(Debug, Clone, ClapArgs)]
#[command(after_help = "\
Examples:
  perch noise                              all PUs, 10 s
  sudo perch noise                         the same, and who interrupted
  sudo perch noise --pus 2-3 --for 60s --plot noise.svg
  perch noise --method ftq --quantum 1ms --json
  sudo perch noise --tracer timerlat

A thread on each PU does nothing but measure, so the machine is busy meanwhile.
perch binds only threads of its own. docs/noise.md says how to read the result.")]
pub struct NoiseArgs {
    /// Measure these PUs, such as 0-3,8 [default: all that perch may use]
    #[arg(long, visible_alias = "pu", value_name = "LIST")]
    pub pus: Option<PuSet>,
    /// For how long
    #[arg(long = "for", value_name = "TIME", default_value = "10s", allow_hyphen_values = true, value_parser = parse_period)]
    pub duration: Duration,
    /// What each quantum keeps fixed
    #[arg(long, value_name = "METHOD", default_value = "fwq")]
    pub method: NoiseMethod,
    /// Length of a quantum [default: 2us, for ftq 1ms]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_short)]
    pub quantum: Option<Duration>,
    /// A quantum was interrupted if it lost more than this [default: half a quantum; for ftq three times what undisturbed ones lose]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_short)]
    pub threshold: Option<Duration>,
    /// Let the kernel measure, by its own tracer of this name if it has one; needs root
    #[arg(long, value_name = "NAME", conflicts_with_all = ["method", "quantum", "threshold", "no_trace"])]
    pub tracer: Option<NoiseTracer>,
    /// Do not ask the kernel who interrupted
    #[arg(long)]
    pub no_trace: bool,
    /// Print a row for each PU, even if many are alike, and all sources
    #[arg(long)]
    pub all: bool,
    /// Draw the interruptions over time and their lengths (SVG)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Reads a time from 100 ns to 1 s.
fn parse_short(text: &str) -> Result<Duration, String> {
    let wrong = || {
        let text = text.escape_debug();
        format!("`{text}` is not a time from 100ns to 1s: write one such as 500ns, 2us or 1ms")
    };
    let time: Duration = humantime::parse_duration(text.trim()).map_err(|_| wrong())?;
    match (Duration::from_nanos(100)..=Duration::from_secs(1)).contains(&time) {
        true => Ok(time),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_times() {
        assert_eq!(parse_short("2us"), Ok(Duration::from_micros(2)));
        assert_eq!(parse_short(" 500ns"), Ok(Duration::from_nanos(500)));
        for wrong in ["5", "-1us", "50ns", "2s", "x"] {
            assert!(parse_short(wrong).is_err(), "{wrong}");
        }
    }
}
