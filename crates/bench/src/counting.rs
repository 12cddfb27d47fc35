//! What it costs to count the events of every thread and print a row for each: `perch stat` beside `perf stat
//! --per-thread`, with the same events at the same interval.

use crate::{
    cost::steady,
    spread::Spread,
    tool::{Priority, Tool},
    victim::Victim,
};
use anyhow::Result;
use serde::Serialize;
use std::{fmt, path::Path, time::Duration};

/// Intervals between rows.
const INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(100)];

/// The share of perf stat's cost that perch's is to stay below with 2,000 threads: an own aim.
const AIM: f64 = 0.5;

/// How long each tool runs before it is measured.
const SETTLING: Duration = Duration::from_secs(2);

/// Both tools on the same threads.
#[derive(Debug, Serialize)]
pub struct Counting {
    /// Threads watched, of which 5 % run.
    pub threads: usize,
    /// Milliseconds between rows.
    pub interval: u64,
    /// perch's, in PU seconds a second.
    pub perch: Spread,
    /// perf stat's, in PU seconds a second.
    pub perf: Spread,
    /// perch / perf, of the medians.
    pub ratio: f64,
    /// perch's, in seconds a thread and interval.
    pub per_thread: f64,
}

impl fmt::Display for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aim = match self.threads {
            2_000.. => format!(" (aim: below {AIM})"),
            _ => String::new(),
        };
        write!(
            f,
            "  {} threads, a row each {} ms: perch stat {}, perf stat {}; ratio {:.2}{aim}; {:.2} µs a thread an interval",
            self.threads,
            self.interval,
            self.perch.scaled(1e3),
            self.perf.scaled(1e3),
            self.ratio,
            self.per_thread * 1e6,
        )
    }
}

/// Measures in alternating pairs, at each interval.
///
/// # Errors
/// A tool that does not work.
pub fn measure(perch: &Path, perf: &Path, threads: usize, pairs: u32) -> Result<Vec<Counting>> {
    let running = (threads / 20).to_string();
    let victim = Victim::start(
        &["--threads", &threads.to_string(), "--running", &running],
        false,
    )?;
    let _priority = Priority::raise();
    let mut measured = Vec::new();
    for interval in INTERVALS {
        let (mut of_perch, mut of_perf) = (Vec::new(), Vec::new());
        for pair in 0..pairs {
            for turn in 0..2 {
                match (pair + turn) % 2 {
                    0 => {
                        let tool = Tool::perch_stat(perch, victim.pid(), interval)?;
                        of_perch.push(steady(tool, SETTLING)?.0);
                    }
                    _ => {
                        let tool = Tool::perf(perf, victim.pid(), interval)?;
                        of_perf.push(steady(tool, SETTLING)?.0);
                    }
                }
            }
        }
        let (perch, perf) = (Spread::of(&of_perch), Spread::of(&of_perf));
        measured.push(Counting {
            threads,
            interval: interval.as_millis() as u64,
            ratio: perch.median / perf.median,
            per_thread: perch.median * interval.as_secs_f64() / threads as f64,
            perch,
            perf,
        });
    }
    Ok(measured)
}
