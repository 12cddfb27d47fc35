//! The command line of `perch run` and `perch attach`, and what `perch compare` shares with them.

use super::parse_period;
use clap::{Args as ClapArgs, ValueEnum, ValueHint};
use perch_core::PuSet;
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// Source of thread metrics.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    ValueEnum,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Counters {
    /// Hardware counters where they work, else sampling
    Auto,
    /// Hardware counters, or fail
    Pmu,
    /// Sampled and decoded instructions
    Sampling,
}

/// How threads are measured, when it is decided and where threads may go: what `run`, `attach` and `compare` share.
#[derive(Debug, Clone, Default, ClapArgs)]
pub struct TuningArgs {
    /// How often to decide, such as 1s or 250ms [default: the policy's own]
    #[arg(long, env = "PERCH_PERIOD", value_name = "TIME", allow_hyphen_values = true, value_parser = parse_period, help_heading = "Policy")]
    pub period: Option<Duration>,
    /// How often to look at the threads, if more often than to decide, such as 100ms [default: once a period]
    #[arg(long, env = "PERCH_INTERVAL", value_name = "TIME", allow_hyphen_values = true, value_parser = parse_period, help_heading = "Policy")]
    pub interval: Option<Duration>,
    /// The processor profile: a name or a file [default: detected]
    #[arg(
        long,
        env = "PERCH_PROFILE",
        value_name = "NAME|FILE",
        help_heading = "Policy"
    )]
    pub profile: Option<String>,
    /// Source of thread metrics [default: auto]
    #[arg(
        long,
        env = "PERCH_COUNTERS",
        value_name = "HOW",
        help_heading = "Policy"
    )]
    pub counters: Option<Counters>,
    /// Samples a second on each busy PU, where metrics come from sampling [default: up to 251, fewer once the threads'
    /// metrics are known; 99 of each thread without privileges]
    #[arg(long, env = "PERCH_SAMPLING_RATE", value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Policy")]
    pub sampling_rate: Option<u32>,
    /// Bind threads by hand (policy fixed): thread or program name pattern = PUs, such as 'solver*=core:0-3'; repeatable
    #[arg(long, value_name = "PATTERN=PUS", help_heading = "Policy")]
    pub pin: Vec<String>,
    /// Set CPU weights by hand (policy fixed): thread or program name pattern = weight, 1 to 10000, usual is 100, such as
    /// 'backup*=10'; repeatable
    #[arg(long, value_name = "PATTERN=WEIGHT", help_heading = "Policy")]
    pub weight: Vec<String>,
    /// Set the ways of caches that threads may fill (policy fixed): thread or program name pattern = level and mask, such as
    /// 'stream*=L3:0x3'; on simulated machines only; repeatable
    #[arg(long, value_name = "PATTERN=WAYS", help_heading = "Policy")]
    pub ways: Vec<String>,
    /// Read --pin rules from a file, one a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Policy")]
    pub pin_file: Option<PathBuf>,
    /// Set an option of the policy, such as clock=80%; `perch policies NAME` lists them; repeatable
    #[arg(long, value_name = "OPTION=VALUE", value_parser = parse_option, help_heading = "Policy")]
    pub set: Vec<(String, String)>,
    /// Read settings from this TOML file [default: ~/.config/perch/config.toml, if there]
    #[arg(long, env = "PERCH_CONFIG", value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Policy")]
    pub config: Option<PathBuf>,
    /// Also place threads that the user or another program has placed already
    #[arg(long, env = "PERCH_TAKE_OVER", value_parser = clap::builder::BoolishValueParser::new(), help_heading = "Scope")]
    pub take_over: bool,
    /// Use only these PUs, such as 0-7
    #[arg(long, env = "PERCH_PUS", value_name = "LIST", help_heading = "Scope")]
    pub pus: Option<PuSet>,
}

impl TuningArgs {
    /// Whether rules of the policy `fixed` are given.
    pub fn has_rules(&self) -> bool {
        let given = [&self.pin, &self.weight, &self.ways];
        given.iter().any(|rules| !rules.is_empty()) || self.pin_file.is_some()
    }
}

/// What `perch run` and `perch attach` share.
#[derive(Debug, Clone, Default, ClapArgs)]
pub struct PlaceArgs {
    /// The policy that decides (see `perch policies`) [default: symbiosis on a machine that `perch calibrate` has measured, else
    /// workover]
    #[arg(
        long,
        short = 'p',
        env = "PERCH_POLICY",
        value_name = "NAME",
        help_heading = "Policy"
    )]
    pub policy: Option<String>,
    /// How threads are measured, and where they may go.
    #[command(flatten)]
    pub tuning: TuningArgs,
    /// Decide and explain, but change nothing
    #[arg(long, short = 'n', help_heading = "Scope")]
    pub dry_run: bool,
    /// Decide for another machine, a what-if topology (needs --dry-run): a synthetic description such as 'package:1
    /// core:4 pu:2', or a file saved by `lstopo file.xml`
    #[arg(
        long,
        value_name = "DESCRIPTION|FILE",
        requires = "dry_run",
        help_heading = "Scope"
    )]
    pub topology: Option<String>,

    /// Print each move as it happens, with the numbers behind it
    #[arg(long, help_heading = "Output")]
    pub explain: bool,
    /// Show a table of the busiest threads every period; `perch top` shows more, on a screen of its own
    #[arg(long, short = 'l', help_heading = "Output")]
    pub live: bool,
    /// Print the report as JSON, on standard error too; together with --explain or --live it needs --output
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print no report
    #[arg(long, short = 'q', conflicts_with_all = ["json", "live", "explain", "output"], help_heading = "Output")]
    pub quiet: bool,
    /// Write the report to a file instead of standard error
    #[arg(long, short = 'o', value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Record every period as JSON lines, for `perch replay`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub log: Option<PathBuf>,
    /// Write which thread was on which PU when, its moves, CPU time and FP share, for https://ui.perfetto.dev; or draw it,
    /// if FILE ends in .svg
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub timeline: Option<PathBuf>,
}

/// `perch run`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  perch run -- ./app --threads 16
  perch run --live --explain -- python3 train.py
  perch run --dry-run --topology 'package:1 core:4 pu:2' -- ./app
  perch run --weight 'backup*=10' -- ./nightly
  perch run --pin 'fp-*=core:0-3.pu:0' --pin 'int-*=core:0-3.pu:1' -- ./app

The exit code is the program's; 128+N if signal N killed it; 127 if it was not
found, 126 if it cannot be executed, 125 if perch itself failed, a setting is
wrong, or the policy that you ask for cannot act as another perch holds the PUs
(the default policy then only observes); 2 for a command line that cannot be
read.")]
pub struct RunArgs {
    /// Options.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Write what this run did to a file, as JSON: for `perch compare`, which starts it
    #[arg(long, hide = true, value_name = "FILE")]
    pub account: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// `perch attach`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  perch attach $(pgrep -d' ' mysqld)              by name
  perch attach $(pgrep -d' ' -u alice)            by user
  perch attach --cgroup system.slice/mysql.service
                                                  by control group, also what
                                                  is started there later

Ends when the processes end, or on Ctrl-C; every affinity mask is restored.")]
pub struct AttachArgs {
    /// Options.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Processes, with all their threads and descendants
    #[arg(required_unless_present = "cgroup", value_name = "PID", value_parser = parse_pid)]
    pub pids: Vec<i32>,
    /// Place the processes of this control group and of the groups below it, such as system.slice/nginx.service, also
    /// those that come later
    #[arg(
        long,
        value_name = "GROUP",
        conflicts_with = "pids",
        help_heading = "Scope"
    )]
    pub cgroup: Option<String>,
}

/// An option of a policy with its value.
///
/// # Errors
/// A text without `=`, or without a name before it.
pub fn parse_option(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write the name of an option, `=` and its value, such as clock=80%".to_owned()),
    }
}

/// Reads a process's number.
///
/// # Errors
/// What is none.
pub fn parse_pid(text: &str) -> Result<i32, String> {
    let pid = text.trim().parse().ok().filter(|pid: &i32| *pid > 0);
    pid.ok_or_else(|| {
        "a PID is a positive number; for processes by name, write $(pgrep -d' ' NAME)".to_owned()
    })
}
