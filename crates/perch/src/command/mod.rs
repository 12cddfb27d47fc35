//! The subcommands, one a file.

pub mod attach;
pub mod calibrate;
pub mod compare;
pub mod config;
pub mod events;
mod fidelity;
mod group;
pub mod irq;
pub mod lab;
mod lock;
pub mod manual;
pub mod modules;
pub mod noise;
mod phases;
pub mod place;
pub mod policies;
pub mod power;
pub mod profiles;
pub mod record_trace;
mod recover;
pub mod replay;
pub mod report;
pub mod restore;
mod rules;
pub mod run;
pub mod sim;
pub mod stat;
pub mod top;
pub mod topology;
mod tournament;
pub mod trace;
mod uncalibrated;
mod validate;

use crate::args::{Args, Command};
use anyhow::{Context, Result, bail};
use perch_linux::modules::Entry;
use std::process::ExitCode;

/// Runs the subcommand that was asked for; `own` are modules of the caller.
///
/// # Errors
/// Whatever the subcommand cannot do, in words for the user.
pub fn dispatch(args: Args, own: Vec<Entry>) -> Result<ExitCode> {
    match args.command {
        Command::Run(args) => run::run(&args),
        Command::Attach(args) => attach::attach(&args),
        Command::Events(args) => events::events(&args),
        Command::Stat(args) => stat::stat(&args, own),
        Command::Modules(args) => modules::modules(&args, own),
        Command::Top(args) => top::top(&args),
        Command::Power(args) => power::power(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Calibrate(args) => calibrate::calibrate(&args),
        Command::Kernel(args) => calibrate::kernel(&args),
        Command::Topology(args) => topology::topology(&args),
        Command::Profiles(args) => profiles::profiles(&args),
        Command::Policies(args) => policies::policies(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::Report(args) => report::report(&args),
        Command::Sim(args) => sim::sim(&args),
        Command::Lab(args) => lab::lab(&args),
        Command::RecordTrace(args) => record_trace::record_trace(&args),
        Command::Trace(args) => trace::trace(&args),
        Command::Irq(args) => irq::irq(&args),
        Command::Noise(args) => noise::noise(&args),
        Command::Restore(args) => restore::restore(&args),
        Command::Config(args) => config::config(&args),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { directory } => manual::man(directory.as_deref()),
    }
}

/// Refuses to print where nothing can be printed.
///
/// # Errors
/// Standard output was closed when perch started.
pub fn check_output() -> Result<()> {
    if perch_linux::stdout::was_closed() {
        bail!("standard output is closed: nothing can be printed");
    }
    Ok(())
}

/// Prints to standard output without control sequences, except colours; a reader that has closed its end (`| head`) is
/// no error.
///
/// # Errors
/// Any other trouble with standard output.
pub fn print(text: &str) -> Result<()> {
    use std::io::Write;
    check_output()?;
    let text = crate::render::shown(text);
    let mut out = anstream::stdout().lock();
    let written = out
        .write_all(text.as_bytes())
        .and_then(|()| match text.ends_with('\n') {
            true => out.flush(),
            false => out.write_all(b"\n").and_then(|()| out.flush()),
        });
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("standard output: cannot be written")
        }
        _ => Ok(()),
    }
}

/// Prints a value as indented JSON.
///
/// # Errors
/// Trouble with standard output.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    print(&crate::render::json(&serde_json::to_string_pretty(value)?))
}
