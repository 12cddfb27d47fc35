//! The help.

use super::{text::put, theme::Theme};
use crate::input::HELP;
use ratatui::{buffer::Buffer, layout::Rect};

/// Draws the help from a line on.
pub fn draw(top: usize, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    put(buffer, 0, 0, width, &" ".repeat(width), theme.band());
    put(
        buffer,
        0,
        0,
        width,
        " perch top: keys (Esc closes this)",
        theme.band(),
    );
    let page = usize::from(area.height.saturating_sub(1));
    let top = top.min(HELP.len().saturating_sub(page));
    let seen = HELP.iter().skip(top).take(page);
    for (row, (keys, text)) in seen.enumerate() {
        let y = row as u16 + 1;
        let below = HELP.len() - top - row - 1;
        if row + 1 == page && below > 0 {
            let more = format!("… {} more lines: Down", below + 1);
            put(buffer, 0, y, width, &more, theme.dim());
            return;
        }
        put(buffer, 1, y, width.saturating_sub(1), keys, theme.notice());
        put(
            buffer,
            15,
            y,
            width.saturating_sub(15),
            text,
            Default::default(),
        );
    }
}
