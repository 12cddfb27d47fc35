//! Draws a model. Only what is seen is formatted.

mod detail;
mod header;
mod help;
mod machine;
mod moves;
pub mod text;
pub mod theme;
mod threads;

#[cfg(test)]
mod tests;

use crate::{
    frame::Frame,
    model::{Hits, Model, Scope, Screen},
};
use ratatui::{buffer::Buffer, layout::Rect};
use std::sync::Arc;
use text::put;
use theme::Theme;

/// Below this size nothing useful can be drawn.
const LEAST: (u16, u16) = (20, 4);

/// From this height on there is room for the units and the history of the machine.
const TALL: u16 = 12;

/// Draws everything, and says in the model where things are.
pub fn draw(model: &mut Model, theme: Theme, buffer: &mut Buffer) {
    let area = buffer.area;
    model.hits = Hits::default();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("{} columns x {} rows or more, please", LEAST.0, LEAST.1);
        put(
            buffer,
            area.x,
            area.y,
            area.width.into(),
            &text,
            theme.notice(),
        );
        return;
    }
    if let Some(top) = model.help {
        model.help = Some(help::draw(top, theme, area, buffer));
        return;
    }
    let Some(frame) = model.frame().cloned() else {
        header::bar(model, theme, area, buffer);
        let text = match &model.ended {
            Some(why) => why.as_str(),
            None => "waiting for the first interval …",
        };
        put(buffer, 0, 1, area.width.into(), text, theme.notice());
        return;
    };
    let mut at = header::draw(model, &frame, theme, area, buffer);
    let last = area.bottom() - 1;
    let rest = |from: u16| Rect::new(area.x, from, area.width, last.saturating_sub(from));
    match model.screen().clone() {
        Screen::Threads(scope) => {
            if scope == Scope::All && area.height >= TALL {
                at += machine::units(model, &frame, theme, rest(at), buffer);
            }
            at += detail::scope(model, &frame, &scope, theme, rest(at), buffer);
            threads::draw(model, &frame, theme, rest(at), buffer);
        }
        Screen::Machine => machine::draw(model, &frame, theme, rest(at), buffer),
        Screen::Moves => moves::draw(model, &frame, theme, rest(at), buffer),
        Screen::Thread(id) => detail::thread(model, &frame, id, theme, rest(at), buffer),
    }
    header::foot(
        model,
        &frame,
        theme,
        Rect::new(area.x, last, area.width, 1),
        buffer,
    );
}

/// The names of threads, by place in a frame.
fn names(frame: &Arc<Frame>, threads: &[Option<u32>]) -> String {
    let threads = threads.iter().flatten();
    let names: Vec<&str> = threads
        .filter_map(|at| frame.threads.get(*at as usize))
        .map(|thread| &*thread.name)
        .collect();
    names.join(" ")
}
