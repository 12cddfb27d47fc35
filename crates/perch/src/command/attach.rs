//! `perch attach`: place the threads of processes that run already.

use crate::{args::AttachArgs, command::place, exit};
use anyhow::Result;
use std::process::ExitCode;

/// Places until the processes end or the user stops it.
///
/// # Errors
/// A process that is not there, settings that are wrong, permissions that are missing.
pub fn attach(args: &AttachArgs) -> Result<ExitCode> {
    let names: Vec<String> = args.pids.iter().map(ToString::to_string).collect();
    let mut placing = place::prepare(&args.place, &names)?;
    for pid in &args.pids {
        placing.session.attach(*pid)?;
    }
    placing.run(&args.place)?;
    Ok(match placing.unwritten() {
        true => ExitCode::from(exit::FAILED),
        false => ExitCode::SUCCESS,
    })
}
