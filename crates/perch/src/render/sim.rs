//! What came of simulations, as tables.

use super::{
    count, fit,
    table::{Align, table},
};
use crate::simulation::Simulated;
use perch_sim::{config, model::MachineModel, workload::WorkloadModel};

/// Threads shown.
const ROWS: usize = 32;

/// The shipped machines and workloads.
pub fn shipped() -> String {
    let list = |title: &str, all: Vec<(String, String)>| {
        let columns = [(title, Align::Left), ("", Align::Left)];
        table(
            &columns,
            all.into_iter().map(|(name, about)| vec![name, about]),
        )
    };
    let machines = config::shipped_machines().into_iter().filter_map(|file| {
        let machine = config::find_machine(file.name).ok()?;
        Some((file.name.to_owned(), machine.about))
    });
    let workloads = config::shipped_workloads().into_iter().filter_map(|file| {
        let workload = config::find_workload(file.name).ok()?;
        Some((file.name.to_owned(), workload.about))
    });
    format!(
        "{}\n\n{}\n",
        list("machine", machines.collect()),
        list("workload", workloads.collect())
    )
}

/// The results of all policies; of a single one its threads too.
pub fn results(machine: &MachineModel, workload: &WorkloadModel, results: &[Simulated]) -> String {
    let threads = results.first().map_or(0, |result| result.threads.len());
    let mut text = format!(
        "{} on {}: {}, {}\n\n",
        workload.name,
        machine.name,
        count(machine.pus(), "PU"),
        count(threads, "thread")
    );
    let columns = [
        ("policy", Align::Left),
        ("throughput", Align::Right),
        ("ratio", Align::Right),
        ("slowdown", Align::Right),
        ("unfairness", Align::Right),
        ("moves", Align::Right),
        ("simulated", Align::Right),
        ("in", Align::Right),
    ];
    let first = results.first().map_or(f64::NAN, |result| result.throughput);
    let rows = results.iter().map(|result| {
        vec![
            result.policy.clone(),
            format!("{:.3}", result.throughput),
            format!("{:.3}", result.throughput / first),
            format!("{:.2}", result.slowdown),
            format!("{:.2}", result.unfairness),
            result.migrations.to_string(),
            format!("{:.2} s", result.seconds),
            format!("{:.1} s", result.host_seconds),
        ]
    });
    text += &table(&columns, rows);
    text += "\n\nthroughput: instructions a cycle, all threads\nslowdown: mean, against each thread alone\n";
    text += &super::outcome::outcome(results);
    let [only] = results else { return text };
    let columns = [
        ("thread", Align::Left),
        ("program", Align::Left),
        ("instructions", Align::Right),
        ("IPC", Align::Right),
        ("busy", Align::Right),
        ("slowdown", Align::Right),
        ("moves", Align::Right),
    ];
    let rows = only.threads.iter().take(ROWS).map(|thread| {
        vec![
            fit(&thread.name, 20).trim_end().to_owned(),
            fit(&thread.program, 16).trim_end().to_owned(),
            thread.instructions.to_string(),
            format!("{:.3}", thread.ipc),
            format!("{:.0} %", 100.0 * thread.busy),
            format!("{:.2}", thread.slowdown),
            thread.migrations.to_string(),
        ]
    });
    text += "\n";
    text += &table(&columns, rows);
    text += "\n";
    if only.threads.len() > ROWS {
        text += &format!("and {} more (--json has all)\n", only.threads.len() - ROWS);
    }
    text
}
