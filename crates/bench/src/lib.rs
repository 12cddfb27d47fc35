//! perch's own cost beside `perf stat`'s, measured in one run: steady cost with 200 and 2,000 threads, time to attach,
//! and how much sampling slows its victim.
//!
//! Every comparison is made in alternating pairs, and medians with quartiles are told: single timings on a shared
//! machine mean little.

pub mod cost;
pub mod slowdown;
pub mod spread;
pub mod tool;
pub mod victim;

use anyhow::{Context, Result};
use clap::Parser;
use serde::Serialize;
use std::path::PathBuf;

/// Measures perch's own cost.
#[derive(Debug, Parser)]
pub struct Args {
    /// The perch to measure
    #[arg(long, default_value = "target/release/perch")]
    perch: PathBuf,
    /// The perf to measure against
    #[arg(long, default_value = "perf")]
    perf: PathBuf,
    /// Pairs of each comparison
    #[arg(long, default_value_t = 7)]
    pairs: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// All that was measured.
#[derive(Debug, Serialize)]
pub struct Results {
    /// Steady cost, one entry a number of threads.
    pub cost: Vec<cost::Cost>,
    /// What the victim loses.
    pub slowdown: Vec<slowdown::Slowdown>,
}

/// Measures and prints.
///
/// # Errors
/// A perch or a perf that is not there or does not work.
pub fn main() -> Result<()> {
    let args = Args::parse();
    let perch = args.perch.canonicalize().with_context(|| {
        format!(
            "{}: not there; build it with `cargo build --release -p perch`",
            args.perch.display()
        )
    })?;
    let interrupt = slowdown::interrupt_cost(&perch, args.pairs)?;
    let mut results = Results {
        cost: Vec::new(),
        slowdown: Vec::new(),
    };
    for threads in [200, 2_000] {
        eprintln!("steady cost with {threads} threads…");
        results.cost.push(cost::measure(
            &perch, &args.perf, threads, args.pairs, interrupt,
        )?);
    }
    for case in slowdown::CASES {
        eprintln!("slowdown: {}…", case.name);
        results
            .slowdown
            .push(slowdown::measure(&perch, case, args.pairs)?);
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&results)?);
    } else {
        print!("{}", render(&results));
    }
    Ok(())
}

fn render(results: &Results) -> String {
    use std::fmt::Write;
    let mut text =
        String::from("Steady cost, in milliseconds of one PU a second (median, quartiles)\n");
    for cost in &results.cost {
        let _ = writeln!(
            text,
            "  {} threads, {} running: perch {}, perf stat {}; ratio {:.2} (aim: below 1)\n    \
             of perch's, {:.2} are interrupts of {:.0} samples; {:.2} µs a thread a period; attached after {:.0} ms",
            cost.threads,
            cost.running,
            cost.perch.scaled(1e3),
            cost.perf.scaled(1e3),
            cost.ratio,
            cost.interrupts * 1e3,
            cost.samples,
            cost.per_thread * 1e6,
            cost.attach.median * 1e3,
        );
    }
    text += "\nWhat the victim loses, in percent (median, quartiles)\n";
    for slowdown in &results.slowdown {
        let _ = writeln!(
            text,
            "  {:<44} {} (aim: under {} %)",
            slowdown.name,
            slowdown.loss.scaled(1e2),
            slowdown.aim * 1e2
        );
    }
    text
}
