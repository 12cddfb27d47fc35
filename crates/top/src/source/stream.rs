//! The lines of another perch: `perch top --json` on a machine that `ssh` leads to.

use super::{Next, Pace, Source, SourceError};
use crate::wire::{Lines, WireError};
use perch_core::text::printable;
use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How many lines of what the connection says are kept, and how long each may be.
const KEPT: usize = 10;
const LONGEST: u64 = 500;

/// How long is waited for the last of them.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Frames that a command prints.
pub struct CommandSource {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The last lines on its standard error.
    said: Arc<Mutex<VecDeque<String>>>,
    listener: Option<JoinHandle<()>>,
    title: String,
}

impl CommandSource {
    /// Starts a command, such as `ssh node perch top --json`. Its standard input is empty; what it says on standard error
    /// is kept for errors.
    ///
    /// # Errors
    /// A command that cannot be started.
    pub fn start(mut command: Command, title: &str) -> Result<Self, SourceError> {
        let program = command.get_program().to_string_lossy().into_owned();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("{program}: cannot be started: {error}"))?;
        let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(format!("{program}: its output cannot be read").into());
        };
        let said = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&said);
        let listener = std::thread::spawn(move || listen(errors, &kept));
        Ok(Self {
            child,
            lines: Lines::new(BufReader::new(output)),
            said,
            listener: Some(listener),
            title: printable(title).into_owned(),
        })
    }

    /// What the command has said, once it has ended.
    fn last_words(&mut self) -> String {
        if let Some(listener) = self.listener.take() {
            // What it has left running (a shared connection of ssh) may keep its standard error open for ever.
            let start = Instant::now();
            while !listener.is_finished() && start.elapsed() < LAST_WORDS {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = said.iter().map(String::as_str).collect();
        match lines.is_empty() {
            true => String::new(),
            false => format!("\n{}", lines.join("\n")),
        }
    }

    /// Why there are no more frames: nothing, if the command has succeeded.
    fn end(&mut self) -> Result<Next, SourceError> {
        let status = self.child.wait()?;
        let words = self.last_words();
        match status.success() {
            true => Ok(Next::End(None)),
            false => Err(format!("{}: the connection ended ({status}){words}", self.title).into()),
        }
    }
}

impl Source for CommandSource {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn pace(&self) -> Pace {
        Pace::Live
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        match self.lines.read() {
            Ok(Some(frame)) => Ok(Next::Frame(Box::new(frame))),
            Ok(None) | Err(WireError::Io(_)) => self.end(),
            Err(error) => {
                let _ = self.child.kill();
                let _ = self.child.wait();
                let words = self.last_words();
                Err(format!("{}: {error}{words}", self.title).into())
            }
        }
    }
}

/// The command ends with its reader.
impl Drop for CommandSource {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps the last lines, printable.
fn listen(errors: impl Read, kept: &Mutex<VecDeque<String>>) {
    let mut errors = BufReader::new(errors);
    loop {
        let mut line = Vec::new();
        let read = errors.by_ref().take(LONGEST).read_until(b'\n', &mut line);
        if !read.is_ok_and(|read| read > 0) {
            return;
        }
        let text = String::from_utf8_lossy(&line);
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(printable(text.trim_end()).into_owned());
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> CommandSource {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        CommandSource::start(command, "node").unwrap()
    }

    #[test]
    fn a_connection_that_fails_says_why() {
        let mut source = shell("echo 'no \x1b[2J such host' >&2; exit 255");
        let error = source.next().unwrap_err().to_string();
        assert!(
            error.contains("255") && error.contains("no \\x1b[2J such host"),
            "{error}"
        );
        // One that leaves another program behind.
        let mut source = shell("sleep 30 & echo hello; wait");
        let error = source.next().unwrap_err().to_string();
        assert!(error.contains("`hello`"), "{error}");
        let mut source = shell("exit 0");
        assert!(matches!(source.next(), Ok(Next::End(None))));
        let mut command = Command::new("/no/such/ssh");
        command.arg("x");
        assert!(CommandSource::start(command, "node").is_err());
    }
}
