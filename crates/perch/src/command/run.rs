//! `perch run`: start a program and place its threads while it runs.

use crate::{
    args::RunArgs,
    command::{compare::account, place},
    exit,
};
use anyhow::Result;
use perch_core::{Machine, Wake};
use perch_engine::Cause;
use perch_linux::{LinuxMachine, signals};
use std::{process::ExitCode, time::Duration};

/// Runs the program under perch.
///
/// # Errors
/// A program that is not there, settings that are wrong, permissions that are missing.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    // What asks perch to stop before there is a program may end it; what is for the program waits for it.
    signals::keep_passed()?;
    let command: Vec<String> = args
        .program
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let mut placing = place::prepare(&args.place, &command, false)?;
    signals::Signals::catch_for_good()?;
    placing.session.launch(args.program.clone())?;
    let end = placing.run(&args.place)?;
    let status = match end.cause {
        Cause::Ended(status) => status,
        Cause::Stopped(_) | Cause::Commanded => outlast(placing.session.machine())?,
    };
    let unwritten = placing.unwritten();
    if let Some(path) = &args.account {
        let changes = placing.changes();
        // The machine reaps the program when it is dropped; only then are its times known.
        drop(placing);
        account::write(path, changes)?;
    }
    Ok(exit::of_program(code(status), unwritten))
}

/// The exit code that stands for how the program ended; 125 and a message where that is not known.
fn code(status: Option<i32>) -> u8 {
    match status {
        Some(status) => exit::from_wait_status(status),
        None => {
            exit::say(
                "the program has exited, but other code in this process took its exit status \
                 (such as a library from LD_PRELOAD), so it is unknown",
            );
            exit::FAILED
        }
    }
}

/// Every mask is back: waits for the program's end, and for its wait status. What a signal means to the program, it
/// decides itself; further ones are passed on as the first.
fn outlast(machine: &mut LinuxMachine) -> Result<Option<i32>> {
    loop {
        machine.pass_stop();
        loop {
            match machine.wait(Duration::from_secs(3600))? {
                Wake::Ended(status) => return Ok(status),
                Wake::Stop(_) => break,
                Wake::Period => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_is_not_known_is_a_failure_of_perch() {
        assert_eq!(code(None), 125);
        assert_eq!(code(Some(0)), 0);
        assert_eq!(code(Some(3 << 8)), 3);
    }
}
