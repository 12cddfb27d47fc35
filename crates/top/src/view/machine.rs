//! The machine: its shared units with their loads, in short above the threads, and as a tree.

use super::{
    names,
    text::{bar, count, fit, percent, put, thousands},
    theme::Theme,
};
use crate::{
    Frame,
    model::Model,
    units::{Load, loads},
};
use ratatui::{buffer::Buffer, layout::Rect, style::Style};
use std::sync::Arc;

/// How wide a unit is drawn at least.
const CELL: usize = 38;

/// How long the bars are.
const BAR: usize = 8;

/// Draws units in a few lines; how many lines.
pub fn units(
    model: &mut Model,
    frame: &Arc<Frame>,
    theme: Theme,
    area: Rect,
    buffer: &mut Buffer,
) -> u16 {
    let width = usize::from(area.width);
    let columns = (width / CELL).max(1);
    let most = usize::from(area.height.saturating_sub(4)) / 3;
    if most == 0 {
        return 0;
    }
    let layout = Arc::clone(model.layout());
    let level = model
        .level
        .unwrap_or_else(|| layout.fitting(columns * most));
    let Some(units) = layout.levels.get(level) else {
        return 0;
    };
    let all = units.units.len();
    let lines = all.div_ceil(columns).min(most);
    // One place is needed to say what is left out.
    let shown = match all > columns * lines {
        true => columns * lines - 1,
        false => all,
    };
    let loads = loads(frame, units);
    let cell = width / columns;
    let place = |at: usize| {
        let (column, line) = (at / lines, at % lines);
        (area.x + (column * cell) as u16, area.y + line as u16)
    };
    for (at, (unit, load)) in units.units.iter().zip(&loads).take(shown).enumerate() {
        let (x, y) = place(at);
        draw_unit(
            (&unit.label, ""),
            load,
            frame,
            theme,
            (x, y, cell - 1),
            buffer,
        );
        let hit = Rect::new(x, y, cell as u16 - 1, 1);
        model.hits.units.push((hit, level, at));
    }
    if shown < all {
        let (x, y) = place(shown);
        let (one, several) = units.level.noun();
        let rest = &loads[shown..];
        let busy = rest.iter().map(|load| load.busy).sum::<f32>() / rest.len() as f32;
        let more = all - shown;
        let noun = if more == 1 { one } else { several };
        let text = format!(
            "… {} more {noun}, {} % busy",
            thousands(more),
            percent(busy)
        );
        put(buffer, x, y, cell - 1, &text, theme.dim());
    }
    lines as u16
}

/// `core 3   ▕███   ▏ 45 % worker-1 worker-2`.
fn draw_unit(
    (label, caches): (&str, &str),
    load: &Load,
    frame: &Arc<Frame>,
    theme: Theme,
    (x, y, width): (u16, u16, usize),
    buffer: &mut Buffer,
) {
    let right = x + width as u16;
    let room = |x: u16| usize::from(right.saturating_sub(x));
    let x = put(
        buffer,
        x,
        y,
        width.min(10),
        &fit(label, 10, false),
        Style::new(),
    );
    let style = theme.load(load.busy);
    let x = put(buffer, x, y, room(x), "▕", theme.dim());
    let x = put(buffer, x, y, room(x), &bar(load.busy, BAR), style);
    let x = put(buffer, x, y, room(x), "▏", theme.dim());
    let busy = match load.pus {
        0 => " off ".to_owned(),
        _ => format!("{}% ", fit(&percent(load.busy), 4, true)),
    };
    let x = put(buffer, x, y, room(x), &busy, style);
    let x = match caches.is_empty() {
        true => x,
        false => put(buffer, x, y, room(x), &format!("{caches} "), Style::new()),
    };
    let text = match load.running {
        0 => String::new(),
        running => {
            let named = load.top.iter().flatten().count();
            let more = (running as usize).saturating_sub(named);
            let more = if more > 0 {
                format!("+{more} ")
            } else {
                String::new()
            };
            format!("{more}{}", names(frame, &load.top))
        }
    };
    put(
        buffer,
        x,
        y,
        room(x),
        &fit(&text, room(x), false),
        theme.dim(),
    );
}

/// Draws the machine as a tree.
pub fn draw(model: &mut Model, frame: &Arc<Frame>, theme: Theme, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let width = usize::from(area.width);
    let page = usize::from(area.height).saturating_sub(1);
    let (range, selected) = model.window(page);
    let layout = Arc::clone(model.layout());
    let parts: Vec<String> = layout
        .levels
        .iter()
        .rev()
        .map(|units| {
            let (one, several) = units.level.noun();
            count(units.units.len(), one, several)
        })
        .collect();
    let line = format!(
        "{}-{} of {} · {}",
        thousands((range.start + 1).min(range.end)),
        thousands(range.end),
        count(layout.tree.len(), "row", "rows"),
        parts.join(", ")
    );
    put(buffer, area.x, area.y, width, &line, theme.dim());
    model.hits.rows = Rect::new(area.x, area.y + 1, area.width, page as u16);
    let seen = &layout.tree[range.clone()];
    // Only of levels that are seen.
    let of_level = |level: usize| {
        let is_seen = seen.iter().any(|branch| branch.level == level);
        is_seen.then(|| loads(frame, &layout.levels[level]))
    };
    let all: Vec<Option<Vec<Load>>> = (0..layout.levels.len()).map(of_level).collect();
    for (at, branch) in seen.iter().enumerate() {
        let y = area.y + 1 + at as u16;
        let unit = &layout.levels[branch.level].units[branch.unit];
        let Some(load) = all[branch.level].as_ref().map(|loads| &loads[branch.unit]) else {
            continue;
        };
        if selected == Some(range.start + at) {
            put(buffer, area.x, y, width, ">", theme.selected());
        }
        let indent = 1 + 2 * branch.depth;
        let x = (area.x + indent).min(area.right());
        let room = width.saturating_sub(indent.into());
        let label = (unit.label.as_str(), unit.caches.as_str());
        draw_unit(label, load, frame, theme, (x, y, room), buffer);
    }
}
