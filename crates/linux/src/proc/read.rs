//! Getting the bytes: kept-open descriptors for what is read in every period, open-read-close for the rest.

use super::parse::{
    Schedstat, Stat, Status, parse_migrations, parse_schedstat, parse_stat, parse_status,
};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{Mode, OFlags, RawDir},
    io::Errno,
};
use std::{ffi::OsString, mem::MaybeUninit, os::unix::ffi::OsStrExt, sync::OnceLock};

/// The reason why a file of `/proc` could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// The thread has ended.
    Ended,
    /// The kernel's own reason (permission, no more descriptors, a file that this kernel lacks).
    Refused(Errno),
}

impl From<Errno> for Gone {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::SRCH => Self::Ended,
            other => Self::Refused(other),
        }
    }
}

/// Where run times come from on this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunClock {
    /// `schedstat`, in nanoseconds, with waiting times.
    Schedstat,
    /// `stat`, in clock ticks (10 ms), where the kernel was built without scheduler information.
    Stat,
}

impl RunClock {
    /// The better one that this kernel has.
    pub fn detect() -> Self {
        let mut reader = Reader::new();
        match reader
            .file("/proc/thread-self/schedstat")
            .map(parse_schedstat)
        {
            // A kernel that does not keep the numbers shows zeros.
            Ok(Some(stat)) if stat.run > 0 || stat.slices > 0 => Self::Schedstat,
            _ => Self::Stat,
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Schedstat => "schedstat",
            Self::Stat => "stat",
        }
    }

    fn parse(self, bytes: &[u8], tick: u64) -> Option<Schedstat> {
        match self {
            Self::Schedstat => parse_schedstat(bytes),
            Self::Stat => parse_stat(bytes).map(|stat| Schedstat {
                run: stat.ticks.saturating_mul(tick),
                ..Schedstat::default()
            }),
        }
    }

    /// Opens the thread's file, to be read again and again with [`RunClock::read`]. The descriptor stays tied to this
    /// thread: should another get its number, reading fails with [`Gone::Ended`].
    ///
    /// # Errors
    /// A thread that has ended, or no descriptor left.
    pub fn open(self, process: i32, tid: i32) -> Result<OwnedFd, Gone> {
        let path = format!("/proc/{process}/task/{tid}/{}", self.file());
        Ok(rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?)
    }

    /// Reads run and waiting time since the thread's start. `tick` is the length of a clock tick in nanoseconds.
    ///
    /// # Errors
    /// A thread that has ended.
    pub fn read(self, file: impl AsFd, tick: u64) -> Result<Schedstat, Gone> {
        let mut buffer = [0; 1024];
        let length = rustix::io::pread(file, &mut buffer, 0)?;
        self.parse(&buffer[..length], tick).ok_or(Gone::Ended)
    }
}

/// Reads small files into one buffer that it keeps.
#[derive(Debug)]
pub struct Reader {
    buffer: Vec<u8>,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// A reader with an empty buffer.
    pub fn new() -> Self {
        Self {
            buffer: Vec::with_capacity(4096),
        }
    }

    /// The whole file.
    ///
    /// # Errors
    /// A file that is not there or cannot be read.
    pub fn file(&mut self, path: &str) -> Result<&[u8], Gone> {
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        self.buffer.clear();
        loop {
            self.buffer.reserve(4096);
            if rustix::io::read(&file, rustix::buffer::spare_capacity(&mut self.buffer))? == 0 {
                return Ok(&self.buffer);
            }
        }
    }

    /// The beginning of a file, as much as this or a little more.
    ///
    /// # Errors
    /// A file that is not there or cannot be read.
    pub fn beginning(&mut self, path: &str, bytes: usize) -> Result<&[u8], Gone> {
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        self.buffer.clear();
        while self.buffer.len() < bytes {
            self.buffer.reserve(4096);
            if rustix::io::read(&file, rustix::buffer::spare_capacity(&mut self.buffer))? == 0 {
                break;
            }
        }
        Ok(&self.buffer)
    }

    /// A small file that is kept open, from its beginning.
    ///
    /// # Errors
    /// The thread that it belongs to has ended.
    pub fn again(&mut self, file: impl AsFd) -> Result<&[u8], Gone> {
        self.buffer.clear();
        self.buffer.reserve(4096);
        rustix::io::pread(file, rustix::buffer::spare_capacity(&mut self.buffer), 0)?;
        Ok(&self.buffer)
    }

    /// `/proc/PROCESS/task/TID/stat`.
    ///
    /// # Errors
    /// A thread that has ended.
    pub fn stat(&mut self, process: i32, tid: i32) -> Result<Stat<'_>, Gone> {
        let bytes = self.file(&format!("/proc/{process}/task/{tid}/stat"))?;
        parse_stat(bytes).ok_or(Gone::Ended)
    }

    /// `/proc/PROCESS/task/TID/status`.
    ///
    /// # Errors
    /// A thread that has ended.
    pub fn status(&mut self, process: i32, tid: i32) -> Result<Status, Gone> {
        self.file(&format!("/proc/{process}/task/{tid}/status"))
            .map(parse_status)
    }

    /// How often the thread moved from one PU to another; `None` on kernels that do not tell.
    pub fn migrations(&mut self, process: i32, tid: i32) -> Option<u64> {
        self.file(&format!("/proc/{process}/task/{tid}/sched"))
            .ok()
            .and_then(parse_migrations)
    }

    /// Run and waiting time since the thread's start, without a kept descriptor.
    ///
    /// # Errors
    /// A thread that has ended.
    pub fn run_time(
        &mut self,
        clock: RunClock,
        process: i32,
        tid: i32,
        tick: u64,
    ) -> Result<Schedstat, Gone> {
        let path = format!("/proc/{process}/task/{tid}/{}", clock.file());
        let bytes = self.file(&path)?;
        clock.parse(bytes, tick).ok_or(Gone::Ended)
    }
}

/// When the process (or thread) of that number started, in clock ticks after boot.
pub fn start_of(number: i32) -> Option<u64> {
    // `/proc/PID/stat` would add up the times of all threads of the process first.
    Reader::new()
        .stat(number, number)
        .ok()
        .map(|stat| stat.start)
}

/// The numbers that a directory's entries are named by.
fn numbers(path: &str) -> Result<Vec<i32>, Gone> {
    let dir = rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut numbers = Vec::new();
    while let Some(entry) = entries.next() {
        if let Some(number) = entry?
            .file_name()
            .to_str()
            .ok()
            .and_then(|n| n.parse().ok())
        {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// All processes that we may see.
///
/// # Errors
/// A `/proc` that cannot be listed (no descriptor left, not mounted).
pub fn list_processes() -> Result<Vec<i32>, Gone> {
    numbers("/proc")
}

/// The threads of a process.
///
/// # Errors
/// A process that has ended, or cannot be listed.
pub fn list_tasks(process: i32) -> Result<Vec<i32>, Gone> {
    numbers(&format!("/proc/{process}/task"))
}

/// As [`list_processes`], for those who look again soon: empty if they cannot be listed.
pub fn process_numbers() -> Vec<i32> {
    list_processes().unwrap_or_default()
}

/// As [`list_tasks`], for those who look again soon: empty if they cannot be listed.
pub fn task_numbers(process: i32) -> Vec<i32> {
    list_tasks(process).unwrap_or_default()
}

/// The number that the kernel gave to the newest process or thread (`/proc/loadavg`, last field). As numbers are given
/// out in rising order and around, everything that was created between two calls lies between the two answers.
pub fn last_task_number() -> Option<i32> {
    // In a container a file of lxcfs may stand here, which has the host's numbers.
    static IS_PROC: OnceLock<bool> = OnceLock::new();
    let is_proc = || {
        let found = rustix::fs::statfs("/proc/loadavg");
        found.is_ok_and(|found| found.f_type == rustix::fs::PROC_SUPER_MAGIC)
    };
    match IS_PROC.get_or_init(is_proc) {
        true => last_number_in("/proc/loadavg"),
        false => last_number_in("/proc/sys/kernel/ns_last_pid"),
    }
}

fn last_number_in(path: &str) -> Option<i32> {
    let mut reader = Reader::new();
    let text = std::str::from_utf8(reader.file(path).ok()?).ok()?;
    text.split_whitespace().last()?.parse().ok()
}

/// What separates the marks of nested sessions; no mark contains it.
const SEPARATOR: char = ',';

/// The value of [`SESSION_VARIABLE`](perch_core::machine::SESSION_VARIABLE) for the program of a session that was itself
/// started by others: it belongs to each of them.
pub fn nested_mark(outer: Option<&str>, mark: &str) -> String {
    match outer.filter(|outer| !outer.is_empty()) {
        Some(outer) => format!("{outer}{SEPARATOR}{mark}"),
        None => mark.to_owned(),
    }
}

/// Whether a session's mark is among those in the variable's value.
pub fn has_mark(value: &str, mark: &str) -> bool {
    value.split(SEPARATOR).any(|one| one == mark)
}

/// More than a program can be given: execve(2) allows 6 MiB of arguments and environment. But a process may let `environ`
/// show any memory of its own (prctl(2), PR_SET_MM_MAP), gigabytes of it.
const ENVIRONMENT: usize = 6 << 20;

/// The value of an environment variable with which a process was started; `None` if it has none or may not be read.
pub fn session_of(process: i32, variable: &str) -> Option<OsString> {
    let mut reader = Reader::new();
    let path = format!("/proc/{process}/environ");
    let bytes = reader.beginning(&path, ENVIRONMENT).ok()?;
    bytes
        .split(|b| *b == 0)
        .find_map(|entry| entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"="))
        .map(|value| std::ffi::OsStr::from_bytes(value).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_within_another_bears_both_marks() {
        let outer = nested_mark(None, "1-2-a");
        let both = nested_mark(Some(&outer), "1-2-ab");
        assert_eq!((&*outer, &*both), ("1-2-a", "1-2-a,1-2-ab"));
        assert!(has_mark(&both, "1-2-a") && has_mark(&both, "1-2-ab"));
        assert!(!has_mark(&outer, "1-2-ab") && !has_mark("1-2-ab", "1-2-a"));
    }

    #[test]
    fn own_files_are_read() {
        let mut reader = Reader::new();
        let pid = std::process::id() as i32;
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let stat = reader.stat(pid, tid).unwrap();
        assert_eq!(stat.number, tid);
        let status = reader.status(pid, tid).unwrap();
        assert_eq!(status.process, pid);
        assert!(!status.mask.unwrap().is_empty());
        assert!(task_numbers(pid).contains(&tid));
        assert!(process_numbers().contains(&pid));
        assert_eq!(start_of(tid), reader.stat(pid, tid).ok().map(|s| s.start));
    }

    #[test]
    fn a_kept_descriptor_notices_the_end_of_its_thread() {
        let (send, receive) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(rustix::thread::gettid().as_raw_nonzero().get())
                .unwrap();
            let _ = stopped.recv();
        });
        let tid = receive.recv().unwrap();
        let clock = RunClock::detect();
        let file = clock.open(std::process::id() as i32, tid).unwrap();
        clock.read(&file, 10_000_000).unwrap();
        drop(stop);
        thread.join().unwrap();
        // The kernel wakes the joiner a little before it removes the thread from /proc.
        while clock.read(&file, 10_000_000).is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(clock.read(&file, 10_000_000), Err(Gone::Ended));
    }

    #[test]
    fn what_is_not_there_is_gone() {
        assert_eq!(Reader::new().file("/proc/0/stat").err(), Some(Gone::Ended));
        assert!(task_numbers(0).is_empty());
        assert_eq!(start_of(0), None);
    }

    #[test]
    fn new_tasks_get_rising_numbers() {
        let before = last_task_number().unwrap();
        std::thread::spawn(|| ()).join().unwrap();
        assert_ne!(last_task_number().unwrap(), before);
    }
}
