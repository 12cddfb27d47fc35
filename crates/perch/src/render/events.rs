//! What `perch events` prints.

use super::{
    count,
    table::{Align, table},
    wrapped,
};
use crate::command::events::catalog::{Entry, PmuEntry};
use perch_linux::perf::encode::Table;
use serde::Serialize;
use serde_json::{Value, json};

/// One event and all its spellings.
#[derive(Debug, Serialize)]
pub struct Explained {
    /// Its name.
    pub name: String,
    /// Where the name comes from.
    pub source: String,
    /// What it counts.
    pub description: String,
    /// How the source spells it.
    pub spellings: Vec<String>,
    /// As a device's event: `cpu/event=0x2e,umask=0x41/`.
    pub device: Option<String>,
    /// As perf's raw event: `r412e`.
    pub raw: Option<String>,
    /// As PMCTrack writes it: `pmc0=0x2e,umask0=0x41`.
    pub pmctrack: Option<String>,
    /// `type`, and `config` to `config3`, of perf_event_open(2).
    pub code: Option<(u32, [u64; 4])>,
    /// Why it cannot be counted here; `None` if it can.
    pub counted: Option<String>,
}

/// An event of a set, as raw codes.
#[derive(Debug, Serialize)]
pub struct Translated {
    /// As it was given.
    pub name: String,
    /// As a device's event.
    pub device: Option<String>,
    /// As perf's raw event.
    pub raw: Option<String>,
    /// As PMCTrack writes it.
    pub pmctrack: Option<String>,
    /// Why it means nothing here.
    pub problem: Option<String>,
}

/// A list of events, and what else there is.
pub fn list(entries: &[Entry], more: Option<&str>) -> String {
    let columns = [
        ("event", Align::Left),
        ("from", Align::Left),
        ("description", Align::Left),
    ];
    let rows = entries.iter().map(|entry| {
        vec![
            entry.name.clone(),
            entry.origin(),
            entry.description.clone(),
        ]
    });
    let text = table(&columns, rows);
    match more {
        Some(more) => format!("{text}\n\n{}", wrapped("", more)),
        None => format!("{text}\n"),
    }
}

/// One event.
pub fn explained(event: &Explained) -> String {
    let mut out = wrapped("", &format!("{} ({})", event.name, event.source));
    let mut line = |label: &str, text: &str| {
        if !text.is_empty() {
            out += &wrapped(&format!("  {label:<14}"), text);
        }
    };
    line("counts", &event.description);
    line("spelled", &event.spellings.join("; "));
    let both = [&event.device, &event.raw];
    let both: Vec<&str> = both.into_iter().flatten().map(String::as_str).collect();
    line("perf", &both.join(" or "));
    line("PMCTrack", event.pmctrack.as_deref().unwrap_or(""));
    if let Some((kind, config)) = &event.code {
        let used = config.iter().rposition(|word| *word != 0).unwrap_or(0);
        let words = config[..=used]
            .iter()
            .enumerate()
            .map(|(at, word)| match at {
                0 => format!("config {word:#x}"),
                _ => format!("config{at} {word:#x}"),
            });
        let words: Vec<String> = words.collect();
        line("code", &format!("type {kind}, {}", words.join(", ")));
    }
    match &event.counted {
        None => line("counted here", "yes"),
        Some(why) => line("counted here", &format!("no: {why}")),
    }
    out
}

/// Sets as raw codes.
pub fn translated(sets: &[Vec<Translated>]) -> String {
    let columns = [
        ("event", Align::Left),
        ("perf", Align::Left),
        ("raw", Align::Left),
        ("PMCTrack", Align::Left),
    ];
    let mut out = String::new();
    for (number, set) in sets.iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let cell = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let rows = set.iter().map(|event| {
            vec![
                event.name.clone(),
                cell(&event.device),
                cell(&event.raw),
                cell(&event.pmctrack),
            ]
        });
        out += &table(&columns, rows);
        out.push('\n');
        let all: Option<Vec<&str>> = set.iter().map(|event| event.pmctrack.as_deref()).collect();
        if let Some(all) = all.filter(|all| all.len() > 1) {
            out += &wrapped("the set for PMCTrack: ", &all.join(","));
        }
        for event in set {
            if let Some(why) = &event.problem {
                out += &wrapped(&format!("{}: ", event.name), why);
            }
        }
    }
    out
}

/// The PMUs of this machine, and the processors that libpfm4 knows.
pub fn pmus(pmus: &[PmuEntry], tables: &Result<Vec<Table>, String>) -> String {
    let columns = [
        ("PMU", Align::Left),
        ("type", Align::Right),
        ("PUs", Align::Left),
        ("named events", Align::Right),
        ("terms", Align::Left),
    ];
    let rows = pmus.iter().map(|pmu| {
        vec![
            pmu.name.clone(),
            pmu.kind.map_or("-".to_owned(), |kind| kind.to_string()),
            pmu.pus.clone().unwrap_or_else(|| "all".to_owned()),
            pmu.events.to_string(),
            pmu.terms.join(", "),
        ]
    });
    let mut out = table(&columns, rows) + "\n\n";
    let tables = match tables {
        Err(why) => return out + &wrapped("", why),
        Ok(tables) => tables,
    };
    let columns = [
        ("libpfm4's table", Align::Left),
        ("of", Align::Left),
        ("counters", Align::Right),
        ("events", Align::Right),
    ];
    let present: Vec<&Table> = tables.iter().filter(|table| table.is_present).collect();
    let rows = present.iter().map(|table| {
        vec![
            table.pmu.clone(),
            table.description.clone(),
            match table.counters {
                (general, 0) => general.to_string(),
                (general, fixed) => format!("{general} + {fixed} fixed"),
            },
            table.events.to_string(),
        ]
    });
    if !present.is_empty() {
        out += &(self::table(&columns, rows) + "\n\n");
    }
    let others = tables.len() - present.len();
    out += &wrapped(
        "",
        &format!(
            "libpfm4 has {} of other processors: `perch events --profile NAME --all`.",
            count(others, "table")
        ),
    );
    out
}

/// The same as JSON.
pub fn pmus_json(pmus: &[PmuEntry], tables: Option<&Vec<Table>>) -> Value {
    let tables = tables.into_iter().flatten().map(|table| {
        json!({
            "name": table.pmu,
            "description": table.description,
            "present": table.is_present,
            "counters": table.counters.0,
            "fixed_counters": table.counters.1,
            "events": table.events,
        })
    });
    json!({ "pmus": pmus, "libpfm4": tables.collect::<Vec<_>>() })
}
