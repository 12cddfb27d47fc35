//! Two perch on one machine: whoever places threads on a PU holds that PU's lock.
//!
//! A lock is an abstract Unix socket (unix(7)): the kernel frees it when its holder ends, however it ends, and needs
//! neither a directory nor permission. Containers with a network namespace of their own do not see each other's.

use perch_core::{MachineError, PuSet};
use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with},
};
use std::{fmt, io};

/// The right to place threads on some PUs; given up when dropped.
#[derive(Debug)]
pub struct Lock {
    _sockets: Vec<OwnedFd>,
}

/// Why a lock cannot be had.
#[derive(Debug)]
pub struct Held {
    /// PUs on which another perch places threads.
    pub pus: PuSet,
    /// The system's own refusal, for instance for want of descriptors; then `pus` is empty.
    pub error: Option<io::Error>,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            None => write!(
                f,
                "another perch places threads on PUs {}; give each its own with --pus, or let one observe \
                 (--policy observe)",
                self.pus
            ),
            Some(error) => write!(f, "PUs cannot be locked against another perch: {error}"),
        }
    }
}

impl std::error::Error for Held {}

impl Lock {
    /// Takes all of these PUs, or none.
    ///
    /// # Errors
    /// The PUs that others hold.
    pub fn take(pus: &PuSet) -> Result<Self, Held> {
        let mut sockets = Vec::with_capacity(pus.len());
        let mut held = PuSet::new();
        for pu in pus.iter() {
            match bind_pu(pu) {
                Ok(socket) => sockets.push(socket),
                Err(Errno::ADDRINUSE) => {
                    held.insert(pu);
                }
                Err(other) => {
                    return Err(Held {
                        pus: PuSet::new(),
                        error: Some(other.into()),
                    });
                }
            }
        }
        if held.is_empty() {
            Ok(Self { _sockets: sockets })
        } else {
            Err(Held {
                pus: held,
                error: None,
            })
        }
    }
}

/// The right to place interrupts; given up when dropped.
#[derive(Debug)]
pub struct IrqLock {
    _socket: OwnedFd,
}

impl IrqLock {
    /// Takes it.
    ///
    /// # Errors
    /// Another perch has it, or the system refuses.
    pub fn take() -> Result<Self, MachineError> {
        match bind_name("perch-irq") {
            Ok(socket) => Ok(Self { _socket: socket }),
            Err(Errno::ADDRINUSE) => Err(MachineError::Other(
                "another `perch irq --apply` is at work: stop it first".to_owned(),
            )),
            Err(errno) => Err(MachineError::Io {
                what: "locking interrupts against another perch".to_owned(),
                error: errno.into(),
            }),
        }
    }
}

fn bind_pu(pu: u32) -> Result<OwnedFd, Errno> {
    bind_name(&format!("perch-pu-{pu}"))
}

fn bind_name(name: &str) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&socket, &address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    // PU numbers that no machine has, so that a perch at work does not disturb the test.
    fn pus(text: &str) -> PuSet {
        text.parse().unwrap()
    }

    #[test]
    fn all_or_nothing_and_freed_when_dropped() {
        let first = Lock::take(&pus("60000-60003")).unwrap();
        let held = Lock::take(&pus("60002-60005")).unwrap_err();
        assert_eq!(held.pus.to_string(), "60002-60003");
        // What the refused one had taken meanwhile is free again.
        let beside = Lock::take(&pus("60004-60005")).unwrap();
        drop(first);
        assert!(Lock::take(&pus("60000-60003")).is_ok());
        drop(beside);
    }
}
