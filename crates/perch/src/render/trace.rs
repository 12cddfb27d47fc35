//! What is in a recording, as a table.

use super::{
    bytes, count,
    table::{Align, table},
    wrapped,
};
use perch_trace::{Class, LINE, Summary};

/// Threads shown.
const ROWS: usize = 32;

/// A recording's threads: how many instructions, of which classes, over how much code and data.
pub fn summary(summary: &Summary) -> String {
    let mut text = String::new();
    if !summary.program.is_empty() {
        text += &wrapped("", &summary.program);
    }
    let columns = [
        ("thread", Align::Right),
        ("instructions", Align::Right),
        ("alu", Align::Right),
        ("mul", Align::Right),
        ("div", Align::Right),
        ("fp", Align::Right),
        ("fdiv", Align::Right),
        ("load", Align::Right),
        ("store", Align::Right),
        ("br", Align::Right),
        ("data", Align::Right),
    ];
    let rows = summary.threads.iter().take(ROWS).map(|thread| {
        let mut row = vec![thread.thread.to_string(), thread.instructions.to_string()];
        row.extend(Class::ALL.iter().map(|class| {
            let number = thread.classes.get(class.name()).copied().unwrap_or(0);
            share(number, thread.instructions)
        }));
        row.push(bytes(thread.data_lines * LINE));
        row
    });
    text += &table(&columns, rows);
    text += "\n";
    if summary.threads.len() > ROWS {
        text += &format!(
            "and {} more (--json has all)\n",
            summary.threads.len() - ROWS
        );
    }
    let accesses: u64 = summary.threads.iter().map(|t| t.loads + t.stores).sum();
    text += &format!(
        "\nshares in %; data: lines of {LINE} B that were touched\n{} of {}, {} of memory\n",
        millions(summary.instructions(), "instructions"),
        count(summary.threads.len(), "thread"),
        millions(accesses, "accesses"),
    );
    text
}

fn millions(number: u64, of: &str) -> String {
    match number {
        0..1_000_000 => format!("{number} {of}"),
        _ => format!("{:.1} million {of}", number as f64 / 1e6),
    }
}

fn share(part: u64, whole: u64) -> String {
    match part {
        0 => "0".to_owned(),
        _ => {
            let percent = 100.0 * part as f64 / whole.max(1) as f64;
            let digits = usize::from(percent < 9.95);
            format!("{percent:.digits$}")
        }
    }
}
