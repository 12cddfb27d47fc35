//! Exit codes: the program's own where there is one, else what a shell would say.

use crate::render::WIDTH;
use perch_core::MachineError;
use std::{borrow::Cow, os::unix::process::ExitStatusExt, process::ExitCode};

/// The command line cannot be read (clap's own).
pub const USAGE: u8 = 2;
/// perch itself failed (as env(1), timeout(1) and nohup(1) do it).
pub const FAILED: u8 = 125;
/// The program cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The program was not found.
pub const NOT_FOUND: u8 = 127;
/// Killed by signal N: 128 + N.
pub const SIGNALLED: u8 = 128;

/// The user stopped perch before it had done what it was asked for.
#[derive(Debug, Clone)]
pub struct Stopped {
    /// The signal.
    pub signal: i32,
    /// What is left of the work.
    pub left: Cow<'static, str>,
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = perch_linux::signals::name(self.signal);
        write!(to, "stopped by {name}: {}", self.left)
    }
}

impl std::error::Error for Stopped {}

/// A program that perch ran more than once has failed: its status becomes perch's.
#[derive(Debug)]
pub struct ProgramFailed {
    /// The exit code for it.
    pub code: u8,
    /// What happened, and what can be done.
    pub text: String,
}

impl std::fmt::Display for ProgramFailed {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.text)
    }
}

impl std::error::Error for ProgramFailed {}

/// The exit code that stands for a wait status (wait(2)).
pub fn from_wait_status(status: i32) -> u8 {
    let status = std::process::ExitStatus::from_raw(status);
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => SIGNALLED.wrapping_add(signal as u8),
        (None, None) => FAILED,
    }
}

/// The exit code after a program that ended with `code`: its own, unless it succeeded and what perch had to write was not
/// written.
pub fn of_program(code: u8, unwritten: bool) -> ExitCode {
    ExitCode::from(match (code, unwritten) {
        (0, true) => FAILED,
        _ => code,
    })
}

/// Says something of perch's own on standard error, where it can be written at all.
pub fn say(text: &str) {
    use std::io::Write;
    let style = anstyle::AnsiColor::Red.on_default().bold();
    let text = perch_core::text::printable_lines(text);
    let _ = writeln!(anstream::stderr(), "{style}perch:{style:#} {text}");
}

/// Says a sentence or several, which are no error, in lines that fit.
pub fn note(text: &str) {
    use std::io::Write;
    let style = anstyle::AnsiColor::Red.on_default().bold();
    let text = perch_core::text::printable_lines(text);
    let lines = perch_stat::text::wrapped_to(columns(), LABEL, &text);
    let lines = lines.strip_prefix(LABEL.trim_end()).unwrap_or(&lines);
    let label = LABEL.trim_end();
    let _ = write!(anstream::stderr(), "{style}{label}{style:#}{lines}");
}

/// Columns of the terminal that standard error is, up to those of all text.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    match columns {
        // Not known, or too few for words.
        0..20 => WIDTH,
        columns => columns.min(WIDTH),
    }
}

/// Before what perch says on standard error.
const LABEL: &str = "perch: ";

/// Says, once, that signals are ignored that are for programs which perch has started.
pub fn say_ignored(received: perch_linux::signals::Received) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        say(&format!(
            "{} is ignored, as are all signals that mean nothing to this command",
            perch_linux::signals::name(received.signal)
        ));
    });
}

/// Prints an error and everything that caused it, and gives the exit code for it.
pub fn report(error: &anyhow::Error) -> ExitCode {
    say(&describe(error));
    if let Some(stopped) = error.downcast_ref::<Stopped>() {
        return ExitCode::from(SIGNALLED.wrapping_add(stopped.signal as u8));
    }
    if let Some(failed) = error.downcast_ref::<ProgramFailed>() {
        return ExitCode::from(failed.code);
    }
    let code = match error.downcast_ref::<MachineError>() {
        Some(MachineError::NotFound { .. }) => NOT_FOUND,
        Some(MachineError::NotExecutable { .. }) => NOT_EXECUTABLE,
        _ => FAILED,
    };
    ExitCode::from(code)
}

/// The error with its causes, each told once.
pub fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error
        .chain()
        .map(|cause| without_number(&cause.to_string()))
    {
        if !text.contains(&cause) {
            text += if text.is_empty() { "" } else { ": " };
            text += &cause;
        }
    }
    text
}

/// The text without the number that std adds to an error of the operating system: ` (os error 2)`.
fn without_number(text: &str) -> String {
    let Some((before, rest)) = text.split_once(" (os error ") else {
        return text.to_owned();
    };
    match rest.split_once(')') {
        Some((number, after)) if number.parse::<i32>().is_ok() => {
            format!("{before}{}", without_number(after))
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_errors_are_left_out() {
        let error = std::io::Error::from_raw_os_error(2);
        let error = anyhow::Error::from(error).context("x.jsonl");
        assert_eq!(describe(&error), "x.jsonl: No such file or directory");
        assert_eq!(without_number("odd (os error x)"), "odd (os error x)");
    }

    #[test]
    fn wait_statuses_become_shell_codes() {
        assert_eq!(from_wait_status(3 << 8), 3);
        assert_eq!(from_wait_status(9), 137);
    }

    #[test]
    fn causes_are_told_once() {
        let error = anyhow::anyhow!("no such file").context("profile x: no such file");
        assert_eq!(describe(&error), "profile x: no such file");
    }
}
