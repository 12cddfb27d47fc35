//! One descriptor that says that any of several rings has something to read.

use perch_core::MachineError;
use rustix::{event::epoll, time::Timespec};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A descriptor to wait on for several rings.
///
/// Its members are edge-triggered: a ring whose threads have all exited reports a hang-up for ever, which must not keep
/// a waiting reader awake. A reader that wakes up therefore drains all rings, after [`Poll::settle`].
pub struct Poll(OwnedFd);

impl Poll {
    /// Waits for nothing yet.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new() -> Result<Self, MachineError> {
        match epoll::create(epoll::CreateFlags::CLOEXEC) {
            Ok(fd) => Ok(Self(fd)),
            Err(error) => Err(MachineError::Io {
                what: "epoll for perf events".to_owned(),
                error: error.into(),
            }),
        }
    }

    /// Waits for one more ring, until its descriptor is closed.
    ///
    /// # Errors
    /// No memory left.
    pub fn add(&self, ring: impl AsFd) -> Result<(), MachineError> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.0, ring, epoll::EventData::new_u64(0), flags).map_err(|error| {
            MachineError::Io {
                what: "epoll for perf events".to_owned(),
                error: error.into(),
            }
        })
    }

    /// Takes what made the descriptor readable, before the rings are drained.
    pub fn settle(&self) {
        let mut ready = Vec::with_capacity(256);
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // A failure leaves the descriptor readable and the reader awake, no more.
        let _ = epoll::wait(
            &self.0,
            rustix::buffer::spare_capacity(&mut ready),
            Some(&now),
        );
    }
}

impl AsFd for Poll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
