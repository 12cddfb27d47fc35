//! `perch completions` and `perch man`: both come from the same command line definition as `--help`.

mod page;

use crate::args::Args;
use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use std::{fs, path::Path, process::ExitCode};

/// Prints a shell's completion script.
///
/// # Errors
/// Trouble with standard output.
pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "perch", &mut script);
    super::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes all manual pages to a folder, which is made if it is not there, or prints the main one.
///
/// # Errors
/// A folder that cannot be written.
pub fn man(directory: Option<&Path>) -> Result<ExitCode> {
    let mut perch = Args::command().disable_help_subcommand(true);
    perch.build();
    match directory {
        Some(directory) => {
            fs::create_dir_all(directory)
                .with_context(|| format!("{}: cannot be made", directory.display()))?;
            write(&perch, &perch, directory)?;
        }
        None => super::print(&page::page(&perch, &perch)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command, and those of its subcommands.
fn write(perch: &Command, command: &Command, directory: &Path) -> Result<()> {
    let file = directory.join(format!("{}.1", page::name(command)));
    fs::write(&file, page::page(perch, command)?)
        .with_context(|| format!("{}: the manual page cannot be written", file.display()))?;
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        write(perch, below, directory)?;
    }
    Ok(())
}
