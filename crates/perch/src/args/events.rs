//! The command line of `perch events`.

use clap::Args as ClapArgs;

/// `perch events`.
#[derive(Debug, ClapArgs)]
#[command(
    disable_version_flag = true,
    after_help = "\
Examples:
  perch events                       what perch stat -e can count here
  perch events cache miss            events whose name or description has both words
  perch events instructions          what one event is, and all its spellings
  perch events r412e                 the events that have this code
  perch events 'pmc3=0x2e,umask3=0x41'
  perch events -e instructions,llc-misses     a set as raw codes
  perch events --profile zen4 --all  another processor's events
  perch events --pmus                the PMUs of this machine and libpfm4's tables

Profiles give events the same names on all processors. libpfm4 (if it is
installed) knows the names in the manufacturers' manuals."
)]
pub struct EventsArgs {
    /// Words to look for, the name of an event, or a code (r412e, cpu/event=0x2e,umask=0x41/, pmc0=0x2e,umask0=0x41)
    #[arg(value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Translate a set of events into raw codes, for perch, perf and PMCTrack; repeatable
    #[arg(
        long = "event",
        short = 'e',
        value_name = "EVENT,…",
        conflicts_with_all = ["patterns", "all", "pmus"]
    )]
    pub sets: Vec<String>,
    /// List the events of libpfm4's tables and the kernel's tracepoints too
    #[arg(long, conflicts_with = "pmus")]
    pub all: bool,
    /// List PMUs instead of events
    #[arg(long, conflicts_with = "patterns")]
    pub pmus: bool,
    /// The processor profile: a name or a file; another processor's events can be listed and translated, not counted
    /// [default: detected]
    #[arg(long, env = "PERCH_PROFILE", value_name = "NAME|FILE")]
    pub profile: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
