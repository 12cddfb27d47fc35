//! What came of simulations, as tables.

use super::{
    count, fit,
    table::{Align, table},
    wrapped,
};
use perch_core::{PuSet, Topology};
use perch_lab::scene::{Comparison, Entry, Found, Seat, Shipped, Simulated};

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

/// The results of all policies, the placements that were searched; of a single run its threads too.
pub fn comparison(comparison: &Comparison, topology: &Topology) -> String {
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
        count(topology.pus.len(), "PU"),
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
    let rest = ["slowdown", "STP", "unfair", "moves"];
    columns.extend(rest.map(|title| (title, Align::Right)));
    if !several {
        columns.push(("time", Align::Right));
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
            format!("{:.2}", result.speedup),
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
    text += "slowdown: speed alone on the machine / speed here, mean of the threads (ANTT)\n";
    text += "STP: the inverse of the slowdown, sum of the threads (weighted speedup)\n";
    text += "unfair: largest slowdown of a thread / smallest; 1 is fair\n";
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
    for result in results {
        if let Some(found) = &result.search {
            text += &format!(
                "\n{}: the PU of each thread (--pins writes it)\n",
                result.policy
            );
            text += &placement(found, topology);
        }
    }
    let mut runs = runs();
    if let (Some(only), None) = (runs.next(), runs.next()) {
        text.push('\n');
        text += &threads_of(only);
    }
    text
}

/// Each thread's PU, by PU, with what it shares with others.
fn placement(found: &Found, topology: &Topology) -> String {
    let mut columns = vec![
        ("PU", Align::Right),
        ("thread", Align::Left),
        ("program", Align::Left),
        ("core", Align::Right),
    ];
    // Caches that several cores share, where there are several of them.
    let shared = |level: &u8| {
        let mut caches = topology.caches.iter().filter(|cache| cache.level == *level);
        let core = |pus: &PuSet| pus.first().and_then(|pu| topology.core_of(pu));
        let wide = caches
            .any(|cache| core(&cache.pus).is_some_and(|core| !cache.pus.is_subset(&core.pus)));
        wide && topology.cache_of(*level, 0).1 > 1
    };
    let levels: Vec<u8> = (1..=4).filter(shared).collect();
    columns.extend(levels.iter().map(|level| {
        let title = ["L1", "L2", "L3", "L4"][usize::from(*level) - 1];
        (title, Align::Right)
    }));
    let nodes = topology.numa_nodes.len() > 1;
    if nodes {
        columns.push(("NUMA node", Align::Right));
    }
    let mut seats: Vec<&Seat> = found.threads.iter().collect();
    seats.sort_by_key(|seat| seat.pu);
    let rows = seats.iter().take(ROWS).map(|seat| {
        let pu = topology.pu(seat.pu);
        let number = |number: Option<usize>| number.map_or("-".to_owned(), |n| n.to_string());
        let mut row = vec![
            seat.pu.to_string(),
            fit(&seat.thread, 20).trim_end().to_owned(),
            fit(&seat.program, 16).trim_end().to_owned(),
            number(pu.map(|pu| pu.core)),
        ];
        let caches = levels.iter();
        row.extend(caches.map(|level| number(topology.cache_of(*level, seat.pu).0)));
        if nodes {
            let node = topology
                .core_of(seat.pu)
                .map(|core| core.numa_node as usize);
            row.push(number(node));
        }
        row
    });
    let mut text = table(&columns, rows);
    text += "\n";
    if seats.len() > ROWS {
        text += &format!("and {} more (--json has all)\n", seats.len() - ROWS);
    }
    text
}

/// The placement as a file of rules, for `--pin-file`.
pub fn pins(comparison: &Comparison, name: &str, found: &Found) -> String {
    let of = format!("{} on {}", comparison.workload, comparison.machine);
    let of = perch_core::text::printable(&of);
    let rules = found.rules().join("\n");
    format!(
        "# {of}: the placement `{name}`, found by `perch sim` among {}.\n\
         # PROGRAM/THREAD=PU; for `perch run -p fixed --pin-file` and `perch sim -p fixed --pin-file`.\n{rules}\n",
        found.tried
    )
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
