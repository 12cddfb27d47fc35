//! What the policy changed, and why.

use super::{
    text::{fit, number, put, thousands, time, wrapped},
    theme::Theme,
};
use crate::{Frame, frame::Moved, model::Model};
use perch_core::{Outcome, PuSet};
use ratatui::{buffer::Buffer, layout::Rect};
use std::sync::Arc;

/// How many lines the reason of the selected move has.
const REASON: u16 = 4;

/// Draws the moves, the last one first, and the whole reason of the selected one.
pub fn draw(model: &mut Model, frame: &Arc<Frame>, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    let all = model.moves();
    if all == 0 {
        let text = "No moves so far. perch top changes nothing itself: it shows the moves of a recording (--from) or a \
                    simulation (--sim).";
        for (at, line) in wrapped(text, width)
            .iter()
            .take(area.height.into())
            .enumerate()
        {
            put(buffer, area.x, area.y + at as u16, width, line, theme.dim());
        }
        return;
    }
    let below = if area.height > REASON + 5 { REASON } else { 0 };
    let page = usize::from((area.height - below).saturating_sub(2));
    let (range, selected) = model.window(page);
    let line = format!(
        "{}-{} of {} moves up to now, the last one first",
        thousands((range.start + 1).min(range.end)),
        thousands(range.end),
        thousands(all)
    );
    put(buffer, area.x, area.y, width, &line, theme.dim());
    let titles = format!("{:>9}  {:<22} {:<18} {}", "TIME", "THREAD", "PUS", "REASON");
    put(
        buffer,
        area.x,
        area.y + 1,
        width,
        &fit(&titles, width, false),
        theme.title(),
    );
    model.hits.rows = Rect::new(area.x, area.y + 2, area.width, page as u16);
    let mut reason = None;
    for (at, (moment, made)) in model.moves_in(range.clone()).into_iter().enumerate() {
        let text = format!(
            "{:>9}  {} {} {}",
            time(moment, frame.interval),
            fit(&format!("{} ({})", made.name, made.id.tid), 22, false),
            fit(&change(made), 18, false),
            outcome(made.outcome).to_owned() + &made.reason,
        );
        let is_selected = selected == Some(range.start + at);
        let style = if is_selected {
            theme.selected()
        } else {
            Default::default()
        };
        let y = area.y + 2 + at as u16;
        put(buffer, area.x, y, width, &fit(&text, width, false), style);
        if is_selected || reason.is_none() && at == 0 {
            reason = Some(whole(made));
        }
    }
    if below > 0
        && let Some(reason) = reason
    {
        let top = area.bottom() - below;
        put(buffer, area.x, top, width, &"─".repeat(width), theme.dim());
        let lines = wrapped(&reason, width);
        for (at, line) in lines.iter().take(usize::from(below) - 1).enumerate() {
            put(
                buffer,
                area.x,
                top + 1 + at as u16,
                width,
                line,
                Default::default(),
            );
        }
    }
}

/// `0-3 → 2`.
pub fn change(made: &Moved) -> String {
    let set = |pus: &Option<PuSet>, none: &str| {
        pus.as_ref()
            .map_or_else(|| none.to_owned(), PuSet::to_string)
    };
    format!("{} → {}", set(&made.from, "any"), set(&made.to, "released"))
}

/// Nothing where a change is in force.
pub fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Applied => "",
        Outcome::NotApplied => "(not applied) ",
        Outcome::Gone => "(has ended) ",
        Outcome::ChangedByOthers => "(placed by others) ",
        Outcome::NotPermitted => "(not permitted) ",
        Outcome::Failed => "(failed) ",
        Outcome::NoUsablePu => "(no usable PU) ",
    }
}

/// A reason with the numbers behind it.
pub fn whole(made: &Moved) -> String {
    let numbers: Vec<String> = made
        .numbers
        .iter()
        .map(
            |(name, value)| match value.fract() == 0.0 && value.abs() < 1e6 {
                true => format!("{name} {value:.0}"),
                false => format!("{name} {}", number(*value as f32)),
            },
        )
        .collect();
    let numbers = match numbers.is_empty() {
        true => String::new(),
        false => format!(" ({})", numbers.join(", ")),
    };
    format!(
        "{} {}: {}{}{numbers}",
        made.name,
        change(made),
        outcome(made.outcome),
        made.reason
    )
}
