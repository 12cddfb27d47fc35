//! The command line.

mod calibrate;
mod simulation;
mod trace;

pub use calibrate::{CalibrateArgs, KernelArgs};
pub use simulation::{LabArgs, LabCommand, SimArgs};
pub use trace::{RecordTraceArgs, TraceArgs, TraceFormat, parse_count};

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum, ValueHint};
use perch_core::PuSet;
use std::{ffi::OsString, path::PathBuf, time::Duration};

const EXAMPLES: &str = "\
Examples:
  perch run -- ./app --threads 16       place app's threads, then report
  perch run --explain -- make -j8       say each move and the numbers behind it
  perch run --policy observe -- ./app   only watch
  perch attach 4711                     the same for what runs already
  perch compare -- ./app                with and without perch, alternately
  perch topology                        what this machine is made of

perch changes affinity masks only, of threads that it was given, and puts every
one back: when it ends, when it is interrupted, and after `kill -9` by
`perch restore`.";

/// Places threads so that they disturb each other least.
#[derive(Debug, Parser)]
#[command(name = "perch", version, about, after_help = EXAMPLES, max_term_width = 80, propagate_version = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What perch can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a program and place its threads while it runs
    Run(RunArgs),
    /// Place the threads of processes that run already
    Attach(AttachArgs),
    /// Run a program with and without perch, alternately, and compare the times
    Compare(CompareArgs),
    /// Measure what sharing costs on this machine, or on a simulated one
    Calibrate(CalibrateArgs),
    /// Run kernels of perch calibrate on a PU, one after the other
    #[command(hide = true)]
    Kernel(KernelArgs),
    /// Draw what the machine is made of and what is on it
    Topology(TopologyArgs),
    /// List, show and check processor profiles
    Profiles(ProfilesArgs),
    /// List the policies and what each needs
    #[command(after_help = "Examples:\n  perch policies\n  perch policies --json")]
    Policies(JsonArgs),
    /// Run a policy over a recording made with --log
    Replay(ReplayArgs),
    /// Run policies on a simulated machine
    Sim(SimArgs),
    /// Run the papers' experiments on simulated machines
    Lab(LabArgs),
    /// Record what a program executes, for the simulated machine or ChampSim
    RecordTrace(RecordTraceArgs),
    /// Look at such a recording, or write it in another format
    Trace(TraceArgs),
    /// Show which devices interrupt which PUs, and balance them
    Irq(IrqArgs),
    /// Restore the thread masks that a killed perch left behind
    #[command(
        after_help = "Examples:\n  perch restore\n  sudo perch restore     what any user's perch has left\n  \
                      perch restore /tmp/perch-1000/812-4711-0a1b2c3d-0.journal"
    )]
    Restore(RestoreArgs),
    /// Print the configuration in force, its defaults or its schema
    Config(ConfigArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  perch completions bash > ~/.local/share/bash-completion/completions/perch"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    #[command(
        after_help = "Examples:\n  perch man | man -l -\n  perch man ~/.local/share/man/man1"
    )]
    Man {
        /// The folder to write them to; without it the main page goes to standard output
        #[arg(value_hint = ValueHint::DirPath)]
        directory: Option<PathBuf>,
    },
}

/// How threads are known.
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

/// What all commands that place threads share.
#[derive(Debug, Clone, Default, ClapArgs)]
pub struct PlaceArgs {
    /// The policy that decides (see `perch policies`) [default: symbiosis on a machine that `perch calibrate` has measured, else
    /// workover]
    #[arg(
        long,
        short = 'p',
        env = "PERCH_POLICY",
        value_name = "NAME",
        help_heading = "Deciding"
    )]
    pub policy: Option<String>,
    /// How often to look and decide, such as 1s or 250ms [default: the policy's own]
    #[arg(long, env = "PERCH_PERIOD", value_name = "TIME", allow_hyphen_values = true, value_parser = parse_period, help_heading = "Deciding")]
    pub period: Option<Duration>,
    /// The processor profile: a name or a file [default: detected]
    #[arg(
        long,
        env = "PERCH_PROFILE",
        value_name = "NAME|FILE",
        help_heading = "Deciding"
    )]
    pub profile: Option<String>,
    /// How threads are known [default: auto]
    #[arg(
        long,
        env = "PERCH_COUNTERS",
        value_name = "HOW",
        help_heading = "Deciding"
    )]
    pub counters: Option<Counters>,
    /// Samples a second on each busy PU, where threads are known by sampling [default: up to 251 and fewer once the
    /// threads are known; 99 of each thread without privileges]
    #[arg(long, env = "PERCH_SAMPLING_RATE", value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Deciding")]
    pub sampling_rate: Option<u32>,
    /// Bind threads by hand (policy fixed): thread or program name pattern = PUs, such as 'solver*=core:0-3'; repeatable
    #[arg(long, value_name = "PATTERN=PUS", help_heading = "Deciding")]
    pub pin: Vec<String>,
    /// Read --pin rules from a file, one a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Deciding")]
    pub pin_file: Option<PathBuf>,
    /// Read settings from this TOML file [default: ~/.config/perch/config.toml, if there]
    #[arg(long, env = "PERCH_CONFIG", value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Deciding")]
    pub config: Option<PathBuf>,

    /// Decide and explain, but change nothing
    #[arg(long, short = 'n', help_heading = "Acting")]
    pub dry_run: bool,
    /// Decide for another machine, a what-if topology (needs --dry-run): a synthetic description such as 'package:1
    /// core:4 pu:2', or a file saved by `lstopo file.xml`
    #[arg(
        long,
        value_name = "DESCRIPTION|FILE",
        requires = "dry_run",
        help_heading = "Acting"
    )]
    pub topology: Option<String>,
    /// Place threads even if the user or another program has placed them already
    #[arg(long, env = "PERCH_TAKE_OVER", value_parser = clap::builder::BoolishValueParser::new(), help_heading = "Acting")]
    pub take_over: bool,
    /// Use only these PUs, such as 0-7
    #[arg(long, env = "PERCH_PUS", value_name = "LIST", help_heading = "Acting")]
    pub pus: Option<PuSet>,

    /// Print each move as it happens, with the numbers behind it
    #[arg(long, help_heading = "Telling")]
    pub explain: bool,
    /// Show a table of the busiest threads every period
    #[arg(long, short = 'l', help_heading = "Telling")]
    pub live: bool,
    /// Print the report as JSON, on standard error too; together with --explain or --live it needs --output
    #[arg(long, help_heading = "Telling")]
    pub json: bool,
    /// Print no report
    #[arg(long, short = 'q', conflicts_with_all = ["json", "live", "explain"], help_heading = "Telling")]
    pub quiet: bool,
    /// Write the report to a file instead of standard error
    #[arg(long, short = 'o', value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Telling")]
    pub output: Option<PathBuf>,
    /// Record every period as JSON lines, for `perch replay`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Telling")]
    pub log: Option<PathBuf>,
}

/// `perch run`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  perch run -- ./app --threads 16
  perch run --live --explain -- python3 train.py
  perch run --dry-run --topology 'package:1 core:4 pu:2' -- ./app
  perch run --pin 'fp-*=core:0-3.pu:0' --pin 'int-*=core:0-3.pu:1' -- ./app

The exit code is the program's; 128+N if signal N killed it; 127 if it was not
found, 126 if it cannot be executed, 125 if perch itself failed or a setting is
wrong, 2 for a command line that cannot be read.")]
pub struct RunArgs {
    /// Options.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// `perch attach`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Example:
  perch attach $(pgrep -d' ' mysqld)

Ends when the processes end, or on Ctrl-C; every mask is put back.")]
pub struct AttachArgs {
    /// Options.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Processes, with all their threads and descendants
    #[arg(required = true, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pids: Vec<i32>,
}

/// `perch compare`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Example:
  perch compare -N 10 -- ./app --threads 16

Runs without, with, with, without, … so that drift of the machine hits both alike.")]
pub struct CompareArgs {
    /// Options.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// How many runs of each
    #[arg(long, short = 'N', value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Runs of the program that are not measured, before the first
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub warm_up: u32,
    /// Let the program's output through
    #[arg(long)]
    pub show_output: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// `perch topology`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  perch topology
  perch topology --topology 'package:2 l3:1 core:4 pu:2'
  perch topology --topology saved.xml --json")]
pub struct TopologyArgs {
    /// Another machine: a synthetic description, or a file saved by `lstopo file.xml`
    #[arg(long, value_name = "DESCRIPTION|FILE")]
    pub topology: Option<String>,
    /// The processor profile: a name or a file [default: detected]
    #[arg(long, env = "PERCH_PROFILE", value_name = "NAME|FILE")]
    pub profile: Option<String>,
    /// Do not look at what runs on the PUs (saves 200 ms)
    #[arg(long)]
    pub no_load: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `perch profiles`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  perch profiles                 all, and the one that this machine gets
  perch profiles show zen4
  perch profiles check my.toml")]
pub struct ProfilesArgs {
    /// What to do; without it, list.
    #[command(subcommand)]
    pub command: Option<ProfilesCommand>,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// What can be done with profiles.
#[derive(Debug, Subcommand)]
pub enum ProfilesCommand {
    /// List all profiles, and say which one this machine gets and why
    List,
    /// Print a profile's file; with --json the same as JSON
    Show {
        /// The profile's name
        name: String,
    },
    /// Check a profile file: syntax, names, formulas, and whether its events exist here
    Check {
        /// The file
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

/// `perch replay`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Example:
  perch run --policy observe --log run.jsonl -- ./app
  perch replay run.jsonl --policy workover --explain

Replay is open loop: the recorded machine does not react to what the policy decides.")]
pub struct ReplayArgs {
    /// The recording
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The policy that decides [default: the recorded one]
    #[arg(long, short = 'p', env = "PERCH_POLICY", value_name = "NAME")]
    pub policy: Option<String>,
    /// Decide for another machine: a synthetic description, or a file saved by `lstopo file.xml`
    #[arg(long, value_name = "DESCRIPTION|FILE")]
    pub topology: Option<String>,
    /// The processor profile: a name or a file [default: the recorded one]
    #[arg(long, env = "PERCH_PROFILE", value_name = "NAME|FILE")]
    pub profile: Option<String>,
    /// Bind threads by hand (policy fixed); repeatable
    #[arg(long, value_name = "PATTERN=PUS")]
    pub pin: Vec<String>,
    /// Read --pin rules from a file, one a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pin_file: Option<PathBuf>,
    /// Read settings from this TOML file
    #[arg(long, env = "PERCH_CONFIG", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Record the replay, as a dry run of the policy: two of them can be compared line by line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Print each move with the numbers behind it
    #[arg(long)]
    pub explain: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// `perch config`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  perch config                   what is in force, and from where
  perch config --defaults > ~/.config/perch/config.toml
  perch config --schema")]
pub struct ConfigArgs {
    /// Print every setting with its default, as a commented file
    #[arg(long, conflicts_with = "schema")]
    pub defaults: bool,
    /// Print the JSON schema of the file
    #[arg(long)]
    pub schema: bool,
    /// Read settings from this TOML file
    #[arg(long, env = "PERCH_CONFIG", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
}

/// `perch irq`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  perch irq                      what comes where, and what would be better
  perch irq --all --interval 5s
  sudo perch irq --apply --for 10m

With --apply, interrupts are balanced again in every interval. Their masks are
restored at the end, on Ctrl-C, and by `perch restore` after `kill -9`.
Interrupts that drivers manage, per-PU interrupts, and interrupts that are
already bound to one PU are left alone.")]
pub struct IrqArgs {
    /// How long to watch, and with --apply how often to balance
    #[arg(long, value_name = "TIME", default_value = "1s", allow_hyphen_values = true, value_parser = parse_period)]
    pub interval: Duration,
    /// Move interrupts, until --for is over or Ctrl-C; needs root
    #[arg(long)]
    pub apply: bool,
    /// Hold them for this long [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", requires = "apply", allow_hyphen_values = true, value_parser = parse_period)]
    pub duration: Option<Duration>,
    /// Also move interrupts that the administrator or their driver has bound to some PUs, and beyond these PUs
    #[arg(long)]
    pub take_over: bool,
    /// Also show idle interrupts and PUs, and per-PU interrupts
    #[arg(long)]
    pub all: bool,
    /// Print JSON, one object an interval
    #[arg(long)]
    pub json: bool,
}

/// Only `--json`.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub struct JsonArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `perch restore`.
#[derive(Debug, Clone, clap::Args)]
pub struct RestoreArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Restore from these journals, whichever user owns them [default: your own; as root every user's]
    #[arg(value_name = "JOURNAL")]
    pub journals: Vec<PathBuf>,
}

/// The shortest period that makes sense: below it perch would cost more than it gives.
pub const SHORTEST_PERIOD: Duration = Duration::from_millis(10);

/// Reads `1s`, `250ms`, `1m 30s`, or a plain number of seconds.
///
/// # Errors
/// A text that is no duration, or one that is too short.
pub fn parse_period(text: &str) -> Result<Duration, String> {
    if text.trim_start().starts_with('-') {
        return Err("a time cannot be negative; write one such as 1s, 250ms or 1m".to_owned());
    }
    let plain = text
        .trim()
        .parse::<f64>()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let period = match plain {
        Some(period) => period,
        None => humantime::parse_duration(text)
            .map_err(|error| format!("{error}; write a time such as 1s, 250ms or 1m"))?,
    };
    if period < SHORTEST_PERIOD {
        return Err(format!(
            "shorter than {}",
            humantime::format_duration(SHORTEST_PERIOD)
        ));
    }
    Ok(period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_help_teaches_with_an_example_and_fits() {
        let mut perch = Args::command();
        perch.build();
        let lab = perch.find_subcommand("lab").unwrap().clone();
        let commands = perch.get_subcommands().chain(lab.get_subcommands());
        for command in commands.filter(|command| command.get_name() != "help") {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Example"), "{help}");
            for line in help.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
    }

    #[test]
    fn periods() {
        assert_eq!(parse_period("1s").unwrap(), Duration::from_secs(1));
        assert_eq!(parse_period("0.5").unwrap(), Duration::from_millis(500));
        assert_eq!(parse_period("250ms").unwrap(), Duration::from_millis(250));
        for wrong in ["", "0", "-1", "1ns", "soon", "nan", "inf", "1e300"] {
            assert!(parse_period(wrong).is_err(), "{wrong}");
        }
        // Taken for a value, not for a flag that is not there.
        for line in [
            ["sim", "-t", "-5s"],
            ["irq", "--interval", "-1"],
            ["run", "--period", "-250ms"],
        ] {
            let error = Args::command().try_get_matches_from([&["perch"], &line[..]].concat());
            let error = error.unwrap_err().to_string();
            assert!(error.contains("cannot be negative"), "{error}");
        }
    }
}
