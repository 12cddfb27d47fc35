//! Noise of known truth: a thread bound to one PU that wakes up in a fixed period and computes for a fixed CPU time. It
//! says of each burst when it woke up and how much CPU time it really took, so a measurement of noise can be judged by
//! what happened instead of by what was asked for.

use std::{hint::black_box, time::Duration};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// What noise to make.
#[derive(clap::Parser, Clone, Debug)]
#[command(about = "Wakes up in a fixed period on one PU and computes for a fixed CPU time")]
pub struct Options {
    /// The PU
    #[arg(long)]
    pub pu: u32,
    /// The period in milliseconds
    #[arg(long, default_value_t = 10)]
    pub period: u64,
    /// CPU time of a burst in microseconds
    #[arg(long, default_value_t = 1000)]
    pub burst: u64,
    /// The name of the thread, up to 15 bytes
    #[arg(long, default_value = "injected")]
    pub name: String,
    /// Make noise until the process that started this one has closed its end of standard input
    #[arg(long)]
    pub until_closed: bool,
    /// Else for this many seconds
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
}

/// One burst, in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Burst {
    /// When it woke up (CLOCK_MONOTONIC).
    pub woke: u64,
    /// When it went to sleep again.
    pub slept: u64,
    /// The CPU time that it took, from one sleep to the next.
    pub took: u64,
}

/// Makes noise; every burst that there was.
///
/// # Errors
/// A PU to which it may not be bound.
pub fn run(options: &Options) -> Result<Vec<Burst>> {
    name(&options.name);
    bind(options.pu)?;
    let period = options.period.max(1) * 1_000_000;
    let burst = options.burst * 1_000;
    let begin = monotonic();
    let limit = Duration::from_secs_f64(options.seconds).as_nanos() as u64;
    let mut bursts = Vec::with_capacity(100_000);
    let mut spent = cpu_time();
    let mut due = begin + period;
    loop {
        sleep_until(due);
        let woke = monotonic();
        let end = spent + burst;
        while cpu_time() < end {
            let mut x = woke;
            for _ in 0..200 {
                x = black_box(x.wrapping_mul(3));
            }
        }
        let now = cpu_time();
        let slept = monotonic();
        bursts.push(Burst {
            woke,
            slept,
            took: now - spent,
        });
        spent = now;
        let over = match options.until_closed {
            true => is_closed(),
            false => slept - begin >= limit,
        };
        if over {
            return Ok(bursts);
        }
        // One that comes too late sleeps all the same: a burst always ends with a sleep.
        due += period * ((slept.saturating_sub(due)) / period + 1);
    }
}

fn name(name: &str) {
    let mut bytes = name.as_bytes().to_vec();
    bytes.truncate(15);
    bytes.push(0);
    // SAFETY: a C string that lives during the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, bytes.as_ptr()) };
}

fn bind(pu: u32) -> Result<()> {
    // SAFETY: an all-zero set is an empty one; CPU_SET ignores numbers beyond it.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(pu as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    match result {
        0 => Ok(()),
        _ => bail!("PU {pu}: {}", std::io::Error::last_os_error()),
    }
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn monotonic() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The calling thread's.
fn cpu_time() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn sleep_until(time: u64) {
    let until = libc::timespec {
        tv_sec: (time / 1_000_000_000) as i64,
        tv_nsec: (time % 1_000_000_000) as i64,
    };
    // SAFETY: `until` lives during the call; what is left is not asked for.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const until,
            std::ptr::null_mut(),
        );
    }
}

/// Whether standard input has come to its end.
fn is_closed() -> bool {
    let mut input = libc::pollfd {
        fd: 0,
        events: 0,
        revents: 0,
    };
    // SAFETY: one descriptor, as is said.
    unsafe { libc::poll(&raw mut input, 1, 0) > 0 && input.revents & libc::POLLHUP != 0 }
}

/// What a noise measurement should have found of the bursts.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// Bursts that began meanwhile.
    pub bursts: usize,
    /// Their median CPU time in nanoseconds.
    pub median: u64,
    /// Their CPU time in all, in nanoseconds.
    pub total: u64,
    /// The median interval from one wake-up to the next, in nanoseconds.
    pub period: u64,
    /// The share of intervals that differ from the median one by less than 5 %.
    pub regular: f64,
}

/// What happened between two times of CLOCK_MONOTONIC.
///
/// # Errors
/// Fewer than three bursts.
pub fn truth(bursts: &[Burst], from: u64, to: u64) -> Result<Truth> {
    let bursts: Vec<&Burst> = bursts
        .iter()
        .filter(|burst| (from..to).contains(&burst.woke))
        .collect();
    if bursts.len() < 3 {
        bail!("only {} bursts from {from} to {to}", bursts.len());
    }
    let mut lengths: Vec<u64> = bursts.iter().map(|burst| burst.took).collect();
    lengths.sort_unstable();
    let mut intervals: Vec<u64> = bursts
        .windows(2)
        .map(|pair| pair[1].woke - pair[0].woke)
        .collect();
    intervals.sort_unstable();
    let period = intervals[intervals.len() / 2];
    let near = |interval: &&u64| interval.abs_diff(period) as f64 <= 0.05 * period as f64;
    Ok(Truth {
        bursts: bursts.len(),
        median: lengths[lengths.len() / 2],
        total: lengths.iter().sum(),
        period,
        regular: intervals.iter().filter(near).count() as f64 / intervals.len() as f64,
    })
}

/// Reads the bursts that a process has printed.
///
/// # Errors
/// No line of bursts.
pub fn bursts(text: &str) -> Result<Vec<Burst>> {
    let line = text.lines().find(|line| line.starts_with("[{\"woke\""));
    Ok(serde_json::from_str(
        line.context("no bursts were printed")?,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_true_of_bursts_in_a_window() {
        let bursts: Vec<Burst> = (0..10)
            .map(|at| Burst {
                woke: at * 100,
                slept: at * 100 + 20,
                took: 10 + at,
            })
            .collect();
        let truth = truth(&bursts, 200, 700).unwrap();
        assert_eq!((truth.bursts, truth.median, truth.period), (5, 14, 100));
        assert_eq!((truth.total, truth.regular), (70, 1.0));
        assert!(super::truth(&bursts, 0, 200).is_err());
        let text = format!("x\n{}\n", serde_json::to_string(&bursts).unwrap());
        assert_eq!(super::bursts(&text).unwrap(), bursts);
    }
}
