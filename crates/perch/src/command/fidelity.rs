//! `perch lab fidelity`: how far the interval level is from the cycle level.

use crate::render::{
    progress::Bar,
    table::{Align, table},
};
use anyhow::{Result, ensure};
use perch_lab::fidelity::{Comparison, Difference, LIMITS, Measured, ThreadCount, compare};
use perch_sim::config;
use std::{collections::BTreeSet, process::ExitCode, sync::Arc};

/// What is compared.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Machines: names or files; all shipped ones if there are none.
    pub machines: &'a [String],
    /// Threads of the workloads.
    pub threads: &'a [ThreadCount],
    /// Workloads for each number of threads.
    pub workloads: u32,
    /// Placements of each.
    pub placements: u32,
    /// Whether caches are cold at first.
    pub cold: bool,
    /// The seed of all that is drawn.
    pub seed: u64,
}

/// Compares and prints a table, or JSON. A limit that is not kept is a result like any other.
///
/// # Errors
/// A machine that is not there or wrong, or too many threads for all of them.
pub fn fidelity(wanted: &Wanted<'_>, json: bool) -> Result<ExitCode> {
    let names: Vec<&str> = match wanted.machines.is_empty() {
        true => config::shipped_machines()
            .iter()
            .map(|file| file.name)
            .collect(),
        false => wanted.machines.iter().map(String::as_str).collect(),
    };
    let mut machines = Vec::new();
    for name in names {
        machines.push(Arc::new(config::find_machine(name)?));
    }
    let mut comparisons = Vec::new();
    for machine in &machines {
        let fit = wanted.threads.iter().filter_map(|count| count.on(machine));
        let different: BTreeSet<u32> = fit.collect();
        comparisons.extend(different.into_iter().map(|threads| {
            let machine = Arc::clone(machine);
            let (workloads, placements) = (wanted.workloads, wanted.placements);
            let usual = Comparison::new(machine, threads, workloads, placements, wanted.seed);
            Comparison {
                cold: wanted.cold,
                ..usual
            }
        }));
    }
    ensure!(
        !comparisons.is_empty(),
        "--threads: these are more than two for each PU of any of the machines; --threads 2pus is the most"
    );
    let each = u64::from(wanted.workloads * wanted.placements);
    let bar = Bar::new(true, each * comparisons.len() as u64);
    let mut differences = Vec::new();
    for (number, comparison) in comparisons.iter().enumerate() {
        bar.says(&format!(
            "{}, {} threads",
            comparison.machine.name, comparison.threads
        ));
        let before = each * number as u64;
        differences.push(compare(comparison, |done| bar.is_at(before + done as u64))?);
    }
    drop(bar);
    if json {
        let fingerprint = perch_lab::fingerprint::of_levels();
        super::print_json(&Measured {
            fingerprint: fingerprint.map_err(|why| anyhow::anyhow!(why))?.both,
            seed: wanted.seed,
            differences,
        })?;
    } else {
        super::print(&render(&differences))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(differences: &[Difference]) -> String {
    let columns = [
        ("machine", Align::Left),
        ("threads", Align::Right),
        ("mean", Align::Right),
        ("largest", Align::Right),
        ("thread", Align::Right),
        ("largest", Align::Right),
        ("tau", Align::Right),
        ("faster", Align::Right),
        ("", Align::Left),
    ];
    let percent = |part: f64| format!("{:.2} %", 100.0 * part);
    let rows = differences.iter().map(|found| {
        vec![
            found.machine.clone(),
            found.threads.to_string(),
            percent(found.mean),
            percent(found.largest),
            percent(found.thread_mean),
            percent(found.thread_largest),
            found.tau.map_or("-".into(), |tau| format!("{tau:.2}")),
            format!("{:.0} x", found.faster),
            if found.holds() { "holds" } else { "MISSED" }.to_owned(),
        ]
    });
    let (mean, largest, tau) = LIMITS;
    let unsettled: u32 = differences.iter().map(|found| found.unsettled).sum();
    let note = match unsettled {
        0 => String::new(),
        _ => format!(
            "\n{unsettled} of the simulations were measured before all of a last cache had been replaced once"
        ),
    };
    format!(
        "{}\n\n\
         mean, largest: errors of the throughput; limits {} and {}\n\
         thread, largest: errors of one thread's speed\n\
         tau: Kendall's, of the ranking of placements; limit {tau}; - if none is better\n\
         faster: of these runs, solving included; longer ones gain more{note}",
        table(&columns, rows),
        percent(mean),
        percent(largest),
    )
}
