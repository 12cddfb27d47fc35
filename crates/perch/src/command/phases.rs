//! `perch lab phases`: how well changes of phase are detected.

use crate::render::{
    progress::Bar,
    table::{Align, table},
};
use anyhow::Result;
use perch_lab::phases::{LEAST, Outcome, Score, Trial, judge};
use perch_sim::config;
use std::{collections::BTreeMap, process::ExitCode, sync::Arc};

/// The machine: four cores of two PUs.
const MACHINE: &str = "smt2-zen";

/// Threads at a time: one alone, and four that share caches.
const THREADS: [u32; 2] = [1, 4];

/// Simulates, and prints a table, or JSON.
///
/// # Errors
/// None but those of the machine file.
pub fn phases(seed: u64, seeds: u64, json: bool) -> Result<ExitCode> {
    let machine = Arc::new(config::find_machine(MACHINE)?);
    let trials: Vec<Trial> = THREADS
        .iter()
        .flat_map(|threads| {
            (seed..seed.saturating_add(seeds)).map(|seed| Trial {
                threads: *threads,
                seed,
            })
        })
        .collect();
    let bar = Bar::new(true, trials.len() as u64);
    let outcomes = judge(&machine, &trials, |done| bar.is_at(done as u64))?;
    drop(bar);
    match json {
        true => super::print_json(&outcomes)?,
        false => super::print(&render(&outcomes))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn render(outcomes: &[Outcome]) -> String {
    let mut sums: BTreeMap<(u32, &str), Score> = BTreeMap::new();
    for outcome in outcomes {
        for (method, score) in &outcome.scores {
            *sums.entry((outcome.trial.threads, method)).or_default() += *score;
        }
    }
    let columns = [
        ("threads", Align::Right),
        ("method", Align::Left),
        ("changes", Align::Right),
        ("at once", Align::Right),
        ("late", Align::Right),
        ("missed", Align::Right),
        ("false", Align::Right),
        ("rounds", Align::Right),
        ("mixed", Align::Right),
        ("dropped", Align::Right),
    ];
    let rows = sums.iter().map(|((threads, method), score)| {
        let numbers = [
            score.changes,
            score.at_once,
            score.late,
            score.missed,
            score.false_alarms,
            score.rounds,
            score.mixed,
            score.dropped,
        ];
        let start = [threads.to_string(), (*method).to_owned()];
        let numbers = numbers.iter().map(ToString::to_string);
        start.into_iter().chain(numbers).collect()
    });
    let rows_seen: u64 = sums.values().map(|score| score.rows).max().unwrap_or(0);
    format!(
        "{}\n\n\
         changes: of instructions per cycle by {:.0} % or more, in up to {rows_seen} rows\n\
         at once: detected in the row of the change or the next; late: before the\n\
         next change; false: announcements of changes that were none\n\
         rounds: shown as whole; mixed: those that span a change\n\
         dropped: rows of rounds that a false alarm broke",
        table(&columns, rows),
        100.0 * LEAST,
    )
}
