//! What a program loses in its first second, and one that starts many others: by `perch run`, against the program alone.

use crate::{slowdown::Case, spread::Spread, victim::command};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::{fmt, path::Path, process::Stdio};

const PIPE: &[&str] = &["--mode", "pipe", "--for", "1000"];
const FUTEX: &[&str] = &["--mode", "futex", "--for", "1000"];
const SPAWN: &[&str] = &["--spawn", "10000"];

const fn case(
    name: &'static str,
    victim: &'static [&'static str],
    as_nobody: bool,
    aim: f64,
) -> Case {
    Case {
        name,
        victim,
        as_nobody,
        aim,
    }
}

/// The cases and their limits.
pub const CASES: [Case; 6] = [
    case("pipe, privileged", PIPE, false, 0.01),
    case("pipe, ordinary user", PIPE, true, 0.03),
    case("futex, privileged", FUTEX, false, 0.01),
    case("futex, ordinary user", FUTEX, true, 0.03),
    case("10,000 programs, privileged", SPAWN, false, 0.03),
    case("10,000 programs, ordinary user", SPAWN, true, 0.03),
];

/// One case's result.
#[derive(Debug, Serialize)]
pub struct Start {
    /// The case.
    pub name: &'static str,
    /// Share of its throughput that the program loses.
    pub loss: Spread,
    /// Share of its work per time on PUs that it loses.
    pub loss_on_pu: Spread,
    /// Its throughput alone, per second.
    pub alone: Spread,
    /// The loss to stay under.
    pub aim: f64,
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "  {:<32} {}; {} (aim: under {} %; alone {:.0} a second)",
            self.name,
            self.loss.scaled(1e2),
            self.loss_on_pu.scaled(1e2),
            self.aim * 1e2,
            self.alone.median
        )
    }
}

/// What a victim has done.
#[derive(Debug, Deserialize)]
struct Done {
    work: f64,
    seconds: f64,
    on_pu: f64,
}

/// Measures one case in alternating pairs.
///
/// # Errors
/// A perch or a victim that does not work.
pub fn measure(perch: &Path, case: Case, pairs: u32) -> Result<Start> {
    let (mut losses, mut on_pu, mut paces) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let first = run(perch, case, pair % 2 == 0)?;
        let second = run(perch, case, pair % 2 != 0)?;
        let (watched, alone) = match pair % 2 == 0 {
            true => (first, second),
            false => (second, first),
        };
        let pace = |done: &Done| done.work / done.seconds;
        losses.push(1.0 - pace(&watched) / pace(&alone));
        on_pu.push(1.0 - (watched.work / watched.on_pu) / (alone.work / alone.on_pu));
        paces.push(pace(&alone));
    }
    Ok(Start {
        name: case.name,
        loss: Spread::of(&losses),
        loss_on_pu: Spread::of(&on_pu),
        alone: Spread::of(&paces),
        aim: case.aim,
    })
}

fn run(perch: &Path, case: Case, watched: bool) -> Result<Done> {
    let victim = std::env::current_exe()?.with_file_name("victim");
    let mut program = match watched {
        true => {
            let mut program = command(perch, case.as_nobody);
            program.args(["run", "--quiet", "--policy", "observe", "--"]);
            program.arg(&victim);
            program
        }
        false => command(&victim, case.as_nobody),
    };
    let output = program
        .args(case.victim)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{}: cannot be started", victim.display()))?;
    serde_json::from_slice(&output.stdout).with_context(|| {
        let hint = match case.as_nobody {
            true => " (can an ordinary user reach this folder?)",
            false => "",
        };
        format!("{}: no result of {}{hint}", case.name, victim.display())
    })
}
