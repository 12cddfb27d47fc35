//! `perch completions` and `perch man`: both come from the same command line definition as `--help`.

use crate::args::Args;
use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
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
            let cannot = || {
                format!(
                    "{}: the manual pages cannot be written",
                    directory.display()
                )
            };
            let mut command = Args::command().disable_help_subcommand(true);
            command.build();
            for (name, page) in pages(&command)? {
                std::fs::write(directory.join(name), page).with_context(cannot)?;
            }
        }
        None => super::print(&page(&clap_mangen::Man::new(Args::command()))?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The pages of a command and of all below it, with the names of their files.
fn pages(command: &Command) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        all.extend(pages(below)?);
    }
    // A command's own page would be called `run 0.1.0` at its foot.
    let source = format!("perch {}", env!("CARGO_PKG_VERSION"));
    let manual = clap_mangen::Man::new(command.clone()).source(source);
    all.push((manual.get_filename(), page(&manual)?));
    Ok(all)
}

fn page(manual: &clap_mangen::Man) -> Result<String> {
    let mut page = Vec::new();
    manual.render(&mut page)?;
    // What stands behind the options begins with examples in all our helps.
    Ok(String::from_utf8_lossy(&page).replace("\n.SH EXTRA\n", "\n.SH EXAMPLES\n"))
}
