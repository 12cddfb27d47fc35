//! SIGINT, SIGTERM, SIGHUP and SIGCHLD as something that can be waited for.

use perch_core::MachineError;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd},
    io::Errno,
};
use signal_hook::{
    consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM},
    flag::register_conditional_default,
    iterator::{backend::SignalDelivery, exfiltrator::SignalOnly},
};
use std::{
    os::unix::net::UnixStream,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// Signals that ask perch to stop.
const STOP: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// What arrived since it was last asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arrived {
    /// The first signal that asks to stop.
    pub stop: Option<i32>,
    /// Whether a child changed its state.
    pub child: bool,
}

/// Catches the signals while it lives; afterwards they act as if perch had never cared.
pub struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
}

/// How many are alive. At 0 the signals take their default action, since the registry's handlers stay installed.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static DEFAULT_ACTION: OnceLock<Arc<AtomicBool>> = OnceLock::new();

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

/// Whether whoever started perch wants this signal ignored (nohup(1), a shell's background job).
fn is_ignored(signal: i32) -> bool {
    // SAFETY: only reads the disposition into a zeroed structure.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

impl Signals {
    /// Starts catching. Signals that are ignored stay ignored.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn catch() -> Result<Self, MachineError> {
        let failed = |error| MachineError::Io {
            what: "catching signals".to_owned(),
            error,
        };
        let (read, write) = UnixStream::pair().map_err(failed)?;
        let stop: Vec<i32> = STOP.into_iter().filter(|s| !is_ignored(*s)).collect();
        let delivery = SignalDelivery::with_pipe(
            read,
            write,
            SignalOnly,
            stop.iter().copied().chain([SIGCHLD]),
        )
        .map_err(failed)?;
        LIVE.fetch_add(1, Ordering::SeqCst);
        let default_action = DEFAULT_ACTION.get_or_init(|| {
            let flag = Arc::new(AtomicBool::new(false));
            for signal in stop {
                // Refused for signals that cannot be caught only; these can.
                let _ = register_conditional_default(signal, Arc::clone(&flag));
            }
            flag
        });
        default_action.store(false, Ordering::SeqCst);
        Ok(Self { delivery })
    }

    /// Readable when something arrived.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }

    /// Waits this long, or until something asks to stop: then the signal.
    ///
    /// # Errors
    /// A system that does not let it wait.
    pub fn wait(&mut self, time: Duration) -> Result<Option<i32>, MachineError> {
        let due = Instant::now() + time;
        loop {
            if let Some(stop) = self.take().stop {
                return Ok(Some(stop));
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

    /// What arrived since the last call; does not wait.
    pub fn take(&mut self) -> Arrived {
        let mut arrived = Arrived::default();
        for signal in self.delivery.pending() {
            if signal == SIGCHLD {
                arrived.child = true;
            } else {
                arrived.stop.get_or_insert(signal);
            }
        }
        arrived
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        if LIVE.fetch_sub(1, Ordering::SeqCst) == 1
            && let Some(default_action) = DEFAULT_ACTION.get()
        {
            default_action.store(true, Ordering::SeqCst);
        }
    }
}
