//! Making a recording: the program runs under qemu's user-mode emulation with perch's plugin, which tells what it executes.

mod blocks;
mod collect;
mod qemu;
mod receive;

pub use qemu::{PACKAGE, PLUGIN, Tools, check_program};

use crate::{Summary, TraceError, champsim, file, wire};
use collect::Collector;
use receive::{Message, Receiver};
use rustix::{
    fd::AsRawFd,
    io::{FdFlags, fcntl_setfd},
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::{Pid, Signal, kill_process},
};
use std::{
    ffi::OsString,
    io::BufWriter,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Instructions of each thread that are recorded if nothing else is said.
pub const INSTRUCTIONS: u64 = 10_000_000;

/// How long nothing may be told until what still could be recorded is taken to wait.
const QUIET: Duration = Duration::from_millis(500);

/// The format of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// perch's own: [`mod@crate::file`].
    #[default]
    Perch,
    /// ChampSim's, a file for each thread: [`crate::champsim`].
    ChampSim,
}

/// What is to be recorded.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program's file, found and checked ([`check_program`]).
    pub program: PathBuf,
    /// The name by which it is called, and its arguments.
    pub command: Vec<OsString>,
    /// Where the recording goes.
    pub output: PathBuf,
    /// As what.
    pub format: Format,
    /// Instructions of each thread at most.
    pub instructions: u64,
    /// Instructions of each thread before those.
    pub skip: u64,
    /// Whether the program is ended when no thread has anything left to record; else it runs to its end.
    pub stop: bool,
}

/// How far a recording is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Instructions of all threads so far.
    pub instructions: u64,
    /// Threads so far.
    pub threads: usize,
    /// Threads of which there are as many instructions as were asked for.
    pub full: usize,
    /// Since the program was started.
    pub elapsed: Duration,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// What was recorded.
    pub summary: Summary,
    /// The files that were written.
    pub files: Vec<PathBuf>,
    /// How the program ended.
    pub status: ExitStatus,
    /// Whether perch ended it, as [`Options::stop`] asks for.
    pub stopped: bool,
    /// Time from its start to its end or the last recorded instruction, whichever was first.
    pub recording: Duration,
}

/// Runs a program and records it. `signal` is a signal that asked to stop, or 0; the program gets it too, unless it is
/// SIGINT, which a terminal sends to both. `progress` is called a few times a second.
///
/// # Errors
/// qemu that cannot be started or does not take the plugin; files that cannot be written.
pub fn record(
    options: &Options,
    tools: &Tools,
    signal: &AtomicUsize,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, TraceError> {
    let failed = |error: &dyn std::fmt::Display| {
        TraceError::Record(format!("a socket for the recorder cannot be had: {error}"))
    };
    let (own, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::empty(),
        None,
    )
    .map_err(|error| failed(&error))?;
    fcntl_setfd(&own, FdFlags::CLOEXEC).map_err(|error| failed(&error))?;
    let unwritable = |error| TraceError::Io {
        path: options.output.clone(),
        what: "cannot be written",
        error,
    };
    let program = command_line(&options.command);
    // Also for ChampSim's files: it is told before the program runs if there is no place for them.
    let output = perch_files::output(&options.output).map_err(unwritable)?;
    let writer = match options.format {
        Format::Perch => {
            let output = BufWriter::with_capacity(1 << 18, output);
            Some(file::Writer::new(output, &program).map_err(unwritable)?)
        }
        Format::ChampSim => None,
    };
    let mut collector = Collector::new(writer, options.instructions);
    let mut child = tools.start(options, theirs.as_raw_fd())?;
    drop(theirs);
    let begun = Instant::now();
    let mut receiver = Receiver::new(UnixStream::from(own)).map_err(|error| failed(&error))?;
    let (mut told, mut heard, mut forwarded) = (begun, begun, false);
    let mut state = State::default();
    loop {
        let message = receiver.next();
        let now = Instant::now();
        match message {
            Message::Told(head, body) => {
                heard = now;
                let more = state
                    .take(head, body, &mut collector)
                    .map_err(|why| of(why, options))?;
                if !more {
                    break;
                }
            }
            Message::Nothing => {
                if state.full > 0 && options.stop && now - heard > QUIET {
                    state.stopped = true;
                    break;
                }
                let ended = matches!(child.try_wait(), Ok(Some(_)));
                // What it forked may hold the socket; itself it says nothing any more.
                if ended && receiver.is_empty() {
                    break;
                }
            }
            Message::End => break,
        }
        let asked = signal.load(Relaxed) as i32;
        if asked != 0 && asked != Signal::INT.as_raw() && !forwarded {
            forwarded = true;
            if let (Some(pid), Some(signal)) = (
                Pid::from_raw(child.id() as i32),
                Signal::from_named_raw(asked),
            ) {
                // It may have ended just now.
                let _ = kill_process(pid, signal);
            }
        }
        if now - told > Duration::from_millis(200) {
            told = now;
            progress(Progress {
                instructions: collector.instructions(),
                threads: collector.threads(),
                full: state.full,
                elapsed: now - begun,
            });
        }
    }
    let recording = state.last.unwrap_or(begun) - begun;
    if state.stopped {
        // SIGKILL, as it is not to go on in any case; it may have ended by itself.
        let _ = child.kill();
    }
    // Nobody listens any more: the plugin notices and lets the program run on.
    drop(receiver);
    let status = child
        .wait()
        .map_err(|error| TraceError::Record(format!("waiting for the program: {error}")))?;
    if !state.hello {
        return Err(tools.refused(status));
    }
    let (summary, memory) = collector.finish(&program).map_err(|why| of(why, options))?;
    let files = match memory {
        None => vec![options.output.clone()],
        Some(recording) => champsim_files(Arc::new(recording), &options.output)?,
    };
    Ok(Outcome {
        summary,
        files,
        status,
        stopped: state.stopped,
        recording,
    })
}

fn champsim_files(
    recording: Arc<crate::Recording>,
    output: &Path,
) -> Result<Vec<PathBuf>, TraceError> {
    let files = champsim::write(&recording, output)?;
    if !files.iter().any(|file| file == output) {
        // The one that was made to see whether it can be; not a device, nor what a link names.
        let made = std::fs::symlink_metadata(output);
        if made.is_ok_and(|made| made.is_file() && made.len() == 0) {
            let _ = std::fs::remove_file(output);
        }
    }
    Ok(files)
}

fn of(why: std::io::Error, options: &Options) -> TraceError {
    TraceError::Io {
        path: options.output.clone(),
        what: "cannot be written",
        error: why,
    }
}

/// What has been heard.
#[derive(Debug, Default)]
struct State {
    hello: bool,
    full: usize,
    stopped: bool,
    last: Option<Instant>,
}

impl State {
    /// Whether there may be more.
    fn take(
        &mut self,
        head: wire::Head,
        body: &[u8],
        collector: &mut Collector,
    ) -> std::io::Result<bool> {
        match head.kind {
            wire::Kind::Hello if head.thread == wire::VERSION => self.hello = true,
            wire::Kind::Hello => {
                let why = "the plugin is of another version than perch: install both again";
                return Err(std::io::Error::other(why));
            }
            wire::Kind::Blocks => collector.blocks(body),
            wire::Kind::Records => {
                collector.records(head.thread, body)?;
                self.last = Some(Instant::now());
            }
            wire::Kind::Full => self.full += 1,
            wire::Kind::End => return Ok(false),
        }
        Ok(true)
    }
}

/// As one would type it, for the summary.
fn command_line(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}
