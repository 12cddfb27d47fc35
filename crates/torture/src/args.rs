//! The command line.

use crate::{attacks, crowd, guest, report, sandbox::Sandbox, supervisor, victim};
use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use std::{
    io::IsTerminal,
    path::PathBuf,
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

/// The exit code after Ctrl-C, as of a shell.
const INTERRUPTED: u8 = 130;

/// Attacks perch's safety promises and counts what it broke; needs root
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    /// The perch to attack
    #[arg(long, env = "PERCH_BIN", default_value = "target/release/perch")]
    perch: PathBuf,
    /// A shell script that runs in perch's place, and finds perch at $PERCH_REAL
    #[arg(long, value_name = "FILE")]
    instead: Option<PathBuf>,
    /// A short form: under a minute, fixed numbers of tries
    #[arg(long)]
    pub quick: bool,
    /// Only this attack; repeatable
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Where chance begins; the same seed makes the same tries
    #[arg(long)]
    seed: Option<u64>,
    /// Tries, in per cent of the usual number
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub percent: u32,
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the table of docs/torture.md
    #[arg(long)]
    markdown: bool,
    /// Run the attacks that need more PUs or cgroup v2 in a virtual machine instead
    #[arg(long)]
    guest: bool,
    #[command(subcommand)]
    part: Option<Part>,
}

/// The programs that perch is let loose on, and the process that does the work.
#[derive(Debug, Subcommand)]
enum Part {
    /// A program that executes orders from a pipe
    #[command(hide = true)]
    Victim,
    /// A program that does nothing
    #[command(hide = true)]
    Idle,
    /// Binds the names that perch's lock once had, and keeps them
    #[command(hide = true)]
    Squat {
        /// PUs
        pus: Vec<u32>,
    },
    /// Starts threads that touch memory, all at once
    #[command(hide = true)]
    Crowd {
        /// How many
        threads: usize,
    },
    /// Starts threads of a millisecond, one after the other
    #[command(hide = true)]
    Shorts {
        /// How many
        threads: usize,
    },
}

/// Reads the command line and does what it says.
///
/// # Errors
/// What keeps the attacks from being made at all.
pub fn start() -> Result<ExitCode> {
    let args = Args::parse();
    match &args.part {
        Some(Part::Victim) => victim::run().map(|()| ExitCode::SUCCESS),
        Some(Part::Idle) => victim::idle(),
        Some(Part::Squat { pus }) => match victim::squat(pus)? {},
        Some(Part::Crowd { threads }) => crowd::at_once(*threads).map(|()| ExitCode::SUCCESS),
        Some(Part::Shorts { threads }) => crowd::in_turn(*threads).map(|()| ExitCode::SUCCESS),
        None if args.guest => guest::run(&args.perch, args.seed(), args.quick),
        None => attack(&args),
    }
}

impl Args {
    /// Where chance begins: anywhere, if nothing else is wanted.
    fn seed(&self) -> u64 {
        let anywhere = || {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(1, |time| u64::from(time.subsec_nanos()))
        };
        self.seed.unwrap_or_else(anywhere)
    }
}

fn attack(args: &Args) -> Result<ExitCode> {
    let chosen = attacks::chosen(&args.only)?;
    let seed = args.seed();
    if !rustix::process::geteuid().is_root() {
        bail!("needs root: it mounts, makes cpusets and becomes other users");
    }
    if let Some(code) = supervisor::split()? {
        return Ok(code);
    }
    let sandbox = Sandbox::enter(&args.perch, args.instead.as_deref())?;
    eprintln!("seed {seed}");
    let progress = std::io::stderr().is_terminal();
    let (tallies, interrupted) = attacks::run(&chosen, &sandbox, args, seed, progress)?;
    if args.json {
        report::json(seed, &tallies)?;
    } else if args.markdown {
        print!("{}", report::markdown(&tallies));
    } else {
        println!("{}", report::table(&tallies));
    }
    report::faults(&tallies);
    if interrupted {
        eprintln!("interrupted: the last attack is not complete");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let good = tallies.iter().all(|(_, tally)| tally.is_good());
    Ok(ExitCode::from(u8::from(!good)))
}
