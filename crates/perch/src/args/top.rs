//! The command line of `perch top`.

use super::{Counters, SimArgs, named, parse_period, parse_pid};
use clap::{Args as ClapArgs, ValueHint};
use perch_sim::detail::Fidelity;
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// `perch top`.
#[derive(Debug, ClapArgs)]
#[command(
    disable_version_flag = true,
    after_help = "\
Examples:
  perch top                                 all threads of this machine
  perch top -p 4711                         a process and its descendants
  perch top -- ./app                        a program while it runs
  perch top --from run.jsonl                a recording of perch run --log
  perch top --sim smt2-zen -w fp-int-16 --policy workover
  perch top --host user@node                another machine, through ssh
  perch top --json -i 5s -n 12 > load.jsonl

`?` shows the keys, `q` quits. perch top changes nothing on the machine
(docs/top.md). With --json, it prints one snapshot a line instead.

A program that is started reads nothing, and what it prints on this terminal
goes to --output. Its exit code is perch's, if it ends first; quitting ends it
with SIGTERM."
)]
pub struct TopArgs {
    /// How often to look
    #[arg(long, short = 'i', value_name = "TIME", default_value = "1s", allow_hyphen_values = true, value_parser = parse_period, help_heading = "This machine, or another")]
    pub interval: Duration,
    /// Show running processes, with all their threads and descendants [default: all processes]
    #[arg(long = "pid", short = 'p', value_name = "PID,…", value_delimiter = ',', value_parser = parse_pid, conflicts_with = "program", help_heading = "This machine, or another")]
    pub pids: Vec<i32>,
    /// Source of thread metrics [default: auto for a program or processes; none for all processes, as it costs more]
    #[arg(
        long,
        env = "PERCH_COUNTERS",
        value_name = "HOW",
        help_heading = "This machine, or another"
    )]
    pub counters: Option<Counters>,
    /// The processor profile: a name or a file [default: detected]
    #[arg(
        long,
        env = "PERCH_PROFILE",
        value_name = "NAME|FILE",
        help_heading = "This machine, or another"
    )]
    pub profile: Option<String>,
    /// Write there what the program prints on this terminal [default: it is lost]
    #[arg(long, short = 'o', value_name = "FILE", value_hint = ValueHint::FilePath, requires = "program", help_heading = "This machine, or another")]
    pub output: Option<PathBuf>,
    /// Show this machine, on which perch is installed; ssh connects to it
    #[arg(long, value_name = "[USER@]HOST", value_hint = ValueHint::Hostname, conflicts_with_all = ["from", "sim", "program", "json"], help_heading = "This machine, or another")]
    pub host: Option<String>,
    /// The command there
    #[arg(
        long,
        value_name = "PATH",
        default_value = "perch",
        requires = "host",
        help_heading = "This machine, or another"
    )]
    pub remote_perch: String,

    /// Show a recording of `perch run --log`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["pids", "program", "sim"], help_heading = "Recording")]
    pub from: Option<PathBuf>,
    /// The recording is still being written: wait for more
    #[arg(long, requires = "from", help_heading = "Recording")]
    pub follow: bool,

    /// Simulate this machine: a shipped one's name, or a file (see `perch sim --list`)
    #[arg(long, value_name = "NAME|FILE", requires = "workload", conflicts_with_all = ["pids", "program"], help_heading = "Simulation")]
    pub sim: Option<String>,
    /// The workload: a shipped one's name, or a file
    #[arg(
        long,
        short,
        value_name = "NAME|FILE",
        requires = "sim",
        help_heading = "Simulation"
    )]
    pub workload: Option<String>,
    /// The policy; `default` is the operating system alone
    #[arg(
        long,
        value_name = "NAME",
        default_value = "default",
        requires = "sim",
        help_heading = "Simulation"
    )]
    pub policy: String,
    /// How long to simulate, in the operating system's time
    #[arg(long, short, value_name = "TIME", default_value = "60s", allow_hyphen_values = true, value_parser = parse_period, requires = "sim", help_heading = "Simulation")]
    pub time: Duration,
    /// Level of detail
    #[arg(long, value_name = "LEVEL", default_value = "interval", value_parser = named(&Fidelity::ALL), requires = "sim", help_heading = "Simulation")]
    pub fidelity: Fidelity,
    /// Random seed
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        requires = "sim",
        help_heading = "Simulation"
    )]
    pub seed: u64,

    /// Print snapshots as JSON, one a line, instead of drawing
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Stop after N snapshots
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..), requires = "json", help_heading = "Output")]
    pub samples: Option<u64>,
    /// Leave the mouse to the terminal
    #[arg(long, help_heading = "Output")]
    pub no_mouse: bool,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

impl TopArgs {
    /// What these say of a simulation, in the words of `perch sim`.
    pub fn sim(&self) -> SimArgs {
        SimArgs {
            machine: self.sim.clone(),
            workload: self.workload.clone(),
            scheduler: None,
            policy: Some(self.policy.clone()),
            time: self.time,
            fidelity: self.fidelity,
            seed: self.seed,
            list: false,
            compare: Vec::new(),
            search: 1,
            period: None,
            seeds: 1,
            config: None,
            pin: Vec::new(),
            weight: Vec::new(),
            ways: Vec::new(),
            pin_file: None,
            pins: None,
            explain: false,
            live: false,
            report: false,
            metrics: Vec::new(),
            log: None,
            timeline: None,
            placement: None,
            json: false,
        }
    }
}
