//! What a victim loses by being watched.

use crate::{spread::Spread, tool::Tool, victim::Victim};
use anyhow::Result;
use serde::Serialize;
use std::{path::Path, thread::sleep, time::Duration};

/// One kind of victim.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// What is measured.
    pub name: &'static str,
    /// The victim's options.
    pub victim: &'static [&'static str],
    /// Whether both run as an ordinary user.
    pub as_nobody: bool,
    /// The loss to stay under.
    pub aim: f64,
}

/// The cases and their limits.
pub const CASES: [Case; 4] = [
    Case {
        name: "compute loop, privileged",
        victim: &["--mode", "compute"],
        as_nobody: false,
        aim: 0.005,
    },
    Case {
        name: "compute loop, ordinary user",
        victim: &["--mode", "compute"],
        as_nobody: true,
        aim: 0.005,
    },
    Case {
        name: "100,000 switches a second, privileged",
        victim: &["--mode", "switch"],
        as_nobody: false,
        aim: 0.02,
    },
    Case {
        name: "100,000 switches a second, ordinary user",
        victim: &["--mode", "switch"],
        as_nobody: true,
        aim: 0.02,
    },
];

/// The rate at which interrupts cost enough to be measured; their cost grows with the rate.
const HIGH_RATE: f64 = 4_000.0;
/// One case's result.
#[derive(Debug, Serialize)]
pub struct Slowdown {
    /// The case.
    pub name: &'static str,
    /// Share of its throughput that the victim loses.
    pub loss: Spread,
    /// The loss to stay under.
    pub aim: f64,
}

/// Measures one case in alternating pairs.
///
/// # Errors
/// A perch or a victim that does not work.
pub fn measure(perch: &Path, case: Case, pairs: u32) -> Result<Slowdown> {
    Ok(Slowdown {
        name: case.name,
        loss: loss(perch, case, pairs, &[])?,
        aim: case.aim,
    })
}

/// What one sample costs its victim, in seconds: the slowdown at a high rate, divided by that rate.
///
/// # Errors
/// A perch or a victim that does not work.
pub fn interrupt_cost(perch: &Path, pairs: u32) -> Result<f64> {
    let rate = HIGH_RATE.to_string();
    let loss = loss(perch, CASES[0], pairs, &["--sampling-rate", &rate])?;
    Ok(loss.median.max(0.0) / HIGH_RATE)
}

fn loss(perch: &Path, case: Case, pairs: u32, options: &[&str]) -> Result<Spread> {
    let mut victim = Victim::start(case.victim, case.as_nobody)?;
    sleep(Duration::from_millis(500));
    let mut losses = Vec::new();
    for pair in 0..pairs {
        let (mut alone, mut watched) = (0, 0);
        for turn in 0..2 {
            if (pair + turn) % 2 == 0 {
                alone = window(&mut victim)?;
            } else {
                let tool = Tool::perch(perch, victim.pid(), options, case.as_nobody)?;
                // Two periods: opening, and the first adjustment of what is sampled.
                sleep(Duration::from_millis(2_200));
                watched = window(&mut victim)?;
                drop(tool);
            }
        }
        losses.push(1.0 - watched as f64 / alone as f64);
    }
    Ok(Spread::of(&losses))
}

/// Work in two periods.
fn window(victim: &mut Victim) -> Result<u64> {
    let before = victim.work()?;
    sleep(Duration::from_secs(2));
    Ok(victim.work()? - before)
}
