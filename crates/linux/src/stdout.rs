//! Whether standard output was closed when the process started. Rust's runtime opens /dev/null in its place before `main`
//! (so that no file of the program becomes standard output), and then all that is printed is lost without an error.

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Called by the loader, before Rust's runtime.
extern "C" fn look() {
    // SAFETY: asks for a descriptor's flags, and changes nothing.
    let is_closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1;
    CLOSED.store(is_closed, Ordering::Relaxed);
}

// SAFETY: a function that the loader may call, in the section of those that it calls.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Whether it was closed (`>&-`).
pub fn was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}
