//! The table, in three forms.

use crate::tally::Tally;
use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use std::{collections::BTreeMap, fmt::Write};

/// An attack's name and what it counted.
pub type Tallies = [(&'static str, Tally)];

/// How an attack ended, in a word.
fn verdict(tally: &Tally) -> String {
    match &tally.skipped {
        Some(_) => "skipped".to_owned(),
        None if tally.checked == 0 => "nothing checked".to_owned(),
        None => tally.violations().to_string(),
    }
}

fn rows(tallies: &Tallies) -> impl Iterator<Item = [String; 5]> + '_ {
    tallies.iter().map(|(name, tally)| {
        [
            (*name).to_owned(),
            tally.tries.to_string(),
            tally.checked.to_string(),
            verdict(tally),
            format!("{:.1}", tally.seconds),
        ]
    })
}

const HEADINGS: [&str; 5] = ["attack", "tries", "checked", "violations", "seconds"];

/// For a terminal.
pub fn table(tallies: &Tallies) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(HEADINGS);
    rows(tallies).for_each(|row| {
        table.add_row(row);
    });
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// For docs/torture.md.
pub fn markdown(tallies: &Tallies) -> String {
    let mut text = format!(
        "| {} |\n| --- | ---: | ---: | ---: | ---: |\n",
        HEADINGS.join(" | ")
    );
    for row in rows(tallies) {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// For programs.
pub fn json(seed: u64, tallies: &Tallies) -> Result<()> {
    let attacks: BTreeMap<&str, &Tally> =
        tallies.iter().map(|(name, tally)| (*name, tally)).collect();
    let all = serde_json::json!({ "seed": seed, "attacks": attacks });
    println!("{}", serde_json::to_string_pretty(&all)?);
    Ok(())
}

/// What went wrong, by kind, with examples, on standard error.
pub fn faults(tallies: &Tallies) {
    for (name, tally) in tallies {
        if let Some(why) = &tally.skipped {
            eprintln!("{name}: SKIPPED: {why}");
        }
        for note in &tally.notes {
            eprintln!("{name}: {note}");
        }
        for (kind, fault) in &tally.faults {
            eprintln!("{name}: {} x {kind}", fault.count);
            for example in &fault.examples {
                eprintln!("    {}", example.trim_end().escape_debug());
            }
        }
    }
}
