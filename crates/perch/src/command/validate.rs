//! `perch lab validate`: simulated machines beside measurements of the real ones.

use crate::render::{
    progress::Bar,
    table::{Align, table},
    wrapped,
};
use anyhow::{Result, bail};
use perch_core::diagnostic::did_you_mean;
use perch_lab::{
    fingerprint,
    validate::{Measurements, Validated, Validation, validate},
};
use perch_sim::config;
use std::{process::ExitCode, sync::Arc};

/// Compares machines with what was measured, and prints tables, or JSON. A miss is a result like any other. `only` leaves
/// the values that have this text in their names.
///
/// # Errors
/// A machine of which nothing was measured, a simulation that cannot go on.
pub fn command(machines: &[String], only: Option<&str>, json: bool) -> Result<ExitCode> {
    let only = only.unwrap_or_default();
    let known = Measurements::machines();
    let machines: Vec<&str> = match machines {
        [] => known.clone(),
        some => some.iter().map(String::as_str).collect(),
    };
    let mut all = Vec::new();
    for name in machines {
        let Some(measurements) = Measurements::of(name) else {
            let hint = did_you_mean(name, known.iter().copied());
            let hint = hint.map(|hint| format!("\n  {hint}")).unwrap_or_default();
            bail!(
                "no measurements of a machine `{name}`; there are some of {}{hint}",
                known.join(", ")
            );
        };
        let machine = Arc::new(config::find_machine(name)?);
        let mut bar = None;
        let rows = validate(&machine, &measurements, only, |done, count| {
            let bar = bar.get_or_insert_with(|| Bar::new(true, count as u64));
            bar.says(name);
            bar.is_at(done as u64);
        });
        drop(bar);
        let rows = rows.map_err(anyhow::Error::msg)?;
        if rows.is_empty() {
            bail!("--only {only}: nothing that was measured of {name} has that in its name");
        }
        all.push(Validated {
            machine: machine.name.clone(),
            rows,
            sources: measurements.sources,
        });
    }
    if json {
        super::print_json(&Validation {
            fingerprint: fingerprint::of_levels().map_err(anyhow::Error::msg)?.cycle,
            machines: all,
        })?;
    } else {
        let tables: Vec<String> = all.iter().map(render).collect();
        super::print(&tables.join("\n\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(one: &Validated) -> String {
    let columns = [
        ("", Align::Left),
        ("unit", Align::Left),
        ("measured", Align::Right),
        ("simulated", Align::Right),
        ("off", Align::Right),
        ("", Align::Left),
    ];
    let rows = one.rows.iter().map(|row| row.cells().to_vec());
    let sources = one.sources.iter();
    let sources = sources.map(|of| wrapped("  ", &format!("{}: {}", of.key, of.text)));
    format!(
        "{}\n\n{}\n\n{}\n\n{}{}",
        one.machine,
        table(&columns, rows),
        one.tally(),
        wrapped(
            "",
            "An input is a number of the machine's file beside a measurement; a prediction follows from how the parts of \
             the machine work together. Sources:"
        ),
        sources.collect::<String>().trim_end_matches('\n'),
    )
}
