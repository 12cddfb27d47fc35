//! perch's own cost beside `perf stat`'s, measured in one run: steady cost with 200 and 2,000 threads, time to attach,
//! counting a row for each thread or for every N events, what a live view costs beside top(1), how much sampling slows its
//! victim, and what a region costs a program that counts itself.
//!
//! Every comparison is made in alternating pairs, and medians with quartiles are told: single timings on a shared
//! machine mean little.

pub mod cost;
pub mod counting;
pub mod records;
pub mod regions;
pub mod slowdown;
pub mod spread;
pub mod start;
pub mod tool;
pub mod top;
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
    /// Numbers of threads for the steady cost, 5 % of them running
    #[arg(long, value_delimiter = ',', default_value = "200,2000")]
    threads: Vec<usize>,
    /// Measure only what `perch stat` costs
    #[arg(long)]
    only_stat: bool,
    /// Measure only what the live view costs
    #[arg(long)]
    only_top: bool,
    /// Leave out what victims lose, which takes longest
    #[arg(long, conflicts_with = "only_losses")]
    no_slowdown: bool,
    /// Measure only what victims lose
    #[arg(long)]
    only_losses: bool,
    /// Measure only what regions cost
    #[arg(long)]
    regions_only: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// All that was measured.
#[derive(Debug, Default, Serialize)]
pub struct Results {
    /// What one sample costs its victim, in seconds.
    pub interrupt: f64,
    /// Steady cost, one entry a number of threads.
    pub cost: Vec<cost::Cost>,
    /// What counting costs, one entry a number of threads and interval.
    pub counting: Vec<counting::Counting>,
    /// What a record of event-based sampling costs.
    pub records: Option<records::Records>,
    /// What a live view costs, one entry a number of threads.
    pub top: Vec<top::Top>,
    /// What the victim loses.
    pub slowdown: Vec<slowdown::Slowdown>,
    /// What programs lose from their start on.
    pub start: Vec<start::Start>,
    /// What a region costs.
    pub regions: Vec<regions::Pair>,
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
    // One line as each figure is known: all of it takes a quarter of an hour.
    let say = |line: &dyn std::fmt::Display| {
        if !args.json {
            println!("{line}");
        }
    };
    let mut results = Results::default();
    if args.only_top {
        measure_top(&perch, &args, &mut results, &say)?;
        return finish(&results, args.json);
    }
    if args.only_stat {
        measure_counting(&perch, &args, &mut results, &say)?;
        return finish(&results, args.json);
    }
    if args.only_losses {
        measure_losses(&perch, &args, &mut results, &say)?;
        return finish(&results, args.json);
    }
    say(&"Cost of a region's start and stop (median, quartiles)");
    let libraries = perch.parent().context("a perch without a folder")?;
    results.regions = regions::measure(libraries, args.pairs)?;
    results.regions.iter().for_each(|pair| say(pair));
    if args.regions_only {
        return finish(&results, args.json);
    }
    let interrupt = slowdown::interrupt_cost(&perch, args.pairs)?;
    say(&format_args!(
        "\nOne sample costs its victim {:.1} µs\n\n\
         Steady cost, in milliseconds of one PU a second (median, quartiles)",
        interrupt * 1e6
    ));
    results.interrupt = interrupt;
    for threads in args.threads.clone() {
        let cost = cost::measure(&perch, &args.perf, threads, args.pairs, interrupt)?;
        say(&cost);
        results.cost.push(cost);
    }
    measure_counting(&perch, &args, &mut results, &say)?;
    measure_top(&perch, &args, &mut results, &say)?;
    if !args.no_slowdown {
        measure_losses(&perch, &args, &mut results, &say)?;
    }
    finish(&results, args.json)
}

fn measure_losses(
    perch: &std::path::Path,
    args: &Args,
    results: &mut Results,
    say: &dyn Fn(&dyn std::fmt::Display),
) -> Result<()> {
    say(
        &"\nWhat the victim loses, in percent (median, quartiles): of its throughput; of its work per time on a PU",
    );
    for case in slowdown::CASES {
        let slowdown = slowdown::measure(perch, case, args.pairs)?;
        say(&slowdown);
        results.slowdown.push(slowdown);
    }
    say(
        &"\nWhat a program loses that perch has started: of its throughput in its first second, or of that of the \
          programs that it starts one after another; of its work per time on PUs",
    );
    for case in start::CASES {
        let start = start::measure(perch, case, args.pairs)?;
        say(&start);
        results.start.push(start);
    }
    Ok(())
}

fn measure_counting(
    perch: &std::path::Path,
    args: &Args,
    results: &mut Results,
    say: &dyn Fn(&dyn std::fmt::Display),
) -> Result<()> {
    say(
        &"\nA row of four counts for each thread, in milliseconds of one PU a second (median, quartiles)",
    );
    for threads in &args.threads {
        for counting in counting::measure(perch, &args.perf, *threads, args.pairs)? {
            say(&counting);
            results.counting.push(counting);
        }
    }
    say(&"\nA row for every N events of a thread (median, quartiles)");
    let records = records::measure(perch, args.pairs)?;
    say(&records);
    results.records = Some(records);
    Ok(())
}

fn measure_top(
    perch: &std::path::Path,
    args: &Args,
    results: &mut Results,
    say: &dyn Fn(&dyn std::fmt::Display),
) -> Result<()> {
    say(
        &"\nA live view of the whole machine, in milliseconds of one PU a second (median, quartiles)",
    );
    for threads in &args.threads {
        let top = top::measure(perch, *threads, args.pairs)?;
        say(&top);
        results.top.push(top);
    }
    Ok(())
}

fn finish(results: &Results, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(results)?);
    }
    Ok(())
}
