//! The watched process.

use anyhow::{Context, Result};
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// A running `victim`, ended when dropped.
pub struct Victim {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Victim {
    /// Starts one, as another user if `as_nobody`.
    ///
    /// # Errors
    /// A victim that cannot be started.
    pub fn start(args: &[&str], as_nobody: bool) -> Result<Self> {
        let own = std::env::current_exe()?;
        let victim = own.with_file_name("victim");
        let mut child = command(&victim, as_nobody)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!(
                    "{}: build it with `cargo build --release -p perch-bench`",
                    victim.display()
                )
            })?;
        let ask = child.stdin.take().context("the victim has no input")?;
        let answers = BufReader::new(child.stdout.take().context("the victim has no output")?);
        let mut victim = Self {
            child,
            ask,
            answers,
        };
        victim.answer()?;
        Ok(victim)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Work done so far.
    ///
    /// # Errors
    /// A victim that died.
    pub fn work(&mut self) -> Result<u64> {
        self.ask.write_all(b"\n")?;
        self.answer()?["work"]
            .as_u64()
            .context("the victim gave no number")
    }

    fn answer(&mut self) -> Result<serde_json::Value> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).context("the victim died")
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command, as an ordinary user if asked.
pub fn command(program: &Path, as_nobody: bool) -> Command {
    if as_nobody {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .arg(program);
        command
    } else {
        Command::new(program)
    }
}
