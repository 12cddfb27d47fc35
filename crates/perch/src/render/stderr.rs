//! Standard error, which may be a pager that is paused or a terminal that was stopped (Ctrl-S): perch must not wait there
//! while masks are to be restored.
//!
//! Its descriptor is shared with the program that perch runs, so it cannot be made non-blocking. Instead nothing is
//! written before poll(2) says that there is room: a pipe that is writable takes [`PIECE`] bytes without blocking (pipe(7)).

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::BorrowedFd,
    io::Errno,
};
use std::{
    io::Write,
    time::{Duration, Instant},
};

/// The least PIPE_BUF that Linux has.
const PIECE: usize = 4096;

/// How often a writer that waits looks whether it should give up.
const LOOK: Duration = Duration::from_millis(50);

/// Writes text, its colours only where they are wanted, but waits no longer than this for a reader. Whether all of it was
/// written.
pub fn write_within(text: &str, patience: Duration) -> bool {
    let due = Instant::now() + patience;
    write(text, &mut || Instant::now() >= due)
}

/// The same, waiting for a reader until a signal asks perch to stop.
pub fn write_until_stopped(text: &str) -> bool {
    write(text, &mut perch_linux::signals::is_stop_pending)
}

fn write(text: &str, give_up: &mut dyn FnMut() -> bool) -> bool {
    let choice = anstream::AutoStream::choice(&std::io::stderr());
    let mut adapted = anstream::AutoStream::new(Vec::new(), choice);
    if adapted.write_all(text.as_bytes()).is_err() {
        return false;
    }
    write_bytes(rustix::stdio::stderr(), &adapted.into_inner(), give_up)
}

fn write_bytes(fd: BorrowedFd<'_>, bytes: &[u8], give_up: &mut dyn FnMut() -> bool) -> bool {
    let mut bytes = bytes;
    while !bytes.is_empty() {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK.as_nanos() as _,
        };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) if give_up() => return false,
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return false,
        }
        match rustix::io::write(fd, &bytes[..bytes.len().min(PIECE)]) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            // Closed or full: nobody can be told.
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Read, os::fd::AsFd, thread};

    #[test]
    fn what_nobody_reads_is_given_up_and_what_is_read_late_is_whole() {
        let text: Vec<u8> = (0..1_000_000u32).map(|at| at as u8).collect();
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut looks = 0;
        let mut give_up = || {
            looks += 1;
            looks == 3
        };
        assert!(!write_bytes(writer.as_fd(), &text, &mut give_up));
        assert_eq!(looks, 3);
        drop(reader);
        assert!(!write_bytes(writer.as_fd(), &text, &mut || false), "closed");

        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let reads = thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read)
        });
        assert!(write_bytes(writer.as_fd(), &text, &mut || false));
        drop(writer);
        let read = reads.join().expect("no panic").expect("a pipe");
        assert!(read == text);
    }
}
