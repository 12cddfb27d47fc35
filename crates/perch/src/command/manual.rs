//! `perch completions` and `perch man`: both come from the same command line definition as `--help`.

use crate::args::Args;
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::{path::Path, process::ExitCode};

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

/// Writes all manual pages to a folder, or prints the main one.
///
/// # Errors
/// A folder that cannot be written.
pub fn man(directory: Option<&Path>) -> Result<ExitCode> {
    match directory {
        Some(directory) => {
            clap_mangen::generate_to(Args::command(), directory).with_context(|| {
                format!(
                    "{}: the manual pages cannot be written",
                    directory.display()
                )
            })?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Args::command()).render(&mut page)?;
            super::print(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
