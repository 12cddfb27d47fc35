//! Signals as something that can be waited for. Every signal that would end perch is caught, since the death of perch
//! leaves masks behind; what was ignored when perch was started stays ignored (nohup(1), a shell's background job).

use perch_core::MachineError;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
};
use std::{
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// Signals that tell of a fault of perch's own, unless another process has sent them: then they ask to stop.
const FAULTS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// Signals that ask perch to stop, besides [`FAULTS`] that were sent.
const STOP: [i32; 6] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// Signals, besides all real-time signals, that mean nothing to perch: they are for the program that it runs.
const PASSED: [i32; 8] = [
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
];

/// The C library keeps these to itself and refuses handlers for them; by default they end a process.
#[cfg(not(target_env = "musl"))]
const RESERVED: [i32; 2] = [32, 33];
#[cfg(target_env = "musl")]
const RESERVED: [i32; 3] = [32, 33, 34];

/// Signal numbers go from 1 to 64.
const NUMBERS: usize = 65;

/// The sender of a signal (`si_code`, sigaction(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The kernel: a terminal, a timer, a limit.
    Kernel,
    /// A process; 0 for one outside perch's PID namespace.
    Process(i32),
}

/// A signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Signal number (signal(7)).
    pub signal: i32,
    /// The sender; if the signal came several times, the last one.
    pub sender: Sender,
    /// Number of arrivals since the last query.
    pub times: u32,
}

/// Signals that arrived since the last query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Arrived {
    /// A signal that asks to stop. Further ones are left for the next call.
    pub stop: Option<Received>,
    /// Signals that are for the program.
    pub passed: Vec<Received>,
    /// Whether a child changed its state.
    pub child: bool,
}

/// Catches signals while it lives; after the last instance is dropped, signals have their old dispositions again. All
/// instances share what arrived: a signal is reported to the first caller that asks.
#[derive(Debug)]
pub struct Signals {
    /// The last signal that asked to stop.
    stopped_by: Option<Received>,
}

/// What arrived, by signal: 0 for nothing, else [`ARRIVED`], perhaps [`BY_KERNEL`], how often, and the sender's number.
static SLOTS: [AtomicU64; NUMBERS] = [const { AtomicU64::new(0) }; NUMBERS];
const ARRIVED: u64 = 1 << 63;
const BY_KERNEL: u64 = 1 << 62;
const ONCE: u64 = 1 << 32;
const TIMES: u64 = BY_KERNEL - ONCE;

/// Where handlers write a byte that wakes waiting threads, and where it is read.
static WAKE: AtomicI32 = AtomicI32::new(-1);
static WOKEN: OnceLock<OwnedFd> = OnceLock::new();

/// How many [`Signals`] live. At 0, signals take the action that they had before.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Whether signals for the program are kept also while no [`Signals`] lives.
static KEPT: AtomicBool = AtomicBool::new(false);

/// What signals did before: nothing of perch's, but Rust's own handlers of stack overflows.
static BEFORE: OnceLock<Vec<(i32, libc::sigaction)>> = OnceLock::new();

/// Whether the signal is for the program that perch runs, and means nothing to perch.
fn is_passed(signal: i32) -> bool {
    PASSED.contains(&signal) || signal >= libc::SIGRTMIN()
}

fn slot(signal: i32) -> Option<&'static AtomicU64> {
    SLOTS.get(usize::try_from(signal).ok()?)
}

/// Only makes system calls and changes atomic variables, as a handler must (signal-safety(7)).
extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands over a valid siginfo_t (SA_SIGINFO); `si_pid` is only read where it is filled in.
    // errno is this thread's own and restored, since what was interrupted may be about to read it.
    unsafe {
        let errno = *libc::__errno_location();
        let code = (*info).si_code;
        let sent = matches!(code, libc::SI_USER | libc::SI_QUEUE | libc::SI_TKILL);
        let mut sent = sent;
        let mut sender = if sent { (*info).si_pid() } else { 0 };
        // The kernel sends it in the name of the process that is over its limit.
        if signal == libc::SIGXFSZ && sender == libc::getpid() {
            (sent, sender) = (false, 0);
        }
        let own_fault = FAULTS.contains(&signal) && (!sent || sender == libc::getpid());
        let wanted = LIVE.load(Ordering::SeqCst) > 0
            || signal == libc::SIGCHLD
            || is_passed(signal) && KEPT.load(Ordering::SeqCst);
        if own_fault || !wanted {
            act_as_before(signal, code);
        } else {
            note(signal, sent, sender);
        }
        *libc::__errno_location() = errno;
    }
}

/// Keeps a signal until it is asked for, and wakes waiting threads.
fn note(signal: i32, sent: bool, sender: i32) {
    if let Some(slot) = slot(signal) {
        let from = if sent { 0 } else { BY_KERNEL };
        let _ = slot.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |before| {
            let times = (before & TIMES).saturating_add(ONCE).min(TIMES);
            Some(ARRIVED | from | times | u64::from(sender.cast_unsigned()))
        });
    }
    // SAFETY: writes one byte from valid memory. A full pipe wakes as well.
    unsafe {
        libc::write(WAKE.load(Ordering::SeqCst), [0u8].as_ptr().cast(), 1);
    }
}

/// What the signal would have done without perch's handler. Returns, if at all, to the interrupted code.
///
/// # Safety
/// To be called in a signal handler that blocks the signal.
unsafe fn act_as_before(signal: i32, code: i32) {
    // SAFETY: async-signal-safe calls on valid memory.
    unsafe {
        let before = BEFORE
            .get()
            .and_then(|all| all.iter().find(|(of, _)| *of == signal));
        match before {
            // The faulting instruction is executed again, and Rust's handler says what was wrong.
            Some((_, action)) if code > 0 && action.sa_sigaction != libc::SIG_DFL => {
                libc::sigaction(signal, action, std::ptr::null_mut());
            }
            _ => {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
                // Delivered once the handler has returned.
                libc::raise(signal);
            }
        }
    }
}

/// Installs the handlers, once in a process.
fn install() -> Result<(), MachineError> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if WOKEN.get().is_some() {
        return Ok(());
    }
    let failed = |errno: Errno| MachineError::Io {
        what: "catching signals".to_owned(),
        error: errno.into(),
    };
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(failed)?;
    WAKE.store(write.into_raw_fd(), Ordering::SeqCst);
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    let all = FAULTS.into_iter().chain(STOP).chain(PASSED);
    let all = all.chain(real_time).chain([libc::SIGCHLD]);
    // SAFETY: reads and sets dispositions with initialised structures; the handler only does what handlers may.
    unsafe {
        let mut before = Vec::new();
        for signal in all {
            let mut action: libc::sigaction = std::mem::zeroed();
            let read = libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0;
            let ignored = action.sa_sigaction == libc::SIG_IGN;
            // Of children that end perch must hear in any case.
            if read && (!ignored || signal == libc::SIGCHLD) {
                before.push((signal, action));
            }
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
        // Also on a stack that has overflown; and system calls of perch's go on afterwards.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigfillset(&raw mut action.sa_mask);
        for (signal, _) in BEFORE.get_or_init(|| before) {
            libc::sigaction(*signal, &raw const action, std::ptr::null_mut());
        }
    }
    RESERVED
        .iter()
        .for_each(|signal| set_reserved(*signal, libc::SIG_IGN));
    let _ = WOKEN.set(read);
    Ok(())
}

/// Sets what a signal does that the C library keeps to itself.
fn set_reserved(signal: i32, to: libc::sighandler_t) {
    // The kernel's own structure: handler, flags, restorer and mask, a machine word each. Without a handler all but
    // the first are 0.
    let action: [libc::sighandler_t; 4] = [to, 0, 0, 0];
    // SAFETY: as large as what the kernel reads, and only read.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            action.as_ptr(),
            std::ptr::null::<libc::c_void>(),
            size_of::<u64>(),
        );
    }
}

/// Gives the C library's own signals their default action again, in a forked child before it becomes a program. One
/// system call each, and nothing else.
pub(crate) fn reset_reserved() {
    for signal in RESERVED {
        set_reserved(signal, libc::SIG_DFL);
    }
}

/// A signal that asks to stop and that no caller has fetched yet; it stays.
pub(crate) fn stop_pending() -> Option<i32> {
    let came = |signal: &i32| slot(*signal).is_some_and(|slot| slot.load(Ordering::SeqCst) != 0);
    STOP.into_iter().chain(FAULTS).find(came)
}

/// Keeps signals that are for the program from now on, for who asks later; without that they end perch.
///
/// # Errors
/// No more descriptors.
pub fn keep_passed() -> Result<(), MachineError> {
    // First, as in `Signals::catch`.
    KEPT.store(true, Ordering::SeqCst);
    install().inspect_err(|_| KEPT.store(false, Ordering::SeqCst))
}

/// Name of the signal, such as `SIGUSR1` or `SIGRTMIN+3`.
pub fn name(signal: i32) -> String {
    match signal_hook::low_level::signal_name(signal) {
        Some(name) => name.to_owned(),
        None if signal == libc::SIGPWR => "SIGPWR".to_owned(),
        None if signal == libc::SIGSTKFLT => "SIGSTKFLT".to_owned(),
        None if signal == libc::SIGRTMIN() => "SIGRTMIN".to_owned(),
        None if signal > libc::SIGRTMIN() => format!("SIGRTMIN+{}", signal - libc::SIGRTMIN()),
        None => format!("signal {signal}"),
    }
}

impl Signals {
    /// Starts catching.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn catch() -> Result<Self, MachineError> {
        // First: a signal that comes as soon as its handler is there is not to act as before.
        LIVE.fetch_add(1, Ordering::SeqCst);
        if let Err(error) = install() {
            LIVE.fetch_sub(1, Ordering::SeqCst);
            return Err(error);
        }
        Ok(Self { stopped_by: None })
    }

    /// Catches until the process ends: a signal that comes at the very end must not take the place of an exit status.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn catch_for_good() -> Result<(), MachineError> {
        std::mem::forget(Self::catch()?);
        Ok(())
    }

    /// Readable when something arrived.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match WOKEN.get() {
            Some(fd) => fd.as_fd(),
            None => unreachable!("set before there is a Signals"),
        }
    }

    /// Waits this long, or until something asks to stop: then the signal. Signals that are not for perch are handed to
    /// `ignored`.
    ///
    /// # Errors
    /// A system that does not let it wait.
    pub fn wait(
        &mut self,
        time: Duration,
        mut ignored: impl FnMut(Received),
    ) -> Result<Option<i32>, MachineError> {
        let due = Instant::now() + time;
        loop {
            let arrived = self.take();
            arrived.passed.into_iter().for_each(&mut ignored);
            if let Some(stop) = arrived.stop {
                return Ok(Some(stop.signal));
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match poll(
                &mut [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)],
                Some(&timeout),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(MachineError::Io {
                        what: "waiting".into(),
                        error: errno.into(),
                    });
                }
            }
        }
    }

    /// Signals that arrived since the last call; does not block.
    pub fn take(&mut self) -> Arrived {
        let mut bytes = [0; 64];
        while rustix::io::read(self.fd(), &mut bytes).is_ok_and(|length| length == bytes.len()) {}
        let mut arrived = Arrived {
            child: received(libc::SIGCHLD).is_some(),
            ..Arrived::default()
        };
        for signal in 1..NUMBERS as i32 {
            if signal == libc::SIGCHLD {
                // Reported above; one that arrived since is for the next call.
            } else if is_passed(signal) {
                arrived.passed.extend(received(signal));
            } else if arrived.stop.is_none() {
                arrived.stop = received(signal);
            }
        }
        self.stopped_by = arrived.stop.or(self.stopped_by);
        arrived
    }

    /// The last signal that asked to stop.
    pub fn stopped_by(&self) -> Option<Received> {
        self.stopped_by
    }
}

/// Whether a signal that asks to stop has arrived and was not taken yet.
pub fn is_stop_pending() -> bool {
    let arrived =
        |signal: &i32| slot(*signal).is_some_and(|slot| slot.load(Ordering::SeqCst) & ARRIVED != 0);
    STOP.iter().chain(&FAULTS).any(arrived)
}

/// Takes what arrived of one signal.
fn received(signal: i32) -> Option<Received> {
    let state = slot(signal)?.swap(0, Ordering::SeqCst);
    (state & ARRIVED != 0).then(|| Received {
        signal,
        sender: match state & BY_KERNEL {
            0 => Sender::Process((state as u32).cast_signed()),
            _ => Sender::Kernel,
        },
        times: ((state & TIMES) / ONCE) as u32,
    })
}

impl Drop for Signals {
    fn drop(&mut self) {
        if LIVE.fetch_sub(1, Ordering::SeqCst) == 1 {
            // No caller is left that could be told.
            self.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (signal, wanted) in [
            (libc::SIGTERM, "SIGTERM"),
            (libc::SIGPWR, "SIGPWR"),
            (libc::SIGSTKFLT, "SIGSTKFLT"),
            (libc::SIGRTMIN(), "SIGRTMIN"),
            (libc::SIGRTMAX(), "SIGRTMIN+30"),
        ] {
            assert_eq!(name(signal), wanted);
        }
    }

    #[test]
    fn what_came_is_told_once_with_how_often_and_by_whom() {
        let mut signals = Signals::catch().unwrap();
        let signal = libc::SIGRTMIN() + 5;
        for _ in 0..3 {
            // SAFETY: sends a signal that is caught.
            unsafe { libc::kill(libc::getpid(), signal) };
        }
        let due = Instant::now() + Duration::from_secs(10);
        let mut passed: Vec<Received> = Vec::new();
        while passed.iter().map(|one| one.times).sum::<u32>() < 3 && Instant::now() < due {
            passed.extend(signals.take().passed);
        }
        assert_eq!(passed.iter().map(|one| one.times).sum::<u32>(), 3);
        let own = std::process::id() as i32;
        assert!(
            passed
                .iter()
                .all(|one| one.signal == signal && one.sender == Sender::Process(own)),
            "{passed:?}"
        );
        assert_eq!(signals.take().stop, None);
        assert_eq!(signals.stopped_by(), None);
    }
}
