//! What came of simulations besides what threads did: requests, devices and energy, as tables.

use super::table::{Align, table};
use perch_lab::scene::Simulated;

/// A run, and the policy under which it was.
pub type Named<'a> = (&'a str, &'a Simulated);

/// A time in seconds, in the unit that suits it.
fn time(seconds: f64) -> String {
    match seconds {
        0.0 => "0".to_owned(),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{} ms", three(s * 1e3)),
        s => format!("{} us", three(s * 1e6)),
    }
}

/// A number below a thousand with three digits.
fn three(number: f64) -> String {
    match number {
        n if n >= 100.0 => format!("{n:.0}"),
        n if n >= 10.0 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}

/// A table whose first column says the policy, which goes without saying if there is one only.
fn by_policy(results: &[Named<'_>], columns: &[(&str, Align)], rows: Vec<Vec<String>>) -> String {
    let first = usize::from(results.len() == 1);
    let rows = rows.into_iter().map(|row| row[first..].to_vec());
    table(&columns[first..], rows)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The tables of whatever there was, each after an empty line; nothing if there was nothing.
pub fn outcome(results: &[Named<'_>]) -> String {
    let tables = [requests(results), devices(results), energy(results)];
    let tables = tables.into_iter().flatten();
    tables.map(|table| format!("\n{table}\n")).collect()
}

fn requests(results: &[Named<'_>]) -> Option<String> {
    let columns = [
        ("policy", Align::Left),
        ("serves", Align::Left),
        ("requests", Align::Right),
        ("/ s", Align::Right),
        ("mean", Align::Right),
        ("95 %", Align::Right),
        ("99 %", Align::Right),
        ("waiting", Align::Right),
        ("refused", Align::Right),
    ];
    let of_one = |(policy, result): &Named<'_>| {
        let policy = (*policy).to_owned();
        let row = move |served: &perch_sim::os::RequestStats| {
            vec![
                policy.clone(),
                served.program.clone(),
                served.served.to_string(),
                format!("{:.1}", served.rate),
                time(served.mean),
                time(served.p95),
                time(served.p99),
                percent(served.waiting_share),
                served.dropped.to_string(),
            ]
        };
        let rows: Vec<_> = result.outcome.requests.iter().map(row).collect();
        rows
    };
    let rows: Vec<Vec<String>> = results.iter().flat_map(of_one).collect();
    (!rows.is_empty()).then(|| {
        format!(
            "{}\n\nwaiting: the part of the response times before a thread took the request",
            by_policy(results, &columns, rows)
        )
    })
}

fn devices(results: &[Named<'_>]) -> Option<String> {
    let columns = [
        ("policy", Align::Left),
        ("device", Align::Left),
        ("operations", Align::Right),
        ("MB", Align::Right),
        ("waiting", Align::Right),
        ("response", Align::Right),
        ("busy", Align::Right),
    ];
    let of_one = |(policy, result): &Named<'_>| {
        let policy = (*policy).to_owned();
        let row = move |device: &perch_sim::os::DeviceStats| {
            vec![
                policy.clone(),
                device.name.clone(),
                device.operations.to_string(),
                format!("{:.1}", device.bytes as f64 * 1e-6),
                time(device.waiting),
                time(device.response),
                percent(device.utilisation),
            ]
        };
        let rows: Vec<_> = result.outcome.devices.iter().map(row).collect();
        rows
    };
    let rows: Vec<Vec<String>> = results.iter().flat_map(of_one).collect();
    (!rows.is_empty()).then(|| by_policy(results, &columns, rows))
}

fn energy(results: &[Named<'_>]) -> Option<String> {
    let columns = [
        ("policy", Align::Left),
        ("energy", Align::Right),
        ("power", Align::Right),
        ("nJ / instr.", Align::Right),
        ("EDP", Align::Right),
    ];
    let row = |(policy, result): &Named<'_>| {
        let energy = result.outcome.energy.as_ref()?;
        Some(vec![
            (*policy).to_owned(),
            format!("{:.4} J", energy.joules),
            format!("{:.2} W", energy.watts),
            format!("{:.3}", energy.nanojoules_an_instruction),
            format!("{:.3e} Js", energy.energy_delay),
        ])
    };
    let rows: Vec<Vec<String>> = results.iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| {
        format!(
            "{}\n\n{}\n\nparts are in percent of all energy\nenergy is that of the machine's own time: the operating system's / scale",
            by_policy(results, &columns, rows),
            parts(results)
        )
    })
}

/// The parts' shares of all energy, in percent.
fn parts(results: &[Named<'_>]) -> String {
    const NAMES: [&str; 10] = [
        "issue", "units", "L1", "L2", "L3", "lines", "memory", "cores", "uncore", "base",
    ];
    let shares = |(policy, result): &Named<'_>| {
        let energy = result.outcome.energy.as_ref()?;
        let parts = &energy.parts;
        let [first, second, third] = parts.caches;
        let shares = [
            parts.issue,
            parts.units,
            first,
            second,
            third,
            parts.transfers,
            parts.background,
            parts.cores,
            parts.uncore,
            parts.base,
        ];
        Some((
            (*policy).to_owned(),
            shares.map(|part| part / energy.joules),
        ))
    };
    let shares: Vec<(String, [f64; 10])> = results.iter().filter_map(shares).collect();
    // What the machine's file says nothing about takes no place.
    let is_there = |at: &usize| shares.iter().any(|(_, shares)| shares[*at] > 0.0);
    let there: Vec<usize> = (0..NAMES.len()).filter(is_there).collect();
    let mut columns = vec![("policy", Align::Left)];
    columns.extend(there.iter().map(|at| (NAMES[*at], Align::Right)));
    let row = |(policy, shares): &(String, [f64; 10])| {
        let shares = there.iter().map(|at| format!("{:.1}", 100.0 * shares[*at]));
        std::iter::once(policy.clone()).chain(shares).collect()
    };
    by_policy(results, &columns, shares.iter().map(row).collect())
}
