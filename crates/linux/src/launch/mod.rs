//! Starting a program in two steps: first a child that waits, so that events can be opened on it and nothing of the
//! program's life is missed; then the program itself.

mod lookup;

pub use lookup::{find, spawn_error};

use crate::{limits, signals};
use perch_core::{Launch, MachineError};
use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    ffi::{CString, OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    ptr,
    time::{Duration, Instant},
};

/// Bytes of a thread's name (`TASK_COMM_LEN`, without the 0 at its end).
const NAME_BYTES: usize = 15;

/// What the kernel calls a program's first thread: the end of its path, cut off.
pub fn thread_name(launch: &Launch) -> String {
    let program = launch.command.first().map(Path::new);
    let file = program.and_then(Path::file_name).unwrap_or_default();
    let bytes = file.as_bytes();
    perch_core::text::name(&bytes[..bytes.len().min(NAME_BYTES)])
}

/// A child that waits to become the program. Dropped without [`Waiting::start`], it ends without having run anything.
#[derive(Debug)]
pub struct Waiting {
    child: Child,
    program: OsString,
    file: PathBuf,
    go: OwnedFd,
    failure: OwnedFd,
    started: bool,
}

/// A started program.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    /// Readable when the child has ended; `None` on kernels without pidfd_open(2) (before 5.3).
    pidfd: Option<OwnedFd>,
    /// Once it is reaped.
    end: Option<End>,
    /// When it became the program.
    began: Instant,
    /// Once it has ended.
    usage: Option<Usage>,
}

/// What a program took from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// By the clock.
    pub elapsed: Duration,
    /// On PUs in user space: its own time and that of children that it, or they, waited for (getrusage(2)).
    pub user: Duration,
    /// The same in the kernel.
    pub system: Duration,
}

/// The end of a child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With this wait status (wait(2)).
    Status(i32),
    /// Other code in this process reaped it, and the status is lost.
    Unknown,
}

impl End {
    /// The wait status, if it is known.
    pub fn status(self) -> Option<i32> {
        match self {
            Self::Status(status) => Some(status),
            Self::Unknown => None,
        }
    }
}

/// Where `execve(2)` takes its arguments from; made before the fork, as the child must not allocate.
struct Image {
    file: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

/// Pointers to C strings, ended by a null pointer.
fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain([ptr::null()])
        .collect()
}

fn c_string(text: &OsStr) -> Result<CString, MachineError> {
    CString::new(text.as_bytes()).map_err(|_| {
        MachineError::Other(format!(
            "`{}` holds a NUL byte, which no argument or variable can",
            text.to_string_lossy().replace('\0', "\\0")
        ))
    })
}

/// The inherited environment with the launch's variables set.
fn environment(launch: &Launch) -> Result<Vec<CString>, MachineError> {
    let set = |name: &OsStr| launch.environment.iter().any(|(key, _)| key == name);
    let inherited = std::env::vars_os().filter(|(name, _)| !set(name));
    inherited
        .chain(launch.environment.iter().cloned())
        .map(|(name, value)| {
            let mut entry = name.into_vec();
            entry.push(b'=');
            entry.extend(value.into_vec());
            c_string(&OsString::from_vec(entry))
        })
        .collect()
}

fn failed(what: &str, error: impl Into<io::Error>) -> MachineError {
    MachineError::Io {
        what: what.to_owned(),
        error: error.into(),
    }
}

/// Forks a child that waits.
///
/// # Errors
/// A program that is not there or cannot be executed, as far as can be told without trying; no more processes.
pub fn prepare(launch: &Launch) -> Result<Waiting, MachineError> {
    let program = launch.command.first().cloned().unwrap_or_default();
    let path = launch
        .environment
        .iter()
        .rev()
        .find(|(name, _)| name == "PATH")
        .map(|(_, value)| value.clone())
        .or_else(|| std::env::var_os("PATH"));
    let file = lookup::find(&program, path.as_deref())?;
    let arguments: Vec<CString> = launch
        .command
        .iter()
        .map(|argument| c_string(argument))
        .collect::<Result<_, _>>()?;
    let image = Image {
        file: c_string(file.as_os_str())?,
        arguments,
        environment: environment(launch)?,
    };
    // The shell's own way with scripts that have no `#!` line.
    let script = lookup::is_plain_script(&file).then(|| Image {
        file: c"/bin/sh".to_owned(),
        arguments: [c"sh".to_owned(), image.file.clone()]
            .into_iter()
            .chain(image.arguments.iter().skip(1).cloned())
            .collect(),
        environment: image.environment.clone(),
    });
    let (child_go, go) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed("pipe to the program", e))?;
    let (failure, child_failure) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed("pipe to the program", e))?;
    let images: Vec<&Image> = [Some(&image), script.as_ref()]
        .into_iter()
        .flatten()
        .collect();
    let pid = fork(&images, child_go.as_fd(), go.as_fd(), child_failure.as_fd())
        .map_err(|error| failed("starting a process", error))?;
    let pidfd = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    Ok(Waiting {
        child: Child {
            pid,
            pidfd,
            end: None,
            began: Instant::now(),
            usage: None,
        },
        program,
        file,
        go,
        failure,
        started: false,
    })
}

/// Forks. All signals are blocked around it, so that none of perch's handlers can run in the child.
fn fork(
    images: &[&Image],
    go: BorrowedFd<'_>,
    perch_go: BorrowedFd<'_>,
    failure: BorrowedFd<'_>,
) -> io::Result<i32> {
    let prepared: Vec<_> = images
        .iter()
        .map(|image| {
            (
                &image.file,
                pointers(&image.arguments),
                pointers(&image.environment),
            )
        })
        .collect();
    let open_files = limits::inherited_open_files();
    let open_files = libc::rlimit {
        rlim_cur: open_files.current.unwrap_or(libc::RLIM_INFINITY),
        rlim_max: open_files.maximum.unwrap_or(libc::RLIM_INFINITY),
    };
    // SAFETY: the sets are initialised by sigfillset and pthread_sigmask before they are read. Between fork and
    // execve the child calls async-signal-safe functions only, on memory that was prepared before.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let pid = libc::fork();
        if pid == 0 {
            become_program(&prepared, go, perch_go, failure, &open_files, &before);
        }
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        if pid < 0 { Err(error) } else { Ok(pid) }
    }
}

type Prepared<'a> = (
    &'a CString,
    Vec<*const libc::c_char>,
    Vec<*const libc::c_char>,
);

/// The child's side.
///
/// # Safety
/// To be called in a forked child only; the pointers must be those of [`pointers`].
unsafe fn become_program(
    images: &[Prepared<'_>],
    go: BorrowedFd<'_>,
    perch_go: BorrowedFd<'_>,
    failure: BorrowedFd<'_>,
    open_files: &libc::rlimit,
    mask: &libc::sigset_t,
) -> ! {
    // SAFETY: only async-signal-safe calls (signal-safety(7)) on valid pointers.
    unsafe {
        // Handlers would be reset by execve, but must not run before it; what was ignored stays ignored, except
        // SIGPIPE, which Rust's start-up ignores on its own account.
        for signal in 1..=libc::SIGRTMAX() {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, ptr::null(), &raw mut action) == 0
                && (action.sa_sigaction != libc::SIG_IGN || signal == libc::SIGPIPE)
                && action.sa_sigaction != libc::SIG_DFL
            {
                action.sa_sigaction = libc::SIG_DFL;
                action.sa_flags = 0;
                libc::sigaction(signal, &raw const action, ptr::null_mut());
            }
        }
        signals::reset_reserved();
        libc::setrlimit(libc::RLIMIT_NOFILE, open_files);
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut());
        // Own copy of perch's end: with it open, the end of perch would never be noticed.
        libc::close(perch_go.as_raw_fd());
        let mut byte = 0u8;
        loop {
            match libc::read(go.as_raw_fd(), (&raw mut byte).cast(), 1) {
                1 => break,
                -1 if *libc::__errno_location() == libc::EINTR => {}
                // perch has exited, or gave up.
                _ => libc::_exit(126),
            }
        }
        let mut error = libc::ENOENT;
        for (file, arguments, environment) in images {
            libc::execve(file.as_ptr(), arguments.as_ptr(), environment.as_ptr());
            error = *libc::__errno_location();
            if error != libc::ENOEXEC {
                break;
            }
        }
        libc::write(
            failure.as_raw_fd(),
            (&raw const error).cast(),
            size_of::<i32>(),
        );
        libc::_exit(126)
    }
}

impl Waiting {
    /// The child's process number.
    pub fn pid(&self) -> i32 {
        self.child.pid
    }

    /// Lets the child become the program, and waits until it has. If a signal has asked perch to stop meanwhile, the
    /// child ends of that signal instead: it may have come from a terminal before there was a child to get it too.
    ///
    /// # Errors
    /// The kernel's refusal to execute it.
    pub fn start(mut self) -> Result<Child, MachineError> {
        self.started = true;
        self.child.began = Instant::now();
        let told = match signals::stop_pending() {
            Some(signal) => {
                self.child.signal(signal);
                Ok(0)
            }
            None => rustix::io::write(&self.go, &[1]),
        };
        // The pipe closes when the program runs; what comes before is the reason why it does not.
        let mut reason = [0; size_of::<i32>()];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(&self.failure, &mut reason));
        let refused = matches!(read, Ok(length) if length == reason.len());
        let child = std::mem::replace(
            &mut self.child,
            Child {
                pid: 0,
                pidfd: None,
                end: None,
                began: Instant::now(),
                usage: None,
            },
        );
        if refused || told.is_err() {
            let mut child = child;
            child.wait();
            let error = match told {
                Err(errno) => io::Error::from(errno),
                Ok(_) => io::Error::from_raw_os_error(i32::from_ne_bytes(reason)),
            };
            return Err(lookup::exec_error(&self.program, &self.file, &error));
        }
        Ok(child)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.started && self.child.pid > 0 {
            // The child would see the pipe close only after this drop: end it outright. It has run nothing.
            self.child.signal(libc::SIGKILL);
            self.child.wait();
        }
    }
}

impl Child {
    /// PID of the program.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Readable once the child has ended.
    pub fn end(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// Sends a signal, unless it has ended already.
    pub fn signal(&self, signal: i32) {
        if self.end.is_none() {
            // SAFETY: not yet reaped, so the number is still this child's.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// How it ended, if it has. It is not reaped yet, so that `/proc` still tells its last numbers.
    pub fn ended(&mut self) -> Option<End> {
        if self.end.is_some() {
            return self.end;
        }
        // SAFETY: zeroed siginfo_t and rusage are valid, and only read where waitid has filled them in. The system call fills
        // in a rusage too, which the function of the C library does not.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let mut usage: libc::rusage = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            let result = libc::syscall(
                libc::SYS_waitid,
                libc::P_PID,
                self.pid as libc::id_t,
                &raw mut info,
                flags,
                &raw mut usage,
            );
            if result == -1 && *libc::__errno_location() == libc::ECHILD {
                self.end = Some(End::Unknown);
                return self.end;
            }
            if result != 0 || info.si_pid() != self.pid {
                return None;
            }
            let began = self.began;
            self.usage.get_or_insert_with(|| Usage {
                elapsed: began.elapsed(),
                user: duration(usage.ru_utime),
                system: duration(usage.ru_stime),
            });
            Some(End::Status(match info.si_code {
                libc::CLD_EXITED => (info.si_status() & 0xff) << 8,
                libc::CLD_DUMPED => info.si_status() | 0x80,
                _ => info.si_status(),
            }))
        }
    }

    /// What it took, once [`Child::ended`] has said that it has ended.
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Waits for its end and reaps it.
    pub fn wait(&mut self) -> End {
        loop {
            if let Some(end) = self.end {
                return end;
            }
            let mut status = 0;
            // SAFETY: waits for our own child, once.
            match unsafe { libc::waitpid(self.pid, &raw mut status, 0) } {
                pid if pid == self.pid => self.end = Some(End::Status(status)),
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => self.end = Some(End::Unknown),
            }
        }
    }
}

fn duration(time: libc::timeval) -> Duration {
    let micros = time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Duration::from_micros(micros)
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.pid > 0 && self.ended().is_some() {
            self.wait();
        }
    }
}
