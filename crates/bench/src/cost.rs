//! Steady cost: what a tool spends on a PU in a second, once it has attached.

use crate::{spread::Spread, tool::Tool, victim::Victim};
use anyhow::Result;
use serde::Serialize;
use std::{
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
    /// Of which its sampling interrupts, in PU seconds a second.
    pub interrupts: f64,
    /// perf stat's, in PU seconds a second.
    pub perf: Spread,
    /// perch / perf, of the medians.
    pub ratio: f64,
    /// perch's own time a thread a period, in seconds, interrupts left out.
    pub per_thread: f64,
    /// From start until all threads are followed, in seconds.
    pub attach: Spread,
}

/// How long each tool is watched, in periods of one second.
const WINDOW: Duration = Duration::from_secs(4);

/// Measures in alternating pairs. `interrupt` is what one second of sampling one busy PU costs in interrupts.
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
    let busy_pus = running.min(std::thread::available_parallelism()?.get());
    let interrupts = interrupt * busy_pus as f64;
    let (mut perch_cost, mut perf_cost, mut attach) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        for turn in 0..2 {
            if (pair + turn) % 2 == 0 {
                let (cost, attached) = steady(Tool::perch(perch, victim.pid(), &[], false)?)?;
                perch_cost.push(cost + interrupts);
                attach.push(attached);
            } else {
                perf_cost.push(steady(Tool::perf(perf, victim.pid())?)?.0);
            }
        }
    }
    let (perch, perf) = (Spread::of(&perch_cost), Spread::of(&perf_cost));
    Ok(Cost {
        threads,
        running,
        ratio: perch.median / perf.median,
        per_thread: (perch.median - interrupts) / threads as f64,
        attach: Spread::of(&attach),
        perch,
        interrupts,
        perf,
    })
}

/// PU seconds a second once it has settled, and how long it took to settle.
fn steady(tool: Tool) -> Result<(f64, f64)> {
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
    sleep(Duration::from_millis(700));
    let (before, window) = (tool.cpu_time()?, Instant::now());
    sleep(WINDOW);
    let cost = (tool.cpu_time()? - before).as_secs_f64() / window.elapsed().as_secs_f64();
    Ok((cost, settled.as_secs_f64()))
}
