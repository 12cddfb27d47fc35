//! The socket to perch.

use perch_trace::wire::{Head, Kind};
use rustix::{
    fd::{BorrowedFd, IntoRawFd, OwnedFd},
    io::{Errno, fcntl_dupfd_cloexec},
    net::{SendFlags, send as send_to},
    process::{Pid, getpid},
};
use std::sync::{
    Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

struct Link {
    socket: BorrowedFd<'static>,
    /// The process that is recorded; a child that it forks is not.
    process: Pid,
    /// Blocks that are to be told before the next records. Held while a message is sent, so that messages stay whole.
    blocks: Mutex<Vec<u8>>,
    broken: AtomicBool,
}

static LINK: OnceLock<Link> = OnceLock::new();

/// Where the socket is moved, out of the way of programs that close all low descriptors or count on their numbers.
const HIGH: i32 = 900;

/// Takes the socket to perch into use. What the program executes instead of itself does not inherit it.
pub fn open(socket: OwnedFd, version: u32) {
    let moved = fcntl_dupfd_cloexec(&socket, HIGH).unwrap_or(socket);
    // SAFETY: it is never closed from here on.
    let socket = unsafe { BorrowedFd::borrow_raw(moved.into_raw_fd()) };
    let _ = LINK.set(Link {
        socket,
        process: getpid(),
        blocks: Mutex::default(),
        broken: AtomicBool::new(false),
    });
    send(Kind::Hello, version, &[]);
}

/// Adds to the blocks that are told before the next records.
pub fn add_block(write: impl FnOnce(&mut Vec<u8>)) {
    // In a forked child another thread's lock is held for ever.
    if let Some(link) = LINK.get()
        && getpid() == link.process
    {
        write(&mut link.blocks.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Sends a message with records.
pub fn send(kind: Kind, thread: u32, records: &[u64]) {
    let Some(link) = LINK.get() else { return };
    if link.broken.load(Relaxed) || getpid() != link.process {
        return;
    }
    let mut blocks = link.blocks.lock().unwrap_or_else(PoisonError::into_inner);
    let mut sent = Ok(());
    if !blocks.is_empty() {
        sent = message(link, Kind::Blocks, 0, &blocks);
        blocks.clear();
    }
    let bytes: Vec<u8> = records
        .iter()
        .flat_map(|record| record.to_le_bytes())
        .collect();
    if sent
        .and_then(|()| message(link, kind, thread, &bytes))
        .is_err()
    {
        // perch is gone. The program goes on.
        link.broken.store(true, Relaxed);
    }
}

fn message(link: &Link, kind: Kind, thread: u32, body: &[u8]) -> Result<(), Errno> {
    let head = Head {
        kind,
        thread,
        length: body.len() as u32,
    };
    for mut rest in [&head.to_bytes()[..], body] {
        while !rest.is_empty() {
            match send_to(link.socket, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
