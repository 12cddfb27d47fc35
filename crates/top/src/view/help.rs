//! The help.

use super::{
    text::{put, wrapped},
    theme::Theme,
};
use crate::input::HELP;
use ratatui::{buffer::Buffer, layout::Rect};

/// Columns before the texts.
const KEYS: usize = 15;

/// Below this width, keys have lines of their own.
const NARROW: usize = 36;

/// The help in lines of at most so many columns: keys, if they begin there, and text; and the column where texts begin.
fn lines(columns: usize) -> (Vec<(&'static str, String)>, usize) {
    let narrow = columns < NARROW;
    let indent = if narrow { 3 } else { KEYS };
    let each = HELP.iter().flat_map(|(keys, text)| {
        let above = narrow.then(String::new);
        let texts = above.into_iter().chain(wrapped(text, columns - indent));
        let keys = std::iter::once(*keys).chain(std::iter::repeat(""));
        keys.zip(texts)
    });
    (each.collect(), indent)
}

/// Draws the help from a line on; gives the line, which is an earlier one where the help ends sooner.
pub fn draw(top: usize, theme: Theme, area: Rect, buffer: &mut Buffer) -> usize {
    let width = usize::from(area.width);
    put(buffer, 0, 0, width, &" ".repeat(width), theme.band());
    let title = " perch top: keys (Esc closes this)";
    put(buffer, 0, 0, width, title, theme.band());
    let page = usize::from(area.height.saturating_sub(1));
    let (lines, indent) = lines(width);
    let top = top.min(lines.len().saturating_sub(page));
    for (row, (keys, text)) in lines.iter().skip(top).take(page).enumerate() {
        let y = row as u16 + 1;
        let below = lines.len() - top - row - 1;
        if row + 1 == page && below > 0 {
            let more = format!("… {} more: Down", below + 1);
            put(buffer, 0, y, width, &more, theme.dim());
            break;
        }
        put(buffer, 1, y, width - 1, keys, theme.notice());
        let rest = width - indent;
        put(buffer, indent as u16, y, rest, text, Default::default());
    }
    top
}
