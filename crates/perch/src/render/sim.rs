//! What came of simulations, as tables.

use super::{
    count, fit,
    table::{Align, table},
    wrapped,
};
use perch_lab::scene::{Comparison, Entry, Shipped, Simulated};

/// Threads shown.
const ROWS: usize = 32;

/// The shipped machines and workloads.
pub fn shipped(shipped: &Shipped) -> String {
    let list = |title: &str, all: &[Entry]| {
        let columns = [(title, Align::Left), ("", Align::Left)];
        let rows = all
            .iter()
            .map(|entry| vec![entry.name.clone(), entry.about.clone()]);
        table(&columns, rows)
    };
    format!(
        "{}\n\n{}\n",
        list("machine", &shipped.machines),
        list("workload", &shipped.workloads)
    )
}

/// The results of all policies; of a single run its threads too.
pub fn comparison(comparison: &Comparison, pus: usize) -> String {
    let results = &comparison.results;
    let runs = || results.iter().flat_map(|result| &result.runs);
    let threads = runs().next().map_or(0, |run| run.threads.len());
    let seeds = match comparison.seeds.as_slice() {
        [first, .., last] => format!("seeds {first} to {last}"),
        [only] => format!("seed {only}"),
        [] => String::new(),
    };
    let mut text = format!(
        "{} on {}: {}, {}, {seeds}\n\n",
        comparison.workload,
        comparison.machine,
        count(pus, "PU"),
        count(threads, "thread")
    );
    let several = comparison.seeds.len() > 1;
    let mut columns = vec![("policy", Align::Left), ("throughput", Align::Right)];
    if several {
        columns.push(("spread", Align::Right));
    }
    // To itself the ratio of a single policy is 1.
    let ratio = results.len() > 1;
    if ratio {
        columns.push(("ratio", Align::Right));
    }
    let rest = ["slowdown", "unfairness", "moves"];
    columns.extend(rest.map(|title| (title, Align::Right)));
    if !several {
        columns.push(("simulated", Align::Right));
    }
    columns.push(("in", Align::Right));
    let first = results.first().map_or(f64::NAN, |result| result.throughput);
    let rows = results.iter().map(|result| {
        let mut row = vec![result.policy.clone(), format!("{:.3}", result.throughput)];
        if several {
            row.push(format!("{:.1} %", 100.0 * result.spread));
        }
        if ratio {
            row.push(format!("{:.3}", result.throughput / first));
        }
        row.extend([
            format!("{:.2}", result.slowdown),
            format!("{:.2}", result.unfairness),
            format!("{:.0}", result.migrations),
        ]);
        if !several {
            row.push(format!("{:.2} s", result.seconds));
        }
        row.push(format!("{:.1} s", result.host_seconds));
        row
    });
    text += &table(&columns, rows);
    text += "\n\nthroughput: instructions of all threads / cycle";
    text += if ratio {
        "; ratio: to the first policy's\n"
    } else {
        "\n"
    };
    text += "slowdown: speed alone on the machine / speed here, mean of the threads\n";
    text += "unfairness: largest slowdown of a thread / smallest; 1 is fair\n";
    if several {
        text += "medians of all seeds; spread: (greatest throughput - least) / mean\n";
    }
    let firsts = results
        .iter()
        .filter_map(|result| Some((result.policy.as_str(), result.runs.first()?)));
    text += &super::outcome::outcome(&firsts.collect::<Vec<_>>());
    for note in &comparison.notes {
        let (label, rest) = note.split_once(' ').unwrap_or((note, ""));
        text += wrapped(&format!("{label} "), rest).trim_end();
        text.push('\n');
    }
    let mut runs = runs();
    if let (Some(only), None) = (runs.next(), runs.next()) {
        text.push('\n');
        text += &threads_of(only);
    }
    text
}

fn threads_of(only: &Simulated) -> String {
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
    let mut text = table(&columns, rows);
    text += "\n";
    if only.threads.len() > ROWS {
        text += &format!("and {} more (--json has all)\n", only.threads.len() - ROWS);
    }
    text
}
