//! Pictures of which PUs were used when: by which thread, or on large machines how much.

use super::{
    super::{WIDTH, fit},
    seconds,
};
use anstyle::{AnsiColor, Style};
use perch_core::ThreadId;
use perch_engine::report::{Cell, Placements, Role, Row};
use std::{collections::HashMap, fmt::Write};
use unicode_width::UnicodeWidthStr;

/// Rows of a picture.
const ROWS: usize = 32;
/// Columns of time.
const COLUMNS: usize = WIDTH - 10;

/// Which thread was on which PU when: one row per PU, with the thread's letter, a capital while it was FP-heavy.
pub(super) fn picture(placements: &Placements, letters: &HashMap<ThreadId, char>) -> String {
    if placements.columns.len() < 2 || placements.rows.is_empty() {
        return String::new();
    }
    if placements.rows.len() > ROWS {
        return load(placements);
    }
    let cores = cores(placements);
    let left = cores.iter().map(|core| core.width() + 2).max().unwrap_or(0);
    let fold = placements.columns.len().div_ceil(COLUMNS - left);
    let to = placements.columns.last().copied().map_or(0.0, seconds);
    let bold = Style::new().bold();
    let mut text = format!(
        "\nPU occupancy, 0 to {to:.0} s (capital: FP-heavy, {bold}bold{bold:#}: bound, * others)\n"
    );
    for (at, row) in placements.rows.iter().enumerate() {
        let core = cores.get(at).map_or("", String::as_str);
        let _ = write!(text, "  {}PU {:>3}  ", fit(core, left), row.pu);
        for cells in row.cells.chunks(fold) {
            let most = cells
                .iter()
                .flatten()
                .max_by(|a, b| a.share.total_cmp(&b.share));
            let Some(cell) = most else {
                text.push('·');
                continue;
            };
            let letter = letters.get(&cell.thread).copied().unwrap_or('*');
            let (letter, style) = match cell.role {
                Role::FloatingPoint => (letter.to_ascii_uppercase(), AnsiColor::Cyan.on_default()),
                Role::Integer => (letter, AnsiColor::Yellow.on_default()),
                Role::Unknown => (letter, Style::new()),
            };
            let style = if cell.bound { style.bold() } else { style };
            let _ = write!(text, "{style}{letter}{style:#}");
        }
        text.push('\n');
    }
    text
}

/// What stands before each row: its core before the first one, if there are several cores.
fn cores(placements: &Placements) -> Vec<String> {
    let rows = placements.rows.iter();
    let names: Vec<&str> = rows.map(|row| row.core.as_str()).collect();
    if names.windows(2).all(|pair| pair[0] == pair[1]) {
        return Vec::new();
    }
    let new = |at: usize| at == 0 || names[at] != names[at - 1];
    let name = |at: usize| if new(at) { names[at] } else { "" };
    (0..names.len()).map(|at| name(at).to_owned()).collect()
}

/// Which part of their PUs' time the busiest threads of each group of PUs had: a row for each core, or where these are too
/// many for each last-level cache, or for as many PUs in order as it takes.
fn load(placements: &Placements) -> String {
    let (kind, groups) = groups(&placements.rows);
    let left = groups.iter().map(|(name, _)| name.width()).max();
    let left = left.unwrap_or(0);
    let fold = placements.columns.len().div_ceil(WIDTH - 4 - left);
    let to = placements.columns.last().copied().map_or(0.0, seconds);
    let mut text = format!(
        "\nLoad of {kind}, 0 to {to:.0} s (0 to 9: tenths of the PUs' time, # all;\n\
         cyan: mostly FP-heavy, yellow: mostly not)\n"
    );
    for (name, rows) in &groups {
        let _ = write!(text, "  {}  ", fit(name, left));
        for at in (0..placements.columns.len()).step_by(fold) {
            let cells = rows
                .iter()
                .flat_map(|row| row.cells.iter().skip(at).take(fold));
            let cells: Vec<Option<&Cell>> = cells.map(Option::as_ref).collect();
            text += &tenths(&cells);
        }
        text.push('\n');
    }
    text
}

/// One character for the mean share of these cells.
fn tenths(cells: &[Option<&Cell>]) -> String {
    let busy = || cells.iter().flatten();
    let share = |role: Role| -> f64 {
        let of_role = busy().filter(|cell| cell.role == role);
        of_role.map(|cell| cell.share).sum()
    };
    let all: f64 = busy().map(|cell| cell.share).sum();
    let mean = all / cells.len().max(1) as f64;
    let digit = match (mean * 10.0).round() as u32 {
        0 if all == 0.0 => return "·".to_owned(),
        10.. => '#',
        part => char::from_digit(part, 10).unwrap_or('0'),
    };
    let (heavy, light) = (share(Role::FloatingPoint), share(Role::Integer));
    let style = match heavy > light {
        true => AnsiColor::Cyan.on_default(),
        false if light > 0.0 => AnsiColor::Yellow.on_default(),
        false => Style::new(),
    };
    format!("{style}{digit}{style:#}")
}

/// Rows that stand together, with what they are.
fn groups(rows: &[Row]) -> (&'static str, Vec<(String, Vec<&Row>)>) {
    let by = |name: &dyn Fn(&Row) -> String| {
        let mut groups: Vec<(String, Vec<&Row>)> = Vec::new();
        for row in rows {
            let name = name(row);
            match groups.iter_mut().find(|(known, _)| *known == name) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((name, vec![row])),
            }
        }
        groups
    };
    let named = rows.iter().all(|row| !row.core.is_empty());
    let cores = by(&|row| row.core.clone());
    if named && cores.len() <= ROWS {
        return ("cores", cores);
    }
    // `core 7, L3 0`.
    let cache = |row: &Row| row.core.split_once(", ").map(|(_, cache)| cache.to_owned());
    if rows.iter().all(|row| cache(row).is_some()) {
        let caches = by(&|row| cache(row).unwrap_or_default());
        if caches.len() <= ROWS {
            return ("last-level caches", caches);
        }
    }
    let each = rows.len().div_ceil(ROWS);
    let blocks = rows.chunks(each).map(|block| {
        let pus: perch_core::PuSet = block.iter().map(|row| row.pu).collect();
        let name = format!("PU {pus}");
        (fit(&name, 24).trim_end().to_owned(), block.iter().collect())
    });
    ("PUs", blocks.collect())
}
