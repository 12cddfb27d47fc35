//! `perch run`: start a program and place its threads while it runs.

use crate::{args::RunArgs, command::place, exit};
use anyhow::Result;
use perch_core::{Machine, machine::Launch};
use perch_engine::Cause;
use std::process::ExitCode;

/// Runs the program under perch.
///
/// # Errors
/// A program that is not there, settings that are wrong, permissions that are missing.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let command: Vec<String> = args.program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut placing = place::prepare(&args.place, &command)?;
    let mark = placing.session.mark().map(|mark| ("PERCH_SESSION".into(), mark.into()));
    let launch = Launch { command: args.program.clone(), environment: mark.into_iter().collect() };
    placing.session.machine().launch(&launch)?;
    let end = placing.run(&args.place)?;
    let status = match end.cause {
        Cause::Ended(status) => status,
        // Every mask is back; the program decides for itself what the signal means to it.
        Cause::Stopped(signal) => placing.session.machine().finish(signal)?,
    };
    Ok(ExitCode::from(status.map_or(exit::FAILED, exit::from_wait_status)))
}
