//! A thread that ends a sample of every open region at each interval.

use super::{process::Process, thread::Thread};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Starts the thread.
pub(crate) fn start(process: &'static Process, interval: Duration) {
    // It inherits the mask: signals are for the program's threads.
    // SAFETY: the sets are valid places, and the mask is put back below.
    let before = unsafe {
        let (mut all, mut before) = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let builder = thread::Builder::new().name("perch-sampler".to_owned());
    // Without it there are fewer samples, which the report shows.
    let _ = builder.spawn(move || sample(process, interval));
    // SAFETY: `before` is the mask from above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
}

fn sample(process: &Process, interval: Duration) {
    let mut next = Instant::now();
    loop {
        next += interval;
        let now = Instant::now();
        match next.checked_duration_since(now) {
            Some(rest) => thread::sleep(rest),
            // Late: intervals that were missed are not made up for.
            None => next = now,
        }
        if !process.is_current() {
            return;
        }
        process.each(Thread::tick);
    }
}
