//! The `perch` command: reads flags, environment and configuration, wires machine, profile, policy and engine
//! together, and draws what comes of it.

pub mod args;
pub mod command;
pub mod config;
pub mod exit;
pub mod processor;
pub mod render;
pub mod timeline;

use clap::{CommandFactory, FromArgMatches};
use perch_core::MachineError;
use std::{ffi::OsString, process::ExitCode};

/// The whole command, from `argv` to the exit code.
pub fn main() -> ExitCode {
    main_with(Vec::new())
}

/// The same with monitoring modules of one's own: `perch modules` lists them, and `perch stat -V` takes their metrics.
pub fn main_with(own: Vec<perch_linux::modules::Entry>) -> ExitCode {
    let given: Vec<OsString> = std::env::args_os().collect();
    let mut command = args::environment::without_empty(args::Args::command());
    let matches = command.try_get_matches_from_mut(&given);
    let parsed = matches.and_then(|matches| {
        let args = args::Args::from_arg_matches(&matches);
        let args = args.map_err(|error| error.format(&mut command))?;
        Ok((args, matches))
    });
    let (args, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => match args::split_time(&given).filter(|_| error.use_stderr()) {
            Some(why) => {
                exit::say(&why);
                return ExitCode::from(exit::USAGE);
            }
            None => return told(&args::hinted(error, &given)),
        },
    };
    let checked = args::files::check(&command, &matches);
    match checked.and_then(|()| command::dispatch(args, own)) {
        Ok(code) => code,
        // The unit was taken for the program.
        Err(error) => match (error.downcast_ref(), args::split_time(&given)) {
            (Some(MachineError::NotFound { .. }), Some(why)) => {
                exit::say(&why);
                ExitCode::from(exit::USAGE)
            }
            _ => {
                let set = args::environment::set(&command, &matches);
                exit::report(&args::environment::named(&set, error))
            }
        },
    }
}

/// Prints what clap has to say: a mistake in the command line, or help that was asked for.
fn told(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        error.exit();
    }
    let printed = command::print(&error.render().ansi().to_string());
    printed.map_or_else(|error| exit::report(&error), |()| ExitCode::SUCCESS)
}
