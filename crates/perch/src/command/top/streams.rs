//! Where a program reads from and writes to while perch draws on its terminal.

use anyhow::{Context, Result};
use rustix::{
    fd::{AsFd, OwnedFd},
    io::fcntl_dupfd_cloexec,
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin, stdout},
    termios::isatty,
};
use std::{
    fs::{File, OpenOptions},
    path::Path,
};

/// The standard streams as they were, where they were redirected.
#[derive(Debug, Default)]
pub struct Streams {
    input: Option<OwnedFd>,
    output: Option<OwnedFd>,
    errors: Option<OwnedFd>,
}

/// A copy that programs do not inherit.
fn keep(stream: impl AsFd) -> Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(stream, 3)?)
}

impl Streams {
    /// From now on programs read nothing, and what they would write on the terminal goes to a file, or nowhere. Standard
    /// output goes there in any case if perch `prints` on it itself.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn redirect(&mut self, file: Option<&Path>, prints: bool) -> Result<()> {
        let null = OpenOptions::new().read(true).write(true).open("/dev/null");
        let null = null.context("/dev/null: cannot be opened")?;
        let to = match file {
            None => null.try_clone()?,
            Some(path) => perch_files::output(path)
                .with_context(|| format!("{}: cannot be written", path.display()))?,
        };
        self.input = Some(keep(stdin())?);
        dup2_stdin(&null)?;
        if prints || file.is_some() || isatty(stdout()) {
            self.output = Some(keep(stdout())?);
            dup2_stdout(&to)?;
        }
        if isatty(stderr()) && !prints {
            self.errors = Some(keep(stderr())?);
            dup2_stderr(&to)?;
        }
        Ok(())
    }

    /// Where perch prints.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn output(&mut self) -> Result<File> {
        match self.output.take() {
            Some(output) => Ok(output.into()),
            None => Ok(keep(stdout())?.into()),
        }
    }

    /// Perch's own messages go where they went before.
    pub fn give_back(&mut self) {
        // Nothing can be said about a failure, and nothing depends on it.
        if let Some(input) = self.input.take() {
            let _ = dup2_stdin(input);
        }
        if let Some(output) = self.output.take() {
            let _ = dup2_stdout(output);
        }
        if let Some(errors) = self.errors.take() {
            let _ = dup2_stderr(errors);
        }
    }
}
