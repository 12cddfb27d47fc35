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
        ("events", Align::Right),
        ("cores", Align::Right),
        ("base", Align::Right),
        ("nJ / instr.", Align::Right),
        ("EDP", Align::Right),
    ];
    let row = |(policy, result): &Named<'_>| {
        let energy = result.outcome.energy.as_ref()?;
        let part = |joules: f64| percent(joules / energy.joules);
        Some(vec![
            (*policy).to_owned(),
            format!("{:.4} J", energy.joules),
            format!("{:.2} W", energy.watts),
            part(energy.dynamic),
            part(energy.cores),
            part(energy.base),
            format!("{:.3}", energy.nanojoules_an_instruction),
            format!("{:.3e} Js", energy.energy_delay),
        ])
    };
    let rows: Vec<Vec<String>> = results.iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| {
        format!(
            "{}\n\nenergy is that of the machine's own time: the operating system's / scale",
            by_policy(results, &columns, rows)
        )
    })
}
