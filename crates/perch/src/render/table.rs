//! Tables that fit.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// How a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table without frame: a header line, a rule, rows. Columns that do not fit wrap.
pub fn table(columns: &[(&str, Align)], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(super::WIDTH as u16)
        .set_header(columns.iter().map(|(title, _)| *title));
    for row in rows {
        table.add_row(row);
    }
    for (column, (_, align)) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, 2));
        column.set_cell_alignment(match align {
            Align::Left => CellAlignment::Left,
            Align::Right => CellAlignment::Right,
        });
    }
    let text = table.to_string();
    text.lines()
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join("\n")
}
