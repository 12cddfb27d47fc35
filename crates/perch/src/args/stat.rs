//! The command line of `perch stat`.

use super::{parse_period, parse_pid};
use clap::{Args as ClapArgs, ValueEnum, ValueHint};
use perch_stat::{By, phases::Method};
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// By what rows are kept apart; see [`By`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// Each thread
    Thread,
    /// The threads of each process together
    Process,
    /// Threads of the same name together
    Command,
    /// All threads together
    All,
    /// Each PU, whatever runs on it
    Pu,
    /// The PUs of each core together
    Core,
    /// The PUs of each package together
    Package,
    /// The PUs of each NUMA node together
    Node,
    /// All PUs together
    Machine,
}

impl From<Group> for By {
    fn from(group: Group) -> Self {
        match group {
            Group::Thread => Self::Thread,
            Group::Process => Self::Process,
            Group::Command => Self::Command,
            Group::All => Self::All,
            Group::Pu => Self::Pu,
            Group::Core => Self::Core,
            Group::Package => Self::Package,
            Group::Node => Self::Node,
            Group::Machine => Self::Machine,
        }
    }
}

/// How phases are told apart; see [`Method`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Phases {
    /// They are not
    Off,
    /// When instructions per cycle leave their running average by 10 %
    Average,
    /// By Bayesian online change-point detection
    #[default]
    Bayes,
}

impl From<Phases> for Method {
    fn from(phases: Phases) -> Self {
        match phases {
            Phases::Off => Self::Off,
            Phases::Average => Self::Average,
            Phases::Bayes => Self::Bayes,
        }
    }
}

/// `perch stat`.
#[derive(Debug, ClapArgs)]
#[command(
    disable_version_flag = true,
    after_help = "\
Examples:
  perch stat -- ./mcf                           totals at the end
  perch stat -e instructions,llc-misses -i 100ms -- ./mcf
  perch stat -e instructions,cycles -e branches,branch-misses -i 1s -p 4711
  perch stat -m 'ipc=instructions/cycles' --by process -- make -j8
  perch stat -e page-faults -V run_delay,context_switches -- ./app
  sudo perch stat --by core -i 1s --for 10s     the whole machine
  perch stat --from run.jsonl -i 1s             a recording of perch run --log

Several -e make several event sets, which are counted one after the other. A
count marked `~` is scaled up, as it was counted for a part of the time; one
marked `>` is a lower bound (docs/stat.md).

Rows and totals go to standard error if a program is started, as its own output
goes to standard output; else to standard output. The exit code is the
program's; 125 if perch itself failed, 126 and 127 if it cannot be started."
)]
pub struct StatArgs {
    /// Count these events at the same time: names of the kernel, of the processor profile, of libpfm4, or raw
    /// (cpu/event=0x2e,umask=0x41/, r412e, pmc0=0x2e,umask0=0x41); repeat it for several sets [default: the profile's, or
    /// software events where there are no hardware counters]
    #[arg(
        long = "event",
        short = 'e',
        value_name = "EVENT,…",
        help_heading = "What"
    )]
    pub events: Vec<String>,
    /// Show this metric: NAME=FORMULA over events, NAME[UNIT]=FORMULA, or the name of one of the profile's; repeatable
    #[arg(
        long = "metric",
        short = 'm',
        value_name = "METRIC",
        help_heading = "What"
    )]
    pub metrics: Vec<String>,
    /// Show these too: run_delay, context_switches, cpu_migrations (the kernel's accounting), fp_share, vector_share,
    /// load_share, store_share, branch_share, divide_share, memory_intensity, footprint (sampled instructions)
    #[arg(
        long = "virtual",
        short = 'V',
        value_name = "NAME,…",
        value_delimiter = ',',
        help_heading = "What"
    )]
    pub virtuals: Vec<String>,
    /// Count in user space only
    #[arg(long, short = 'u', conflicts_with = "kernel", help_heading = "What")]
    pub user: bool,
    /// Count in the kernel only
    #[arg(long, short = 'k', help_heading = "What")]
    pub kernel: bool,
    /// The processor profile: a name or a file [default: detected]
    #[arg(
        long,
        env = "PERCH_PROFILE",
        value_name = "NAME|FILE",
        help_heading = "What"
    )]
    pub profile: Option<String>,

    /// Print a row for each interval, such as 100ms [default: totals only]
    #[arg(long, short = 'i', value_name = "TIME", allow_hyphen_values = true, value_parser = parse_period, help_heading = "When")]
    pub interval: Option<Duration>,
    /// Stop after so many intervals; a program that perch started is then ended with SIGTERM
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "When")]
    pub samples: Option<u64>,
    /// Stop after this time, likewise
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true, value_parser = parse_period, help_heading = "When")]
    pub duration: Option<Duration>,
    /// Run the program so many times, and print the mean and the spread of its totals
    #[arg(long, short = 'r', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000), conflicts_with_all = ["pids", "from"], help_heading = "When")]
    pub repeat: u32,

    /// What rows and totals are about [default: thread; machine where nothing is started or attached to]
    #[arg(long, value_name = "WHAT", help_heading = "Whom")]
    pub by: Option<Group>,
    /// Count running processes, with all their threads and descendants
    #[arg(long = "pid", short = 'p', value_name = "PID,…", value_delimiter = ',', value_parser = parse_pid, conflicts_with = "program", help_heading = "Whom")]
    pub pids: Vec<i32>,
    /// Read a recording of `perch run --log` instead
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["pids", "program", "events", "user", "kernel"], help_heading = "Whom")]
    pub from: Option<PathBuf>,
    /// How changes of phase are noticed where several sets are in rotation: a round that spans two phases is of no use
    #[arg(
        long,
        value_name = "METHOD",
        default_value = "bayes",
        help_heading = "Whom"
    )]
    pub phases: Phases,
    /// Print only rounds of which every set is from one phase
    #[arg(long, requires = "interval", help_heading = "Whom")]
    pub complete_rounds: bool,

    /// Print comma-separated values
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub csv: bool,
    /// Print JSON, one object a line
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Write to a file
    #[arg(long, short = 'o', value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub output: Option<PathBuf>,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}
