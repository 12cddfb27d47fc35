//! Steady cost: what a tool spends on a PU in a second, once it has attached.

use crate::{
    spread::Spread,
    tool::{Priority, Tool},
    victim::Victim,
};
use anyhow::Result;
use serde::Serialize;
use std::{
    fmt,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

/// Both tools on the same threads.
#[derive(Debug, Serialize)]
pub struct Cost {
    /// Threads watched.
    pub threads: usize,
    /// Threads of them that run.
    pub running: usize,
    /// perch's, interrupts included, in PU seconds a second.
    pub perch: Spread,
    /// Samples that it takes in a second, once it has settled.
    pub samples: f64,
    /// Of which its sampling interrupts, in PU seconds a second.
    pub interrupts: f64,
    /// perf stat's, in PU seconds a second.
    pub perf: Spread,
    /// perch / perf, of the medians.
    pub ratio: f64,
    /// perch's own time without its sampling interrupts / perf.
    pub own_ratio: f64,
    /// What `own_ratio` is to stay under, if there is an aim for this many threads.
    pub own_aim: Option<f64>,
    /// perch's own time a thread a period, in seconds, interrupts left out.
    pub per_thread: f64,
    /// From start until all threads are followed, in seconds.
    pub attach: Spread,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "  {} threads, {} running: perch {}, perf stat {}; ratio {:.2} (aim: below 1), without interrupts \
             {:.2}{}\n    \
             of perch's, {:.2} are interrupts of {:.0} samples; {:.2} µs a thread a period; attached after {:.0} ms",
            self.threads,
            self.running,
            self.perch.scaled(1e3),
            self.perf.scaled(1e3),
            self.ratio,
            self.own_ratio,
            self.own_aim
                .map_or_else(String::new, |aim| format!(" (aim: {aim})")),
            self.interrupts * 1e3,
            self.samples,
            self.per_thread * 1e6,
            self.attach.median * 1e3,
        )
    }
}

/// Numbers of threads with the share of perf stat's cost that perch's own time is to stay under.
const OWN_AIMS: [(usize, f64); 2] = [(200, 0.7), (2_000, 0.5)];

/// How long each tool is watched, in periods of one second.
const WINDOW: Duration = Duration::from_secs(4);

/// Measures in alternating pairs. `interrupt` is what one sample costs its victim, in seconds.
///
/// # Errors
/// A tool that does not work.
pub fn measure(
    perch: &Path,
    perf: &Path,
    threads: usize,
    pairs: u32,
    interrupt: f64,
) -> Result<Cost> {
    let running = threads / 20;
    let victim = Victim::start(
        &[
            "--threads",
            &threads.to_string(),
            "--running",
            &running.to_string(),
        ],
        false,
    )?;
    let _priority = Priority::raise();
    // Sampling slows down once the threads are known, which takes longer the more threads share a PU.
    let settling = Duration::from_secs(18 + running as u64 / 10);
    let samples = steady_samples(perch, &victim, settling)?;
    let interrupts = interrupt * samples;
    let (mut perch_cost, mut perf_cost, mut attach) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        for turn in 0..2 {
            if (pair + turn) % 2 == 0 {
                let (cost, attached) =
                    steady(Tool::perch(perch, victim.pid(), &[], false)?, settling)?;
                perch_cost.push(cost + interrupts);
                attach.push(attached);
            } else {
                let tool = Tool::perf(perf, victim.pid(), Duration::from_secs(1))?;
                perf_cost.push(steady(tool, Duration::from_millis(700))?.0);
            }
        }
    }
    let (perch, perf) = (Spread::of(&perch_cost), Spread::of(&perf_cost));
    Ok(Cost {
        threads,
        running,
        ratio: perch.median / perf.median,
        own_ratio: (perch.median - interrupts) / perf.median,
        own_aim: OWN_AIMS
            .iter()
            .find(|(of, _)| *of == threads)
            .map(|(_, aim)| *aim),
        per_thread: (perch.median - interrupts) / threads as f64,
        attach: Spread::of(&attach),
        perch,
        samples,
        interrupts,
        perf,
    })
}

/// PU seconds a second once it has settled, and how long it took to settle.
pub(crate) fn steady(tool: Tool, settling: Duration) -> Result<(f64, f64)> {
    let start = Instant::now();
    let mut settled = Duration::ZERO;
    let mut held = 0;
    // Attached when no more descriptors come for half a second.
    while start.elapsed() < Duration::from_secs(30)
        && start.elapsed() - settled < Duration::from_millis(500)
    {
        let now = tool.descriptors();
        if now != held {
            (held, settled) = (now, start.elapsed());
        }
        sleep(Duration::from_millis(5));
    }
    sleep(settling);
    let (before, window) = (tool.cpu_time()?, Instant::now());
    sleep(WINDOW);
    let cost = (tool.cpu_time()? - before).as_secs_f64() / window.elapsed().as_secs_f64();
    Ok((cost, settled.as_secs_f64()))
}

/// Samples a second once sampling has settled, of threads of ours: the last periods of a recording tell.
fn steady_samples(perch: &Path, victim: &Victim, settling: Duration) -> Result<f64> {
    let file = std::env::temp_dir().join(format!("perch-bench-{}.jsonl", std::process::id()));
    let option = format!("--log={}", file.display());
    let tool = Tool::perch(perch, victim.pid(), &[&option], false)?;
    sleep(settling + WINDOW);
    drop(tool);
    let text = std::fs::read_to_string(&file)?;
    std::fs::remove_file(&file)?;
    let periods: Vec<serde_json::Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let observations: Vec<&serde_json::Value> = periods
        .iter()
        .map(|record| &record["observation"])
        .filter(|seen| seen.is_object())
        .collect();
    // The very last one is cut short by the end.
    let last: Vec<_> = observations
        .iter()
        .rev()
        .skip(1)
        .take(WINDOW.as_secs() as usize)
        .collect();
    let samples_of = |thread: &serde_json::Value| -> f64 {
        let metrics = thread["metrics"].as_array().into_iter().flatten();
        metrics
            .filter(|metric| metric[0] == "samples")
            .filter_map(|metric| metric[1]["value"].as_f64())
            .sum()
    };
    let samples: f64 = last
        .iter()
        .flat_map(|seen| seen["threads"].as_array().into_iter().flatten())
        .map(samples_of)
        .sum();
    let seconds: f64 = last
        .iter()
        .filter_map(|seen| seen["interval"].as_f64())
        .sum::<f64>()
        / 1e9;
    anyhow::ensure!(
        samples > 0.0 && seconds > 0.0,
        "the recording tells of no samples: {}",
        file.display()
    );
    Ok(samples / seconds)
}
