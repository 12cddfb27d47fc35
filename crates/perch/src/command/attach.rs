//! `perch attach`: place the threads of processes that run already.

use crate::{args::AttachArgs, command::place, exit};
use anyhow::Result;
use perch_core::{MachineError, Remark};
use std::process::ExitCode;

/// Places until the processes end or the user stops it.
///
/// # Errors
/// A process that is not there, settings that are wrong, permissions that are missing.
pub fn attach(args: &AttachArgs) -> Result<ExitCode> {
    let names: Vec<String> = args.pids.iter().map(ToString::to_string).collect();
    let mut placing = place::prepare(&args.place, &names, true)?;
    // A process of a list that `pgrep` made may have exited since; that is no reason to leave the others alone.
    let mut exited = Vec::new();
    for pid in &args.pids {
        match placing.session.attach(*pid) {
            Err(MachineError::NoSuchProcess(pid)) => exited.push(pid),
            answer => answer?,
        }
    }
    if exited.len() == args.pids.len() {
        return Err(MachineError::NoSuchProcess(exited[0]).into());
    }
    for pid in exited {
        let text = format!(
            "{}; perch attaches to the others",
            MachineError::NoSuchProcess(pid)
        );
        placing.remark(Remark::warning("no-process", text));
    }
    placing.run(&args.place)?;
    Ok(match placing.unwritten() {
        true => ExitCode::from(exit::FAILED),
        false => ExitCode::SUCCESS,
    })
}
