//! The command line of `perch stat`.

use super::{named, parse_period, parse_pid};
use clap::{Args as ClapArgs, ValueHint};
use perch_sim::detail::Fidelity;
use perch_stat::{By, phases::Method};
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// Arguments about real machines. clap does not ask for a required argument that conflicts with one of them, so what needs
/// `--sim` must conflict with them too.
const OF_MACHINES: [&str; 4] = ["pids", "program", "from", "cgroup"];

/// `perch stat`.
#[derive(Debug, ClapArgs)]
#[command(
    disable_version_flag = true,
    after_help = "\
Examples:
  perch stat -- ./mcf                           totals at the end
  perch stat -e instructions,llc-misses -i 100ms -- ./mcf
  perch stat -e instructions,cycles -e branches,branch-misses -i 1s -p 4711
  perch stat -e instructions:every=500M,cycles,llc-misses -- ./mcf
  perch stat -m 'ipc=instructions/cycles' --by process -- make -j8
  perch stat -e page-faults -V run_delay,context_switches -- ./app
  sudo perch stat -V energy_pkg -m 'epi[nJ]=energy_pkg*1e9/instructions' -- ./app
  sudo perch stat --by core -i 1s --for 10s     the whole machine
  perch stat --from run.jsonl -i 1s             a recording of perch run --log
  perch stat --sim smt2-zen -w mixed -i 1s      a simulated machine
  perch stat -i 100ms --plot mcf.svg -- ./mcf   and a picture of the series
  perch stat -i 100ms -o mcf.parquet -- ./mcf   rows for pandas, polars, …

Several -e make several event sets, which are counted one after the other. A
count marked `~` is scaled up, as it was counted for a part of the time; one
marked `>` is a lower bound (docs/stat.md).

A program that marks regions of its code with libperch shows them behind the
totals (docs/regions.md).

Rows and totals go to standard error if a program is started, as its own output
goes to standard output; else to standard output. The exit code is the
program's; 125 if perch itself failed, 126 and 127 if it cannot be started."
)]
pub struct StatArgs {
    /// Count these events at the same time: names of the kernel, of the processor profile, of libpfm4, or raw
    /// (cpu/event=0x2e,umask=0x41/, r412e, pmc0=0x2e,umask0=0x41); `perch events` lists them. EVENT:every=N prints a
    /// record each time that a thread has had N of it. Repeat it for several sets [default: the profile's, or software
    /// events where there are no hardware counters]
    #[arg(
        long = "event",
        short = 'e',
        value_name = "EVENT,…",
        help_heading = "Events"
    )]
    pub events: Vec<String>,
    /// Show this metric: NAME=FORMULA over events, NAME[UNIT]=FORMULA, or the name of one of the profile's; repeatable
    #[arg(
        long = "metric",
        short = 'm',
        value_name = "METRIC",
        help_heading = "Events"
    )]
    pub metrics: Vec<String>,
    /// Show these metrics of monitoring modules too: run_delay, context_switches, cpu_migrations (the kernel's
    /// accounting), fp_share, load_share, memory_intensity, … (sampled instructions), energy_pkg, llc_occupancy, …; or all
    /// of a module; `perch modules` lists them
    #[arg(
        long = "virtual",
        short = 'V',
        value_name = "NAME,…",
        value_delimiter = ',',
        help_heading = "Events"
    )]
    pub virtuals: Vec<String>,
    /// Use this program as a monitoring module, which speaks JSON lines (docs/modules.md); repeatable
    #[arg(
        long = "module",
        value_name = "PROGRAM",
        value_hint = ValueHint::ExecutablePath,
        conflicts_with = "from",
        help_heading = "Events"
    )]
    pub modules: Vec<PathBuf>,
    /// Count in user space only
    #[arg(long, short = 'u', conflicts_with = "kernel", help_heading = "Events")]
    pub user: bool,
    /// Count in the kernel only
    #[arg(long, short = 'k', help_heading = "Events")]
    pub kernel: bool,
    /// The processor profile: a name or a file [default: detected]
    #[arg(
        long,
        env = "PERCH_PROFILE",
        value_name = "NAME|FILE",
        help_heading = "Events"
    )]
    pub profile: Option<String>,

    /// Print a row for each interval, such as 100ms [default: totals only]
    #[arg(long, short = 'i', value_name = "TIME", allow_hyphen_values = true, value_parser = parse_period, help_heading = "Sampling")]
    pub interval: Option<Duration>,
    /// Stop after N intervals, or N records of `:every=`, and end a program that perch started with SIGTERM
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Sampling")]
    pub samples: Option<u64>,
    /// Stop after this time, and end a program that perch started with SIGTERM
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true, value_parser = parse_period, help_heading = "Sampling")]
    pub duration: Option<Duration>,
    /// Run the program N times, and print the mean and the spread of its totals
    #[arg(long, short = 'r', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000), conflicts_with_all = ["pids", "from"], help_heading = "Sampling")]
    pub repeat: u32,

    /// What rows and totals are about [default: thread; machine where nothing is started or attached to]
    #[arg(long, value_name = "WHAT", value_parser = named(&By::ALL), help_heading = "Scope")]
    pub by: Option<By>,
    /// Count the whole machine, whatever runs there: --by machine
    #[arg(long, short = 'a', conflicts_with = "by", help_heading = "Scope")]
    pub all: bool,
    /// The same with a row for each core: --by core
    #[arg(long, conflicts_with_all = ["by", "per_socket", "per_node"], help_heading = "Scope")]
    pub per_core: bool,
    /// The same with a row for each package: --by package
    #[arg(long, conflicts_with_all = ["by", "per_node"], help_heading = "Scope")]
    pub per_socket: bool,
    /// The same with a row for each NUMA node: --by node
    #[arg(long, conflicts_with = "by", help_heading = "Scope")]
    pub per_node: bool,
    /// Count running processes, with all their threads and descendants
    #[arg(long = "pid", short = 'p', value_name = "PID,…", value_delimiter = ',', value_parser = parse_pid, conflicts_with = "program", help_heading = "Scope")]
    pub pids: Vec<i32>,
    /// Count the processes of this control group and of the groups below it, such as system.slice/nginx.service, also
    /// those that come later
    #[arg(long, value_name = "GROUP", conflicts_with_all = ["program", "pids", "from", "repeat"], help_heading = "Scope")]
    pub cgroup: Option<String>,
    /// Read a recording of `perch run --log` instead, or a Parquet file of perch stat
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["pids", "program", "events", "user", "kernel"], help_heading = "Scope")]
    pub from: Option<PathBuf>,
    /// Count on this simulated machine instead, with the workload of --workload: a shipped one's name, or a file (perch
    /// sim --list); until --for, or for 10s
    #[arg(long, value_name = "NAME|FILE", requires = "workload", conflicts_with_all = ["pids", "program", "from", "cgroup", "repeat", "user", "kernel", "profile"], help_heading = "Simulation")]
    pub sim: Option<String>,
    /// The workload of --sim: a shipped one's name, or a file
    #[arg(
        long,
        short,
        value_name = "NAME|FILE",
        requires = "sim",
        conflicts_with_all = OF_MACHINES,
        help_heading = "Simulation"
    )]
    pub workload: Option<String>,
    /// Level of detail of --sim
    #[arg(long, value_name = "LEVEL", default_value = "cycle", value_parser = named(&Fidelity::ALL), requires = "sim", conflicts_with_all = OF_MACHINES, help_heading = "Simulation")]
    pub fidelity: Fidelity,
    /// Random seed of --sim
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        requires = "sim",
        conflicts_with_all = OF_MACHINES,
        help_heading = "Simulation"
    )]
    pub seed: u64,
    /// How to detect changes of phase where several sets are in rotation: a running average, or Bayesian change-point
    /// detection [default: bayes]
    #[arg(long, value_name = "METHOD", value_parser = named(&Method::ALL), help_heading = "Sampling")]
    pub phases: Option<Method>,
    /// Print only rounds in which no change of phase was detected
    #[arg(long, requires = "interval", help_heading = "Sampling")]
    pub complete_rounds: bool,

    /// Print comma-separated values
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    pub csv: bool,
    /// Print JSON, one object a line
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Write to a file: as Parquet if its name ends in .parquet
    #[arg(long, short = 'o', value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub output: Option<PathBuf>,

    /// Draw the series: a picture if FILE ends in .svg, a page with it if it ends in .html (docs/stat.md#pictures)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "repeat", help_heading = "Output")]
    pub plot: Option<PathBuf>,
    /// Write the series as counters of a trace for Perfetto (docs/timeline.md)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "repeat", help_heading = "Output")]
    pub timeline: Option<PathBuf>,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

impl StatArgs {
    /// What rows and totals are about, if a flag gives it: --by, or one of perf-stat(1)'s flags.
    pub fn by(&self) -> Option<By> {
        let flags = [
            (self.per_core, By::Core),
            (self.per_socket, By::Package),
            (self.per_node, By::Node),
            (self.all, By::Machine),
        ];
        let flag = flags.into_iter().find(|(given, _)| *given);
        self.by.or(flag.map(|(_, by)| by))
    }
}
