//! The command line.

mod calibrate;
mod compare;
pub mod environment;
mod events;
pub mod files;
mod modules;
mod noise;
mod period;
mod place;
mod power;
mod report;
mod simulation;
mod stat;
mod top;
mod trace;

pub use calibrate::{CalibrateArgs, KernelArgs};
pub use compare::{CompareArgs, Format};
pub use events::EventsArgs;
pub use modules::ModulesArgs;
pub use noise::{NoiseArgs, NoiseMethod, NoiseTracer};
pub use period::{SHORTEST_PERIOD, parse_period, split_time};
pub use place::{AttachArgs, Counters, PlaceArgs, RunArgs, TuningArgs, parse_pid};
pub use power::PowerArgs;
pub use report::ReportArgs;
pub use simulation::{LabArgs, LabCommand, SimArgs};
pub use stat::StatArgs;
pub use top::TopArgs;
pub use trace::{RecordTraceArgs, TraceArgs, TraceFormat, parse_count};

use clap::{
    Args as ClapArgs, CommandFactory, Parser, Subcommand, ValueHint,
    builder::TypedValueParser,
    error::{ContextKind, ContextValue},
};
use perch_core::diagnostic::nearest;
use std::{ffi::OsString, path::PathBuf, time::Duration};

const EXAMPLES: &str = "\
Examples:
  perch run -- ./app --threads 16       place app's threads, then report
  perch run --explain -- make -j8       print each move and the numbers behind it
  perch run --policy observe -- ./app   only watch
  perch attach 4711                     the same for running processes
  perch stat -i 1s -- ./app             count events of each thread
  perch top                             what runs where, live
  perch compare -- ./app                with and without perch, alternately
  perch topology                        packages, caches, cores and their load

By default, perch changes only the affinity masks of the threads that it was
given. Whatever it changes, it restores: when it ends, when it is interrupted,
and after `kill -9` by `perch restore`.";

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
    /// Place the threads of running processes
    Attach(AttachArgs),
    /// Count what threads do: hardware and software events, metrics, over time
    Stat(StatArgs),
    /// List, search, explain and translate the events that can be counted
    Events(EventsArgs),
    /// List, explain and check monitoring modules: energy, cache occupancy, …
    Modules(ModulesArgs),
    /// Show threads and the load of shared units, live: this machine, another one, a recording, a simulation
    Top(TopArgs),
    /// Measure energy and power while a program runs
    Power(PowerArgs),
    /// Run a program with and without perch, alternately, and test the difference
    Compare(CompareArgs),
    /// Measure what sharing costs on this machine, or on a simulated one
    Calibrate(CalibrateArgs),
    /// Run kernels of perch calibrate on a PU, one after the other
    #[command(hide = true)]
    Kernel(KernelArgs),
    /// Show the topology and load
    Topology(TopologyArgs),
    /// List, show and check processor profiles
    Profiles(ProfilesArgs),
    /// List the policies and what each needs
    #[command(after_help = "Examples:\n  perch policies\n  perch policies --json")]
    Policies(PoliciesArgs),
    /// Run a policy over a recording made with --log
    Replay(ReplayArgs),
    /// Make a page for a browser from a recording made with --log
    Report(ReportArgs),
    /// Run policies on a simulated machine
    Sim(SimArgs),
    /// Run the papers' experiments on simulated machines
    Lab(LabArgs),
    /// Record an instruction trace, for the simulated machine or ChampSim
    RecordTrace(RecordTraceArgs),
    /// Inspect or convert an instruction trace
    Trace(TraceArgs),
    /// Show which devices interrupt which PUs, and balance them
    Irq(IrqArgs),
    /// Measure what the operating system takes from each PU, and who takes it
    Noise(NoiseArgs),
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

/// `perch topology`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
Examples:
  perch topology
  perch topology --topology 'package:2 l3:1 core:4 pu:2'
  perch topology --topology saved.xml --json
  perch topology --svg machine.svg")]
pub struct TopologyArgs {
    /// Another machine: a synthetic description, or a file saved by `lstopo file.xml`
    #[arg(long, value_name = "DESCRIPTION|FILE")]
    pub topology: Option<String>,
    /// The processor profile: a name or a file [default: detected]
    #[arg(long, env = "PERCH_PROFILE", value_name = "NAME|FILE")]
    pub profile: Option<String>,
    /// Do not sample the load of the PUs (saves 200 ms)
    #[arg(long)]
    pub no_load: bool,
    /// Draw the machine and the execution units that its PUs share as a picture (SVG) [without FILE: standard output]
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", value_hint = ValueHint::FilePath, conflicts_with = "json")]
    pub svg: Option<PathBuf>,
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
    /// Set CPU weights by hand (policy fixed); repeatable
    #[arg(long, value_name = "PATTERN=WEIGHT")]
    pub weight: Vec<String>,
    /// Set ways of caches by hand (policy fixed); repeatable
    #[arg(long, value_name = "PATTERN=WAYS")]
    pub ways: Vec<String>,
    /// Read --pin rules from a file, one a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pin_file: Option<PathBuf>,
    /// Read settings from this TOML file
    #[arg(long, env = "PERCH_CONFIG", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Record the replay, as a dry run of the policy: two of them can be compared line by line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Write which thread was on which PU when, its moves, CPU time and FP share, for https://ui.perfetto.dev; or draw it,
    /// if FILE ends in .svg
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub timeline: Option<PathBuf>,
    /// Print each move with the numbers behind it
    #[arg(long)]
    pub explain: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Print no report: with --log, --timeline or --explain
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
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
    /// Keep the new affinity for this long [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", requires = "apply", allow_hyphen_values = true, value_parser = parse_period)]
    pub duration: Option<Duration>,
    /// Also move interrupts that the administrator or their driver has bound to some PUs, and beyond these PUs
    #[arg(long)]
    pub take_over: bool,
    /// Record what was seen and decided, for perch replay
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Also show idle interrupts and PUs, and per-PU interrupts
    #[arg(long)]
    pub all: bool,
    /// Print JSON, one object an interval
    #[arg(long)]
    pub json: bool,
}

/// Values by the names that the command line has for them.
fn named<T: Copy + Send + Sync + 'static>(
    all: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let names = all.iter().map(|(name, _)| *name);
    clap::builder::PossibleValuesParser::new(names).try_map(|wanted| {
        let known = all.iter().find(|(name, _)| *name == wanted);
        known.map(|(_, value)| *value).ok_or("no such value")
    })
}

/// An error with perch's own suggestion for a command that does not exist: clap's takes what is hardly alike, and knows
/// no synonyms.
pub fn hinted(error: clap::Error, given: &[OsString]) -> clap::Error {
    let mut error = environment::instead_of_flag(error, &Args::command(), given);
    // For `--rate -5`, clap suggests `-- -5`, which would run a program of that name.
    if let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg)
        && wrong
            .strip_prefix('-')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    {
        error.remove(ContextKind::Suggested);
    }
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    // The commands of `lab` have clap's.
    if given.get(1).and_then(|first| first.to_str()) != Some(wrong) {
        return error;
    }
    let commands = Args::command();
    let commands = commands.get_subcommands();
    let names = commands
        .filter(|command| !command.is_hide_set())
        .map(clap::Command::get_name);
    let suggested = nearest(wrong, names).map(|name| vec![name.to_owned()]);
    error.remove(ContextKind::SuggestedSubcommand);
    if let Some(name) = suggested {
        let name = ContextValue::Strings(name);
        error.insert(ContextKind::SuggestedSubcommand, name);
    }
    error
}

/// `perch policies`.
#[derive(Debug, Clone, ClapArgs)]
#[command(
    after_help = "Examples:\n  perch policies\n  perch policies workover\n  perch policies workover --json"
)]
pub struct PoliciesArgs {
    /// Show this policy with its options
    #[arg(value_name = "NAME")]
    pub policy: Option<String>,
    /// Print JSON
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn only_a_command_that_is_alike_is_suggested() {
        let message = |wrong: &str| {
            let given: Vec<OsString> = ["perch", wrong].map(OsString::from).into();
            let error = Args::try_parse_from(&given).unwrap_err();
            hinted(error, &given).to_string()
        };
        assert!(!message("frobnicate").contains("similar"));
        let near = message("atach");
        assert!(near.contains("'attach'"), "{near}");
        let hidden = message("kernl");
        assert!(!hidden.contains("'kernel'"), "{hidden}");
    }

    #[test]
    fn what_is_for_a_simulation_needs_one() {
        for flag in [["-w", "mixed"], ["--seed", "9"], ["--fidelity", "interval"]] {
            for line in [&["stat"][..], &["stat", "-p", "1"]] {
                let words = [&["perch"], line, &flag].concat();
                assert!(
                    Args::command().try_get_matches_from(words).is_err(),
                    "{flag:?}"
                );
            }
            let words = [&["perch", "stat"], &flag[..], &["--", "true"]].concat();
            assert!(
                Args::command().try_get_matches_from(words).is_err(),
                "{flag:?}"
            );
        }
    }

    #[test]
    fn a_negative_time_is_a_value_and_no_flag() {
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
