//! What a victim loses by being watched.

use crate::{
    spread::Spread,
    tool::{Tool, cpu_time},
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
    /// Share of its work per time on a PU that it loses: interrupts and colder caches, without what others on the
    /// machine, perch among them, take from its time; far less noisy.
    pub loss_on_pu: Spread,
    /// The loss to stay under.
    pub aim: f64,
}

impl fmt::Display for Slowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "  {:<40} {}; {} (aim: under {} %)",
            self.name,
            self.loss.scaled(1e2),
            self.loss_on_pu.scaled(1e2),
            self.aim * 1e2
        )
    }
}

/// Measures one case in alternating pairs, once perch has settled.
///
/// # Errors
/// A perch or a victim that does not work.
pub fn measure(perch: &Path, case: Case, pairs: u32) -> Result<Slowdown> {
    let (loss, loss_on_pu) = losses(perch, case, pairs, &[], Duration::from_secs(7))?;
    Ok(Slowdown {
        name: case.name,
        loss,
        loss_on_pu,
        aim: case.aim,
    })
}

/// What one sample costs its victim, in seconds: the slowdown at a high rate, divided by that rate.
///
/// # Errors
/// A perch or a victim that does not work.
pub fn interrupt_cost(perch: &Path, pairs: u32) -> Result<f64> {
    let rate = HIGH_RATE.to_string();
    // Two periods: opening, and the first adjustment of what is sampled.
    let settling = Duration::from_millis(2_200);
    let (_, loss) = losses(
        perch,
        CASES[0],
        pairs,
        &["--sampling-rate", &rate],
        settling,
    )?;
    Ok(loss.median.max(0.0) / HIGH_RATE)
}

fn losses(
    perch: &Path,
    case: Case,
    pairs: u32,
    options: &[&str],
    settling: Duration,
) -> Result<(Spread, Spread)> {
    let mut victim = Victim::start(case.victim, case.as_nobody)?;
    sleep(Duration::from_millis(500));
    let (mut losses, mut losses_on_pu) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let (mut alone, mut watched) = (Window::default(), Window::default());
        for turn in 0..2 {
            if (pair + turn) % 2 == 0 {
                // As long as with perch, so that both find the machine alike.
                sleep(settling);
                alone = window(&mut victim)?;
            } else {
                let tool = Tool::perch(perch, victim.pid(), options, case.as_nobody)?;
                sleep(settling);
                watched = window(&mut victim)?;
                drop(tool);
            }
        }
        losses.push(1.0 - watched.per_second / alone.per_second);
        losses_on_pu.push(1.0 - watched.per_second_on_pu / alone.per_second_on_pu);
    }
    Ok((Spread::of(&losses), Spread::of(&losses_on_pu)))
}

/// The victim's pace for a while.
#[derive(Default)]
struct Window {
    per_second: f64,
    per_second_on_pu: f64,
}

/// Three periods.
fn window(victim: &mut Victim) -> Result<Window> {
    let (work, on_pu, start) = (victim.work()?, cpu_time(victim.pid())?, Instant::now());
    sleep(Duration::from_secs(3));
    let work = (victim.work()? - work) as f64;
    let on_pu = cpu_time(victim.pid())? - on_pu;
    Ok(Window {
        per_second: work / start.elapsed().as_secs_f64(),
        per_second_on_pu: work / on_pu.as_secs_f64(),
    })
}
