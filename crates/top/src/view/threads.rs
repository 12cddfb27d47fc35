//! The table of threads.

use super::{
    text::{count, fit, metric, number, percent, put, spark, thousands},
    theme::Theme,
};
use crate::{
    Frame,
    frame::Thread,
    model::{Key, Model, ProcessRow, Row, Screen},
};
use ratatui::{buffer::Buffer, layout::Rect, style::Style};
use std::sync::Arc;

/// How many moments the history of a row has.
const MOMENTS: usize = 12;

/// A column.
#[derive(Debug, Clone, PartialEq)]
enum Shown {
    /// One that rows can be sorted by.
    Sorted(Key),
    /// CPU over time.
    History,
    /// Where perch has bound a thread.
    Bound,
}

impl Shown {
    fn title(&self) -> String {
        let title = match self {
            Self::History => "HISTORY",
            Self::Bound => "BOUND",
            Self::Sorted(key) => match key {
                Key::Tid => "TID",
                Key::Pid => "PID",
                Key::Name => "NAME",
                Key::Process => "PROCESS",
                Key::Cpu => "CPU%",
                Key::Waiting => "WAIT%",
                Key::Pu => "PU",
                Key::Switches => "CSW/s",
                Key::Migrations => "MIG/s",
                Key::Metric(name) => return short(name),
            },
        };
        title.to_owned()
    }

    fn width(&self) -> usize {
        match self {
            Self::History => MOMENTS,
            Self::Bound => 8,
            Self::Sorted(key) => match key {
                Key::Tid | Key::Pid => 7,
                Key::Name => 15,
                Key::Process => 12,
                Key::Cpu | Key::Waiting => 5,
                Key::Pu => 4,
                Key::Switches | Key::Migrations => 6,
                Key::Metric(_) => 7,
            },
        }
    }

    /// Whether it stands on the right side of its column.
    fn is_right(&self) -> bool {
        !matches!(
            self,
            Self::History | Self::Bound | Self::Sorted(Key::Name | Key::Process)
        )
    }
}

/// A metric's name in seven columns: `MEM%` for `memory_intensity`, `FP%` for `fp_share`.
fn short(metric: &str) -> String {
    let share = crate::frame::unit(metric) == crate::frame::Unit::Share;
    let stem = match metric {
        "memory_intensity" => "MEM",
        name => name.strip_suffix("_share").unwrap_or(name),
    };
    let most = if share { 6 } else { 7 };
    let stem: String = stem.to_uppercase().chars().take(most).collect();
    if share { stem + "%" } else { stem }
}

/// The columns that fit, in their order, and how many do not.
fn columns(frame: &Frame, model: &Model, width: usize) -> (Vec<Shown>, usize) {
    let mut all: Vec<Shown> = Key::all(frame).into_iter().map(Shown::Sorted).collect();
    // Behind the numbers that are asked for most.
    let at = 5 + frame.metrics.len();
    let is_bound = frame.threads.iter().any(|thread| thread.bound.is_some());
    let bound = is_bound.then_some(Shown::Bound);
    all.splice(at..at, [Shown::History].into_iter().chain(bound));
    let rank = |column: &Shown| match column {
        Shown::Sorted(Key::Name) => 0,
        Shown::Sorted(key) if *key == model.sort.key => 1,
        Shown::Sorted(Key::Cpu) => 2,
        Shown::Sorted(Key::Tid) => 3,
        Shown::Sorted(Key::Pu) => 4,
        Shown::Sorted(Key::Waiting) => 5,
        Shown::History => 6,
        Shown::Sorted(Key::Metric(_)) => 7,
        Shown::Bound => 8,
        _ => 9,
    };
    let mut wanted: Vec<usize> = (0..all.len()).collect();
    wanted.sort_by_key(|at| (rank(&all[*at]), *at));
    let mut room = width + 1;
    let mut shown = vec![false; all.len()];
    for at in wanted {
        let needed = all[at].width() + 1;
        if needed > room {
            // A narrower one that matters less does not take its place.
            break;
        }
        room -= needed;
        shown[at] = true;
    }
    let hidden = shown.iter().filter(|shown| !**shown).count();
    let mut shown = shown.into_iter();
    all.retain(|_| shown.next().unwrap_or(false));
    (all, hidden)
}

/// Draws counts, titles and rows.
pub fn draw(model: &mut Model, frame: &Arc<Frame>, theme: Theme, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let width = usize::from(area.width);
    let (columns, hidden) = columns(frame, model, width);
    let page = usize::from(area.height).saturating_sub(2);
    let (range, selected) = model.window(page);
    let line = counts(model, range.clone(), hidden);
    put(buffer, area.x, area.y, width, &line, theme.dim());
    let mut x = area.x;
    for column in &columns {
        let title = fit(&column.title(), column.width(), column.is_right());
        let sorted = *column == Shown::Sorted(model.sort.key.clone());
        let style = if sorted {
            theme.sorted()
        } else {
            theme.title()
        };
        put(buffer, x, area.y + 1, width, &title, style);
        if let Shown::Sorted(key) = column {
            let hit = Rect::new(x, area.y + 1, column.width() as u16, 1);
            model.hits.titles.push((hit, key.clone()));
        }
        x += column.width() as u16 + 1;
    }
    model.hits.rows = Rect::new(area.x, area.y + 2, area.width, page as u16);
    let rows = model.thread_rows(range.clone());
    for (at, row) in rows.iter().enumerate() {
        let y = area.y + 2 + at as u16;
        let is_selected = selected == Some(range.start + at);
        if is_selected {
            put(
                buffer,
                area.x,
                y,
                width,
                &" ".repeat(width),
                theme.selected(),
            );
        }
        let mut x = area.x;
        for column in &columns {
            let (text, style) = match row {
                Row::Process(process) => of_process(process, column),
                Row::Thread(at, below) => of_thread(model, frame, *at, *below, column, theme),
            };
            let text = fit(&text, column.width(), column.is_right());
            let style = if is_selected { theme.selected() } else { style };
            put(buffer, x, y, width, &text, style);
            x += column.width() as u16 + 1;
        }
    }
}

/// What is shown of how many, and what is left out.
fn counts(model: &mut Model, range: std::ops::Range<usize>, hidden: usize) -> String {
    let filter = model.filter.clone();
    let tree = model.tree && model.screen() != &Screen::Machine;
    let by = Shown::Sorted(model.sort.key.clone()).title();
    let unseen = model.frame().map_or(0, |frame| frame.unseen);
    let Some(listing) = model.listing() else {
        return String::new();
    };
    let rows = listing.len();
    let mut parts = vec![match rows {
        0 => "none".to_owned(),
        rows if range.is_empty() => format!("none of {}", count(rows, "row", "rows")),
        rows => format!(
            "{}-{} of {}",
            thousands(range.start + 1),
            thousands(range.end),
            count(rows, "row", "rows")
        ),
    }];
    if tree && listing.processes() > 0 {
        let processes = count(listing.processes(), "process", "processes");
        parts.push(processes);
    }
    let left_out = listing.in_scope - listing.taken;
    if left_out > 0 {
        let why = match (filter.text.is_empty(), filter.running) {
            (true, _) => "idle".to_owned(),
            (false, false) => format!("filter \"{}\"", filter.text),
            (false, true) => format!("filter \"{}\", running", filter.text),
        };
        parts.push(format!("{why}: {} left out", thousands(left_out)));
    }
    if unseen > 0 {
        parts.push(format!("{} unseen", thousands(unseen as usize)));
    }
    parts.push(format!("by {by}"));
    if hidden > 0 {
        parts.push(count(hidden, "column hidden", "columns hidden"));
    }
    parts.join(" · ")
}

fn of_process(process: &ProcessRow, column: &Shown) -> (String, Style) {
    let text = match column {
        Shown::Sorted(key) => match key {
            Key::Tid | Key::Pid => process.pid.to_string(),
            Key::Name => {
                let mark = if process.folded { '+' } else { '-' };
                format!("{mark} {}", process.name)
            }
            Key::Process => count(process.threads, "thread", "threads"),
            Key::Cpu => percent(process.cpu),
            Key::Waiting => percent(process.waiting),
            _ => String::new(),
        },
        Shown::History | Shown::Bound => String::new(),
    };
    (
        text,
        Style::new().add_modifier(ratatui::style::Modifier::BOLD),
    )
}

fn of_thread(
    model: &Model,
    frame: &Frame,
    at: usize,
    below: bool,
    column: &Shown,
    theme: Theme,
) -> (String, Style) {
    let Some(thread) = frame.threads.get(at) else {
        return (String::new(), Style::new());
    };
    let plain = |text: String| (text, Style::new());
    match column {
        Shown::History => {
            let cpu = |frame: &Frame, at: usize| Some(frame.threads[at].cpu);
            let position = model.playback.position();
            let values = model.history.of_thread(position, MOMENTS, thread.id, cpu);
            (spark(&values, 1.0, MOMENTS), theme.history())
        }
        Shown::Bound => plain(bound(thread)),
        Shown::Sorted(key) => match key {
            Key::Tid => plain(thread.id.tid.to_string()),
            Key::Pid => plain(thread.pid.to_string()),
            Key::Name if below => plain(format!("  {}", thread.name)),
            Key::Name => plain(thread.name.to_string()),
            Key::Process => plain(thread.process.to_string()),
            Key::Cpu => (percent(thread.cpu), theme.load(thread.cpu)),
            Key::Waiting => plain(percent(thread.waiting)),
            Key::Pu => plain(
                thread
                    .pu
                    .map_or_else(|| "-".to_owned(), |pu| pu.to_string()),
            ),
            Key::Switches => plain(rate(thread.switches)),
            Key::Migrations => plain(rate(thread.migrations)),
            Key::Metric(name) => {
                let value = frame.metric(name, at);
                plain(value.map_or_else(|| "-".to_owned(), |value| metric(name, value)))
            }
        },
    }
}

fn rate(rate: Option<f32>) -> String {
    rate.map_or_else(|| "-".to_owned(), number)
}

fn bound(thread: &Thread) -> String {
    let bound = thread.bound.as_ref();
    bound.map_or_else(|| "-".to_owned(), |pus| pus.to_string())
}
