//! Counts a region of its own: computes in it for so many seconds of CPU time, and prints libperch's report.

use clap::Parser;
use std::hint::black_box;

/// What to do in the region.
#[derive(Parser)]
struct Arguments {
    /// Seconds of CPU time
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// How often
    #[arg(long, default_value_t = 1)]
    calls: u32,
    /// Event sets
    #[arg(long, short)]
    event: Vec<String>,
}

/// The calling thread's CPU time in seconds.
fn cpu_time() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    libperch::init(&libperch::Options {
        events: arguments.event,
        ..libperch::Options::default()
    })?;
    for _ in 0..arguments.calls {
        let _region = libperch::region("compute");
        let end = cpu_time() + arguments.seconds / f64::from(arguments.calls);
        let mut x = 1u64;
        while cpu_time() < end {
            for i in 0..10_000u64 {
                x = black_box(x.wrapping_mul(i | 1));
            }
        }
    }
    print!("{}", libperch::json()?);
    libperch::finish()?;
    Ok(())
}
