//! What became of claims, as a table for a terminal.

use crate::{
    results::{Results, short},
    tally::Tally,
};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};

/// Columns of a terminal that a table takes at most.
const WIDTH: u16 = 80;

/// How they are shared out: claim, published, ours, difference, allowed, verdict.
const COLUMNS: [u16; 6] = [27, 10, 9, 11, 11, 7];

/// The claims of an experiment as a table of 80 columns, and how many of each class hold.
pub fn text(results: &Results) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH);
    table.set_header(["claim", "published", "ours", "difference", "allowed", ""]);
    for row in &results.rows {
        let unit = if row.unit.is_empty() {
            String::new()
        } else {
            format!(" ({})", row.unit)
        };
        table.add_row([
            format!("{}{unit}\n{}\n{}", row.name, row.place, row.class.name()),
            row.published.to_string(),
            match row.range() {
                Some((least, greatest)) => format!("{}\n{least} to\n{greatest}", row.ours),
                None => row.ours.to_string(),
            },
            row.difference()
                .map_or(String::new(), |difference| match short(difference) {
                    zero if zero == "0" => zero,
                    text if difference > 0.0 => format!("+{text}"),
                    text => text,
                }),
            row.allowed(),
            match &row.varied {
                Some(varied) => {
                    format!("{}\n{} of\n{}", verdict(row.holds), varied.holds, varied.of)
                }
                None => verdict(row.holds).to_owned(),
            },
        ]);
    }
    for column in 1..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for (column, width) in COLUMNS.into_iter().enumerate() {
        if let Some(column) = table.column_mut(column) {
            column.set_padding((0, 1));
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
    }
    let mut text = format!(
        "{}: {}\n{}\n",
        results.name,
        results.title,
        table.trim_fmt()
    );
    text.push_str(&format!("{}\n", Tally::of(&results.rows)));
    for note in &results.notes {
        let mut line = "note:".to_owned();
        for word in note.split(' ') {
            if line.chars().count() + 1 + word.chars().count() > usize::from(WIDTH) {
                text.push_str(&line);
                text.push('\n');
                line = " ".repeat(4);
            }
            line.push(' ');
            line.push_str(word);
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// A claim's outcome in a word.
pub(crate) fn verdict(holds: bool) -> &'static str {
    if holds { "holds" } else { "MISSES" }
}
