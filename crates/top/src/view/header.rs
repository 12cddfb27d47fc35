//! The lines at the top and at the bottom.

use super::{
    TALL,
    text::{count, fit, percent, put, spark, time},
    theme::Theme,
};
use crate::{Frame, model::Model};
use ratatui::{buffer::Buffer, layout::Rect};
use std::sync::Arc;
use unicode_width::UnicodeWidthStr;

/// The names of the main screens: in full, and short.
const SCREENS: [(&str, &str); 3] = [
    (" 1 threads ", " 1 "),
    (" 2 machine ", " 2 "),
    (" 3 moves ", " 3 "),
];

/// The bar at the top.
pub fn bar(model: &mut Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    put(buffer, 0, 0, width, &" ".repeat(width), theme.band());
    let long = width >= 70;
    let names = SCREENS.map(|(name, short)| if long { name } else { short });
    let help = " ? help ";
    let right: usize = names.iter().map(|name| name.width()).sum::<usize>() + help.width();
    let room = width.saturating_sub(right + 1);
    let title = match format!(" perch top  {}", model.title) {
        title if title.width() <= room => title,
        _ => format!(" {}", model.title),
    };
    put(buffer, 0, 0, room, &fit(&title, room, false), theme.band());
    let mut x = width.saturating_sub(right) as u16;
    let present = model.main_screen();
    for (number, name) in names.into_iter().enumerate() {
        // The present one stands out of the bar.
        let style = match number == present {
            true => ratatui::style::Style::new().add_modifier(ratatui::style::Modifier::BOLD),
            false => theme.band(),
        };
        let end = put(buffer, x, 0, width, name, style);
        model
            .hits
            .screens
            .push((Rect::new(x, 0, end - x, 1), number));
        x = end;
    }
    put(buffer, x, 0, width, help, theme.band());
}

/// The lines at the top; how many.
pub fn draw(
    model: &mut Model,
    frame: &Arc<Frame>,
    theme: Theme,
    area: Rect,
    buffer: &mut Buffer,
) -> u16 {
    bar(model, theme, area, buffer);
    let width = usize::from(area.width);
    let busy = frame.busy();
    let mut parts = vec![format!(
        "{}, {} running",
        count(frame.threads.len(), "thread", "threads"),
        super::text::thousands(frame.running())
    )];
    parts.push(format!("PUs {} % busy", percent(busy)));
    parts.push(time(frame.at, frame.interval));
    let mut x = put(buffer, 0, 1, width, &parts.join(" · "), Default::default());
    if let Some(state) = state(model, frame) {
        x = put(buffer, x, 1, width, " · ", Default::default());
        x = put(buffer, x, 1, width, &state, theme.notice());
    }
    if frame.own > 0.0 {
        let own = format!(" · perch {} % of a PU", percent(frame.own));
        if usize::from(x) + own.width() <= width {
            put(buffer, x, 1, width, &own, theme.dim());
        }
    }
    if area.height < TALL {
        return 2;
    }
    let label = if frame.pus.is_empty() {
        "threads "
    } else {
        "busy    "
    };
    put(buffer, 0, 2, width, label, theme.dim());
    let room = width.saturating_sub(8);
    let frames = model.history.until(model.playback.position(), room);
    let values: Vec<Option<f32>> = frames.map(|frame| Some(frame.busy())).collect();
    let line = spark(&values, 1.0, room);
    put(buffer, 8, 2, room, &line, theme.history());
    3
}

/// Whether time stands still, and where; how fast a recording is shown.
fn state(model: &Model, frame: &Frame) -> Option<String> {
    let position = model.playback.position();
    let newest = model.history.get(model.history.len().saturating_sub(1));
    let behind = newest.map_or(0, |newest| newest.at.saturating_sub(frame.at));
    let mut behind = match behind {
        0 => String::new(),
        behind => format!(", {} s before the newest", behind / 1_000_000_000),
    };
    if position == 0 && model.history.forgotten() > 0 {
        behind += " (earlier ones are forgotten)";
    }
    match (model.playback.speed(), model.playback.is_paused()) {
        (Some(_), true) => Some(format!(
            "stopped, {} of {}",
            position + 1,
            model.history.len()
        )),
        (Some(speed), false) => Some(format!(
            "x{speed}, {} of {}",
            position + 1,
            model.history.len()
        )),
        (None, true) => Some(format!("stopped{behind}")),
        (None, false) => None,
    }
}

/// The line at the bottom: a text that is written, why no more frames come, what perch has to say, or keys.
pub fn foot(model: &Model, frame: &Frame, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    let mut line = |text: &str, style| {
        put(
            buffer,
            area.x,
            area.y,
            width,
            &fit(text, width, false),
            style,
        );
    };
    if model.writing.is_some() {
        return line(&format!("filter: {}_", model.filter.text), theme.notice());
    }
    let at_end = model.playback.position() + 1 == model.history.len();
    if let Some(ended) = model.ended.as_ref().filter(|_| at_end) {
        return line(ended, theme.notice());
    }
    if let Some(remark) = frame.remarks.first() {
        let more = match frame.remarks.len() {
            1 => String::new(),
            all => format!("({} more) ", all - 1),
        };
        return line(&format!("{more}{remark}"), theme.notice());
    }
    let keys = match model.depth() {
        0 => "Enter details  / filter  < > sort  v tree  Space stop  Left Right time  q quit",
        _ => "Esc back  Enter details  Space stop  Left Right time  q quit",
    };
    line(keys, theme.dim());
}
