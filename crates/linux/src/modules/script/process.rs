//! The process of a program that is a module: lines in, lines out, never waited for longer than allowed.

use crate::{helpers::Helper, launch::spawn_error, limits};
use perch_core::{MachineError, text};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, OwnedFd},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
    process::{
        Pid, PidfdFlags, Resource, Signal, kill_process_group, pidfd_open, pidfd_send_signal,
        set_parent_process_death_signal, setrlimit,
    },
};
use std::{
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

/// A longer line is an error.
const LONGEST_LINE: usize = 1 << 20;

/// So much of what it writes to standard error is kept, to be shown if it fails.
const KEPT_ERRORS: usize = 2000;

/// How long it may take to exit after its input has ended, and again after SIGTERM.
const GRACE: Duration = Duration::from_millis(500);

/// A running program.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    _helper: Helper,
    /// Signals reach this very process; `None` on kernels before 5.3.
    pidfd: Option<OwnedFd>,
    /// `None` once it is told to exit.
    input: Option<ChildStdin>,
    output: ChildStdout,
    errors: ChildStderr,
    unsent: Vec<u8>,
    /// How much of that is the last question, or came before it.
    unasked: usize,
    received: Vec<u8>,
    /// The end of what it wrote to standard error.
    complaint: Vec<u8>,
}

/// It cannot be talked to any more; the text says why.
#[derive(Debug)]
pub(super) struct Lost(pub String);

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// No such program, or it cannot be executed.
    pub(super) fn start(program: &Path) -> Result<Self, MachineError> {
        let limit = limits::inherited_open_files();
        let mut command = Command::new(program);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for perch, which ends it.
            .process_group(0);
        // SAFETY: two system calls, which are safe between fork and exec.
        unsafe {
            command.pre_exec(move || {
                // A perch that is killed takes it along.
                set_parent_process_death_signal(Some(Signal::TERM))?;
                let _ = setrlimit(Resource::Nofile, limit);
                Ok(())
            });
        }
        let mut child = command
            .spawn()
            .map_err(|error| spawn_error(&program.to_string_lossy(), &error))?;
        let helper = Helper::new(child.id() as i32);
        let pid = Pid::from_child(&child);
        let taken = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(output), Some(errors)) = taken else {
            return Err(MachineError::Other("a pipe is missing".to_owned()));
        };
        for fd in [input.as_fd(), output.as_fd(), errors.as_fd()] {
            let set = fcntl_getfl(fd).and_then(|flags| fcntl_setfl(fd, flags | OFlags::NONBLOCK));
            set.map_err(|errno| MachineError::Io {
                what: "a pipe of a module's program".to_owned(),
                error: errno.into(),
            })?;
        }
        Ok(Self {
            pidfd: pidfd_open(pid, PidfdFlags::empty()).ok(),
            child,
            _helper: helper,
            input: Some(input),
            output,
            errors,
            unsent: Vec::new(),
            unasked: 0,
            received: Vec::new(),
            complaint: Vec::new(),
        })
    }

    /// Puts a line in the queue to the program.
    pub(super) fn queue(&mut self, line: &str) {
        self.unsent.extend_from_slice(line.as_bytes());
        self.unsent.push(b'\n');
    }

    /// The same for a question, which the program is to answer.
    pub(super) fn ask(&mut self, line: &str) {
        self.queue(line);
        self.unasked = self.unsent.len();
    }

    /// Whether the program has not read the last question yet.
    pub(super) fn is_behind(&self) -> bool {
        self.unasked > 0
    }

    /// The next line of the program, if there is one until then; sends what is queued meanwhile.
    ///
    /// # Errors
    /// The program has exited, or writes what is no line.
    pub(super) fn line(&mut self, until: Instant) -> Result<Option<String>, Lost> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return match String::from_utf8(line) {
                    Ok(line) => Ok(Some(line)),
                    Err(_) => Err(Lost("it writes what is no UTF-8".to_owned())),
                };
            }
            if self.received.len() > LONGEST_LINE {
                let most = LONGEST_LINE >> 20;
                return Err(Lost(format!("it writes a line of more than {most} MiB")));
            }
            let now = Instant::now();
            if now >= until {
                return Ok(None);
            }
            self.exchange(until - now)?;
        }
    }

    /// Waits until something can be read or written, and does that.
    fn exchange(&mut self, time: Duration) -> Result<(), Lost> {
        let mut fds = vec![
            PollFd::new(&self.output, PollFlags::IN),
            PollFd::new(&self.errors, PollFlags::IN),
        ];
        if let (Some(input), false) = (&self.input, self.unsent.is_empty()) {
            fds.push(PollFd::new(input, PollFlags::OUT));
        }
        let time = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Lost(format!("waiting for it: {errno}"))),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[1] {
            self.read_errors();
        }
        if ready.get(2) == Some(&true)
            && let Some(input) = &self.input
        {
            match rustix::io::write(input, &self.unsent) {
                Ok(length) => {
                    self.unsent.drain(..length);
                    self.unasked = self.unasked.saturating_sub(length);
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                // It does not read any more; what it wrote before says why.
                Err(_) => (self.unasked, self.unsent) = (0, Vec::new()),
            }
        }
        if ready[0] {
            let mut bytes = [0; 1 << 16];
            match rustix::io::read(&self.output, &mut bytes) {
                Ok(0) => return Err(self.ended()),
                Ok(length) => self.received.extend_from_slice(&bytes[..length]),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(Lost(format!("reading from it: {errno}"))),
            }
        }
        Ok(())
    }

    /// Takes in what it wrote to standard error.
    fn read_errors(&mut self) {
        let mut bytes = [0; 4096];
        // Not for ever: it may write faster than this reads.
        for _ in 0..16 {
            match rustix::io::read(&self.errors, &mut bytes) {
                Ok(length) if length > 0 => self.complaint.extend_from_slice(&bytes[..length]),
                _ => break,
            }
            let excess = self.complaint.len().saturating_sub(KEPT_ERRORS);
            self.complaint.drain(..excess);
        }
    }

    /// What to say of a program that has closed its end.
    fn ended(&mut self) -> Lost {
        // Its last words come with its end.
        let until = Instant::now() + GRACE;
        let mut status = None;
        while status.is_none() && Instant::now() < until {
            self.read_errors();
            status = self.child.try_wait().ok().flatten();
            if status.is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.read_errors();
        let how = match status {
            Some(status) => format!("it has ended ({status})"),
            None => "it has ended, or closed its output".to_owned(),
        };
        Lost(format!("{how}{}", self.said()))
    }

    /// The last line that it wrote to standard error, as the end of a sentence.
    pub(super) fn said(&self) -> String {
        let text = String::from_utf8_lossy(&self.complaint);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        last.map_or_else(String::new, |line| {
            format!("; it says: {}", text::printable(line.trim()))
        })
    }

    fn has_exited(&mut self, within: Duration) -> bool {
        let until = Instant::now() + within;
        loop {
            // Reaped here, or by the supervisor before.
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            self.read_errors();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends a signal to it and to what it has started.
    fn signal(&self, signal: Signal) -> io::Result<()> {
        if let Some(pidfd) = &self.pidfd {
            // Fails if it was reaped: then its number may be another's.
            pidfd_send_signal(pidfd, signal)?;
        }
        Ok(kill_process_group(Pid::from_child(&self.child), signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input = None;
        for signal in [Signal::TERM, Signal::KILL] {
            if self.has_exited(GRACE) {
                return;
            }
            let _ = self.signal(signal);
        }
        self.has_exited(GRACE);
    }
}
