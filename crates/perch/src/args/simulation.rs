//! The command line of `perch sim` and `perch lab`.

use super::{PlaceArgs, TuningArgs, named, parse_period};
use clap::{Args as ClapArgs, Subcommand, ValueHint};
use perch_lab::{
    fidelity::ThreadCount,
    scene::{BEST, DEFAULT, WORST},
};
use perch_sim::{detail::Fidelity, model::SchedulerKind};
use std::{path::PathBuf, time::Duration};

/// What `perch sim` takes.
#[derive(Debug, Clone, ClapArgs)]
#[command(after_help = "\
Examples:
  perch sim --list
  perch sim -m cmt-4x4 -w cmt-table1 -p cpi --explain
  perch sim -m cmt-4x4 -w cmt-table1 --compare default,cpi,sos,best,worst
  perch sim -m smt2-zen -w mixed --compare default,cpi --seeds 5
  perch sim -m smt2-zen -w fp-int-16 -p best --pins best.pins
  perch sim -m smt2-zen -w fp-int-16 -p fixed --pin-file best.pins
  perch sim -m my-machine.toml -w my-load.toml -p workover --timeline trace.json
  perch sim -m smt2-zen -w fp-int-16 --compare default,workover --timeline a.svg

A name that has a slash or ends in .toml is a file. Open the timeline in
https://ui.perfetto.dev.

The table:
  throughput  instructions of all threads / cycle of the (first kind of) cores
  spread      of throughput over the seeds: (greatest - least) / mean
  ratio       throughput / that of the first policy
  slowdown    the mean of the threads' slowdowns (ANTT): 1 is as fast as alone,
              2 takes twice as long
  STP         the sum of 1 / slowdown of the threads (weighted speedup), each
              for the part of the time in which it lives: how many threads in
              isolation would do as much
  unfair      largest slowdown of a thread / smallest: 1 is fair
  moves       of threads from one PU to another
  time        simulated time, of the operating system
  in          how long that took on this host
  bound       throughput that no placement can exceed

Slowdown: how fast a thread is in isolation, on the kind of cores that suits it
best, / how fast it is here; in instructions per second of its life. A
thread that waits for others of its program is compared with its program in
isolation. For that, each kind of thread is simulated until its speed is steady,
at most as long as the workload. A slowdown may be a little below 1: threads
find code in shared caches that others have brought in.

Threads start in random order, by the seed. Results do not depend on the number
of processors of the host.")]
pub struct SimArgs {
    /// The machine: a shipped one's name, or a file
    #[arg(long, short, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// The workload: a shipped one's name, or a file
    #[arg(long, short, value_name = "NAME|FILE")]
    pub workload: Option<String>,
    /// The operating system's scheduler: that of Linux up to 6.5 (cfs), since 6.6 (eevdf), of 2.6.11 or of 2.4 [default:
    /// the machine's]
    #[arg(long, value_name = "NAME", value_parser = named(&SchedulerKind::ALL))]
    pub scheduler: Option<SchedulerKind>,
    /// List the shipped machines and workloads
    #[arg(long)]
    pub list: bool,
    /// The policy; `default` is the operating system alone, `best` and `worst` are placements by search [default: default]
    #[arg(long, short = 'p', value_name = "NAME", conflicts_with = "compare")]
    pub policy: Option<String>,
    /// Simulate with each of these policies and compare them; the first is the baseline. `best` and `worst` are the
    /// placements of the greatest and the least throughput, by search
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub compare: Vec<String>,
    /// How many placements `best` and `worst` choose from: all that differ if they are no more than N, else N drawn at
    /// random
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub search: usize,
    /// How long to simulate the workload, from its start, in the operating system's time; it stops earlier if every
    /// program has ended once. A machine of scale 1000 simulates a second of it in a millisecond of its own clocks
    #[arg(long, short, value_name = "TIME", default_value = "10s", allow_hyphen_values = true, value_parser = parse_period)]
    pub time: Duration,
    /// Level of detail: every instruction and access, or constant speeds between events of the operating system, which
    /// is far faster, accurate with warm caches and rough while they fill (docs/fidelity.md)
    #[arg(long, value_name = "LEVEL", default_value = "cycle", value_parser = named(&Fidelity::ALL))]
    pub fidelity: Fidelity,
    /// How often the policy decides, such as 1s or 250ms [default: the policy's own]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_period)]
    pub period: Option<Duration>,
    /// Random seed: the order in which threads start, their instructions, …
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Repeat with N seeds, from --seed up, and print the median and the spread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000), conflicts_with_all = ["log", "timeline", "placement"])]
    pub seeds: u32,
    /// Read the policies' options from this TOML file
    #[arg(long, env = "PERCH_CONFIG", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Rules of the policy fixed, wherever it is named; repeatable
    #[arg(long, value_name = "PATTERN=PUS")]
    pub pin: Vec<String>,
    /// CPU weights of the policy fixed: thread or program name pattern = weight, 1 to 10000, usual is 100; repeatable
    #[arg(long, value_name = "PATTERN=WEIGHT")]
    pub weight: Vec<String>,
    /// Ways of caches that threads may fill, by the policy fixed: thread or program name pattern = level and mask, such as
    /// 'stream*=L3:0x3'; repeatable
    #[arg(long, value_name = "PATTERN=WAYS")]
    pub ways: Vec<String>,
    /// Read --pin rules from a file, one a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pin_file: Option<PathBuf>,
    /// Write the placement that `best` (or `worst`) found as rules, for --pin-file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pins: Option<PathBuf>,
    /// Print each move with the numbers behind it
    #[arg(long)]
    pub explain: bool,
    /// Show the table of threads while it runs
    #[arg(long)]
    pub live: bool,
    /// Print the report that `perch run` prints, too
    #[arg(long)]
    pub report: bool,
    /// Count these too, which costs time, and record them with --log: llc_occupancy
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = ["llc_occupancy"])]
    pub metrics: Vec<String>,
    /// Record every period, for `perch replay`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "compare")]
    pub log: Option<PathBuf>,
    /// Write which thread was on which PU when, under each policy, for Perfetto; or draw it, if FILE ends in .svg
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub timeline: Option<PathBuf>,
    /// Draw which thread is on which PU in the end, under each policy, as a picture (SVG)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub placement: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl SimArgs {
    /// Whether rules of the policy `fixed` are given.
    pub fn has_rules(&self) -> bool {
        let given = [&self.pin, &self.weight, &self.ways];
        given.iter().any(|rules| !rules.is_empty()) || self.pin_file.is_some()
    }

    /// What these say in the words of `perch run`, with a policy.
    pub fn place(&self, policy: &str) -> PlaceArgs {
        let policy = match policy {
            DEFAULT | BEST | WORST => "observe",
            other => other,
        };
        // Rules are for one of the policies that are compared.
        let tuning = match policy {
            "fixed" => TuningArgs {
                pin: self.pin.clone(),
                weight: self.weight.clone(),
                ways: self.ways.clone(),
                pin_file: self.pin_file.clone(),
                ..TuningArgs::default()
            },
            _ => TuningArgs::default(),
        };
        PlaceArgs {
            policy: Some(policy.to_owned()),
            tuning: TuningArgs {
                period: self.period,
                config: self.config.clone(),
                ..tuning
            },
            ..PlaceArgs::default()
        }
    }
}

/// What `perch lab` takes.
#[derive(Debug, Clone, ClapArgs)]
#[command(after_help = "\
Examples:
  perch lab list
  perch lab run cmt/figure3           one experiment: a table of its claims
  perch lab report -o page.html       all experiments, on one page
  perch lab run tournament            all policies against each other
  perch lab fidelity -m smt2-zen      how far `--fidelity interval` is off

docs/lab.md says how to read the tables and how to write an experiment.")]
pub struct LabArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// What the lab can do.
#[derive(Debug, Clone, Subcommand)]
pub enum LabCommand {
    /// List the experiments
    #[command(after_help = "Examples:\n  perch lab list\n  perch lab list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run experiments and compare the results with the published ones
    #[command(
        after_help = "Examples:\n  perch lab run cmt/figure3\n  perch lab run cmt --json\n  perch lab run my-experiment.toml --figures out/\n  perch lab run my-experiment.toml --strict && echo all hold\n  perch lab run tournament --workloads 2"
    )]
    Run {
        /// Experiments by name, all below a name (`cmt`), or files; or `tournament`
        #[arg(required = true, value_name = "NAME|FILE")]
        experiments: Vec<String>,
        /// Write the pictures (SVG) into this folder
        #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
        figures: Option<PathBuf>,
        /// Of the tournament: at most N workloads per machine, for a quick look
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        workloads: Option<u64>,
        /// Of the tournament: only these of its machines
        #[arg(long = "machine", short, value_name = "NAME", value_delimiter = ',')]
        machines: Vec<String>,
        /// Print JSON: a list of claims, or all results of the tournament
        #[arg(long)]
        json: bool,
        /// End with status 1 if a claim is missed; else a miss is a result like any other
        #[arg(long)]
        strict: bool,
    },
    /// Run experiments and write one page with all tables and pictures
    #[command(
        after_help = "Examples:\n  perch lab report -o page.html\n  perch lab report cmt/figure3 my-experiment.toml"
    )]
    Report {
        /// Experiments by name; all if none is named
        #[arg(value_name = "NAME|FILE")]
        experiments: Vec<String>,
        /// The page
        #[arg(long, short, value_name = "FILE", default_value = "perch-lab.html", value_hint = ValueHint::FilePath)]
        output: PathBuf,
    },
    /// Simulate threads of known phases and count how well `perch stat` detects their changes
    #[command(
        after_help = "Examples:\n  perch lab phases\n  perch lab phases --seed 500 --seeds 4 --json"
    )]
    Phases {
        /// The first seed; those below 1000 are for development, 1000 to 1019 are those of docs/phases.md
        #[arg(long, value_name = "N", default_value_t = 1000)]
        seed: u64,
        /// How many seeds
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
        seeds: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Simulate random mixes at random places at both levels of detail and print the error of the interval level
    #[command(
        after_help = "Examples:\n  perch lab fidelity\n  perch lab fidelity -m my-machine.toml --threads 2,4\n  perch lab fidelity -m smt2-zen --threads pus --workloads 2"
    )]
    Fidelity {
        /// Machines: shipped ones' names, or files [default: all shipped ones]
        #[arg(
            long = "machine",
            short,
            value_name = "NAME|FILE",
            value_delimiter = ','
        )]
        machines: Vec<String>,
        /// How many threads the workloads have: numbers, at most twice that of the machine's PUs; pus is one for each
        /// PU, and 2pus two, which takes long
        #[arg(
            long,
            value_name = "N|pus|2pus,…",
            value_delimiter = ',',
            default_value = "1,2,4,8"
        )]
        threads: Vec<ThreadCount>,
        /// How many workloads are drawn for each
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        workloads: u32,
        /// At how many placements each is simulated
        #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        placements: u32,
        /// Begin with cold caches and measure soon, while they fill: there the levels differ most
        #[arg(long)]
        cold: bool,
        /// Random seed
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run microbenchmarks on simulated machines and print them beside measurements of the real processors
    #[command(
        after_help = "Examples:\n  perch lab validate\n  perch lab validate amd-bulldozer --json\n  perch lab validate smt2-zen --only load"
    )]
    Validate {
        /// Shipped machines [default: all of which there are measurements]
        #[arg(value_name = "MACHINE")]
        machines: Vec<String>,
        /// Only values whose name has this text in it, such as load, independent, or reads
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}
