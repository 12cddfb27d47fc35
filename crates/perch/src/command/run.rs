//! `perch run`: start a program and place its threads while it runs.

use crate::{args::RunArgs, command::place, exit};
use anyhow::Result;
use perch_core::{Machine, Wake, machine::Launch};
use perch_engine::Cause;
use perch_linux::LinuxMachine;
use rustix::process::Signal;
use std::{process::ExitCode, time::Duration};

/// Runs the program under perch.
///
/// # Errors
/// A program that is not there, settings that are wrong, permissions that are missing.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let command: Vec<String> = args
        .program
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let mut placing = place::prepare(&args.place, &command)?;
    let mark = placing
        .session
        .mark()
        .map(|mark| ("PERCH_SESSION".into(), mark.into()));
    let launch = Launch {
        command: args.program.clone(),
        environment: mark.into_iter().collect(),
    };
    placing.session.machine().launch(&launch)?;
    let end = placing.run(&args.place)?;
    let code = match end.cause {
        Cause::Ended(status) => status.map_or(exit::FAILED, exit::from_wait_status),
        Cause::Stopped(signal) => outlast(placing.session.machine(), signal)?,
    };
    Ok(ExitCode::from(code))
}

/// Every mask is back; what a signal means to the program, it decides itself. A second signal ends the waiting.
fn outlast(machine: &mut LinuxMachine, signal: i32) -> Result<u8> {
    // The terminal sends Ctrl-C to the program too; other signals reach only perch.
    if signal != Signal::INT.as_raw() {
        machine.forward(signal);
    }
    loop {
        match machine.wait(Duration::from_secs(3600))? {
            Wake::Ended(status) => return Ok(status.map_or(exit::FAILED, exit::from_wait_status)),
            Wake::Stop(second) => return Ok(exit::SIGNALLED.wrapping_add(second as u8)),
            Wake::Period => {}
        }
    }
}
