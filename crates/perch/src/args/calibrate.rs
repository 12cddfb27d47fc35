//! The command line of `perch calibrate`.

use super::Counters;
use clap::{Args as ClapArgs, ValueHint};
use perch_core::PuSet;
use std::path::PathBuf;

/// What `perch calibrate` takes.
#[derive(Debug, Clone, ClapArgs)]
#[command(after_help = "\
Examples:
  perch calibrate                        this machine, for policies that ask
  perch calibrate --quick -o quick.toml
  perch calibrate -m smt2-zen -o zen.toml
  perch calibrate --show zen.toml --svg zen.svg

Kernels that each use one shared resource run in isolation and co-running,
on PUs that share a core, caches, a node, or only the memory. For each of these
levels it takes up to four minutes, in which the machine should do nothing
else; what cannot be told from noise is unknown, and no policy uses it. A
calibration of this machine is written to ~/.config/perch/calibration.toml
(/etc/perch/calibration.toml as root). docs/calibration.md says how to read it.")]
pub struct CalibrateArgs {
    /// Calibrate this simulated machine: a shipped one's name, or a file
    #[arg(long, short, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// Write the calibration to this file [default: see below; of a simulated machine none]
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Measure nothing: show this calibration
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["machine", "output", "quick", "kernels", "pus", "profile", "counters"])]
    pub show: Option<PathBuf>,
    /// Draw which kernel slows down which as heat maps (SVG)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Only one kernel a resource and pairs: a minute
    #[arg(long)]
    pub quick: bool,
    /// Only these kernels, such as fp,llc: seconds; docs/calibration.md lists them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["machine", "quick"])]
    pub kernels: Vec<String>,
    /// Use only these PUs, such as 0-7
    #[arg(long, value_name = "LIST", conflicts_with = "machine")]
    pub pus: Option<PuSet>,
    /// The processor profile: a name or a file [default: detected]
    #[arg(
        long,
        env = "PERCH_PROFILE",
        value_name = "NAME|FILE",
        conflicts_with = "machine"
    )]
    pub profile: Option<String>,
    /// Source of the kernels' metrics [default: auto]
    #[arg(
        long,
        env = "PERCH_COUNTERS",
        value_name = "HOW",
        conflicts_with = "machine"
    )]
    pub counters: Option<Counters>,
    /// Print the calibration as JSON
    #[arg(long)]
    pub json: bool,
}

/// What `perch kernel` takes: perch starts it to measure the metrics of kernels as those of any program.
#[derive(Debug, Clone, ClapArgs)]
#[command(after_help = "Example:\n  perch kernel --pu 1 --seconds 2 fp memory")]
pub struct KernelArgs {
    /// The PU
    #[arg(long, value_name = "N")]
    pub pu: u32,
    /// For how long each runs
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub seconds: f64,
    /// Kernels, by name
    #[arg(required = true, value_name = "NAME")]
    pub kernels: Vec<String>,
}
